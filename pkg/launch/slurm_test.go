package launch

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"lockstep/pkg/launch/internal/slurmsubmit"
	"lockstep/pkg/runs"
)

// slurmTimeout limits the time of a test's jobs.
const slurmTimeout = 3 * time.Minute

// useCluster makes the test use the private cluster, and a token file of its own, whose content
// it returns.
func useCluster(t *testing.T) (token func() string) {
	t.Helper()
	cluster.StartForTest(t)
	state := t.TempDir()
	t.Setenv("XDG_STATE_HOME", state)
	t.Setenv("LOCKSTEP_TOKEN", "a-secret-that-no-job-gets")
	return func() string {
		text, err := os.ReadFile(filepath.Join(state, "lockstep", "token"))
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(text))
	}
}

// submitSweep submits s, and cancels what is left of it at the end of the test.
func submitSweep(t *testing.T, s Sweep) *Job {
	t.Helper()
	j, err := Slurm(t.Context(), "local-test", s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := j.Kill(); err != nil {
			t.Error(err)
		}
		_ = j.Wait(context.Background())
	})
	return j
}

// waitForJob waits for the end of j.
func waitForJob(t *testing.T, j *Job) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), slurmTimeout)
	defer cancel()
	err := j.Wait(ctx)
	if ctx.Err() != nil {
		t.Fatalf("%v; status %+v", err, j.Status())
	}
	return err
}

// awaitState waits until the first run of j has the given state.
func awaitState(t *testing.T, j *Job, state string) RunStatus {
	t.Helper()
	for deadline := time.Now().Add(slurmTimeout); ; time.Sleep(50 * time.Millisecond) {
		s := j.Status()[0]
		if s.State == state {
			return s
		}
		if time.Now().After(deadline) {
			t.Fatalf("run has state %+v, want %s", s, state)
		}
	}
}

// checkNoSecret checks that no file in dir contains one of the secrets.
func checkNoSecret(t *testing.T, dir string, secrets ...string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrPermission) { // munged's lock, which not even its owner may read
			return nil
		}
		for _, secret := range secrets {
			if strings.Contains(string(text), secret) {
				t.Errorf("%s contains the secret %q", path, secret)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestSlurm runs a sweep on one and on two virtual nodes, and repeats it.
func TestSlurm(t *testing.T) {
	token := useCluster(t)
	s, out := own(t, "sums", 1, 2, 4)
	j := submitSweep(t, s)
	if err := waitForJob(t, j); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	for _, r := range j.Status() {
		if r.State != StateDone || r.Epoch != 2 || r.Job == "" || r.Seconds < 0 {
			t.Errorf("got status %+v, want 2 epochs", r)
		}
		if r.Last.IoU != float64(r.Workers+1)/2 { // the mean of rank+1
			t.Errorf("%s: got mean %v, want %v", r.Name, r.Last.IoU, float64(r.Workers+1)/2)
		}
	}
	if want := "[n4 s1 rank 3] epoch 2 mean 2.5"; !strings.Contains(out.String(), want) {
		t.Errorf("got output\n%s\nwant %q", out.String(), want)
	}
	script, err := os.ReadFile(filepath.Join(j.Dir(), "ddp-n4-s1", "job.sh"))
	if err != nil || !strings.Contains(string(script), "#SBATCH --nodes=2\n") {
		t.Errorf("got job script %s, %v, want two nodes", script, err)
	}
	checkNoSecret(t, j.Dir(), token(), os.Getenv("LOCKSTEP_TOKEN"))
	checkNoSecret(t, cluster.Folder(), token(), os.Getenv("LOCKSTEP_TOKEN"))

	s.Workers = []int{1, 2, 4, 3}
	again := submitSweep(t, s)
	if !strings.Contains(again.Note(), "3 runs done before") {
		t.Errorf("got note %q, want 3 runs that were done", again.Note())
	}
	if err := waitForJob(t, again); err != nil {
		t.Fatal(err)
	}
	if last := again.Status(); last[0].Job != "" || last[3].Job == "" || last[3].State != StateDone {
		t.Errorf("got status %+v, want a job for the new run only", last)
	}
	if done := submitSweep(t, s); done.Note() != "4 runs done; nothing to do" {
		t.Errorf("got note %q, want nothing to do", done.Note())
	}
}

// TestSlurmCommand runs another program with the variables of a worker.
func TestSlurmCommand(t *testing.T) {
	useCluster(t)
	s, out := shell(t, `echo "rank $RANK of $WORLD_SIZE, local $LOCAL_RANK of $LOCAL_WORLD_SIZE, at $MASTER_ADDR, seed $LOCKSTEP_SEED"`, 4)
	j := submitSweep(t, s)
	if err := waitForJob(t, j); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	for _, want := range []string{"[n4 s1 rank 0] rank 0 of 4, local 0 of 2, at 127.0.0.1, seed 1", "[n4 s1 rank 3] rank 3 of 4, local 1 of 2, at 127.0.0.1, seed 1"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("got output\n%s\nwant %q", out.String(), want)
		}
	}
	read, err := runs.Read(j.Status()[0].Dir)
	if err != nil || read.Info.Status != runs.StatusDone || read.Info.Nodes != 2 || read.Info.Workers != 4 {
		t.Errorf("got run %+v, %v, want 4 workers on 2 nodes", read.Info, err)
	}
	if text, err := j.Tail("script-n4-s1", 1); err != nil || !strings.Contains(text, "rank 2:\n    rank 2 of 4") {
		t.Errorf("got tail %q, %v", text, err)
	}
	if _, err := j.Tail("script-n8-s1", 1); err == nil || !strings.Contains(err.Error(), "unknown run") {
		t.Errorf("got error %v, want an unknown run", err)
	}
}

// TestSlurmFailures checks the reason in words.
func TestSlurmFailures(t *testing.T) {
	useCluster(t)
	t.Run("rank fails", func(t *testing.T) {
		s, _ := shell(t, "", 4)
		// Rank 1 fails once rank 0 has written the run folder.
		s.Command[2] = `[ $RANK = 1 ] && { until [ -e ` + s.Logs + `/scripts/script-n4-s1/run.json ]; do sleep 0.1; done; echo "no data"; exit 7; }; sleep 600`
		j := submitSweep(t, s)
		err := waitForJob(t, j)
		if err == nil || !strings.Contains(err.Error(), "run script-n4-s1: job "+j.Status()[0].Job+": task 1 ended with exit code 7 on n1; its last lines:\n    no data") {
			t.Errorf("got error %v, want the exit code and the line of rank 1", err)
		}
		if read, err := runs.Read(j.Status()[0].Dir); err != nil || read.Info.Status != runs.StatusFailed {
			t.Errorf("got status %q, %v, want failed", read.Info.Status, err)
		}
	})
	t.Run("canceled", func(t *testing.T) {
		s, _ := own(t, "waits", 2)
		j := submitSweep(t, s)
		awaitState(t, j, StateRunning)
		other, err := Attach(j.Dir())
		if err != nil {
			t.Fatal(err)
		}
		if err := other.Cancel(); err != nil {
			t.Fatal(err)
		}
		if err := waitForJob(t, other); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "canceled by you") {
			t.Errorf("got error %v, want that you canceled it", err)
		}
		if err := waitForJob(t, j); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "canceled by scancel") {
			t.Errorf("got error %v, want that it was canceled by scancel", err)
		}
		if s := j.Status()[0]; s.State != StateCanceled {
			t.Errorf("got state %q, want canceled", s.State)
		}
	})
}

