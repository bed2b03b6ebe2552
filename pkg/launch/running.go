package launch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/internal/process"
	"lockstep/pkg/launch/internal/binding"
	"lockstep/pkg/launch/internal/output"
	"lockstep/pkg/launch/internal/queue"
	"lockstep/pkg/launch/internal/runfolder"
	"lockstep/pkg/launch/internal/workers"
	"lockstep/pkg/monitor"
	"lockstep/pkg/runs"
)

type runningRun struct {
	*PlannedRun
	runState

	plan    *SweepPlan
	out     *output.LineWriter
	killNow <-chan struct{} // closed when the workers are to be killed at once
	changed func()          // called after each change of state
}

// resetState sets the state from the planned action: the run is done, or waits.
func (r *runningRun) resetState() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.state = StateWaiting; r.Action == ActionNone {
		r.state = StateDone
	}
}

func (r *runningRun) execute(ctx context.Context) error {
	if r.Action == ActionNone {
		return r.writeStudyLog()
	}
	r.setState(StateRunning, nil)
	if limit := r.plan.Sweep.Timeout; limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = process.WithTimeoutCause(ctx, limit, fmt.Errorf("time-out of %v exceeded: %w", limit, context.DeadlineExceeded))
		defer cancel()
	}
	var err error
	if r.Program {
		err = r.runCommand(ctx)
	} else {
		err = r.runLockstep(ctx)
	}
	status := runfolder.StatusForError(err)
	if err != nil {
		err = fmt.Errorf("run %s: %w", r.Name, err)
	} else {
		err = r.writeStudyLog() // an error here leaves the run done
	}
	r.setState(status, err)
	return err
}

// runLockstep trains with the lockstep command, which writes the run folder itself.
func (r *runningRun) runLockstep(ctx context.Context) error {
	if err := runfolder.MakeDir(r.Dir); err != nil {
		return err
	}
	if err := runs.RemoveTemporary(r.Dir); err != nil { // left by a launch that was killed before it created a run
		return err
	}
	err := r.runWorkers(ctx, func(*workers.Group, binding.Binding) error { return nil }) // rank 0 records the binding
	if err == nil {
		return nil
	}
	// Rank 0 may have been killed before it could write the final status of the run.
	return errors.Join(err, runfolder.WriteFinalStatus(r.Dir, runfolder.StatusForError(err), err))
}

// runCommand runs a program other than lockstep. It also writes the wall time to run.json, and the
// load of the machine. The epochs are in the logs of the workers, which logread reads.
func (r *runningRun) runCommand(ctx context.Context) error {
	s := &r.plan.Sweep
	info := runs.Info{
		Study: s.Study, Series: r.Series, Workers: r.Workers, Seed: r.Seed, Nodes: r.plan.nodesPerRun(),
		Command: r.Command, ThreadsPerWorker: s.Threads, Host: runs.DescribeHost(),
	}
	if s.OneProcess {
		info.Processes = 1
	}
	info.GPUs = r.GPUs
	if r.NSys {
		info.Profiler = nsysProgram
	}
	w, err := runs.Create(r.Dir, info)
	if err != nil {
		return err
	}
	begin := time.Now()
	err = w.Log("start %s with %s, %s each", strings.Join(r.Command, " "), english.FormatCount(r.Workers, "worker"), english.FormatCount(s.Threads, "thread"))
	load := monitor.NewLoadMeter(os.Getpid())
	if err == nil {
		load.Begin()
		stopUsage := func() {}
		err = r.runWorkers(ctx, func(c *workers.Group, b binding.Binding) error {
			stopUsage = runfolder.RecordResourceUsage(r.Dir, c.ProcessIDs(), func(err error) { _ = w.Log("note: %v", err) })
			err := w.UpdateInfo(func(i *runs.Info) {
				i.Binding = &b.Binding
				if b.Disturbed != "" {
					i.Notes = append(i.Notes, b.DisturbanceNote())
				}
			})
			return errors.Join(err, w.Log("%s", b))
		})
		stopUsage()
	}
	seconds := time.Since(begin).Seconds()
	if measured, ok := load.End(1); ok && err == nil {
		err = w.AppendLoad(measured)
	}
	status := runfolder.StatusForError(err)
	return errors.Join(err, w.Log("%s after %.3f s", status, seconds), w.Finish(status, err))
}

// runWorkers starts the workers, calls started with their group and binding, and waits until they
// have ended. The error describes the workers that failed.
func (r *runningRun) runWorkers(ctx context.Context, started func(*workers.Group, binding.Binding) error) error {
	if ctx.Err() != nil {
		return queue.ContextEndError(ctx)
	}
	var c *workers.Group
	b := workers.MPIBinding(r.plan.disturbed)
	var err error
	if r.plan.On == OnMPI {
		c, err = r.startMPI(ctx)
	} else {
		c, b, err = r.startWorkers(ctx)
	}
	if err != nil {
		return err
	}
	if err := started(c, b); err != nil {
		return errors.Join(err, c.Kill())
	}
	failed, err := c.Wait(ctx)
	if len(failed) > 0 {
		var text []string
		for _, e := range failed {
			text = append(text, e.String())
		}
		return errors.Join(errors.New(strings.Join(text, "\nthen ")), err)
	}
	if ctx.Err() != nil {
		return errors.Join(queue.ContextEndError(ctx), err)
	}
	return err
}

func (r *runningRun) setState(state string, err error) {
	defer r.changed()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.state = state; state == StateRunning {
		r.started = time.Now()
	} else {
		r.ended = time.Now()
	}
	r.err = err
}
