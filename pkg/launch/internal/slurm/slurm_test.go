package slurm

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"lockstep/pkg/internal/slurmtest"
	"lockstep/pkg/launch/site"
)

var (
	cluster    slurmtest.Cluster
	accounting = slurmtest.Cluster{Accounting: true}
)

func TestMain(m *testing.M) {
	code := m.Run()
	cluster.Stop()
	accounting.Stop()
	os.Exit(code)
}

// submit submits a job that runs commands, and cancels it at the end of the test.
func submit(t *testing.T, options, commands string) string {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "job.sh")
	text := "#!/bin/bash\n#SBATCH --output=" + dir + "/out.log\n#SBATCH --time=5 " + options + "\n" + commands + "\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	id, err := Client{}.Submit(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := (Client{}).Cancel(context.Background(), []string{id}, false); err != nil {
			t.Error(err)
		}
	})
	return id
}

// await waits until the job fulfills a condition, and returns its state.
func await(t *testing.T, id string, condition func(Job) bool) Job {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; {
		jobs, err := Client{}.QueryJobs(t.Context(), []string{id})
		if err != nil {
			t.Fatal(err)
		}
		if condition(jobs[id]) {
			return jobs[id]
		}
		if time.Now().After(deadline) {
			t.Fatalf("job is still in state %+v", jobs[id])
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func TestEndOfJobs(t *testing.T) {
	cluster.StartForTest(t)
	tests := []struct{ name, commands, want string }{
		{"failed", "exit 3", "its script ended with exit code 3"},
		{"signal", "kill -ABRT $$", "its script was ended by signal 6"},
		{"done", "srun --ntasks=1 true", "it ended in state COMPLETED"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			j := await(t, submit(t, "", tt.commands), Job.HasEnded)
			if got := j.DescribeEnd(""); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			if j.Started.IsZero() || j.Ended.Before(j.Started) || j.Nodes == "" {
				t.Errorf("got job %+v, want its times and nodes", j)
			}
		})
	}
}

func TestCancel(t *testing.T) {
	cluster.StartForTest(t)
	id := submit(t, "", "sleep 600")
	await(t, id, func(j Job) bool { return j.State == "RUNNING" })
	if err := (Client{}).Cancel(t.Context(), []string{id}, false); err != nil {
		t.Fatal(err)
	}
	j := await(t, id, Job.HasEnded)
	if got := j.DescribeEnd(""); !strings.HasPrefix(got, "canceled by") {
		t.Errorf("got %q, want canceled", got)
	}
	if err := (Client{}).Cancel(t.Context(), []string{id}, true); err != nil {
		t.Errorf("cancel a job that has ended: %v", err)
	}
}

// TestPendingForever: Slurm accepts a job that asks for more than the cluster has.
func TestPendingForever(t *testing.T) {
	cluster.StartForTest(t)
	j := await(t, submit(t, "--partition=devel --ntasks=64", "true"), func(j Job) bool { return j.Reason != "" && j.Reason != "None" })
	if !j.IsPending() || j.DescribeWait() == "" {
		t.Errorf("got %+v, want a pending job", j)
	}
}

func TestRejectedSubmission(t *testing.T) {
	cluster.StartForTest(t)
	path := filepath.Join(t.TempDir(), "job.sh")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n#SBATCH --partition=nowhere\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Client{}.Submit(t.Context(), path)
	if err == nil || !strings.Contains(err.Error(), "invalid partition specified: nowhere") {
		t.Errorf("got error %v, want the invalid partition", err)
	}
}

// TestRefusedDependency: sbatch only says that there is a dependency problem.
func TestRefusedDependency(t *testing.T) {
	cluster.StartForTest(t)
	path := filepath.Join(t.TempDir(), "job.sh")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n#SBATCH --dependency=after17\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Client{}.Submit(t.Context(), path)
	if err == nil || !strings.Contains(err.Error(), "dependency problem: name jobs in the queue (squeue lists yours), as in afterok:17") {
		t.Errorf("got error %v, want what a dependency is", err)
	}
}

// TestSubmissionIsNotInterrupted: a submission that has begun returns the id of the job, although
// the context has ended.
func TestSubmissionIsNotInterrupted(t *testing.T) {
	cluster.StartForTest(t)
	path := filepath.Join(t.TempDir(), "job.sh")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n#SBATCH --output=/dev/null\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if id, err := (Client{}).Submit(ctx, path); err != nil || !jobIDPattern.MatchString(id) {
		t.Errorf("got id %q, %v, want that of a job", id, err)
	}
}

// TestDescribeWait has reasons as squeue of Slurm 22.05 prints them.
func TestDescribeWait(t *testing.T) {
	for reason, want := range map[string]string{
		"None":              "waiting for the scheduler",
		"Priority":          "Priority: jobs of higher priority are before it",
		"QOSMaxGRESPerUser": "QOSMaxGRESPerUser: your other jobs use all that you may use at a time; this job starts when one of them ends",
		"AssocGrpCpuLimit":  "AssocGrpCpuLimit: the jobs of your class or account use all that it may use at a time; this job starts when some of them end",
		"Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions": "Nodes required for job are DOWN: it starts when the nodes that it needs work again",
		"SomethingNew": "SomethingNew",
	} {
		if got := (Job{Reason: reason}).DescribeWait(); got != want {
			t.Errorf("%s: got %q, want %q", reason, got, want)
		}
	}
}

func TestUnknownJob(t *testing.T) {
	cluster.StartForTest(t)
	id := submit(t, "", "true")
	jobs, err := Client{}.QueryJobs(t.Context(), []string{"99999", id})
	if err != nil || jobs["99999"].IsKnown() || !jobs[id].IsKnown() {
		t.Errorf("got %+v, %v, want only job %s", jobs, err, id)
	}
	jobs, err = Client{}.QueryJobs(t.Context(), []string{"99999"})
	if err != nil || jobs["99999"].IsKnown() {
		t.Errorf("got %+v, %v, want an unknown job", jobs, err)
	}
}

func TestControllerDoesNotAnswer(t *testing.T) {
	cluster.StartForTest(t)
	pid := cluster.DaemonPID(t, "slurmctld")
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
			t.Error(err)
		}
	}()
	_, err := Client{Timeout: time.Second}.QueryJobs(t.Context(), []string{"1"})
	if !errors.Is(err, ErrNoAnswer) || !strings.Contains(err.Error(), "does not answer (Lockstep waited for 1s); jobs that are waiting or running continue: repeat this in some minutes") {
		t.Errorf("got error %v, want that the controller does not answer", err)
	}
}

