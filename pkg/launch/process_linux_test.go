package launch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"lockstep/pkg/launch/internal/queue"
	"lockstep/pkg/notebook"
	"lockstep/pkg/runs"
)

// kernelOf starts a process that replaces a notebook's kernel and launches s.
func kernelOf(t *testing.T, s Sweep) (*exec.Cmd, *transcript) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	out := &transcript{}
	c := exec.Command(self, "notebook", string(text))
	c.Env = append(os.Environ(), "LOCKSTEP_BIN="+self)
	c.Stdout, c.Stderr = out, out
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
		// Its sweep must not write into a folder that is being removed.
		dir := filepath.Join(s.Logs, s.withDefaults().Study)
		soon(t, "the sweep ends", func() bool {
			return !slices.ContainsFunc(queue.ReadRecords(dir), func(r *queue.SweepRecord) bool { return r.HasLiveProcess() })
		})
	})
	return c, out
}

func kill(t *testing.T, c *exec.Cmd) {
	t.Helper()
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = c.Wait() // it was killed
}

const untilTerm = `trap 'echo ends in order; exit 3' TERM; echo pid $$ up; while :; do sleep 0.05; done`

// TestSweepEndsWithItsKernel: after kill -9 of the kernel, the workers are asked to end, and
// those that do not end are killed.
func TestSweepEndsWithItsKernel(t *testing.T) {
	for _, tt := range []struct{ name, script, says string }{
		{"in order", untilTerm, "ends in order"},
		{"killed after the grace", `trap '' TERM; echo pid $$ up; while :; do sleep 0.05; done`, "up"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ownQueue(t)
			s, _ := shell(t, tt.script, 2, 1)
			kernel, out := kernelOf(t, s)
			out.await(t, "up\n", 2)
			pids := out.pids(t)
			j := attach(t, s)
			if st := j.Status()[0]; st.State != StateRunning || !strings.Contains(st.Line, "up") {
				t.Errorf("status %+v", st)
			}
			kill(t, kernel)
			if err := waitFor(t, j); !errors.Is(err, context.Canceled) {
				t.Errorf("the sweep ended with %v", err)
			}
			for rank := range 2 {
				if log := file(t, j.Dir(), "script-n2-s1", runs.WorkerLogName(rank)); !strings.Contains(log, tt.says) {
					t.Errorf("rank %d wrote %q", rank, log)
				}
			}
			gone(t, pids)
			if r := read(t, j.Status()[0].Dir); r.Info.Status != StateCanceled {
				t.Errorf("run.json: %+v", r.Info)
			}
			// Another kernel sees why the runs have ended, and that the second was not started.
			all := attach(t, s).Status()
			if all[0].State != StateCanceled || all[0].toRow().Note != "ended with the notebook's kernel" {
				t.Errorf("status of the first run: %+v", all[0])
			}
			if all[1].State != StateNotStarted || all[1].toRow().Note != "the sweep ended before; the same launch starts it" {
				t.Errorf("status of the second run: %+v", all[1])
			}
		})
	}
}

// TestDetachedSweepGoesOn: a detached sweep continues after its kernel was killed. A later
// kernel attaches to it and may end it.
func TestDetachedSweepGoesOn(t *testing.T) {
	ownQueue(t)
	s, _ := shell(t, untilTerm, 1)
	s.Detach = true
	kernel, out := kernelOf(t, s)
	out.await(t, "up\n", 1)

	j := attach(t, s)
	if !j.Attached() {
		t.Error("the sweep of another kernel counts as this process's")
	}
	if err := syscall.Kill(j.backend.(*externalSweep).record.PID, syscall.SIGHUP); err != nil { // ends no detached sweep
		t.Fatal(err)
	}
	kill(t, kernel)
	soon(t, "the sweep notices that its kernel is gone", func() bool { return !j.Attached() })
	if j.Ended() {
		t.Fatalf("the sweep ended with its kernel: %v", j.Wait(t.Context()))
	}
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	wantError(t, j.Watch(ctx), "wait for scripts: ", "the sweep continues: Cancel ends it")

	jobs, err := Jobs()
	if err != nil || len(jobs) != 1 || jobs[0].State != StateRunning || jobs[0].Dir != j.Dir() || !jobs[0].Detach {
		t.Errorf("jobs %+v, %v", jobs, err)
	}
	if err := attach(t, s).Cancel(); err != nil {
		t.Fatal(err)
	}
	err = waitFor(t, j)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
	wantError(t, err, "run script-n1-s1: ", "canceled")
	gone(t, out.pids(t))
	if jobs, err := Jobs(); err != nil || len(jobs) != 1 || jobs[0].State != StateCanceled || jobs[0].Error == "" {
		t.Errorf("jobs %+v, %v", jobs, err)
	}
}

