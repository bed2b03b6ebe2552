package launch

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"lockstep/pkg/scaling"
)

// study is a program that prints the epochs of a run as the scripts of a scaling study do. Its
// arguments are the batch and the seed.
const study = `echo "rank $RANK: batch $0, seed $1"
[ "$RANK" = 0 ] && for epoch in 1 2; do echo "Epoch $epoch: loss 0.$epoch time 2.5s, $0 samples/sec"; done; true`

// newStudy returns a sweep of the program study with a placeholder for its batch.
func newStudy(t *testing.T, batch string, workers ...int) (Sweep, *transcript) {
	t.Helper()
	s, out := shell(t, study, workers...)
	s.Command = append(s.Command, batch, "{seed}")
	s.Lines = []string{"Epoch {epoch}: loss {train_loss} time {seconds}s, {samples_per_second} samples/sec"}
	s.StudyLogs = DefaultStudyLogs
	return s, out
}

// TestStudyLoop runs the loops of a scaling study with one call each: the batch of all workers
// grows with their number (weak scaling), or is divided among them (strong scaling).
func TestStudyLoop(t *testing.T) {
	for batch, want := range map[string][]string{"{16*workers}": {"16", "32"}, "{32/workers}": {"32", "16"}} {
		s, out := newStudy(t, batch, 1, 2)
		s.Seeds = []int64{5}
		j, err := launch(t, s)
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		for i, r := range j.Status() {
			if got := read(t, r.Dir).Info.Command; !slices.Equal(got[3:], []string{want[i], "5"}) {
				t.Errorf("%s: got command %q in run.json, want the batch %s and the seed 5", r.Name, got, want[i])
			}
		}
		if last := "[n2 s5 rank 1] rank 1: batch " + want[1] + ", seed 5"; !strings.Contains(out.String(), last) {
			t.Errorf("got output\n%s\nwant %q", out, last)
		}
		for _, name := range []string{"log_1.csv", "log_2.csv"} {
			if text := file(t, filepath.Join(j.Dir(), "study-logs", name)); strings.Count(text, "\n") < 3 {
				t.Errorf("%s: got %q, want 2 epochs", name, text)
			}
		}
		s.StudyLogs = "" // the study logs are written again
		again, err := launch(t, s)
		if err != nil || again.Note() != "2 runs done; nothing to do" {
			t.Errorf("repeated: got note %q, %v, want nothing to do", again.Note(), err)
		}
	}
	s, _ := newStudy(t, "{32/workers}", 1, 3)
	_, err := Local(t.Context(), s)
	wantError(t, err, "32 cannot be divided among 3 workers")
}

// TestSlurmStudyLoop runs the loop of the U-Net study with one call: two GPUs on each node, which each run asks
// for itself, the batch 16·N, and the study's logs.
func TestSlurmStudyLoop(t *testing.T) {
	useCluster(t)
	s, out := newStudy(t, "{16*workers}", 1, 2, 4)
	j := submitSweep(t, s)
	if err := waitForJob(t, j); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for n, want := range map[int]string{1: "--nodes=1 --ntasks-per-node=1 --gres=gpu:1", 2: "--nodes=1 --ntasks-per-node=2 --gres=gpu:2", 4: "--nodes=2 --ntasks-per-node=2 --gres=gpu:2"} {
		dir := filepath.Join(j.Dir(), fmt.Sprintf("script-n%d-s1", n))
		script := file(t, dir, "job.sh")
		for option := range strings.FieldsSeq(want) {
			if !strings.Contains(script, "#SBATCH "+option+"\n") {
				t.Errorf("%d workers: got script\n%s\nwant %s", n, script, option)
			}
		}
		if text := file(t, j.Dir(), "study-logs", fmt.Sprintf("log_%d.csv", n)); strings.Count(text, "\n") < 3 {
			t.Errorf("log_%d.csv: got %q, want 2 epochs", n, text)
		}
	}
	study, err := scaling.Read(j.Dir())
	if err != nil {
		t.Fatal(err)
	}
	for i, n := range []int{1, 2, 4} { // the stand-in prints its batch as its rate
		if p := study.Points[i]; p.Workers != n || p.EpochSeconds.Value != 2.5 || p.Throughput.Value != 16*float64(n) || p.Speedup.Value != float64(n) {
			t.Errorf("got %+v, want %d workers with %d samples/s", p, n, 16*n)
		}
	}
}

