package launch

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"lockstep/pkg/runs"
)

// States of a run of a job.
const (
	StateWaiting  = "waiting"
	StateRunning  = runs.StatusRunning
	StateDone     = runs.StatusDone
	StateFailed   = runs.StatusFailed
	StateCanceled = runs.StatusCanceled
)

// Job is a sweep that runs in the background.
type Job struct {
	dir    string
	runs   []*run
	ctx    context.Context
	cancel context.CancelFunc
	done   chan struct{}
	err    error // once done is closed
	now    chan struct{}
	kill   sync.Once // closes now
}

// Local starts the runs of s on this machine and returns at once; they go on
// one after another until all are done, one fails, or ctx ends. What can be
// known to be wrong before is an error, and then nothing was started.
func Local(ctx context.Context, s Sweep) (*Job, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	s = s.withDefaults()
	dir, err := s.dir()
	if err != nil {
		return nil, fmt.Errorf("launch %s: %w", s.Study, err)
	}
	var binary string
	if s.foreign() {
		_, err = exec.LookPath(s.Command[0])
	} else {
		binary, err = Binary(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("launch %s: %w", s.Study, err)
	}
	all := s.plan(dir)
	if !s.foreign() {
		if err := s.check(ctx, binary, all); err != nil {
			return nil, fmt.Errorf("launch %s: %w", s.Study, err)
		}
	}
	if err := makeFolder(dir); err != nil {
		return nil, fmt.Errorf("launch %s: %w", s.Study, err)
	}
	for _, r := range all {
		if err := r.look(); err != nil {
			return nil, fmt.Errorf("launch %s: %w", s.Study, err)
		}
	}
	j := &Job{dir: dir, runs: all, done: make(chan struct{}), now: make(chan struct{})}
	for _, r := range all {
		r.now = j.now
	}
	j.ctx, j.cancel = context.WithCancel(ctx)
	go j.work(binary)
	return j, nil
}

func (j *Job) work(binary string) {
	// See run.start.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(j.done)
	defer j.cancel()
	for _, r := range j.runs {
		if j.err = r.do(j.ctx, binary); j.err != nil {
			return
		}
	}
}

// Dir is the study's folder, which scaling.Read reads.
func (j *Job) Dir() string { return j.dir }

// Cancel ends the job: its workers are asked to end, and after some seconds
// made to. Wait returns when they have.
func (j *Job) Cancel() { j.cancel() }

// Kill ends the job at once: its workers are not asked.
func (j *Job) Kill() {
	j.cancel()
	j.kill.Do(func() { close(j.now) })
}

// Wait returns when the job has ended, with the error of the run that failed,
// or when ctx ends; the job goes on then, unless ctx was Local's too.
func (j *Job) Wait(ctx context.Context) error {
	select {
	case <-j.done:
		return j.err
	case <-ctx.Done():
	}
	if j.ctx.Err() != nil { // it is ending: what was started must be gone first
		<-j.done
		return j.err
	}
	return fmt.Errorf("wait for %s: %w; it goes on: Cancel ends it", filepath.Base(j.dir), context.Cause(ctx))
}

// RunStatus is how far a run is.
type RunStatus struct {
	Name    string // of its folder in Job.Dir
	Dir     string
	Workers int
	Seed    int64
	State   string // one of the State constants
	Err     error  // of a run that failed or was canceled
	Seconds float64
	// Epoch is the number of epochs done, of Epochs (0: not known).
	Epoch, Epochs int
	// Last is the last epoch's row; the zero Epoch before.
	Last runs.Epoch
	// Lines is the number of lines that rank 0 has written, Line the last.
	Lines int
	Line  string
}

// Status is how far the runs are, in their order.
func (j *Job) Status() []RunStatus {
	all := make([]RunStatus, len(j.runs))
	for i, r := range j.runs {
		all[i] = r.status()
	}
	return all
}

func (r *run) status() RunStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := RunStatus{Name: r.name, Dir: r.dir, Workers: r.workers, Seed: r.seed, State: r.state, Err: r.err, Epochs: r.sweep.Epochs}
	if r.speaks != nil {
		s.Lines, s.Line = r.speaks.latest()
	}
	switch {
	case r.started.IsZero():
	case r.state == StateRunning:
		s.Seconds = time.Since(r.started).Seconds()
	default:
		s.Seconds = r.ended.Sub(r.started).Seconds()
	}
	if r.state != StateWaiting {
		r.reread()
	}
	if n, ok := r.read.Info.Config["epochs"].(float64); ok {
		s.Epochs = int(n)
	}
	if n := len(r.read.Epochs); n > 0 {
		s.Epoch, s.Last = n, r.read.Epochs[n-1]
	}
	return s
}

// reread reads the run folder when it has a new epoch, and only then: reading
// must not disturb what is being measured.
func (r *run) reread() {
	stat, err := os.Stat(filepath.Join(r.dir, "epochs.csv"))
	if err != nil {
		return // not there yet
	}
	stamp := fmt.Sprint(stat.Size(), stat.ModTime().UnixNano())
	if stamp == r.stamp {
		return
	}
	if read, err := runs.Read(r.dir); err == nil {
		r.read, r.stamp = read, stamp
	}
}
