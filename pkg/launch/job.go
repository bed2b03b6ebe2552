package launch

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/internal/process"
	"lockstep/pkg/launch/internal/estimate"
	"lockstep/pkg/launch/internal/output"
	"lockstep/pkg/launch/internal/queue"
	"lockstep/pkg/notebook"
	"lockstep/pkg/runs"
)

// States of a run of a job.
const (
	StateWaiting  = queue.StateWaiting
	StateRunning  = runs.StatusRunning
	StateDone     = runs.StatusDone
	StateFailed   = runs.StatusFailed
	StateCanceled = runs.StatusCanceled
)

// Job is a sweep that runs in the background, in this process or in another.
type Job struct {
	dir   string
	name  string // of the study
	note  string // see Note
	found bool   // see Found
	sweep sweepProcess
}

// sweepProcess observes and ends the sweep of a Job, in this process or in another.
type sweepProcess interface {
	status() []RunStatus
	waitsFor() string             // describes the sweep that this one waits for; "" if none
	hasEnded() (bool, error)      // reports whether the sweep has ended, and the error of the sweep
	doneChannel() <-chan struct{} // is closed when the sweep has ended; nil if the caller must poll
	isOwn() bool                  // reports whether this process launched the sweep, or nobody else is left who did
	isEnding() bool               // reports whether this process has asked the sweep to end
	end(atOnce bool) error        // asks the sweep to end, or kills its workers at once
}

// Local starts the runs of s on this machine and returns at once. The runs are executed one
// after another in the background, until all are done or one has failed. Local checks the
// sweep first: if it returns an error, nothing has started.
//
// In a notebook, a separate process runs the sweep, and ctx is only used for the start. An
// interrupt of the cell does not end the sweep; Cancel does. The sweep ends with the
// notebook's kernel unless Detach is set. In other programs, this process runs the sweep,
// and the end of ctx ends it, unless Detach is set: then a separate process runs it too.
//
// While another sweep of this user is running on this machine, this one waits, because
// simultaneous work would distort the measured times; see Sweep.Now. If runs of the sweep
// are already being trained, the returned Job shows the sweep that trains them. Finished runs
// are not run again.
func Local(ctx context.Context, s Sweep) (*Job, error) {
	if notebook.InNotebook() || s.Detach {
		return startInSeparateProcess(ctx, s)
	}
	job, err := startInThisProcess(ctx, s, queue.NewID(time.Now()), 0)
	if err == nil && job.note != "" && s.Output != nil {
		output.NewLineWriter(s.Output).WriteLine(job.note)
	}
	return job, err
}

// startInThisProcess runs s in this process, unless all runs are done or another process
// is already training them. id is the name of the sweep. kernel is the pid of the
// notebook's kernel that launched the sweep, or 0.
func startInThisProcess(ctx context.Context, s Sweep, id string, kernel int) (*Job, error) {
	job, l, err := prepareJob(ctx, &s)
	if err != nil || job.sweep != l {
		return job, err
	}
	owner, err := l.enqueue(ctx, s, job.dir, id, kernel)
	if err != nil {
		return nil, fmt.Errorf("launch %s: %w", s.Study, err)
	}
	job.addNote(l.waitsFor())
	if owner != nil { // another process started the runs after prepareJob
		job.sweep, job.note, job.found = newRemoteSweep(owner), owner.AttachNote(), true
	}
	return job, nil
}

// prepareJob checks s, fills in its defaults and returns the job. l is the planned sweep,
// which has not started yet. If runs have to be trained, l is the job's sweep. Otherwise
// the job shows the process that is already training the runs, or the finished runs.
func prepareJob(ctx context.Context, s *Sweep) (job *Job, l *localSweep, err error) {
	if err := s.Validate(); err != nil {
		return nil, nil, err
	}
	*s = s.withDefaults()
	if job, l, err = s.planJob(ctx); err == nil {
		err = s.saveLineTemplates(job.dir)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("launch %s: %w", s.Study, err)
	}
	return job, l, nil
}