// TestGPUsOfPrograms: on a site with GPUs, each worker of a program gets one, and the dry run says why.
func TestGPUsOfPrograms(t *testing.T) {
	t.Setenv("PATH", t.TempDir()) // neither Slurm nor the program
	s := Sweep{Command: []string{"python", "train.py", "--batch", "{16*workers}"}, Workers: []int{1, 2, 4, 6, 8, 10, 12, 14}, Logs: t.TempDir(), StudyLogs: DefaultStudyLogs}
	s.Slurm.Account = "project"
	text, err := SlurmDryRun(t.Context(), "rwth-claix-2018", s)
	if err != nil {
		t.Fatal(err)
	}
	const reason = "# 1 GPU per worker, because site rwth-claix-2018 has 2 GPUs per node by its profile; --gpus-per-worker 0 asks for none\n"
	_, last, _ := strings.Cut(text, "-n14-s1/job.sh\n")
	for _, want := range []string{"#SBATCH --nodes=7\n", "#SBATCH --ntasks-per-node=2\n", "#SBATCH --cpus-per-task=12\n", "#SBATCH --gres=gpu:2\n", " python train.py --batch 224\n"} {
		if !strings.Contains(last, want) {
			t.Errorf("14 workers: got\n%s\nwant %q", last, want)
		}
	}
	if !strings.Contains(text, reason) || strings.Count(text, "#SBATCH --gres=gpu:1\n") != 1 {
		t.Errorf("got\n%s\nwant %q, and one GPU for one worker", text, reason)
	}
	s.Slurm.TasksPerNode, s.Workers = 1, []int{2}
	if text, err = SlurmDryRun(t.Context(), "rwth-claix-2018", s); err != nil || !strings.Contains(text, "#SBATCH --nodes=2\n") || !strings.Contains(text, "#SBATCH --gres=gpu:1\n") {
		t.Errorf("got\n%s\n%v, want one GPU on each of two nodes", text, err)
	}
	s.Slurm.TasksPerNode, s.GPUsPerWorker = 0, NoGPUs
	if text, err = SlurmDryRun(t.Context(), "rwth-claix-2018", s); err != nil || strings.Contains(text, "gres") || !strings.Contains(text, "# no GPUs, by --gpus-per-worker 0 (NoGPUs)") {
		t.Errorf("got\n%s\n%v, want no GPUs", text, err)
	}
	s.GPUsPerWorker, s.Workers = 2, []int{1, 2}
	if text, err = SlurmDryRun(t.Context(), "rwth-claix-2018", s); err != nil || strings.Count(text, "#SBATCH --gres=gpu:2\n") != 2 || !strings.Contains(text, "#SBATCH --nodes=2\n") {
		t.Errorf("got\n%s\n%v, want two GPUs for each worker", text, err)
	}
	s.OneProcess, s.GPUsPerWorker, s.Workers, s.Threads = true, NoGPUs, []int{4}, 3
	if text, err = SlurmDryRun(t.Context(), "rwth-claix-2018", s); err != nil || !strings.Contains(text, "#SBATCH --ntasks-per-node=1\n#SBATCH --cpus-per-task=12\n") || strings.Contains(text, "gres") {
		t.Errorf("got\n%s\n%v, want 4 workers × 3 threads in one process", text, err)
	}
	if text, err = SlurmDryRun(t.Context(), "generic", Sweep{Command: s.Command, Workers: []int{1}, Logs: s.Logs}); err != nil || strings.Contains(text, "#SBATCH --gres") ||
		!strings.Contains(text, "# no GPUs, because it is not known whether site generic has GPUs; --gpus-per-worker asks for them\n") {
		t.Errorf("got\n%s\n%v, want no GPUs on an unknown site", text, err)
	}
}
