package launch

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"lockstep/pkg/notebook"
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

// Job is a sweep that runs in the background, in this process or in another.
type Job struct {
	dir  string
	name string // of the study
	note string
	of   sweepProcess
}

// sweepProcess is what a Job knows of the process that runs its sweep.
type sweepProcess interface {
	status() []RunStatus
	waits() string         // what the sweep waits for, "" if for nothing
	ended() (bool, error)  // whether the sweep has ended, and how
	wake() <-chan struct{} // closed when the sweep has ended; nil: nobody tells
	mine() bool            // whether end does anything
	ending() bool          // whether the sweep was asked to end by this process
	end(atOnce bool) error // asks the sweep to end
}

// Local starts the runs of s on this machine and returns at once; they go on
// one after another until all are done or one fails. What can be known to be
// wrong before is an error, and then nothing was started.
//
// In a notebook the sweep has a process of its own, ctx is used for the start
// alone, and an interrupt of the cell leaves the sweep alone: Cancel ends it. It
// ends with the notebook's kernel unless Detach is set. Elsewhere this process
// runs it, and the end of ctx ends it.
//
// While another sweep of this user runs on this machine, this one waits, because
// times that were measured beside it would be wrong; see Sweep.Now. If runs of
// the sweep are being trained already, the Job is that of their owner. Finished
// runs are not run again.
func Local(ctx context.Context, s Sweep) (*Job, error) {
	if notebook.InNotebook() {
		return startProcess(ctx, s)
	}
	job, err := start(ctx, s, newID(time.Now()), 0)
	if err == nil && job.note != "" && s.Output != nil {
		(&output{w: s.Output}).line(job.note)
	}
	return job, err
}

// start runs s in this process, if there is something to do. kernel is the pid of
// the notebook's kernel for which it does, 0 if for none.
func start(ctx context.Context, s Sweep, id string, kernel int) (*Job, error) {
	job, l, err := examine(ctx, &s)
	if err != nil || job.of != l {
		return job, err
	}
	owner, err := l.begin(ctx, s, job.dir, id, kernel)
	if err != nil {
		return nil, fmt.Errorf("launch %s: %w", s.Study, err)
	}
	if job.note = l.waits(); owner != nil { // since a moment ago
		job.of, job.note = attached(owner), owner.shown()
	}
	return job, nil
}

// examine checks s and completes it. The job's process is l if l has something to
// do, and otherwise shows the sweep that has the runs, or those that are done.
func examine(ctx context.Context, s *Sweep) (job *Job, l *local, err error) {
	if err := s.Validate(); err != nil {
		return nil, nil, err
	}
	*s = s.withDefaults()
	if job, l, err = s.examine(ctx); err != nil {
		return nil, nil, fmt.Errorf("launch %s: %w", s.Study, err)
	}
	return job, l, nil
}

func (s *Sweep) examine(ctx context.Context) (job *Job, l *local, err error) {
	dir, err := s.dir()
	if err != nil {
		return nil, nil, err
	}
	if l, err = prepare(ctx, s, dir); err != nil {
		return nil, nil, err
	}
	if err := l.compare(); err != nil {
		return nil, nil, err
	}
	folder, err := locksFolder()
	if err != nil {
		return nil, nil, err
	}
	job = &Job{dir: dir, name: s.Study, of: l}
	owner, err := ownerOf(folder, dir, l.all)
	if err != nil {
		return nil, nil, err
	}
	if owner != nil {
		job.of, job.note = attached(owner), owner.shown()
		return job, l, nil
	}
	nothing, err := l.look()
	if nothing {
		job.of, job.note = finished{l}, count(len(l.all), "run")+" done; nothing to do"
	}
	return job, l, err
}

// finished is a sweep all of whose runs were done before.
type finished struct{ *local }

func (finished) ended() (bool, error)  { return true, nil }
func (finished) wake() <-chan struct{} { return nil }
func (finished) end(bool) error        { return nil }

// Note says what a user should know about the start: which sweep this one waits
// for, that the runs are being trained already, or that all were done before. It
// is empty for a sweep that simply started.
func (j *Job) Note() string { return j.note }

// Attached reports whether the job belongs to somebody else, so that Cancel leaves
// it alone.
func (j *Job) Attached() bool { return !j.of.mine() }

// Dir is the study's folder, which scaling.Read reads.
func (j *Job) Dir() string { return j.dir }

// Cancel ends the job: its workers are asked to end, and after some seconds
// made to. Wait returns when they have. A job that belongs to somebody else,
// such as a sweep in a terminal, is left alone, and the error says who can end it.
func (j *Job) Cancel() error { return j.of.end(false) }

// Kill is Cancel, but the workers are not asked.
func (j *Job) Kill() error { return j.of.end(true) }

// Wait returns when the job has ended, with the error of the run that failed,
// or when ctx ends; the job goes on then, unless ctx was Local's too and this
// process runs it.
func (j *Job) Wait(ctx context.Context) error { return j.wait(ctx, func() {}) }

// wait is Wait with a function that is called every watchTime and at the end.
func (j *Job) wait(ctx context.Context, show func()) error {
	tick := time.NewTicker(watchTime)
	defer tick.Stop()
	defer show()
	stop := ctx.Done()
	for {
		if over, err := j.of.ended(); over {
			return err
		}
		show()
		select {
		case <-j.of.wake():
		case <-tick.C:
		case <-stop:
			if !j.of.ending() {
				how := ""
				if j.of.mine() {
					how = ": Cancel ends it"
				}
				return fmt.Errorf("wait for %s: %w; it goes on%s", j.name, context.Cause(ctx), how)
			}
			stop = nil // what was started must be gone first
		}
	}
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

	foreign bool // the workers are not ours
}

// Status is how far the runs are, in their order.
func (j *Job) Status() []RunStatus { return j.of.status() }

func (r *run) status() RunStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := RunStatus{Name: r.name, Dir: r.dir, Workers: r.workers, Seed: r.seed, State: r.state, Err: r.err, Epochs: r.sweep.Epochs, foreign: r.sweep.foreign()}
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