// threadsPerWorker is the number of threads that a worker of Lockstep has at least: Go's runtime and
// the thread that trains.
const threadsPerWorker = 8

// planJob implements prepareJob for a sweep that has been validated and has its defaults.
func (s *Sweep) planJob(ctx context.Context) (job *Job, l *localSweep, err error) {
	dir, err := s.findStudyFolder()
	if err != nil {
		return nil, nil, err
	}
	threads := threadsPerWorker
	if s.isForeign() {
		threads = 1
	}
	if !s.onMPI { // otherwise the workers may be on other machines
		if err := process.CheckThreadLimit("/proc", slices.Max(s.Workers)*threads); err != nil {
			return nil, nil, fmt.Errorf("start workers: %w", err)
		}
	}
	if l, err = newLocalSweep(ctx, s, dir); err != nil {
		return nil, nil, err
	}
	if err := l.checkSameConfigs(); err != nil {
		return nil, nil, err
	}
	folder, err := queue.Folder()
	if err != nil {
		return nil, nil, err
	}
	owner, note, err := findOwner(folder, dir, l.all)
	if err != nil {
		return nil, nil, err
	}
	job = &Job{dir: dir, name: s.Study, sweep: l, note: note}
	if owner != nil {
		job.sweep, job.found = newRemoteSweep(owner), true
		job.addNote(owner.AttachNote())
		return job, l, nil
	}
	nothing, err := l.checkFolders()
	if err != nil && note != "" {
		err = fmt.Errorf("%w (%s)", err, note)
	}
	if nothing {
		job.sweep = finishedSweep{l}
		job.addNote(english.Count(len(l.all), "run") + " done; nothing to do")
	}
	return job, l, err
}

// addNote adds a line to the job's note, unless it is empty.
func (j *Job) addNote(line string) {
	if j.note != "" && line != "" {
		j.note += "\n"
	}
	j.note += line
}

// finishedSweep is a sweep whose runs had all finished before it was launched.
type finishedSweep struct{ *localSweep }

func (finishedSweep) hasEnded() (bool, error)      { return true, nil }
func (finishedSweep) doneChannel() <-chan struct{} { return nil }
func (finishedSweep) end(bool) error               { return nil }

// Note returns a message for the user if the sweep did not start at once: because it waits
// for another sweep, because its runs are already being trained, or because all of them have
// finished. Otherwise it returns "".
func (j *Job) Note() string { return j.note }

// Found reports whether the sweep was launched before, and continues, so that nothing was started.
func (j *Job) Found() bool { return j.found }

// Attached reports whether another program or notebook, which has not ended, launched the sweep.
func (j *Job) Attached() bool { return !j.sweep.isOwn() }

// Dir returns the study's folder, which scaling.Read reads.
func (j *Job) Dir() string { return j.dir }

// Cancel asks the workers to save their run and to end; workers that are alive some seconds later are
// killed. Use Wait to wait for their end. A later launch with Resume continues the runs. Cancel also
// ends a sweep that another process of this user runs on this machine or on Slurm. It returns an
// error, and does nothing, if it is not certain that the recorded process runs the sweep.
func (j *Job) Cancel() error { return j.sweep.end(false) }

// Kill ends the sweep like Cancel, but kills the workers at once.
func (j *Job) Kill() error { return j.sweep.end(true) }

// Ended reports whether the sweep has ended.
func (j *Job) Ended() bool {
	over, _ := j.sweep.hasEnded() // Wait returns the error
	return over
}

// Wait waits until the sweep has ended and returns the error of the run that failed, if any.
// If ctx ends first, Wait returns an error and the sweep continues, unless this process runs
// the sweep and ctx is also the context that was passed to Local.
func (j *Job) Wait(ctx context.Context) error { return j.wait(ctx, func() {}) }