// TestSlurmNodeLost: a job whose node does not answer is requeued, and continues the run once there
// are enough nodes.
func TestSlurmNodeLost(t *testing.T) {
	useCluster(t)
	s, out := own(t, "waits-once", 4)
	j := submitSweep(t, s)
	for deadline := time.Now().Add(slurmTimeout); j.Status()[0].Epoch == 0; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("no epoch was trained: %+v", j.Status())
		}
	}
	pid := cluster.DaemonPID(t, "slurmd-n2")
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	lost := awaitState(t, j, StateWaiting) // after SlurmdTimeout
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := waitForJob(t, j); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	if r := j.Status()[0]; r.State != StateDone || r.Epoch != 2 || r.Job != lost.Job {
		t.Errorf("got status %+v, want 2 epochs of job %s", r, lost.Job)
	}
}

// TestSlurmRefused: nothing is submitted or written.
func TestSlurmRefused(t *testing.T) {
	useCluster(t)
	invalidProfile := filepath.Join(t.TempDir(), "invalid.yaml")
	if err := os.WriteFile(invalidProfile, []byte("start: srun\nacount: optional\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name, site, want string
		change           func(*Sweep)
	}{
		{"unknown site", "local-tset", "did you mean local-test?", func(*Sweep) {}},
		{"too many workers", "local-test", "has 2, so that it would wait for ever", func(s *Sweep) { s.Workers = []int{1, 64} }},
		{"unknown partition", "local-test", `no partition "bach" (did you mean batch?)`, func(s *Sweep) { s.Slurm.Partition = "bach" }},
		{"reservation", "local-test", `no reservation "course", or it has expired`, func(s *Sweep) { s.Slurm.Reservation = "course" }},
		{"time", "local-test", "partition batch allows 1h0m0s", func(s *Sweep) { s.Slurm.Time = 2 * time.Hour }},
		{"invalid profile", invalidProfile, "invalid.yaml: line 2: unknown key \"acount\" (did you mean account?)", func(*Sweep) {}},
		{"negative size", "local-test", "the job has -1 CPUs per task", func(s *Sweep) { s.Slurm.CPUsPerTask = -1 }},
		{"too large a size", "local-test", "the job asks for 1000 CPUs per node, but partition batch has 8", func(s *Sweep) { s.Slurm.CPUsPerTask = 1000 }},
		{"rejected by sbatch", "local-test", "nvalid", func(s *Sweep) { s.Slurm.Signal = "NOSIGNAL@10" }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, _ := own(t, "sums", 1)
			tt.change(&s)
			_, err := Slurm(t.Context(), tt.site, s)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got error %v, want %q", err, tt.want)
			}
			if left, err := os.ReadDir(s.Logs); err != nil || len(left) > 0 {
				t.Errorf("left %v, %v in the logs folder", left, err)
			}
		})
	}
}