// TestCancelSignalsOnlyTheSweep: Cancel ends the sweep of another living kernel, but sends nothing
// if the recorded pid belongs to another process, or to a process of another host.
func TestCancelSignalsOnlyTheSweep(t *testing.T) {
	ownQueue(t)
	s, _ := shell(t, untilTerm, 1)
	_, out := kernelOf(t, s)
	out.await(t, "up\n", 1)
	j := attach(t, s)
	m := j.backend.(*externalSweep)

	bystander := exec.Command("sleep", "600")
	if err := bystander.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = bystander.Process.Kill(); _ = bystander.Wait() }()
	// Each case has a copy of the record.
	for _, tt := range []struct {
		change func(*queue.SweepRecord)
		want   string
	}{
		{func(r *queue.SweepRecord) { r.PID = bystander.Process.Pid }, "is not pid "},
		{func(r *queue.SweepRecord) { r.PID = os.Getpid() }, "this program runs the sweep"},
		{func(r *queue.SweepRecord) { r.Host = "elsewhere" }, "the sweep runs on elsewhere: use lockstep stop there"},
	} {
		changed, err := queue.ReadRecord(m.path)
		if err != nil {
			t.Fatal(err)
		}
		tt.change(changed)
		changed.Path = filepath.Join(t.TempDir(), "record.json")
		if err := changed.Write(); err != nil {
			t.Fatal(err)
		}
		wantError(t, newExternalSweep(changed).end(false), "cancel scripts: ", tt.want)
	}
	if !running(bystander.Process.Pid) {
		t.Error("Cancel has ended another process")
	}
	if j.Ended() {
		t.Fatal("the sweep has ended")
	}
	if err := j.Cancel(); err != nil {
		t.Fatal(err)
	}
	if err := waitFor(t, j); !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
}

// TestWaitForDerivedContext: Wait does not give up when its context has ended and the
// cancellation has not yet reached the sweep's own context, which derives from it.
func TestWaitForDerivedContext(t *testing.T) {
	ownQueue(t)
	s, out := shell(t, untilTerm, 1)
	ctx, cancel := context.WithCancel(context.Background())
	derived, cancelDerived := context.WithCancel(context.Background())
	stop := context.AfterFunc(ctx, func() {
		time.Sleep(20 * time.Millisecond)
		cancelDerived()
	})
	defer stop()
	j, err := Local(derived, s)
	if err != nil {
		t.Fatal(err)
	}
	out.await(t, "up\n", 1)
	cancel()
	wantError(t, j.Wait(ctx), "run script-n1-s1: ", "canceled")
	out.await(t, "ends in order", 1)
	gone(t, out.pids(t))
}

