package slurm

import (
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// control runs scontrol.
func control(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "scontrol", args...).CombinedOutput(); err != nil {
		t.Fatalf("scontrol %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

// forgetJobs makes squeue know no job, as after the time that the controller keeps ended jobs, so
// that only sacct knows them.
func forgetJobs(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	text := "#!/bin/sh\necho 'slurm_load_jobs error: Invalid job id specified' >&2\nexit 1\n"
	if err := os.WriteFile(filepath.Join(dir, "squeue"), []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

// TestReasonsWithAccounting ends jobs in different ways at the same time, and reads the reasons once
// the controller has forgotten the jobs.
func TestReasonsWithAccounting(t *testing.T) {
	accounting.StartForTest(t)
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	const forever = "srun sleep 600"
	dir := t.TempDir()
	memory := filepath.Join(dir, "memory.out")
	tests := []struct {
		name, options, commands string
		end                     func(id string) // nil: the job ends by itself
		want                    string
	}{
		{"time limit", "", forever, func(id string) { control(t, "update", "JobId="+id, "EndTime=now") }, "the time limit of 00:01:00 was reached"},
		{"memory", "--mem=60 --output=" + memory, `srun bash -c 'x=$(head --bytes=150M /dev/zero | tr "\0" x); sleep 600'`, nil, "out of memory on n"},
		{"node", "--nodelist=n2 --no-requeue", forever, func(string) { control(t, "update", "NodeName=n2", "State=DOWN", "Reason=test") }, "a node failed on n2"},
		{"canceled", "", forever, func(id string) { _ = Client{}.Cancel(t.Context(), []string{id}, false) }, "canceled by " + me.Username},
		{"code", "", "exit 3", nil, "its script ended with exit code 3"},
		{"done", "", "true", nil, "it ended in state COMPLETED"},
	}
	ids := make([]string, len(tests))
	for i, tt := range tests {
		ids[i] = submit(t, tt.options, tt.commands)
	}
	array := submit(t, "--hold --array=0-2", "true") // none of its tasks starts
	for i, tt := range tests {
		if tt.end == nil {
			continue
		}
		for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(100 * time.Millisecond) { // until srun has started its step
			out, err := exec.CommandContext(t.Context(), "squeue", "--noheader", "--steps", "--format=%i", "--jobs="+ids[i]).Output()
			if strings.Contains(string(out), ids[i]+".0") {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: the step of job %s does not run: %s, %v", tt.name, ids[i], out, err)
			}
		}
	}
	for i, tt := range tests {
		if tt.end != nil {
			tt.end(ids[i])
		}
	}
	if err := (Client{}).Cancel(t.Context(), []string{array}, false); err != nil {
		t.Fatal(err)
	}
	defer func() { // unless it has come back by itself
		_ = exec.Command("scontrol", "update", "NodeName=n2", "State=IDLE").Run()
	}()
	for i := range tests {
		await(t, ids[i], Job.HasEnded)
	}
	forgetJobs(t)
	for i, tt := range tests {
		j := await(t, ids[i], Job.HasEnded) // slurmdbd gets the end of a job after the controller
		output := ""
		if tt.name == "memory" { // this cluster has no control groups, and records only that the job failed
			text, err := os.ReadFile(memory)
			if err != nil {
				t.Fatal(err)
			}
			output = string(text)
		}
		if got := j.DescribeEnd(output); !strings.HasPrefix(got, tt.want) {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
		if j.Started.IsZero() || j.Ended.Before(j.Started) {
			t.Errorf("%s: got job %+v, want its times", tt.name, j)
		}
	}
	j := await(t, ArrayTaskID(array, 1), Job.HasEnded)
	if got, want := j.DescribeEnd(""), "canceled by "+me.Username; got != want || j.Nodes != "" {
		t.Errorf("waiting task: got %q of %+v, want %q", got, j, want)
	}
}