// TestSlurmDryRun: the scripts are shown, and nothing is written.
func TestSlurmDryRun(t *testing.T) {
	useCluster(t)
	s, _ := own(t, "sums", 1, 4)
	s.Slurm.GPUsPerNode = 4 // for one or two workers
	text, err := SlurmDryRun(t.Context(), "local-test", s)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"# warning: run ddp-n1-s1: the workers of a node need 1 GPU, but the job asks for 4 GPUs per node", "#SBATCH --nodes=1\n", "#SBATCH --nodes=2\n", "# sbatch --parsable --open-mode=append ", "/ddp-n4-s1/job.sh", "train --config sums"} {
		if !strings.Contains(text, want) {
			t.Errorf("got\n%s\nwant %q", text, want)
		}
	}
	if left, err := os.ReadDir(s.Logs); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v in the logs folder", left, err)
	}
}

// TestNoSlurm: without Slurm's commands, the error names the next step.
func TestNoSlurm(t *testing.T) {
	s, _ := own(t, "sums", 1)
	t.Setenv("PATH", t.TempDir())
	_, err := Slurm(t.Context(), "local-test", s)
	if err == nil || !strings.Contains(err.Error(), "no Slurm on this machine") {
		t.Errorf("got error %v, want no Slurm", err)
	}
}

// endsAfterFirstJob is a context that has ended once a run of the study in dir has a job.
type endsAfterFirstJob struct {
	context.Context
	dir string
}

func (c endsAfterFirstJob) Err() error {
	folders, _ := filepath.Glob(filepath.Join(c.dir, "*")) // the pattern is valid
	for _, dir := range folders {
		if slurmsubmit.ReadJobID(dir) != "" {
			return context.Canceled
		}
	}
	return nil
}

func (c endsAfterFirstJob) Done() <-chan struct{} {
	if c.Err() == nil {
		return nil
	}
	ended := make(chan struct{})
	close(ended)
	return ended
}

// TestSlurmInterruptedSubmission: if the submission of a sweep is interrupted, the jobs that were
// submitted are canceled, and the same sweep can be submitted again.
func TestSlurmInterruptedSubmission(t *testing.T) {
	useCluster(t)
	s, _ := shell(t, "sleep 600", 1, 2)
	p, err := planSweep(t.Context(), OnSlurm, "local-test", s, false)
	if err != nil {
		t.Fatal(err)
	}
	_, err = p.submitJobs(endsAfterFirstJob{context.Background(), p.Dir})
	const want = "interrupted before run script-n2-s1 was submitted; jobs submitted before were canceled"
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Fatalf("got error %v, want %q", err, want)
	}
	id := p.jobs.added[0].ID
	for deadline := time.Now().Add(slurmTimeout); ; time.Sleep(50 * time.Millisecond) {
		jobs, err := p.jobs.client.QueryJobs(t.Context(), []string{id})
		if err != nil {
			t.Fatal(err)
		}
		if j := jobs[id]; j.HasEnded() {
			if j.State != "CANCELLED" {
				t.Errorf("job %s ended with %+v, want that it was canceled", id, j)
			}
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("job %s was not canceled: %+v", id, jobs[id])
		}
	}
	if all := submitSweep(t, s).Status(); len(all) != 2 || all[0].Job == id || all[0].Job == "" || all[1].Job == "" {
		t.Errorf("got status %+v, want two new jobs", all)
	}
}

// TestSlurmAttached: Jobs lists a sweep on Slurm with its jobs. A process that attaches to it writes
// the study logs that the launch asked for.
func TestSlurmAttached(t *testing.T) {
	useCluster(t)
	s, _ := own(t, "sums", 1, 2)
	s.StudyLogs = DefaultStudyLogs
	submitted := submitSweep(t, s)
	list, err := Jobs()
	if err != nil || len(list) == 0 {
		t.Fatalf("got %v, %v, want the sweep", list, err)
	}
	if info := list[0]; info.Dir != submitted.Dir() || info.Site != "local-test" || len(info.Jobs) != 2 || info.PID != 0 || info.Runs != 2 {
		t.Errorf("got %+v, want the sweep with two jobs", info)
	}
	j := attach(t, s) // the submitted job is not asked for its state
	if err := waitForJob(t, j); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"log_1.csv", "log_2.csv"} {
		if _, err := os.Stat(filepath.Join(j.Dir(), "study-logs", name)); err != nil {
			t.Errorf("study log: %v", err)
		}
	}
	if list, err := Jobs(); err != nil || list[0].State != StateDone || list[0].Done != 2 {
		t.Errorf("got %+v, %v, want a sweep that is done", list, err)
	}
}
