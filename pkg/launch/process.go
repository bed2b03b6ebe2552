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
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"lockstep/pkg/notebook"
	"lockstep/pkg/train"
)

// A notebook's sweep is run by a process of its own, "lockstep launch --watched
// STUDY". The kernel writes an order into the process's standard input and keeps
// that pipe open: its end tells the process that the kernel is gone, also after a
// kill -9. The process answers with one line on its standard output. Everything
// else that it and its workers write goes to the sweep's log.

// order is what the kernel asks for.
type order struct {
	ID     string        `json:"id"`
	Kernel int           `json:"kernel"` // its pid
	Sweep  Sweep         `json:"sweep"`
	Grace  time.Duration `json:"grace"`
}

// answer says what came of it.
type answer struct {
	Record string     `json:"record,omitempty"` // of the sweep, once it is in the queue
	Note   string     `json:"note,omitempty"`
	Again  bool       `json:"again,omitempty"` // there is nothing to do any more: look again
	Error  string     `json:"error,omitempty"`
	Usage  bool       `json:"usage,omitempty"` // the error is a mistake of the user's
	Busy   *BusyError `json:"busy,omitempty"`
}

// startProcess is Local in a notebook.
func startProcess(ctx context.Context, s Sweep) (*Job, error) {
	for {
		job, l, err := examine(ctx, &s)
		if err != nil {
			return nil, err
		}
		again := false
		if job.of == l {
			if again, err = job.order(ctx, s); err != nil {
				return nil, fmt.Errorf("launch %s: %w", s.Study, err)
			}
		}
		if again { // another process was faster
			continue
		}
		if job.note != "" {
			if err := notebook.Display(job.note); err != nil {
				return nil, err
			}
		}
		return job, nil
	}
}

// order starts the process that runs s. It reports whether there is nothing to do
// any more.
func (j *Job) order(ctx context.Context, s Sweep) (again bool, err error) {
	launcher, err := launcher(ctx)
	if err != nil {
		return false, err
	}
	o := order{ID: newID(time.Now()), Kernel: os.Getpid(), Sweep: s, Grace: s.grace}
	log, err := os.OpenFile(logPath(j.dir, o.ID), os.O_CREATE|os.O_WRONLY|os.O_APPEND|os.O_EXCL, 0o644)
	if err != nil {
		return false, err
	}
	cmd := exec.Command(launcher, "launch", "--watched", s.Study)
	cmd.Stderr = log // the process's own: it needs nobody who copies
	cmd.SysProcAttr = sessionAttr()
	a, alive, err := o.give(ctx, cmd)
	err = errors.Join(err, log.Close())
	var r *record
	if err == nil && a.Record != "" {
		r, err = readRecord(a.Record)
	}
	if r == nil {
		if alive != nil {
			err = errors.Join(err, alive.Close())
		}
		if cmd.Process != nil {
			_ = cmd.Wait() // it has said why
		}
		return a.Again, errors.Join(err, a.failure(), os.Remove(log.Name()))
	}
	m := attached(r)
	j.of, j.note = m, a.Note
	go func() {
		if s.Output != nil {
			m.copyLog(s.Output, log.Name())
		}
		_ = cmd.Wait() // the record says how it ended
		_ = alive.Close()
	}()
	return false, nil
}

// failure is the error in a, nil if there is none.
func (a answer) failure() error {
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

// give starts cmd, gives it the order and returns its answer. The process takes
// the end of alive for the end of this process.
func (o order) give(ctx context.Context, cmd *exec.Cmd) (a answer, alive io.Closer, err error) {
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
	// Until it has answered, the cell can be interrupted.
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	defer stop()
	if err := json.NewEncoder(in).Encode(o); err != nil {
		return a, in, fmt.Errorf("order sweep from %s: %w", cmd.Path, err)
	}
	line, err := bufio.NewReader(out).ReadBytes('\n')
	switch {
	case ctx.Err() != nil:
		return a, in, context.Cause(ctx)
	case err != nil:
		return a, in, fmt.Errorf("order sweep from %s: it ended without an answer", cmd.Path)
	}
	if err := json.Unmarshal(line, &a); err != nil {
		return a, in, fmt.Errorf("order sweep from %s: answer %q: %w; is it the lockstep command?", cmd.Path, line, err)
	}
	return a, in, nil
}

// launcher finds the lockstep command that runs sweeps: the one beside the
// running program, else the one that Binary finds. $LOCKSTEP_BIN alone may name a
// program of the user's own that can only train.
func launcher(ctx context.Context) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find lockstep command: %w", err)
	}
	beside := filepath.Join(filepath.Dir(self), "lockstep")
	if _, err := exec.LookPath(beside); err != nil {
		return Binary(ctx)
	}
	return beside, checkBuild(ctx, beside, self)
}

// copyLog copies the log of the sweep to w until the sweep has ended.
func (m *remote) copyLog(w io.Writer, path string) {
	f, err := os.Open(path)
	if err != nil {
		return
	}
	defer func() { _ = f.Close() }()
	for {
		over, _ := m.ended()
		_, err := io.Copy(w, f)
		if over || err != nil {
			return
		}
		time.Sleep(watchTime)
	}
}

// Serve runs the sweep that a notebook's kernel has ordered on in, and answers on
// out. It is what "lockstep launch --watched" does. The workers' lines go to log.
// Unless the sweep is detached, it ends when in does. A job of nil means that
// there is nothing to run.
func Serve(ctx context.Context, in io.Reader, out, log io.Writer) (*Job, error) {
	var o order
	orders := json.NewDecoder(in)
	if err := orders.Decode(&o); err != nil {
		return nil, fmt.Errorf("read order: %w; only a notebook's kernel uses --watched", err)
	}
	o.Sweep.grace, o.Sweep.Output = o.Grace, log
	if o.Sweep.Detach {
		signal.Ignore(syscall.SIGHUP) // it goes on without whoever launched it
	}
	ctx, cancel := context.WithCancel(ctx)
	job, err := start(ctx, o.Sweep, o.ID, o.Kernel)
	var a answer
	var usage *train.UsageError
	var l *local
	switch {
	case errors.As(err, &a.Busy):
	case err != nil:
		a.Error, a.Usage = strings.TrimPrefix(err.Error(), "launch "+o.Sweep.Study+": "), errors.As(err, &usage)
	default:
		if l, _ = job.of.(*local); l == nil {
			a.Again = true
		} else {
			a.Record, a.Note = l.record.path, job.note
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
		_, _ = io.Copy(io.Discard, in) // until the kernel is gone
		if o.Sweep.Detach {
			l.orphaned()
		} else {
			cancel()
		}
	}()
	return job, nil
}
