package launch

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"lockstep/pkg/runs"
	"lockstep/pkg/scaling"
	"lockstep/pkg/train"
)

// mirroredStandIn is a script that replaces a program with MirroredStrategy: it prints Keras' lines for the
// GPUs of --n_gpus. An epoch of 100 steps takes 12 s with 1 GPU, 6 s with 2 and 3 s with 4. It fails if it
// does not see as many GPUs as it is told to use, or if it is not the only process of its run.
const mirroredStandIn = `seen=$(echo "$CUDA_VISIBLE_DEVICES" | tr , '\n' | grep -c .)
echo "devices $CUDA_VISIBLE_DEVICES, threads $OMP_NUM_THREADS, rank $RANK of $WORLD_SIZE"
[ "$seen" = "$2" ] && [ "$WORLD_SIZE" = 1 ] || exit 3
for epoch in 1 2 3; do
  echo "Epoch $epoch/3"
  echo "100/100 - $((12 / $2))s - loss: 0.$((9 - epoch))000 - accuracy: 0.5000 - $((12 / $2))s/epoch - $((120 / $2))ms/step"
done`

// mirrored returns a sweep of the stand-in with 1, 2 and 4 GPUs.
func mirrored(t *testing.T) (Sweep, *transcript) {
	t.Helper()
	s, out := sweep(t, Sweep{
		Command: []string{"/bin/sh", "-c", mirroredStandIn, "ResNet50.py", "--n_gpus", "{gpus}", "--batch_size", "{64*workers}"},
		Workers: []int{1, 2, 4}, Series: "keras", Study: "resnet50", OneProcess: true,
	})
	return s, out
}

// checkMirrored checks the table of a sweep that mirrored has returned.
func checkMirrored(t *testing.T, dir string) {
	t.Helper()
	const samples = 6400 // an epoch of 100 steps with 64 samples
	study, err := scaling.Read(dir)
	if err == nil {
		rule := study.Rule
		rule.SamplesPerEpoch = samples
		study, err = study.WithRule(rule)
	}
	if err != nil {
		t.Fatal(err)
	}
	if len(study.Points) != 3 {
		t.Fatalf("got %d points, want 3:\n%s", len(study.Points), study)
	}
	for i, n := range []int{1, 2, 4} {
		p := study.Points[i]
		if seconds := 12 / float64(n); p.Workers != n || p.EpochSeconds.Value != seconds || p.Throughput.Value != samples/seconds || p.Speedup.Value != float64(n) {
			t.Errorf("got %+v, want %d workers with %g s per epoch", p, n, seconds)
		}
	}
	if cautions := strings.Join(study.Cautions(), "\n"); !strings.Contains(cautions, "the workers of keras are in one process") || strings.Contains(cautions, "shared") {
		t.Errorf("got cautions %q, want that the workers are in one process", cautions)
	}
	for _, n := range []int{1, 2, 4} {
		info := read(t, filepath.Join(dir, fmt.Sprintf("keras-n%d-s1", n))).Info
		if info.Workers != n || info.Status != runs.StatusDone || info.Processes != 1 || info.GPUs != n {
			t.Errorf("got run %+v, want %d workers in one process", info, n)
		}
	}
}

// TestOneProcess: a program that uses all GPUs of a run in one process counts as as many workers as it has GPUs.
func TestOneProcess(t *testing.T) {
	t.Setenv(visibleDevicesVariable, "3,5,6,7")
	s, out := mirrored(t)
	j, err := launch(t, s)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	checkMirrored(t, j.Dir())
	for _, want := range []string{"devices 3, threads 1,", "devices 3,5, threads 2,", "devices 3,5,6,7, threads 4, rank 0 of 1"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("got output\n%s\nwant %q", out, want)
		}
	}
	if _, err := os.Stat(filepath.Join(j.Dir(), "keras-n4-s1", "worker-1.log")); err == nil {
		t.Error("a run in one process has a second log")
	}
}