// TestNoConfig runs a command of Slurm where SLURM_CONF is not set, or names no file.
func TestNoConfig(t *testing.T) {
	cluster.StartForTest(t)
	missing := filepath.Join(t.TempDir(), "slurm.conf")
	tests := map[string]string{missing: "SLURM_CONF is set to " + missing + ", and there is no such file"}
	if _, err := os.Stat("/etc/slurm/slurm.conf"); err != nil {
		tests[""] = "SLURM_CONF is not set"
	}
	for path, want := range tests {
		t.Setenv("SLURM_CONF", path)
		if path == "" {
			_ = os.Unsetenv("SLURM_CONF") // t.Setenv restores it
		}
		_, err := Client{}.ReadCluster(t.Context())
		if !errors.Is(err, ErrNoAnswer) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "Lockstep waited") {
			t.Errorf("SLURM_CONF=%s: got error %v, want %q", path, err, want)
		}
	}
}

func TestNoScheduler(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := Client{}.Submit(t.Context(), "job.sh")
	if err == nil || !strings.Contains(err.Error(), "no Slurm on this machine") {
		t.Errorf("got error %v, want no Slurm", err)
	}
}

// TestParseSacct reads lines as sacct of Slurm 22.05 prints them, with accounting.
func TestParseSacct(t *testing.T) {
	all, err := parseSacct("17|CANCELLED by 0|0:15|n[1-2]|00:05:00|2026-11-24T22:19:22|2026-11-24T22:19:25\n" +
		"18|OUT_OF_MEMORY|0:125|n1|00:05:00|2026-11-24T22:19:22|2026-11-24T22:19:25\n" +
		"19|TIMEOUT|0:0|n1|00:01:00|2026-11-24T22:19:22|2026-11-24T22:20:25\n" +
		"20|NODE_FAIL|1:0|n2|00:01:00|2026-11-24T22:19:22|2026-11-24T22:20:25\n" +
		"21_[0,2-3]|CANCELLED by 0|0:0|None assigned|00:05:00|2026-11-24T22:19:22|2026-11-24T22:19:22\n")
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"canceled by root", "out of memory on n1: ", "the time limit of 00:01:00 was reached", "a node failed on n2", "canceled by root", "canceled by root", "canceled by root"} {
		if got := all[i].DescribeEnd(""); !strings.HasPrefix(got, want) {
			t.Errorf("job %s: got %q, want %q", all[i].ID, got, want)
		}
	}
	if last := all[len(all)-1]; last.ID != "21_3" || last.Nodes != "" {
		t.Errorf("got last job %+v, want task 3 without nodes", last)
	}
	if _, err := parseSacct("17|CANCELLED\n"); err == nil {
		t.Error("got no error for a line with two fields")
	}
	if _, err := parseSqueue("17|RUNNING|\n"); err == nil {
		t.Error("got no error for a line with two fields")
	}
}

// TestOutOfMemoryInOutput: without accounting, only the job's output says that memory ran out.
// The line is of slurmstepd 22.05.
func TestOutOfMemoryInOutput(t *testing.T) {
	j := Job{State: "FAILED", ExitCode: 1, Nodes: "n1"}
	got := j.DescribeEnd("slurmstepd: error: Detected 1 oom_kill event in StepId=17.0. Some of the step tasks have been OOM Killed.\n")
	if !strings.HasPrefix(got, "out of memory on n1") {
		t.Errorf("got %q, want out of memory", got)
	}
}

