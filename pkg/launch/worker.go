package launch

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"lockstep/pkg/internal/process"
)

const (
	// settleTime is how long the other workers may take to fail by themselves
	// when one has: the one at fault is not always the first to end.
	settleTime = 700 * time.Millisecond
	// pipeTime is how long a program that a worker left behind may hold on to
	// its output.
	pipeTime = time.Second
)

// worker is one process of a run.
type worker struct {
	rank  int
	cmd   *exec.Cmd
	log   *os.File
	out   *lines
	guard bool // the process is the guard of a program that is not ours
	ended bool // its process number may be another's by now
}

// crew is the workers of one run.
type crew struct {
	workers []*worker
	grace   time.Duration
	now     <-chan struct{}
	// suspended receives SIGTSTP (Ctrl-Z) and SIGCONT (fg) of this process.
	suspended chan os.Signal
}

// exit is how a worker ended; err is nil when it ended well.
type exit struct {
	*worker
	err error
}

// start starts one process a rank. On an error those that run are ended. The
// caller's goroutine must stay locked to its thread while they run: the kernel
// takes the end of the thread that started a worker for the launcher's end.
func (r *run) start(ctx context.Context, argv []string, foreign bool) (*crew, error) {
	port, err := freePort(ctx)
	if err != nil {
		return nil, err
	}
	token := rand.Text()
	c := &crew{grace: r.sweep.grace, now: r.now, suspended: make(chan os.Signal, 2)}
	signal.Notify(c.suspended, suspendSignals()...)
	for rank := range r.workers {
		w, err := r.startWorker(argv, rank, r.environment(rank, port, token, foreign), foreign)
		if err != nil {
			return nil, errors.Join(err, c.end())
		}
		c.workers = append(c.workers, w)
	}
	return c, nil
}

// suspendSignals returns the signals by which a shell stops this process and
// continues it.
func suspendSignals() []os.Signal {
	if signal.Ignored(unix.SIGTSTP) {
		return []os.Signal{unix.SIGCONT}
	}
	return []os.Signal{unix.SIGTSTP, unix.SIGCONT}
}

func (r *run) startWorker(argv []string, rank int, env []string, foreign bool) (*worker, error) {
	mode := os.O_TRUNC
	if r.resume {
		mode = os.O_APPEND
	}
	log, err := os.OpenFile(filepath.Join(r.dir, workerLog(rank)), os.O_CREATE|os.O_WRONLY|mode, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open log of rank %d: %w", rank, err)
	}
	w := &worker{rank: rank, log: log, guard: foreign, out: &lines{
		prefix: "[" + strings.TrimSpace(fmt.Sprintf("%s n%d s%d rank %d", r.variant.label, r.workers, r.seed, rank)) + "] ", log: log, out: r.out,
	}}
	w.cmd = exec.Command(argv[0], argv[1:]...)
	w.cmd.Env = env
	// One writer for both: lines come in the order in which they were written.
	w.cmd.Stdout, w.cmd.Stderr = w.out, w.out
	w.cmd.SysProcAttr = workerAttr()
	if foreign {
		guarded(w.cmd)
	}
	w.cmd.WaitDelay = pipeTime
	if err := w.cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start rank %d: %w", rank, err), log.Close())
	}
	r.seen(w.out)
	return w, nil
}

// freePort is a port that nobody listens on now.
func freePort(ctx context.Context) (int, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	return port, l.Close()
}

// environment is a worker's: the launcher's, with the worker's place in place
// of any that the launcher has itself.
func (r *run) environment(rank, port int, token string, foreign bool) []string {
	n, t := strconv.Itoa(r.workers), strconv.Itoa(r.sweep.Threads)
	set := []string{
		"RANK=" + strconv.Itoa(rank), "WORLD_SIZE=" + n,
		"LOCAL_RANK=" + strconv.Itoa(rank), "LOCAL_WORLD_SIZE=" + n,
		"MASTER_ADDR=127.0.0.1", "MASTER_PORT=" + strconv.Itoa(port),
		"LOCKSTEP_TOKEN=" + token, "LOCKSTEP_RUN=" + r.dir, "LOCKSTEP_SEED=" + strconv.FormatInt(r.seed, 10),
	}
	if foreign {
		set = append(set, "OMP_NUM_THREADS="+t, "OPENBLAS_NUM_THREADS="+t, "MKL_NUM_THREADS="+t, "GOMAXPROCS="+t,
			"PYTHONUNBUFFERED=1") // so that its lines are seen when they are written
	}
	env := slices.DeleteFunc(os.Environ(), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return slices.ContainsFunc(set, func(s string) bool { return strings.HasPrefix(s, name+"=") })
	})
	return append(env, set...)
}