// TestSlurmOneProcess: on Slurm, the process gets the GPUs and the CPUs of all workers.
func TestSlurmOneProcess(t *testing.T) {
	useCluster(t)
	s, out := mirrored(t)
	j := submitSweep(t, s)
	if err := waitForJob(t, j); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	checkMirrored(t, j.Dir())
	script, err := os.ReadFile(filepath.Join(j.Dir(), "keras-n4-s1", "job.sh"))
	if err != nil {
		t.Fatal(err)
	}
	if want := "devices 0,1,2,3, threads 4, rank 0 of 1"; !strings.Contains(out.String(), want) {
		t.Errorf("got output\n%s\nwant %q", out, want)
	}
	for _, want := range []string{"#SBATCH --nodes=1\n#SBATCH --ntasks-per-node=1\n#SBATCH --cpus-per-task=4\n#SBATCH --gres=gpu:4\n"} {
		if !strings.Contains(string(script), want) {
			t.Errorf("got script\n%s\nwant %q", script, want)
		}
	}
}

// TestGPUsPerWorkerRefused: bad input is refused with the next step.
func TestGPUsPerWorkerRefused(t *testing.T) {
	t.Setenv(visibleDevicesVariable, "0,1")
	program := []string{"/bin/sh", "-c", "true"}
	for _, tt := range []struct {
		name, on string
		s        Sweep
		want     string
	}{
		{"own training", OnLocal, Sweep{Config: "sums", OneProcess: true}, "use the strategy mirrored (--strategies mirrored)"},
		{"own training with strategies", OnLocal, Sweep{Config: "sums", OneProcess: true, Strategies: []string{"ddp"}}, "use the strategy mirrored (--strategies mirrored)"},
		{"strategies", OnLocal, Sweep{Command: program, OneProcess: true, Strategies: []string{"ddp"}}, "use the strategy mirrored (--strategies mirrored)"},
		{"mpirun", OnMPI, Sweep{Command: program, OneProcess: true}, "needs no mpirun"},
		{"more GPUs than this machine has", OnLocal, Sweep{Command: program, OneProcess: true, Workers: []int{1, 4}}, "4 workers with 1 GPU each need 4 GPUs in one process, but this machine has 2"},
		{"more GPUs than a node has", "slurm:jsc-booster", Sweep{Command: program, OneProcess: true, Workers: []int{8}, Slurm: SlurmOptions{Account: "a"}}, "each process of the job uses 8 GPUs, but a node of site jsc-booster has 4"},
		{"several processes here", OnLocal, Sweep{Command: program, GPUsPerWorker: 1}, "each process sees all GPUs, and takes the one with the number LOCAL_RANK"},
		{"negative", OnLocal, Sweep{Command: program, GPUsPerWorker: -2}, "got -2 GPUs per worker"},
		{"two for own training", "slurm:jsc-booster", Sweep{Config: "sums", GPUsPerWorker: 2}, "a worker of Lockstep's own training uses one"},
		{"no GPUs for {gpus}", OnLocal, Sweep{Command: []string{"/bin/sh", "-c", "true", "{gpus}"}}, "the run has no GPUs for {gpus}: use {workers}"},
		{"GPUs turned off", "slurm:jsc-booster", Sweep{Command: []string{"/bin/sh", "-c", "true", "{gpus}"}, GPUsPerWorker: NoGPUs}, "the run has no GPUs for {gpus}"},
		{"unknown framework", OnLocal, Sweep{Command: program, Framework: "tensorflw"}, `unknown framework "tensorflw" (did you mean tensorflow?)`},
		{"framework of own training", OnLocal, Sweep{Config: "sums", Framework: "tensorflow"}, "a framework (Framework, --env) is for another program"},
		{"profiler of own training", OnLocal, Sweep{Config: "sums", NSys: NSysLast}, "writes its profile itself (Profile, --profile)"},
		{"no profiler", OnLocal, Sweep{Command: program, NSys: NSysLast}, "install NVIDIA Nsight Systems"},
		{"one job here", OnLocal, Sweep{Command: program, Slurm: SlurmOptions{OneJob: true}}, "OneJob (--one-job) is for Slurm"},
		{"one job and arrays", "slurm:generic", Sweep{Command: program, Slurm: SlurmOptions{OneJob: true, ArraySize: 2}}, "give only one of them"},
		{"one job started by mpirun", "slurm:rwth-claix-2018", Sweep{Command: program, Workers: []int{1, 2}, Slurm: SlurmOptions{OneJob: true, Account: "a"}}, "would start them on all nodes of the one job"},
		{"time to join of a program", OnLocal, Sweep{Command: program, TimeoutJoin: 1}, "TimeoutJoin (--timeout-join) cannot be used with the command"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.s.Workers == nil {
				tt.s.Workers = []int{1}
			}
			tt.s.Logs, tt.s.Oversubscribe = t.TempDir(), true
			_, err := Plan(t.Context(), tt.on, tt.s)
			wantError(t, err, tt.want)
			var usage *train.UsageError
			if !errors.As(err, &usage) && tt.name != "no profiler" {
				t.Errorf("got a %T, want a *train.UsageError", err)
			}
		})
	}
}

