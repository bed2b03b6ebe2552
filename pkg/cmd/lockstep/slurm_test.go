package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"lockstep/pkg/internal/slurmtest"
	"lockstep/pkg/launch"
)

// slurmTimeout limits the time of a test's jobs. A requeued job starts again after 15 s on the
// private cluster.
const slurmTimeout = 5 * time.Minute

// useCluster starts a private cluster with the given number of nodes until the end of the test, whose workers are this test
// binary.
func useCluster(t *testing.T, nodes int) *slurmtest.Cluster {
	t.Helper()
	cluster := slurmtest.Cluster{Nodes: nodes}
	t.Cleanup(cluster.Stop)
	cluster.StartForTest(t)
	binary, err := exec.LookPath("lockstep")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("LOCKSTEP_BIN", binary)
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	t.Setenv("LOCKSTEP_LOCKS", t.TempDir())
	return &cluster
}

// trainOnSlurm trains with 4 workers on two virtual nodes. It calls during, if it is not nil, once
// the first epoch is done, with the id of the job.
func trainOnSlurm(t *testing.T, s launch.Sweep, during func(job string)) launch.RunStatus {
	t.Helper()
	j, err := launch.Slurm(t.Context(), "local-test", s)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = j.Kill() }() // it has ended, unless the test fails
	ctx, cancel := context.WithTimeout(t.Context(), slurmTimeout)
	defer cancel()
	r := j.Status()[0]
	for during != nil {
		// Status asks Slurm only every 2 seconds, in which the run may end.
		text, _ := os.ReadFile(filepath.Join(r.Dir, "epochs.csv"))
		if bytes.Count(text, []byte("\n")) > 1 { // more than the header
			during(r.Job)
			break
		}
		select {
		case <-ctx.Done():
			t.Fatalf("no epoch was trained: %+v", j.Status())
		case <-time.After(5 * time.Millisecond):
		}
	}
	if err := j.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	return j.Status()[0]
}

// TestPreemption: a job that gets SIGUSR1 is saved, requeued, continues on other nodes, and ends with
// the same bits as a job without the signal.
func TestPreemption(t *testing.T) {
	useCluster(t, 3)
	const epochs = 24 // enough that the job is still running when the test has seen the first
	logs := t.TempDir()
	s := launch.Sweep{
		Config: "unet2d-cells", Workers: []int{4}, Epochs: epochs, Logs: logs,
		Set: []string{"data.count=72", "data.height=64", "data.width=64"},
	}
	s.Study = "undisturbed"
	want := trainOnSlurm(t, s, nil)
	s.Study = "preempted"
	got := trainOnSlurm(t, s, func(job string) {
		for _, command := range []string{
			"scontrol update NodeName=n1 State=DRAIN Reason=test", // no job starts there again
			"scancel --signal=USR1 " + job,
		} {
			words := strings.Fields(command)
			if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
				t.Fatalf("%s: %v: %s", command, err, out)
			}
		}
	})
	for job, nodes := range map[string]string{want.Job: "n[1-2]", got.Job: "n[2-3]"} {
		out, err := exec.Command("squeue", "--noheader", "--states=all", "--format=%N", "--jobs="+job).Output()
		if err != nil || string(bytes.TrimSpace(out)) != nodes {
			t.Errorf("job %s: got last nodes %s, %v, want %s", job, out, err, nodes)
		}
	}
	output, err := os.ReadFile(filepath.Join(got.Dir, "slurm-"+got.Job+".out"))
	if err != nil || !bytes.Contains(output, []byte("DUE TO JOB REQUEUE")) {
		t.Fatalf("got output %s, %v of the job, want that it was requeued", output, err)
	}
	if got.State != launch.StateDone || got.Epoch != epochs {
		t.Fatalf("got status %+v, want %d epochs", got, epochs)
	}
	last := fmt.Sprintf("checkpoints/epoch-%04d.safetensors", epochs)
	a, err := os.ReadFile(filepath.Join(want.Dir, last))
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(got.Dir, last))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(a, b) {
		t.Errorf("the last checkpoints of the two runs differ")
	}
}

// TestInterruptedLaunchOnSlurm: Ctrl-C ends only the command that shows the jobs. The same command
// shows them again.
func TestInterruptedLaunchOnSlurm(t *testing.T) {
	useCluster(t, 2)
	ctx, cancel := context.WithTimeout(t.Context(), slurmTimeout)
	defer cancel()
	logs := t.TempDir()
	for range 2 {
		output, err := os.Create(filepath.Join(t.TempDir(), "output"))
		if err != nil {
			t.Fatal(err)
		}
		defer output.Close()
		c := exec.CommandContext(ctx, "lockstep", "launch", "--on", "slurm:local-test", "--workers", "1", "--logs", logs, "--study", "sleep", "--", "sleep", "600")
		c.Stdout, c.Stderr = output, output
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		read := func() string {
			text, err := os.ReadFile(output.Name())
			if err != nil {
				t.Fatal(err)
			}
			return string(text)
		}
		const note = "Slurm job 1 continues without this program"
		for !strings.Contains(read(), note) {
			if ctx.Err() != nil {
				t.Fatalf("got output %s, want %q", read(), note)
			}
			time.Sleep(20 * time.Millisecond)
		}
		if err := c.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		if err := c.Wait(); err == nil || ctx.Err() != nil {
			t.Fatalf("got error %v, want one that says that the command was interrupted", err)
		}
		if out := read(); !strings.Contains(out, "interrupted: "+note) || strings.Contains(out, "--resume") {
			t.Errorf("got output %s, want %q and no advice to resume", out, "interrupted: "+note)
		}
		state, err := exec.CommandContext(ctx, "squeue", "--noheader", "--format=%T", "--job", "1").Output()
		if err != nil || len(bytes.TrimSpace(state)) == 0 {
			t.Fatalf("got state %q, %v of job 1, want that it still exists", state, err)
		}
	}
	if out, err := exec.CommandContext(ctx, "scancel", "1").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}
