package launch

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/launch/internal/output"
	"lockstep/pkg/launch/internal/queue"
	"lockstep/pkg/notebook"
	"lockstep/pkg/runs"
)

// Job is a sweep that runs in the background: in this process, in another, or on Slurm.
type Job struct {
	dir     string
	name    string // of the study
	where   string // see Where
	note    string // see Note
	found   bool   // see Found
	heading string // of Watch's table; "" if it needs none
	backend backend
}

// backend observes and ends the sweep of a Job. It is an *inProcessSweep for a sweep in this
// process, an *externalSweep for one in another process, and a *slurmSweep for one on Slurm.
type backend interface {
	status() []RunStatus
	waitsFor() string        // describes the sweep or the cores that this one waits for, or its waiting jobs; "" if none
	hasEnded() (bool, error) // reports whether the sweep has ended, and the error of the sweep
	done() <-chan struct{}   // is closed when the sweep has ended; nil if the caller must poll
	isOwn() bool             // reports whether this process launched the sweep, or nobody else is left who did
	isEnding() bool          // reports whether this process has asked the sweep to end
	end(atOnce bool) error   // asks the sweep to end, or kills its workers at once
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
// While another sweep of this user runs on this machine, this one waits, because simultaneous
// work would distort the measured times; see Sweep.Now. It may also wait for cores that other
// users' sweeps have; see the package's documentation. If runs of the sweep are already being
// trained, the returned Job shows the sweep that trains them. Finished runs are not run again.
func Local(ctx context.Context, s Sweep) (*Job, error) { return startSweep(ctx, OnLocal, "", s) }

// startSweep implements Local and MPI. on is OnLocal or OnMPI.
func startSweep(ctx context.Context, on, profile string, s Sweep) (*Job, error) {
	separate := notebook.InNotebook() || s.Detach
	shown := ""
	for {
		p, err := planSweep(ctx, on, profile, s, false)
		if err != nil {
			return nil, err
		}
		where := p.describeStudyFolder()
		if where != shown {
			if err := p.showMessage(where); err != nil {
				return nil, err
			}
			shown = where
		}
		job, err := p.start(ctx, separate)
		var owned *runsInUseError
		switch {
		case errors.As(err, &owned): // since it was planned: the next plan shows the owner
			continue
		case err != nil:
			return nil, fmt.Errorf("launch %s: %w", p.Sweep.Study, err)
		}
		job.where = where
		return job, p.showMessage(job.note)
	}
}

// start starts the sweep of p in this process, or in another one if separate is set. It starts
// nothing if all runs are done or another process is already training them.
func (p *SweepPlan) start(ctx context.Context, separate bool) (job *Job, err error) {
	if err := p.Sweep.saveLineTemplates(p.Dir); err != nil {
		return nil, err
	}
	job = &Job{dir: p.Dir, name: p.Sweep.Study, note: p.leftOver}
	switch {
	case p.owner != nil:
		job.backend, job.found = newExternalSweep(p.owner), true
		job.addNote(p.owner.AttachNote())
		return job, nil
	case p.hasNothingToDo():
		l := newInProcessSweep(p)
		close(l.ended)
		job.backend = l
		job.addNote(english.FormatCount(len(p.Runs), "run") + " done; nothing to do")
		return job, nil
	case separate:
		job.backend, err = p.startInSeparateProcess(ctx)
	default:
		job.backend, err = p.startInThisProcess(ctx, queue.NewSweepID(time.Now()), 0)
	}
	if err != nil {
		return nil, err
	}
	for _, note := range p.notes() {
		job.addNote(note)
	}
	job.addNote(job.backend.waitsFor())
	return job, nil
}

func (j *Job) addNote(line string) {
	if j.note != "" && line != "" {
		j.note += "\n"
	}
	j.note += line
}

// Where returns a message with the folder of the runs and the number of older runs in it. The
// launch has already shown this message in the cell, or as the first line of Sweep.Output.
func (j *Job) Where() string { return j.where }

// Note returns a message for the user if the sweep did not start at once, and otherwise "". The
// sweep may wait for another sweep or for cores, another process may already train its runs, or all
// of them may have finished.
func (j *Job) Note() string { return j.note }

// Found reports whether the sweep was launched before, and continues, so that nothing was started.
func (j *Job) Found() bool { return j.found }

// Attached reports whether the sweep was launched by another program or notebook that still runs.
func (j *Job) Attached() bool { return !j.backend.isOwn() }

// Dir returns the study's folder, which scaling.Read reads.
func (j *Job) Dir() string { return j.dir }

// Cancel asks the workers to save their run and to end, and kills those that are still alive some
// seconds later. It does not wait; Wait does. A later launch with Resume continues the runs. Cancel
// also ends a sweep that another process of this user runs on this machine or on Slurm. If it is
// not certain that the recorded process runs the sweep, Cancel returns an error and does nothing.
func (j *Job) Cancel() error { return j.backend.end(false) }

// Kill ends the sweep like Cancel, but kills the workers at once.
func (j *Job) Kill() error { return j.backend.end(true) }

// Ended reports whether the sweep has ended.
func (j *Job) Ended() bool {
	over, _ := j.backend.hasEnded() // Wait returns the error
	return over
}

// Wait waits until the sweep has ended and returns the error of the run that failed, if any. If ctx
// ends first, Wait returns an error and the sweep continues, unless this process runs the sweep and
// ctx is also the context that was passed to Local.
func (j *Job) Wait(ctx context.Context) error { return j.wait(ctx, func() {}) }

// wait implements Wait. It calls show every pollInterval and at the end.
func (j *Job) wait(ctx context.Context, show func()) error {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	defer show()
	stop := ctx.Done()
	for {
		if over, err := j.backend.hasEnded(); over {
			return err
		}
		show()
		select {
		case <-j.backend.done():
		case <-tick.C:
		case <-stop:
			if !j.backend.isEnding() {
				return fmt.Errorf("wait for %s: %w; the sweep continues: Cancel ends it", j.name, context.Cause(ctx))
			}
			stop = nil // this process is ending the sweep: wait until its workers have ended
		}
	}
}

// Status returns the status of each run, in the order in which they are executed.
func (j *Job) Status() []RunStatus { return j.backend.status() }

// Tail returns the last lines of output of a run, at most n per worker. run is a name as in
// RunStatus. A worker without output is left out.
func (j *Job) Tail(run string, n int) (string, error) {
	if n < 1 {
		return "", fmt.Errorf("read output of run %s: got %d lines: use at least 1", run, n)
	}
	var names []string
	for _, s := range j.backend.status() {
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
