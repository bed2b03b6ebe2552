package launch

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"lockstep/pkg/launch/internal/slurm"
	"lockstep/pkg/runs"
)

// useCommands makes the test use the private cluster, and this test binary as the command that
// starts other programs.
func useCommands(t *testing.T) {
	t.Helper()
	useCluster(t)
}

// plainSite returns the path of the profile local-test without srun for one worker, which halves
// the time of a job.
func plainSite(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../environment/sites/local-test.yaml")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "plain.yaml")
	if err := os.WriteFile(path, append(text, "plain_one_task: true\n"...), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestSlurmArray: 50 runs with the same resources are one job array. One fails and is named, and
// the same sweep submits only that one again.
func TestSlurmArray(t *testing.T) {
	useCommands(t)
	site := plainSite(t)
	s, _ := shell(t, "", 1)
	marker := filepath.Join(t.TempDir(), "repaired")
	s.Command[2] = fmt.Sprintf(`[ $LOCKSTEP_SEED != 17 ] || [ -e %s ] || { echo "no data for seed 17"; exit 3; }`, marker)
	for seed := range int64(50) {
		s.Seeds = append(s.Seeds, seed+1)
	}
	text, err := SlurmDryRun(t.Context(), site, s)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(text, "# sbatch "); n != 1 || !strings.Contains(text, "#SBATCH --array=0-49\n") {
		t.Errorf("got %d submissions in %s\nwant one array", n, text)
	}
	j, err := Slurm(t.Context(), site, s)
	if err != nil {
		t.Fatal(err)
	}
	id, _, _ := strings.Cut(j.Status()[0].Job, "_")
	if note := "Slurm jobs " + id + "_[0-49] continue"; !strings.HasPrefix(j.Note(), note) {
		t.Errorf("got note %q, want %q", j.Note(), note)
	}
	err = waitForJob(t, j)
	if want := "run script-n1-s17: job " + id + "_16: its script ended with exit code 3; its last lines:\n    no data for seed 17"; err == nil || err.Error() != want {
		t.Errorf("got error %v, want only %q", err, want)
	}
	for i, r := range j.Status() {
		want := StateDone
		if i == 16 {
			want = StateFailed
		}
		if r.State != want || r.Job != fmt.Sprintf("%s_%d", id, i) {
			t.Errorf("got status %+v, want %s", r, want)
		}
	}
	if read, err := runs.Read(j.Status()[49].Dir); err != nil || read.Info.Seed != 50 || read.Info.Status != runs.StatusDone {
		t.Errorf("got run %+v, %v, want seed 50", read.Info, err)
	}

	if err := os.WriteFile(marker, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	failed := j.Status()[16].Dir
	if _, err := Slurm(t.Context(), site, s); err == nil || !strings.Contains(err.Error(), failed+" is unfinished, and only runs of a config can be resumed: delete the folder") {
		t.Errorf("got error %v, want that the folder of the failed run is to be deleted", err)
	}
	if err := os.RemoveAll(failed); err != nil {
		t.Fatal(err)
	}
	again, err := Slurm(t.Context(), site, s)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(again.Note(), "49 runs done before") || strings.Contains(again.Note(), "_") {
		t.Errorf("got note %q, want a job for one run", again.Note())
	}
	if err := waitForJob(t, again); err != nil {
		t.Error(err)
	}
}

// TestSlurmArrayCancel: other runs of an array continue if one is canceled, and the reason of each
// is named. A run that was canceled and one that was not submitted yet are the next array.
func TestSlurmArrayCancel(t *testing.T) {
	useCommands(t)
	s, _ := shell(t, "sleep 600", 1)
	s.Seeds = []int64{1, 2, 3}
	all := submitSweep(t, s)
	s.Seeds = []int64{2}
	one := submitSweep(t, s) // the job of the array
	if got, want := one.Status()[0].Job, all.Status()[1].Job; got != want || !slurm.IsArrayTask(got) {
		t.Fatalf("got job %q, want %q", got, want)
	}
	if err := one.Cancel(); err != nil {
		t.Fatal(err)
	}
	if err := waitForJob(t, one); err == nil || !strings.Contains(err.Error(), "canceled by you") {
		t.Errorf("got error %v, want that you canceled it", err)
	}
	// Slurm forgets a task that is canceled before it has started.
	for deadline := time.Now().Add(slurmTimeout); all.Status()[1].State != StateCanceled; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("got status %+v, want that the second was canceled", all.Status())
		}
	}
	for _, i := range []int{0, 2} {
		if r := all.Status()[i]; r.State != StateRunning && r.State != StateWaiting {
			t.Errorf("got status %+v, want that it runs or waits", r)
		}
	}
	if err := os.RemoveAll(all.Status()[1].Dir); err != nil { // of a program that was canceled after its start
		t.Fatal(err)
	}
	s.Seeds = []int64{1, 2, 3, 4}
	text, err := SlurmDryRun(t.Context(), "local-test", s)
	if err != nil || !strings.Contains(text, "#SBATCH --array=0-1\n") || !strings.Contains(text, "# script-n1-s3 is already submitted as job "+all.Status()[2].Job+":") {
		t.Errorf("got %s, %v, want an array of two runs", text, err)
	}
}

// TestSlurmArraySizes: runs with other resources are other jobs, and ArraySize limits the arrays.
func TestSlurmArraySizes(t *testing.T) {
	useCommands(t)
	s, _ := shell(t, "true", 1, 4)
	s.Seeds = []int64{1, 2, 3}
	arrays := func(size int) (sizes []string) {
		s.Slurm.ArraySize = size
		p, err := planSweep(t.Context(), OnSlurm, "local-test", s, false)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range p.jobs.submissions {
			sizes = append(sizes, fmt.Sprintf("%d×%d", n.Runs[0].Workers, len(n.Runs)))
		}
		return sizes
	}
	for size, want := range map[int]string{0: "[1×3 4×3]", 2: "[1×2 4×2 1×1 4×1]", 1: "[1×1 4×1 1×1 4×1 1×1 4×1]"} {
		if got := fmt.Sprint(arrays(size)); got != want {
			t.Errorf("at most %d: got %s, want %s", size, got, want)
		}
	}
	s.Slurm.ArraySize = -1
	if _, err := Slurm(t.Context(), "local-test", s); err == nil || !strings.Contains(err.Error(), "got array size -1") {
		t.Errorf("got error %v, want an invalid size", err)
	}
}

// TestSlurmNoAnswerAtSubmission: if the controller does not answer sbatch, nothing is left, and the
// job that the controller has accepted later runs nothing.
func TestSlurmNoAnswerAtSubmission(t *testing.T) {
	useCommands(t)
	s, _ := shell(t, "", 1)
	trace := filepath.Join(t.TempDir(), "ran")
	s.Command[2] = "echo $LOCKSTEP_SEED >>" + trace
	for _, seeds := range [][]int64{{1}, {1, 2}} {
		s.Seeds = seeds
		p, err := planSweep(t.Context(), OnSlurm, "local-test", s, false)
		if err != nil {
			t.Fatal(err)
		}
		pid := cluster.DaemonPID(t, "slurmctld")
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		p.jobs.client.Timeout = time.Second
		_, err = p.submitJobs(t.Context())
		if left := listWithoutJobOutput(t, s.Logs); len(left) > 0 {
			t.Errorf("left %v in the logs folder", left)
		}
		if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		if !errors.Is(err, slurm.ErrNoAnswer) {
			t.Fatalf("got error %v, want that the controller does not answer", err)
		}
	}
	s.Seeds = []int64{1}
	j := submitSweep(t, s) // after the jobs that the controller may have accepted
	if err := waitForJob(t, j); err != nil {
		t.Fatal(err)
	}
	cluster.AwaitEmptyQueue(t)
	if text, err := os.ReadFile(trace); err != nil || string(text) != "1\n" {
		t.Errorf("got %q, %v, want that only the submitted job has run", text, err)
	}
}

// listWithoutJobOutput returns the paths of the files and empty folders in dir, except the outputs of
// job scripts. The controller may start a job whose submission was withdrawn while the run folder
// exists again for a later submission. Slurm then writes the job's output, which says that the job
// does nothing, to that folder.
func listWithoutJobOutput(t *testing.T, dir string) (paths []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			if inside, err := os.ReadDir(path); err != nil || len(inside) > 0 || path == dir {
				return err
			}
		case strings.HasPrefix(d.Name(), "slurm-"):
			return nil
		}
		paths = append(paths, path)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return paths
}