// TestNotebookContextOnlyStarts: the end of the cell's context does not end the sweep, but
// Cancel does. Errors and output of the sweep's process are complete.
func TestNotebookContextOnlyStarts(t *testing.T) {
	ownQueue(t)
	notebook.SetHook(notebook.Hook{Context: context.Background, Display: func(any, string, bool) error { return nil }})
	defer notebook.SetHook(notebook.Hook{})
	s, out := own(t, "waits", 2)
	ctx, cancel := context.WithCancel(context.Background())
	j, err := Local(ctx, s)
	if err != nil {
		t.Fatal(err)
	}
	out.await(t, "epoch 1 mean", 2)
	cancel()
	wantError(t, j.Watch(ctx), "wait for waits: context canceled; the sweep continues: Cancel ends it")
	time.Sleep(2 * pollInterval)
	if st := j.Status()[0]; st.State != StateRunning || st.Epoch != 1 {
		t.Errorf("status %+v after an interrupt of the cell, want running", st)
	}
	if j.Attached() {
		t.Error("a sweep of this notebook counts as another's")
	}
	if err := j.Cancel(); err != nil {
		t.Fatal(err)
	}
	if err := waitFor(t, j); !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
	out.await(t, "ends in order", 2)
	gone(t, out.pids(t))

	// A failure comes over whole.
	s, _ = own(t, "fails", 2)
	if j, err = Local(context.Background(), s); err != nil {
		t.Fatal(err)
	}
	wantError(t, waitFor(t, j), "run ddp-n2-s1: ", "rank 1 ended with exit code 1; its last lines:", "worker: loss is not finite")
	if st := j.Status()[0]; st.State != StateFailed || st.Err == nil || st.Epoch != 1 {
		t.Errorf("status %+v", st)
	}
	s, _ = own(t, "wrong", 1)
	_, err = Local(context.Background(), s)
	wantError(t, err, "launch wrong: worker: 1 workers are wrong")
}