// TestFailedTask reads lines that srun 22.05 has written.
func TestFailedTask(t *testing.T) {
	output := "srun: error: n1: task 1: Exited with exit code 7\nsrun: error: n2: tasks 2-3: Terminated\n"
	j := Job{State: "FAILED", ExitCode: 143}
	if got := j.DescribeEnd(output); got != "task 1 ended with exit code 7 on n1" {
		t.Errorf("got %q", got)
	}
	if got, want := j.DescribeEnd("srun: error: n1: tasks 0-1: Exited with exit code 137\n"), "tasks 0-1 ended with exit code 137 on n1 (killed by signal 9"; !strings.HasPrefix(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := j.DescribeEnd("srun: error: n1: task 0: Out Of Memory\n"), "out of memory"; !strings.HasPrefix(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := FirstFailedTask("srun: error: n2: tasks 2-3: Exited with exit code 1\n"); got != 2 {
		t.Errorf("got task %d, want 2", got)
	}
	if got := FirstFailedTask("srun: error: n2: tasks 2-3: Terminated\n"); got != 0 {
		t.Errorf("got task %d, want 0", got)
	}
}

func TestShortenIDs(t *testing.T) {
	tests := []struct{ ids, want string }{
		{"", ""},
		{"17 18", "17 18"},
		{"17_3", "17_3"},
		{"17_0 17_1 17_2 17_7", "17_[0-2,7]"},
		{"17_9 3 17_4 18_0 18_1 17_4", "17_[4,9] 3 18_[0-1]"},
	}
	for _, tt := range tests {
		if got := strings.Join(ShortenIDs(strings.Fields(tt.ids)), " "); got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.ids, got, tt.want)
		}
	}
}

func TestExpandID(t *testing.T) {
	tests := []struct{ id, want string }{
		{"17", "17"},
		{"17_3", "17_3"},
		{"17_[0,2-3]", "17_0 17_2 17_3"},
		{"17_[1-2%1]", "17_1 17_2"},
		{"17_[0-1,...]", "17_[0-1,...]"},
		{"17_[0-99999999999]", "17_[0-99999999999]"},
	}
	for _, tt := range tests {
		if got := strings.Join(expandArrayTaskID(tt.id), " "); got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.id, got, tt.want)
		}
	}
}

func TestSubmissionEnvironment(t *testing.T) {
	got := submissionEnvironment([]string{"HOME=/root", "LOCKSTEP_TOKEN=secret", "RANK=0", "SLURM_JOB_ID=7", "SLURM_CONF=/etc/slurm.conf", "LOCKSTEP_LOGS=logs"})
	if strings.Join(got, " ") != "HOME=/root SLURM_CONF=/etc/slurm.conf LOCKSTEP_LOGS=logs" {
		t.Errorf("got %q", got)
	}
}

// TestCluster compares what sinfo says with the configuration in environment/cluster.
func TestCluster(t *testing.T) {
	cluster.StartForTest(t)
	c, err := Client{}.ReadCluster(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := []site.Partition{
		{Name: "batch", Default: true, State: "up", Nodes: 2, CPUsPerNode: 8, GPUsPerNode: 4, MemoryMiB: 4000, TimeLimit: time.Hour},
		{Name: "devel", State: "up", Nodes: 1, CPUsPerNode: 8, GPUsPerNode: 4, MemoryMiB: 4000, TimeLimit: 10 * time.Minute},
	}
	if !reflect.DeepEqual(c.Partitions, want) || len(c.Reservations) != 0 {
		t.Errorf("got %+v, want %+v", c, want)
	}
}

// TestParseSinfo reads lines in the form of sinfo 22.05, with kinds of GPUs and of nodes.
func TestParseSinfo(t *testing.T) {
	got, err := parseSinfo("gpu|up|3|96|gpu:a100:4(S:0-1),gpu:v100:2|2-00:00:00|gpu*|512000+\ngpu|up|1|128+|(null)|2-00:00:00|gpu*|512000+\ncpu|drain|5|48|(null)|infinite|cpu|96000\n")
	if err != nil {
		t.Fatal(err)
	}
	want := []site.Partition{
		{Name: "gpu", Default: true, State: "up", Nodes: 4, CPUsPerNode: 128, GPUsPerNode: 6, MemoryMiB: 512000, TimeLimit: 48 * time.Hour},
		{Name: "cpu", State: "drain", Nodes: 5, CPUsPerNode: 48, MemoryMiB: 96000, NoGPUs: true},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	reservations := parseReservations("ReservationName=course StartTime=2026-11-24T10:00:00 EndTime=2026-11-24T12:00:00 Duration=02:00:00 Nodes=n1 \n")
	if len(reservations) != 1 || reservations[0].Name != "course" || reservations[0].End.Hour() != 12 {
		t.Errorf("got reservations %+v, want course until 12:00", reservations)
	}
	if got := parseReservations("No reservations in the system\n"); len(got) != 0 {
		t.Errorf("got %+v, want no reservations", got)
	}
}