// wait is Wait with a function show that is called every pollInterval and at the end.
func (j *Job) wait(ctx context.Context, show func()) error {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	defer show()
	stop := ctx.Done()
	for {
		if over, err := j.sweep.hasEnded(); over {
			return err
		}
		show()
		select {
		case <-j.sweep.doneChannel():
		case <-tick.C:
		case <-stop:
			if !j.sweep.isEnding() {
				return fmt.Errorf("wait for %s: %w; the sweep continues: Cancel ends it", j.name, context.Cause(ctx))
			}
			stop = nil // this process is ending the sweep: wait until its workers have ended
		}
	}
}

// RunStatus describes the state and progress of a run.
type RunStatus struct {
	Name    string // of the run folder in Job.Dir
	Dir     string
	Workers int
	Seed    int64
	State   string // one of the State constants
	Err     error  // nil unless the run failed or was canceled
	Seconds float64
	// Epoch is the number of epochs done, and Epochs the number of all epochs, or 0 if
	// unknown. For a program other than lockstep they come from its logs.
	Epoch, Epochs int
	// Binding describes the CPUs of the workers, or is nil until run.json contains it.
	Binding *runs.Binding
	// Last is the last finished epoch, or the zero Epoch if there is none.
	Last runs.Epoch
	// Lines is the number of lines that rank 0 has written, and Line the last of them.
	Lines int
	Line  string
	// Job is the id of the run's job of Slurm, or "" on this machine.
	Job string
	// Waits describes what a waiting job of Slurm waits for; otherwise it is "".
	Waits string
	// Ends is the estimated time at which a running run ends, by the mean time of its epochs.
	// It is zero if unknown.
	Ends time.Time

	foreign bool      // whether the workers run another program than lockstep
	read    *runs.Run // the run folder as last read
}

// Status returns the status of each run, in the order in which they are executed.
func (j *Job) Status() []RunStatus { return j.sweep.status() }

// Tail returns the last lines of the workers' output of a run, given by its name as in
// RunStatus, at most n lines per worker. A worker without output is left out.
func (j *Job) Tail(run string, n int) (string, error) {
	if n < 1 {
		return "", fmt.Errorf("read output of run %s: got %d lines: use at least 1", run, n)
	}
	var names []string
	for _, s := range j.sweep.status() {
		if names = append(names, s.Name); s.Name != run {
			continue
		}
		var b strings.Builder
		for rank := range s.Workers {
			lines := output.ReadLastLines(filepath.Join(s.Dir, runs.WorkerLogName(rank)), n)
			if lines != "" {
				fmt.Fprintf(&b, "rank %d:\n    %s\n", rank, lines)
			}
		}
		return b.String(), nil
	}
	return "", fmt.Errorf("read output of run %s: unknown run, want one of %s", run, strings.Join(names, ", "))
}

// status returns the status of the run.
func (r *run) status() RunStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := RunStatus{Name: r.name, Dir: r.dir, Workers: r.workers, Seed: r.seed, State: r.state, Err: r.err, Epochs: r.sweep.Epochs, foreign: r.sweep.isForeign()}
	if r.rank0Output != nil {
		s.Lines, s.Line = r.rank0Output.LastLine()
	}
	switch {
	case r.started.IsZero():
	case r.state == StateRunning:
		s.Seconds = time.Since(r.started).Seconds()
	default:
		s.Seconds = r.ended.Sub(r.started).Seconds()
	}
	if r.state != StateWaiting {
		r.folder.Reread(r.dir, r.state == StateRunning, r.sweep.isForeign())
	}
	if n, ok := r.folder.Run.Info.Config["epochs"].(float64); ok {
		s.Epochs = int(n)
	}
	s.Binding = r.folder.Run.Info.Binding
	if n := len(r.folder.Run.Epochs); n > 0 {
		s.Epoch, s.Last = n, r.folder.Run.Epochs[n-1]
	}
	read := r.folder.Run
	read.Info.Status = r.state // run.json is not read again when the state changes
	s.read = &read
	if r.state == StateRunning {
		s.Ends = estimate.End(r.folder.Run.Epochs, s.Epochs, r.folder.Time)
	}
	return s
}
