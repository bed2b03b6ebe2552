package kernels

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"lockstep/pkg/runs"
)

// The cells of the notebook of TestBrowser.
const (
	cellBegin = iota
	cellLaunch
	cellAttach
	cellCancel
	cellFigures
)

// browserEpochs is the number of epochs of each run of TestBrowser.
const browserEpochs = 20

// browserSettings make a run of TestBrowser last some seconds.
func browserSettings() []string { return []string{"data.count=44", "data.height=64", "data.width=64"} }

// browserCells returns the code of the cells.
func browserCells() []string {
	return []string{
		cellBegin: `import (
    "fmt"
    "os"
    "lockstep/pkg/figure"
    "lockstep/pkg/launch"
    "lockstep/pkg/notebook"
    "lockstep/pkg/scaling"
)

ctx := notebook.Context()
fmt.Println("kernel", os.Getpid())`,
		cellLaunch: fmt.Sprintf(`sweep := launch.Sweep{
    Config: "unet2d-cells", Study: "sweep", Workers: []int{1, 2, 4}, GlobalBatch: 8, Epochs: %d, Resume: true,
    Set: %#v,
}
job := launch.Slurm(ctx, "local-test", sweep)
job.Watch(ctx)
fmt.Println("the sweep has ended")`, browserEpochs, browserSettings()),
		cellAttach: `job := launch.Attach("sweep")
job.Watch(ctx)`,
		cellCancel: `job.Cancel()
job.Wait(ctx)`,
		cellFigures: `study := scaling.Read(job.Dir())
notebook.Display(study.Table())
notebook.Display(figure.Speedup(study))
notebook.Display(figure.EpochTime(study))
notebook.Display(figure.IoU(study))
fmt.Println("all is drawn")`,
	}
}