// TestSlurmOneJob: one job with the resources of the largest run executes all runs. Each run keeps its folder
// and has its own result, and the same launch does only the rest.
func TestSlurmOneJob(t *testing.T) {
	useCluster(t)
	s, out := shell(t, "", 1, 2, 4)
	gate := filepath.Join(t.TempDir(), "gate")
	s.Command[2] = fmt.Sprintf(`echo "rank $RANK of $WORLD_SIZE with GPU $CUDA_VISIBLE_DEVICES in job $SLURM_JOB_ID"
while [ $WORLD_SIZE = 4 ] && [ ! -e %[1]s-4 ]; do sleep 0.05; done
if [ $WORLD_SIZE = 2 ]; then while [ ! -e %[1]s ]; do sleep 0.05; done; exit $(cat %[1]s); fi`, gate)
	s.Slurm.OneJob = true
	j := submitSweep(t, s)
	for deadline := time.Now().Add(slurmTimeout); j.Status()[1].State != StateRunning; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("got status %+v, want that the second run is running", j.Status())
		}
	}
	all := j.Status()
	if all[0].State != StateDone || all[2].State != StateWaiting || all[2].Waits != "after the runs above, in the same job" {
		t.Errorf("got status %+v, want that the first run is done and the third waits", all)
	}
	if all[0].Job == "" || all[1].Job != all[0].Job || all[2].Job != all[0].Job {
		t.Errorf("got jobs %s, %s, %s, want one", all[0].Job, all[1].Job, all[2].Job)
	}
	if attached := attach(t, s).Status(); attached[0].State != StateDone || attached[1].State != StateRunning || attached[2].State != StateWaiting {
		t.Errorf("got status %+v after Attach", attached)
	}
	if err := os.WriteFile(gate, []byte("3"), 0o600); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(slurmTimeout); j.Status()[1].State != StateFailed; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("got status %+v, want that the second run has failed", j.Status())
		}
	}
	wantError(t, j.Status()[1].Err, "run script-n2-s1: job "+all[0].Job+": ", "ended with exit code 3")
	if err := os.WriteFile(gate+"-4", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	wantError(t, waitForJob(t, j), "run script-n2-s1: job "+all[0].Job+": ", "ended with exit code 3")
	for i, want := range []string{StateDone, StateFailed, StateDone} {
		if got := j.Status()[i].State; got != want {
			t.Errorf("run %d is %s, want %s", i, got, want)
		}
	}
	for _, want := range []string{"[n1 s1 rank 0] rank 0 of 1 with GPU 0 in job " + all[0].Job, "[n4 s1 rank 3] rank 3 of 4 with GPU "} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("got output\n%s\nwant %q", out, want)
		}
	}
	script, err := os.ReadFile(filepath.Join(j.Dir(), "script-n1-s1", "job.sh"))
	if err != nil || !strings.Contains(string(script), "\nsrun --nodes=1 --ntasks=1 --ntasks-per-node=1 --cpus-per-task=1 --gres=gpu:1 ") {
		t.Errorf("got script\n%s\n%v, want that srun starts one task", script, err)
	}

	// The failed run is started again alone.
	if err := errors.Join(os.RemoveAll(filepath.Join(j.Dir(), "script-n2-s1")), os.WriteFile(gate, []byte("0"), 0o600)); err != nil {
		t.Fatal(err)
	}
	again := submitSweep(t, s)
	if !strings.Contains(again.Note(), "2 runs done before") {
		t.Errorf("got note %q, want that 2 runs are done", again.Note())
	}
	if err := waitForJob(t, again); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestOneJobOfUnequalRuns: the job has as many nodes as the run with most nodes, and as many GPUs on each