// wait returns when all workers have ended, in the order in which they failed
// by themselves. Once one has, or ctx has ended, the others are ended. While a
// shell has this process stopped, the workers are stopped too.
func (c *crew) wait(ctx context.Context) (failed []exit, err error) {
	defer signal.Stop(c.suspended)
	exits := make(chan exit)
	for _, w := range c.workers {
		go func() { exits <- exit{w, w.wait()} }()
	}
	ended, now := ctx.Done(), c.now
	var cancels []context.CancelFunc
	defer func() {
		for _, cancel := range cancels {
			cancel()
		}
	}()
	var settled, late <-chan struct{}
	after := func(d time.Duration) <-chan struct{} {
		timeout, cancel := process.WithTimeout(context.Background(), d)
		cancels = append(cancels, cancel)
		return timeout.Done()
	}
	kill := func() {
		c.signal(unix.SIGKILL)
		late = after(settleTime) // again, where a guard was too new for it
	}
	stopping := false
	stop := func() {
		if !stopping {
			stopping, ended, settled = true, nil, nil
			c.signal(unix.SIGTERM)
			late = after(c.grace)
		}
	}
	var errs []error
	for left := len(c.workers); left > 0; {
		select {
		case <-ended:
			stop()
		case <-settled:
			stop()
		case <-now:
			now = nil
			stop()
			kill()
		case <-late:
			kill()
		case s := <-c.suspended:
			if s == unix.SIGCONT {
				c.signal(unix.SIGCONT)
				break
			}
			c.signal(unix.SIGSTOP)
			_ = unix.Kill(os.Getpid(), unix.SIGSTOP) // what SIGTSTP would have done
		case e := <-exits:
			left--
			e.ended = true
			if e.err != nil && !stopping {
				failed = append(failed, e)
				if settled == nil {
					settled = after(settleTime)
				}
			}
			errs = append(errs, e.close())
		}
	}
	return failed, errors.Join(errs...)
}

// end kills what was started, where the rest could not be.
func (c *crew) end() error {
	now := make(chan struct{})
	close(now)
	c.now = now
	_, err := c.wait(context.Background())
	return err // how the workers ended is known
}

// signal reaches the workers and what they started themselves.
func (c *crew) signal(s syscall.Signal) {
	for _, w := range c.workers {
		switch {
		case w.ended:
		case w.guard:
			signalGuard(w.cmd.Process.Pid, s)
		default:
			_ = unix.Kill(-w.cmd.Process.Pid, s) // it may be gone
		}
	}
}

func (w *worker) wait() error {
	err := w.cmd.Wait()
	// What the worker left behind in its group ends with it.
	_ = unix.Kill(-w.cmd.Process.Pid, unix.SIGKILL)
	if errors.Is(err, exec.ErrWaitDelay) {
		return nil // it ended well, only its output was held open
	}
	return err
}

func (w *worker) close() error {
	err := w.out.flush()
	if err = errors.Join(err, w.log.Close()); err != nil {
		return fmt.Errorf("write log of rank %d: %w", w.rank, err)
	}
	return nil
}

// String says how a worker ended and what it said last.
func (e exit) String() string {
	text := fmt.Sprintf("rank %d ", e.rank)
	var x *exec.ExitError
	switch ok := errors.As(e.err, &x); {
	case ok && signaled(x) == unix.SIGKILL:
		text += "was killed by signal 9 (SIGKILL): by someone's kill -9, or by the kernel because memory ran out"
	case ok && signaled(x) != 0:
		text += fmt.Sprintf("was ended by signal %d (%s)", signaled(x), unix.SignalName(signaled(x)))
	case ok:
		text += fmt.Sprintf("ended with exit code %d", x.ExitCode())
	default:
		text += e.err.Error()
	}
	if tail := e.out.tail(); tail != "" {
		return text + "; its last lines:\n    " + tail
	}
	return text + "; it wrote nothing"
}

// signaled is the signal that ended a process, 0 where none did.
func signaled(x *exec.ExitError) syscall.Signal {
	if s, ok := x.Sys().(syscall.WaitStatus); ok && s.Signaled() {
		return s.Signal()
	}
	return 0
}

// workerLog is the name of the file with the lines of a worker.
func workerLog(rank int) string { return fmt.Sprintf("worker-%d.log", rank) }