// TestBrowser does in Chromium what a student does with a sweep on Slurm: a cell submits runs with 1,
// 2 and 4 workers to a private cluster of two virtual nodes and shows them live; the notebook is
// closed and opened again, its kernel is killed, a sweep is canceled and launched again, a job is
// preempted, a node is lost. In the end, every run has each epoch once, the figures are in the
// notebook, and the study reads the same as one that this machine has trained without Slurm.
//
// The screenshots live.png, attached.png, lost.png and figures.png are in environment/.cache/browser.
func TestBrowser(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	binaries := kernelDir(t)
	b := startBrowser(t, classic)
	cluster := startCluster(t)
	dir := t.TempDir()
	logs := filepath.Join(dir, "logs")
	for name, value := range map[string]string{"LOCKSTEP_LOGS": logs, "LOCKSTEP_LOCKS": t.TempDir(), "XDG_STATE_HOME": t.TempDir(), "LOCKSTEP_BIN": "", "LOCKSTEP_TOKEN": ""} {
		t.Setenv(name, value)
	}
	prefix := install(t, binaries)
	url := startJupyter(t, dir, prefix, browserCells()...)
	sweep := slurmStudy(filepath.Join(logs, "sweep"))

	step := func(name string, f func(t *testing.T)) {
		if !t.Run(name, f) {
			t.FailNow()
		}
	}
	var kernel int
	begin := func(t *testing.T) {
		t.Helper()
		b.run(t, cellBegin)
		text := b.output(t, cellBegin, `kernel \d+`)
		kernel, _ = strconv.Atoi(regexp.MustCompile(`kernel (\d+)`).FindStringSubmatch(text)[1])
	}
	some, all := fmt.Sprintf(`[1-9]\d* of %d`, browserEpochs), fmt.Sprintf("%d of %[1]d", browserEpochs)
	trained := `running[^\n]*` + some
	// The runs with 2 and 4 workers are frozen, so that they do not end before the next steps of
	// this test.
	watched := row(1, `done[^\n]*`+all) + row(2, trained) + row(4, trained)
	step("submit and watch", func(t *testing.T) {
		b.do(t, command{Do: "open", URL: url})
		begin(t)
		b.run(t, cellLaunch)
		sweep.freeze(t, 5, 2, 4)
		b.outputWithFigures(t, cellLaunch, 1, `Slurm jobs 1, 2, 3 continue.*`+row(1, some)+row(2, trained)+row(4, trained))
		b.screenshot(t, cellLaunch, "live.png")
	})
	step("close and reopen", func(t *testing.T) {
		b.do(t, command{Do: "close"})
		b.do(t, command{Do: "open", URL: url})
		b.interrupt(t) // the cell that showed the sweep still runs
		b.run(t, cellAttach)
		b.outputWithFigures(t, cellAttach, 1, watched)
	})
	step("kill the kernel", func(t *testing.T) {
		if err := syscall.Kill(kernel, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		b.do(t, command{Do: "wait", Selector: ".modal-dialog", Pattern: "restart automatically"})
		b.do(t, command{Do: "click", Selector: ".modal-footer .btn-primary"})
		killed := kernel
		begin(t)
		if kernel == killed {
			t.Fatalf("the kernel %d was killed, and still answers", kernel)
		}
		b.run(t, cellAttach)
		b.outputWithFigures(t, cellAttach, 1, watched)
		b.screenshot(t, cellAttach, "attached.png")
	})
	step("cancel and launch again", func(t *testing.T) {
		b.interrupt(t)
		b.output(t, cellAttach, "interrupted")
		b.run(t, cellCancel)
		wait(t, "the end of both jobs", func() bool { return runSlurm(t, "squeue", "--noheader", "--states=RUNNING") == "" }, func() string { return "" })
		sweep.signal(t, 2, syscall.SIGCONT)
		sweep.signal(t, 4, syscall.SIGCONT)
		b.output(t, cellCancel, "job 2: canceled by you.*job 3: canceled by you")
		b.run(t, cellLaunch)
		sweep.freeze(t, 1, 2, 4)
		b.output(t, cellLaunch, `Slurm jobs 4, 5 continue.*1 run done before.*`+watched)
	})
	local := filepath.Join(logs, "local")
	trainedLocally := make(chan error, 1)
	step("preempt a job and lose a node", func(t *testing.T) {
		// Of the job with 4 workers one node is lost: the one that the job with 2 workers does not have.
		lost := "n1"
		if runSlurm(t, "squeue", "--noheader", "--format=%N", "--job=4") == lost {
			lost = "n2"
		}
		cluster.killNode(t, lost)
		runSlurm(t, "scancel", "--signal=USR1", "4")
		sweep.signal(t, 2, syscall.SIGCONT)
		go func() { trainedLocally <- trainLocally(binaries, local) }() // meanwhile
		b.output(t, cellLaunch, row(4, `waiting`)+"DOWN")
		b.screenshot(t, cellLaunch, "lost.png")
		sweep.signal(t, 4, syscall.SIGKILL) // what was left on that node
		cluster.startNode(t, lost)
		b.outputWithFigures(t, cellLaunch, 1, row(1, "done")+row(2, "done")+row(4, "done")+"the sweep has ended")
		for workers, reason := range map[int]string{2: "DUE TO JOB REQUEUE", 4: "DUE TO NODE FAILURE"} {
			output, err := os.ReadFile(filepath.Join(sweep.dir(workers), fmt.Sprintf("slurm-%d.out", 3+workers/2)))
			if err != nil || !strings.Contains(string(output), reason) {
				t.Errorf("the job with %d workers wrote %s, %v, want %q", workers, output, err, reason)
			}
		}
	})
	step("figures", func(t *testing.T) {
		b.run(t, cellFigures)
		b.outputWithFigures(t, cellFigures, 3, `epoch_seconds.*ddp\s+1\s.*ddp\s+2\s.*ddp\s+4\s.*all is drawn`)
		b.screenshot(t, cellFigures, "figures.png")
	})
	step("same as a local study", func(t *testing.T) {
		for _, workers := range []int{1, 2, 4} {
			sweep.checkEpochs(t, workers)
		}
		if err := <-trainedLocally; err != nil {
			t.Fatal(err)
		}
		got, want := readTable(t, binaries, string(sweep)), readTable(t, binaries, local)
		if !slices.EqualFunc(got, want, slices.Equal) {
			t.Errorf("the study reads\n%v\nwant, as a local one,\n%v", got, want)
		}
	})
}

// trainLocally trains the sweep of the notebook on this machine, without Slurm. dir is the study's
// folder.
func trainLocally(binaries, dir string) error {
	c := exec.Command(filepath.Join(binaries, "lockstep"), "launch", "--config=unet2d-cells", "--workers=1,2,4", "--global-batch=8",
		fmt.Sprint("--epochs=", browserEpochs), "--oversubscribe", "--now", "--logs="+filepath.Dir(dir), "--study="+filepath.Base(dir))
	for _, s := range browserSettings() {
		c.Args = append(c.Args, "--set="+s)
	}
	out, err := c.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// row returns a regular expression for the line of a run, by its worker count, in what Watch shows.
func row(workers int, pattern string) string {
	return fmt.Sprintf(`ddp-n%d-s1[^\n]*%s[^\n]*\n?.*`, workers, pattern)
}

// slurmStudy is the folder of a study whose runs are jobs of Slurm.
type slurmStudy string

// dir returns the folder of the run with the given number of workers.
func (s slurmStudy) dir(workers int) string {
	return filepath.Join(string(s), fmt.Sprintf("ddp-n%d-s1", workers))
}

// epochs returns the number of rows of epochs.csv.
func (s slurmStudy) epochs(workers int) int {
	text, _ := os.ReadFile(filepath.Join(s.dir(workers), "epochs.csv")) // it may not exist yet
	return max(bytes.Count(text, []byte("\n"))-1, 0)
}

// freeze stops the workers of each run with the given numbers of workers, as soon as it has trained
// the given number of epochs from now on. It fails the test if a run has ended before.
func (s slurmStudy) freeze(t *testing.T, epochs int, counts ...int) {
	t.Helper()
	until := map[int]int{} // number of epochs at which to stop, by the number of workers
	for _, workers := range counts {
		until[workers] = s.epochs(workers) + epochs
	}
	wait(t, fmt.Sprintf("%d epochs of the runs with %v workers", epochs, counts), func() bool {
		for workers, n := range until {
			if s.epochs(workers) < n {
				continue
			}
			if stopped := s.signal(t, workers, syscall.SIGSTOP); stopped != workers {
				t.Fatalf("stopped %d workers of the run with %d: it has ended after %d epochs", stopped, workers, s.epochs(workers))
			}
			delete(until, workers)
		}
		return len(until) == 0
	}, func() string { return fmt.Sprintf("epochs to reach, by workers: %v", until) })
}

// signal sends a signal to the workers of a run and returns their number.
func (s slurmStudy) signal(t *testing.T, workers int, number syscall.Signal) (sent int) {
	t.Helper()
	processes, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range processes {
		text, _ := os.ReadFile(file) // the process may have ended
		args := strings.Split(string(text), "\x00")
		if filepath.Base(args[0]) != "lockstep" || !slices.Contains(args, s.dir(workers)) { // srun has these arguments too
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err == nil && syscall.Kill(pid, number) == nil {
			sent++
		}
	}
	return sent
}

// checkEpochs checks that a run is done and has each epoch once.
func (s slurmStudy) checkEpochs(t *testing.T, workers int) {
	t.Helper()
	run, err := runs.Read(s.dir(workers))
	if err != nil || run.Info.Status != runs.StatusDone || len(run.Problems) > 0 || len(run.Epochs) != browserEpochs {
		t.Errorf("the run with %d workers has status %q, %d epochs, problems %v, %v", workers, run.Info.Status, len(run.Epochs), run.Problems, err)
	}
	for i, e := range run.Epochs {
		if e.Epoch != i+1 {
			t.Errorf("run with %d workers: row %d has epoch %d, want %[2]d", workers, i+1, e.Epoch)
		}
	}
}

// readTable returns the table of lockstep scaling with all columns that do not depend on time.
func readTable(t *testing.T, binaries, dir string) (rows [][]string) {
	t.Helper()
	out, err := exec.Command(filepath.Join(binaries, "lockstep"), "scaling", dir, "--format=csv").Output()
	if err != nil {
		t.Fatal(err)
	}
	all, err := csv.NewReader(bytes.NewReader(out)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	same := regexp.MustCompile(`^(series|workers|runs|iou|dice|train_loss|val_loss|failed|diverged|epochs|size|baseline|scaling|batch_per_worker|global_batch|samples_per_epoch|threads_per_worker)$`)
	rows = append(rows, all[0])
	for _, r := range all[1:] {
		var kept []string
		for i, value := range r {
			if same.MatchString(all[0][i]) {
				kept = append(kept, all[0][i]+" "+value)
			}
		}
		rows = append(rows, kept)
	}
	return rows
}