// as the run with most GPUs on a node. Each run starts only its own tasks.
func TestOneJobOfUnequalRuns(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	s := Sweep{Command: []string{"python", "train.py"}, Workers: []int{1, 4, 6}, Logs: t.TempDir(), Slurm: SlurmOptions{Account: "a", OneJob: true}}
	text, err := SlurmDryRun(t.Context(), "jsc-booster", s)
	if err != nil {
		t.Fatal(err)
	}
	_, job, _ := strings.Cut(text, "and the script of the job for all of them to ")
	for _, want := range []string{"#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=4\n#SBATCH --cpus-per-task=24\n#SBATCH --gres=gpu:4\n"} {
		if !strings.Contains(job, want) {
			t.Errorf("got\n%s\nwant %q", job, want)
		}
	}
	for _, want := range []string{
		"time srun --nodes=1 --ntasks=1 --ntasks-per-node=1 --cpus-per-task=96 --gres=gpu:1 ", "time srun --nodes=1 --ntasks=4 --ntasks-per-node=4 --cpus-per-task=24 --gres=gpu:4 ",
		"time srun --nodes=2 --ntasks=6 --ntasks-per-node=3 --cpus-per-task=32 --gres=gpu:3 ",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("got\n%s\nwant %q", text, want)
		}
	}
	// A plain start leaves out the GPUs that only larger runs use.
	s.OneProcess, s.Workers = true, []int{1, 2, 4}
	if text, err = SlurmDryRun(t.Context(), "bsc-cte-power", s); err != nil || !strings.Contains(text, `export CUDA_VISIBLE_DEVICES="$(echo "${CUDA_VISIBLE_DEVICES:-0,1}" | cut -d, -f1-2)"`) ||
		!strings.Contains(text, "#SBATCH --cpus-per-task=160\n#SBATCH --gres=gpu:4\n") {
		t.Errorf("got\n%s\n%v, want the first two GPUs for two workers", text, err)
	}
}

// TestSlurmOneJobLost: the launcher was killed before it has recorded the id of the one job.
func TestSlurmOneJobLost(t *testing.T) {
	useCluster(t)
	s, _ := shell(t, "sleep 600", 1, 2)
	s.Slurm.OneJob = true
	first := submitSweep(t, s)
	job := first.Status()[0].Job
	for _, r := range first.Status() {
		path := filepath.Join(r.Dir, "job.json")
		before := file(t, path)
		text := strings.Replace(before, fmt.Sprintf("  \"job\": %q,\n", job), "", 1)
		if text == before {
			t.Fatalf("%s has no job: %s", path, before)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range submitSweep(t, s).Status() {
		if r.Job != job {
			t.Errorf("%s: got job %q, want %q", r.Name, r.Job, job)
		}
	}
}