// TestSweepsQueue: the sweeps of two processes of one user wait for each other.
func TestSweepsQueue(t *testing.T) {
	ownQueue(t)
	gate := filepath.Join(t.TempDir(), "gate")
	first, _ := shell(t, fmt.Sprintf("while [ ! -e %s ]; do sleep 0.05; done", gate), 1)
	first.Study = "first"
	j1, err := Local(context.Background(), first)
	if err != nil {
		t.Fatal(err)
	}
	waiting := fmt.Sprintf("waiting for first (pid %d, since %s); --now starts it anyway", os.Getpid(), time.Now().Format("15:04"))

	second, _ := shell(t, "echo second ran; sleep 0.2", 1)
	second.Study, second.Timeout = "second", 10*time.Second
	_, out := kernelOf(t, second)
	out.await(t, "cell ended: <nil>", 1)
	if !strings.Contains(out.String(), "shows: waiting for first (pid "+strconv.Itoa(os.Getpid())) {
		t.Errorf("the cell shows %q, want %q", out, waiting)
	}
	j2 := attach(t, second)
	if got := j2.backend.waitsFor(); !strings.HasPrefix(got, "waiting for first (pid ") || j2.Status()[0].State != StateWaiting {
		t.Errorf("waits %q, status %+v", got, j2.Status())
	}
	if jobs, err := Jobs(); err != nil || len(jobs) != 2 || jobs[0].State != StateWaiting || jobs[1].State != StateRunning ||
		!strings.Contains(jobs.String(), "waiting for first") {
		t.Errorf("jobs\n%v\n%v", jobs, err)
	}

	other, _ := shell(t, "true", 1)
	for _, tt := range []struct {
		name   string
		change func(*Sweep)
	}{
		{"now", func(s *Sweep) { s.Now = true }},
		{"in a run", func(*Sweep) { t.Setenv("LOCKSTEP_RUN", "x") }},
		{"in an allocation", func(*Sweep) { t.Setenv("LOCKSTEP_RUN", ""); t.Setenv("SLURM_JOB_ID", "7") }},
	} {
		s := other
		s.Study = strings.ReplaceAll(tt.name, " ", "-")
		tt.change(&s)
		if j, err := launch(t, s); err != nil || j.Note() != "" {
			t.Errorf("%s: %v, note %q: it must not wait", tt.name, err, j.Note())
		}
	}
	t.Setenv("SLURM_JOB_ID", "")

	busy := other
	busy.Study, busy.NoWait = "busy", true
	_, err = Local(context.Background(), busy)
	var b *BusyError
	if !errors.As(err, &b) || b.PID != os.Getpid() {
		t.Errorf("got %v, want that first is running", err)
	}
	wantError(t, err, "launch busy: first is running (pid ", "--now")

	// A waiting sweep can be canceled, and by its context ended.
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	third := other
	third.Study = "third"
	j3, err := Local(ctx, third)
	if err != nil || !strings.HasPrefix(j3.Note(), "waiting for first (pid ") {
		t.Fatalf("%v, note %q", err, j3.Note())
	}
	cancel()
	if err := j3.Watch(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(j3.Status()[0].Dir); err == nil {
		t.Error("a sweep that was canceled in the queue has made a run folder")
	}

	if st := j2.Status()[0]; st.State != StateWaiting {
		t.Errorf("second is %s before first has ended", st.State)
	}
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := waitFor(t, j1); err != nil {
		t.Error(err)
	}
	if err := waitFor(t, j2); err != nil {
		t.Error(err)
	}
	if st := j2.Status()[0]; st.State != StateDone || st.Line != "second ran" {
		t.Errorf("status of second: %+v", st)
	}
	if a, b := read(t, j1.Status()[0].Dir).Info.Ended, read(t, j2.Status()[0].Dir).Info.Started; b.Before(a) {
		t.Errorf("second started at %v, first ended at %v", b, a)
	}
}

// TestTimeoutBeginsWithTheRun: a sweep may wait in the queue for longer than its time-out.
func TestTimeoutBeginsWithTheRun(t *testing.T) {
	ownQueue(t)
	gate := filepath.Join(t.TempDir(), "gate")
	first, _ := shell(t, fmt.Sprintf("while [ ! -e %s ]; do sleep 0.05; done", gate), 1)
	first.Study = "first"
	j1, err := Local(context.Background(), first)
	if err != nil {
		t.Fatal(err)
	}
	second, _ := shell(t, "true", 1)
	second.Study, second.Timeout = "second", 4*time.Second
	j2, err := Local(context.Background(), second)
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(second.Timeout + time.Second)
	if state := j2.Status()[0].State; state != StateWaiting {
		t.Errorf("state %q after the time-out, want %q", state, StateWaiting)
	}
	if err := os.WriteFile(gate, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, j := range []*Job{j1, j2} {
		if err := waitFor(t, j); err != nil {
			t.Error(err)
		}
	}
}

// TestQueueSurvivesAKill kills the process that runs the first sweep.
func TestQueueSurvivesAKill(t *testing.T) {
	ownQueue(t)
	s, _ := shell(t, `echo pid $$ up; exec sleep 600`, 1)
	s.Study = "first"
	_, out := kernelOf(t, s)
	out.await(t, "up\n", 1)
	j := attach(t, s)
	next, _ := shell(t, "true", 1)
	next.Study = "next"
	waits, err := Local(context.Background(), next)
	if err != nil || waits.Note() == "" {
		t.Fatalf("%v, note %q", err, waits.Note())
	}
	if err := syscall.Kill(j.backend.(*externalSweep).record.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := waitFor(t, waits); err != nil {
		t.Errorf("the next sweep: %v", err)
	}
	wantError(t, waitFor(t, j), "launch first: pid ", "has ended without writing its result", "Resume")
	jobs, err := Jobs()
	if err != nil || len(jobs) != 2 || jobs[1].Study != "first" || jobs[1].State != StateFailed {
		t.Errorf("jobs %+v, %v", jobs, err)
	}
	soon(t, "its worker ends", func() bool { return !slices.ContainsFunc(out.pids(t), running) })
}

// TestLaunchAgainShowsTheSweep: launching a running sweep again, from the same process or
// from a notebook, shows the running one and starts no second worker.
func TestLaunchAgainShowsTheSweep(t *testing.T) {
	ownQueue(t)
	s, _ := own(t, "waits", 1)
	s.Resume = true
	_, out := kernelOf(t, s)
	out.await(t, "epoch 1 mean", 1)
	for range 2 {
		j, err := Local(context.Background(), s)
		if err != nil {
			t.Fatal(err)
		}
		pid := j.backend.(*externalSweep).record.PID
		if want := fmt.Sprintf(" as pid %d; showing it", pid); !strings.HasPrefix(j.Note(), "already running since ") || !strings.HasSuffix(j.Note(), want) {
			t.Errorf("note %q, want %q", j.Note(), want)
		}
		if !j.Attached() {
			t.Error("another's sweep counts as this process's")
		}
		if st := j.Status()[0]; st.State != StateRunning || st.Epoch != 1 {
			t.Errorf("status %+v", st)
		}
	}
	s.Set = []string{"batch=7"}
	_, err := Local(context.Background(), s)
	wantError(t, err, "contains a run of another config: set is  there, batch=7 in this sweep")
	if pids := out.pids(t); len(pids) != 1 || !running(pids[0]) {
		t.Errorf("workers %v, want the first alone, running", pids)
	}
}

// TestLaunchShowsATrainingWithoutLauncher: a sweep whose run is trained by a process without
// a launcher shows that process.
func TestLaunchShowsATrainingWithoutLauncher(t *testing.T) {
	ownQueue(t)
	s, _ := own(t, "waits", 1)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	out := &transcript{}
	bare := exec.Command(self, "train", "--config", "waits", "--run", filepath.Join(s.Logs, "waits", "ddp-n1-s1"))
	bare.Stdout, bare.Stderr = out, out
	if err := bare.Start(); err != nil {
		t.Fatal(err)
	}
	out.await(t, "epoch 1 mean", 1)
	s.Workers = []int{1, 2}
	j, err := Local(context.Background(), s)
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf(" as pid %d; showing it", bare.Process.Pid); !strings.Contains(j.Note(), want) {
		t.Errorf("note %q, want %q", j.Note(), want)
	}
	st := attach(t, s).Status()
	if len(st) != 1 || st[0].Name != "ddp-n1-s1" || st[0].State != StateRunning || st[0].Epoch != 1 {
		t.Errorf("status %+v", st)
	}
	kill(t, bare)
	wantError(t, waitFor(t, j), fmt.Sprintf("pid %d has ended without writing its result", bare.Process.Pid))
}

func TestAttachToNothing(t *testing.T) {
	ownQueue(t)
	t.Setenv("XDG_STATE_HOME", "/dev/null") // no sweep on Slurm can be listed there
	if jobs, err := Jobs(); err != nil || len(jobs) != 0 {
		t.Errorf("got jobs %v, %v, want none", jobs, err)
	}
	_, err := Attach(filepath.Join(t.TempDir(), "typo"))
	wantError(t, err, "attach ", "typo", "lockstep jobs")
	_, err = Attach(t.TempDir())
	wantError(t, err, "no sweep was launched in", "lockstep jobs")
	if jobs, err := Jobs(); err != nil || jobs.String() != "no sweeps" {
		t.Errorf("jobs %v, %v", jobs, err)
	}
}

// TestPrune: prune keeps the newest ended sweeps, and all whose process is alive.
func TestPrune(t *testing.T) {
	folder := ownQueue(t)
	alive, err := queue.AddEntry(folder, "0000", "x", queue.EntryRunning)
	if err != nil {
		t.Fatal(err)
	}
	for i := range queue.Kept + 3 {
		p, err := queue.AddEntry(folder, fmt.Sprintf("%04d", i+1), "x", queue.EntryRunning)
		if err == nil {
			err = p.MarkEnded()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := queue.RemoveOldEntries(folder); err != nil {
		t.Fatal(err)
	}
	all, err := queue.ListEntries(folder)
	if err != nil || len(all) != queue.Kept+1 || all[0].ID != "0000" || all[1].ID != "0004" {
		t.Errorf("%d entries, %v: %v", len(all), err, all[:2])
	}
	if err := alive.MarkEnded(); err != nil {
		t.Error(err)
	}
}
