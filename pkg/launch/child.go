package launch

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"lockstep/pkg/internal/buildid"
	"lockstep/pkg/launch/internal/binary"
	"lockstep/pkg/launch/internal/child"
	"lockstep/pkg/launch/internal/mpirun"
	"lockstep/pkg/launch/internal/output"
	"lockstep/pkg/launch/internal/queue"
)

// A separate process, "lockstep launch --watched STUDY", runs the sweep of a notebook. The kernel writes
// the plan to the process's standard input and keeps that pipe open. When the kernel ends, even by kill
// -9, the pipe ends too. The process reports the state of the sweep by its record, and first of all
// whether it has started the sweep. The lines of the workers and its own messages go to the sweep's log.

// childRequest is the message from the kernel to the process that runs a sweep.
type childRequest struct {
	ID     string          `json:"id"`     // of the sweep's record
	Kernel int             `json:"kernel"` // its pid
	Plan   *SweepPlan      `json:"plan"`
	MPIRun mpirun.Launcher `json:"mpirun"`
	Grace  time.Duration   `json:"grace"`
}

// startInSeparateProcess starts a process that runs the sweep of p. If another process has begun to
// train the same runs since the sweep was planned, it returns a *runsInUseError.
func (p *SweepPlan) startInSeparateProcess(ctx context.Context) (*externalSweep, error) {
	launcher, err := binary.FindLauncher(ctx, p.Binary)
	if err != nil {
		return nil, err
	}
	request := childRequest{ID: queue.NewSweepID(time.Now()), Kernel: os.Getpid(), Plan: p, MPIRun: p.mpirun, Grace: p.Sweep.gracePeriod}
	log, err := os.OpenFile(queue.LogPath(p.Dir, request.ID), os.O_CREATE|os.O_WRONLY|os.O_APPEND|os.O_EXCL, 0o644)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(launcher, "launch", "--watched", p.Sweep.Study)
	cmd.Stdout, cmd.Stderr = log, log // a file, not a pipe, so that it works after the end of this process
	cmd.SysProcAttr = child.SessionAttr()
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, errors.Join(err, os.Remove(log.Name()))
	}
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", launcher, err), os.Remove(log.Name()))
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // the record contains the result
		close(ended)
	}()
	r, err := request.send(ctx, cmd, stdin, ended)
	if err != nil {
		_ = stdin.Close() // ends the process
		<-ended
		return nil, errors.Join(err, os.Remove(log.Name()))
	}
	m := newExternalSweep(r)
	go func() {
		if p.Sweep.Output != nil {
			m.followLog(p.Sweep.Output, log.Name())
		}
		<-ended // until then, an open stdin tells the process that this kernel is alive
		_ = stdin.Close()
	}()
	return m, nil
}

const startPollInterval = 2 * time.Millisecond

// send writes the request to stdin, the standard input of cmd, and waits until that process has
// started the sweep. It returns the sweep's record. ended is closed when the process has ended.
func (o childRequest) send(ctx context.Context, cmd *exec.Cmd, stdin io.Writer, ended <-chan struct{}) (*queue.SweepRecord, error) {
	// Until the sweep has started, an interrupt of the cell ends the process.
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	defer stop()
	fail := func(err error) (*queue.SweepRecord, error) {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, err
	}
	// If the process ends early, its log says why.
	sent := json.NewEncoder(stdin).Encode(o)
	path := queue.RecordPath(o.Plan.Dir, o.ID)
	tick := time.NewTicker(startPollInterval)
	defer tick.Stop()
	for over := false; ; {
		r, err := queue.ReadRecord(path)
		switch {
		case err == nil && r.Refusal != nil:
			return fail(errors.Join(refusalError(r.Refusal), os.Remove(path)))
		case err == nil && !r.Starting:
			if !stop() { // the process was killed
				return nil, context.Cause(ctx)
			}
			return r, nil
		case over:
			reason := cmp.Or(output.ReadLastLines(queue.LogPath(o.Plan.Dir, o.ID), output.MaxKeptLines), "it wrote no output")
			return fail(errors.Join(fmt.Errorf("start sweep by %s launch: the process ended before it had started the sweep (is it the lockstep command?): %s", cmd.Path, reason), sent))
		}
		select {
		case <-ended: // look for the record once more
			over = true
		case <-tick.C:
		}
	}
}

func refusalError(r *queue.Refusal) error {
	switch {
	case r.Owned:
		return &runsInUseError{}
	case r.Busy != nil:
		return (*BusyError)(r.Busy)
	}
	return errors.New(r.Error)
}

func newRefusal(err error) *queue.Refusal {
	r := &queue.Refusal{Error: err.Error()}
	var owned *runsInUseError
	var busy *BusyError
	switch {
	case errors.As(err, &owned):
		r.Owned = true
	case errors.As(err, &busy):
		r.Busy = (*queue.BusySweep)(busy)
	}
	return r
}

func (m *externalSweep) followLog(w io.Writer, path string) {
	f, err := os.Open(path)
	if err != nil {
		return
	}
	defer func() { _ = f.Close() }()
	for {
		over, _ := m.hasEnded()
		_, err := io.Copy(w, f)
		if over || err != nil {
			return
		}
		time.Sleep(pollInterval)
	}
}

// Serve implements "lockstep launch --watched". It reads the plan of a sweep from in, to which a
// notebook's kernel writes it, and starts the sweep. The output of the workers goes to log. The
// kernel follows the sweep through its record. When in ends, the sweep ends too, unless it is
// detached.
func Serve(ctx context.Context, in io.Reader, log io.Writer) (*Job, error) {
	var o childRequest
	if err := json.NewDecoder(in).Decode(&o); err != nil || o.Plan == nil {
		return nil, fmt.Errorf("read plan of sweep from standard input: %w; --watched is only for the kernel of a notebook, which sends a plan there: leave it out to start a sweep, or use lockstep watch to see one", cmp.Or(err, io.ErrUnexpectedEOF))
	}
	p := o.Plan
	p.mpirun, p.Sweep.gracePeriod, p.Sweep.Output = o.MPIRun, o.Grace, log
	if p.Sweep.Detach {
		signal.Ignore(syscall.SIGHUP) // it continues after the end of the session that launched it
	}
	ctx, cancel := context.WithCancelCause(ctx)
	l, err := o.startRequestedSweep(ctx)
	if err != nil {
		cancel(nil)
		r := p.newRecord(o.ID)
		r.State, r.Error, r.Refusal = StateFailed, err.Error(), newRefusal(err)
		return nil, errors.Join(err, r.Write())
	}
	go func() {
		_, _ = io.Copy(io.Discard, in) // until the kernel ends
		if p.Sweep.Detach {
			l.markOrphaned()
		} else {
			cancel(queue.ErrNotebookKernelEnded)
		}
	}()
	return &Job{dir: p.Dir, name: p.Sweep.Study, backend: l}, nil
}

// startRequestedSweep starts the sweep in this process, unless a program of another build made the plan.
func (o childRequest) startRequestedSweep(ctx context.Context) (*inProcessSweep, error) {
	if o.Plan.Build != buildid.ID {
		return nil, fmt.Errorf("start sweep by the lockstep command: got build %q, want build %q of the kernel: build both from the same sources", buildid.ID, o.Plan.Build)
	}
	return o.Plan.startInThisProcess(ctx, o.ID, o.Kernel)
}
