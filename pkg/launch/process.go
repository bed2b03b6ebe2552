package launch

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"lockstep/pkg/launch/internal/binary"
	"lockstep/pkg/launch/internal/child"
	"lockstep/pkg/launch/internal/queue"
	"lockstep/pkg/notebook"
	"lockstep/pkg/train"
)

// A separate process, "lockstep launch --watched STUDY", runs the sweep of a notebook. The
// kernel writes a request to the process's standard input and keeps that pipe open. When the
// kernel ends, even by kill -9, the pipe ends too. The process writes a response of one line
// to its standard output. All other output of the process and its workers goes to the
// sweep's log.

// sweepRequest is the message from the kernel to the process that runs a sweep.
type sweepRequest struct {
	ID     string        `json:"id"`
	Kernel int           `json:"kernel"` // its pid
	Sweep  Sweep         `json:"sweep"`
	Grace  time.Duration `json:"grace"`
	MPI    bool          `json:"mpi,omitempty"` // whether mpirun starts the workers
}

// sweepResponse is the answer of the process to a request.
type sweepResponse struct {
	Record string     `json:"record,omitempty"` // path of the sweep's record, once the sweep is in the queue
	Note   string     `json:"note,omitempty"`   // see Job.Note
	Again  bool       `json:"again,omitempty"`  // whether the runs were started or finished in the meantime; see startSweepProcess
	Error  string     `json:"error,omitempty"`
	Usage  bool       `json:"usage,omitempty"` // whether the error is a train.UsageError
	Busy   *BusyError `json:"busy,omitempty"`
}

// startInSeparateProcess implements Local in a notebook: it starts a separate process that
// runs the sweep.
func startInSeparateProcess(ctx context.Context, s Sweep) (*Job, error) {
	for {
		job, l, err := prepareJob(ctx, &s)
		if err != nil {
			return nil, err
		}
		again := false
		if job.sweep == l {
			if again, err = job.startSweepProcess(ctx, s); err != nil {
				return nil, fmt.Errorf("launch %s: %w", s.Study, err)
			}
		}
		if again { // another process was faster
			continue
		}
		if job.note != "" && notebook.InNotebook() {
			if err := notebook.Display(job.note); err != nil {
				return nil, err
			}
		}
		return job, nil
	}
}

// startSweepProcess starts the process that runs s. If another process has started or finished
// the runs in the meantime, startSweepProcess does nothing and again is true: the caller must
// prepare the job again.
func (j *Job) startSweepProcess(ctx context.Context, s Sweep) (again bool, err error) {
	launcher, err := binary.FindLauncher(ctx)
	if err != nil {
		return false, err
	}
	o := sweepRequest{ID: queue.NewID(time.Now()), Kernel: os.Getpid(), Sweep: s, Grace: s.gracePeriod, MPI: s.onMPI}
	log, err := os.OpenFile(queue.LogPath(j.dir, o.ID), os.O_CREATE|os.O_WRONLY|os.O_APPEND|os.O_EXCL, 0o644)
	if err != nil {
		return false, err
	}
	cmd := exec.Command(launcher, "launch", "--watched", s.Study)
	cmd.Stderr = log // a file, not a pipe, so that it works after the end of this process
	cmd.SysProcAttr = child.SessionAttr()
	a, alive, err := o.send(ctx, cmd)
	err = errors.Join(err, log.Close())
	var r *queue.Record
	if err == nil && a.Record != "" {
		r, err = queue.ReadRecord(a.Record)
	}
	if r == nil {
		if alive != nil {
			err = errors.Join(err, alive.Close())
		}
		if cmd.Process != nil {
			_ = cmd.Wait() // the response contains the reason
		}
		return a.Again, errors.Join(err, a.toError(), os.Remove(log.Name()))
	}
	m := newRemoteSweep(r)
	j.sweep = m
	j.addNote(a.Note)
	go func() {
		if s.Output != nil {
			m.copyLog(s.Output, log.Name())
		}
		_ = cmd.Wait() // the record contains the result
		_ = alive.Close()
	}()
	return false, nil
}

// toError returns the error that the response a reports, or nil if there is none.
func (a sweepResponse) toError() error {
	switch {
	case a.Busy != nil:
		return a.Busy
	case a.Usage:
		return &train.UsageError{Err: errors.New(a.Error)}
	case a.Error != "":
		return errors.New(a.Error)
	}
	return nil
}

// send starts cmd, sends it the request and returns its response. The caller must keep
// stdin open, because the started process treats its closing as the end of this process.
func (o sweepRequest) send(ctx context.Context, cmd *exec.Cmd) (a sweepResponse, stdin io.Closer, err error) {
	in, err := cmd.StdinPipe()
	if err != nil {
		return a, nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return a, in, err
	}
	if err := cmd.Start(); err != nil {
		return a, in, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	// Until the process responds, an interrupt of the cell ends it.
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	defer stop()
	if err := json.NewEncoder(in).Encode(o); err != nil {
		return a, in, fmt.Errorf("send sweep to %s: %w", cmd.Path, err)
	}
	line, err := bufio.NewReader(out).ReadBytes('\n')
	switch {
	case ctx.Err() != nil:
		return a, in, context.Cause(ctx)
	case err != nil:
		return a, in, fmt.Errorf("send sweep to %s: process ended without a response", cmd.Path)
	}
	if err := json.Unmarshal(line, &a); err != nil {
		return a, in, fmt.Errorf("send sweep to %s: got response %q: %w; is it the lockstep command?", cmd.Path, line, err)
	}
	return a, in, nil
}

// copyLog copies the sweep's log, the file at path, to w until the sweep has ended.
func (m *remoteSweep) copyLog(w io.Writer, path string) {
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

// Serve implements "lockstep launch --watched": it reads the request of a notebook's kernel
// from in, writes the response to out, and starts the sweep. The lines of the workers go to
// log. The end of in ends the sweep, unless it is detached. The returned Job is nil if there
// is nothing to run.
func Serve(ctx context.Context, in io.Reader, out, log io.Writer) (*Job, error) {
	var o sweepRequest
	if err := json.NewDecoder(in).Decode(&o); err != nil {
		return nil, fmt.Errorf("read sweep from standard input: %w; --watched is only for the kernel of a notebook, which sends a sweep there: leave it out to start a sweep, or use lockstep watch to see one", err)
	}
	o.Sweep.gracePeriod, o.Sweep.Output, o.Sweep.onMPI = o.Grace, log, o.MPI
	if o.Sweep.Detach {
		signal.Ignore(syscall.SIGHUP) // it continues after the end of the session that launched it
	}
	ctx, cancel := context.WithCancel(ctx)
	job, err := startInThisProcess(ctx, o.Sweep, o.ID, o.Kernel)
	var a sweepResponse
	var usage *train.UsageError
	var l *localSweep
	switch {
	case errors.As(err, &a.Busy):
	case err != nil:
		a.Error, a.Usage = strings.TrimPrefix(err.Error(), "launch "+o.Sweep.Study+": "), errors.As(err, &usage)
	default:
		if l, _ = job.sweep.(*localSweep); l == nil {
			a.Again = true
		} else {
			a.Record, a.Note = l.record.Path, job.note
		}
	}
	if werr := json.NewEncoder(out).Encode(a); werr != nil || l == nil {
		cancel()
		if l != nil {
			<-l.done
		}
		return nil, errors.Join(err, werr)
	}
	go func() {
		_, _ = io.Copy(io.Discard, in) // until the kernel ends
		if o.Sweep.Detach {
			l.markOrphaned()
		} else {
			cancel()
		}
	}()
	return job, nil
}
