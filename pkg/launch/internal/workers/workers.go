package workers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"lockstep/pkg/internal/process"
	"lockstep/pkg/internal/wholefile"
	"lockstep/pkg/launch/internal/child"
	"lockstep/pkg/launch/internal/output"
)

const (
	// settleTime is the time that the other workers get to fail by themselves after one has failed,
	// because the culprit is not always the first to end.
	settleTime = 700 * time.Millisecond
	// pipeTimeout limits how long a process that a worker left behind may keep the worker's output open.
	pipeTimeout = time.Second
)

// worker is one process of a run with consecutive ranks, usually one.
type worker struct {
	rank  int // the first of its ranks
	ranks int // number of its ranks
	cmd   *exec.Cmd
	log   *os.File
	out   *output.WorkerWriter
	guard bool       // whether the process is the guard of another program
	mpi   *mpiOutput // of mpirun, which has started the ranks; nil if the process is a worker
	ended bool       // whether the process has ended; another process may have its pid by now
}

// Group contains the workers of one run.
type Group struct {
	run        Run
	workers    []*worker
	stopSignal unix.Signal // asks the workers to end; 0 means SIGTERM
	// forwarded receives SIGTSTP (Ctrl-Z), SIGCONT (fg) and SIGUSR2 of this process.
	forwarded  chan os.Signal
	rankFailed <-chan struct{} // closed when a rank that mpirun has started has failed; nil without mpirun
}

// NewGroup returns a group without workers. The caller must call Wait or Kill.
func NewGroup(r Run) *Group {
	c := &Group{run: r, forwarded: make(chan os.Signal, 3)}
	signal.Notify(c.forwarded, append(jobControlSignals(), unix.SIGUSR2)...)
	return c
}

// ProcessIDs returns the pid of each worker's process, by its first rank, without workers that
// mpirun has started.
func (c *Group) ProcessIDs() map[int]int {
	all := map[int]int{}
	for _, w := range c.workers {
		if w.mpi == nil {
			all[w.rank] = w.cmd.Process.Pid
		}
	}
	return all
}

// WorkerExit describes how a worker ended. err is nil if it succeeded.
type WorkerExit struct {
	*worker
	err error
}

func jobControlSignals() []os.Signal {
	if signal.Ignored(unix.SIGTSTP) {
		return []os.Signal{unix.SIGCONT}
	}
	return []os.Signal{unix.SIGTSTP, unix.SIGCONT}
}

// Start starts a process with the arguments argv and the environment env, and returns its output.
// rank is its first rank. A program other than lockstep gets a guard. While the process runs, the
// caller's goroutine must stay locked to its thread, because the operating system kills a worker
// when the thread that started it ends.
func (c *Group) Start(rank int, argv, env []string) (*output.WorkerWriter, error) {
	mode := os.O_TRUNC
	if c.run.Resume {
		mode = os.O_APPEND
	}
	if err := wholefile.BreakHardLinks(c.run.logPath(rank)); err != nil { // a snapshot with hard links stays as it is
		return nil, fmt.Errorf("open log of rank %d: %w", rank, err)
	}
	log, err := os.OpenFile(c.run.logPath(rank), os.O_CREATE|os.O_WRONLY|mode, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open log of rank %d: %w", rank, err)
	}
	w := &worker{rank: rank, ranks: c.run.Ranks, log: log, guard: c.run.Foreign}
	w.out = output.NewWriter(c.run.linePrefix(w.name()), log, c.run.Output)
	w.cmd = exec.Command(argv[0], argv[1:]...)
	w.cmd.Env = append(env, child.RunEnvironment(c.run.Dir)...)
	// One writer for both keeps the lines in the order in which they were written.
	w.cmd.Stdout, w.cmd.Stderr = w.out, w.out
	w.cmd.SysProcAttr = child.WorkerAttr()
	if w.guard {
		child.AddGuard(w.cmd)
	}
	w.cmd.WaitDelay = pipeTimeout
	if err := w.cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start rank %d: %w", rank, err), log.Close())
	}
	c.workers = append(c.workers, w)
	return w.out, nil
}

// name returns the worker's ranks, such as "rank 0" or "ranks 2-3".
func (w *worker) name() string {
	if w.rank == mpirunPseudoRank {
		return mpirunName
	}
	return nameRanks(w.rank, w.ranks)
}

// Wait waits until all workers have ended. When a worker has failed or ctx has ended, Wait signals
// the others to end. It returns the workers that failed before that signal, in the order of their
// failures. While a shell has stopped this process, the workers are stopped too.
func (c *Group) Wait(ctx context.Context) (failed []WorkerExit, err error) {
	defer signal.Stop(c.forwarded)
	exits := make(chan WorkerExit)
	for _, w := range c.workers {
		go func() { exits <- WorkerExit{w, w.wait()} }()
	}
	ended, killNow, rankFailed := ctx.Done(), c.run.KillNow, c.rankFailed
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
		c.signalAll(unix.SIGKILL)
		late = after(settleTime) // then again, because a new guard may have missed the signal
	}
	stopping := false
	stop := func() {
		if !stopping {
			stopping, ended, settled = true, nil, nil
			c.signalAll(cmp.Or(c.stopSignal, unix.SIGTERM))
			late = after(c.run.GracePeriod)
		}
	}
	var errs []error
	for left := len(c.workers); left > 0; {
		select {
		case <-ended:
			stop()
		case <-settled:
			stop()
		case <-rankFailed:
			if rankFailed = nil; !stopping {
				settled = after(settleTime)
			}
		case <-killNow:
			killNow = nil
			stop()
			kill()
		case <-late:
			kill()
		case s := <-c.forwarded:
			switch s {
			case unix.SIGUSR2:
				c.requestFlightRecords()
			case unix.SIGCONT:
				c.signalAll(unix.SIGCONT)
			default:
				c.signalAll(unix.SIGSTOP)
				_ = unix.Kill(os.Getpid(), unix.SIGSTOP) // the default action of SIGTSTP
			}
		case e := <-exits:
			left--
			e.ended = true
			if e.err != nil && !stopping || e.mpi != nil && e.mpi.hasRankReports() {
				failed = append(failed, e)
				if settled == nil {
					settled = after(settleTime)
				}
			}
			if e.guard { // it may have been killed
				_, err := child.KillOrphans(c.run.Dir)
				errs = append(errs, err)
			}
			errs = append(errs, e.close())
		}
	}
	return failed, errors.Join(errs...)
}

// Kill kills all workers that have been started and waits for their end.
func (c *Group) Kill() error {
	killNow := make(chan struct{})
	close(killNow)
	c.run.KillNow = killNow
	_, err := c.Wait(context.Background())
	return err // the list of failed workers is of no interest
}

// requestFlightRecords makes the workers of lockstep write the records of their collective operations.
// SIGUSR2 would end another program.
func (c *Group) requestFlightRecords() {
	for _, w := range c.workers {
		switch {
		case w.ended:
		case w.mpi != nil && w.mpi.records != 0:
			child.SignalGroup(w.cmd.Process, w.mpi.records) // mpirun forwards it
		case !w.guard:
			// The worker may be gone, and another process may have its ID. Unlike unix.Kill, Signal
			// sends nothing once Wait has returned.
			_ = w.cmd.Process.Signal(unix.SIGUSR2)
		}
	}
}

func (c *Group) signalAll(s syscall.Signal) {
	for _, w := range c.workers {
		switch {
		case w.ended:
		case w.guard:
			child.SignalGuard(w.cmd.Process, s)
		default:
			child.SignalGroup(w.cmd.Process, s)
		}
	}
}

// wait waits until the worker has ended, and kills the rest of its process group. It returns nil on
// success.
func (w *worker) wait() error {
	err := w.cmd.Wait()
	// Kill the processes that the worker left behind in its group.
	_ = unix.Kill(-w.cmd.Process.Pid, unix.SIGKILL)
	if errors.Is(err, exec.ErrWaitDelay) {
		return nil // the worker succeeded; another process kept its output open
	}
	return err
}

func (w *worker) close() error {
	if w.mpi != nil {
		return w.mpi.close()
	}
	err := w.out.Flush()
	if err = errors.Join(err, w.log.Close()); err != nil {
		return fmt.Errorf("write log of rank %d: %w", w.rank, err)
	}
	return nil
}

func (e WorkerExit) String() string {
	if e.mpi != nil {
		return e.mpi.describeFailure(e)
	}
	return appendLastLines(e.reason(), e.out.LastLines())
}

func appendLastLines(reason, lines string) string {
	if lines == "" {
		return reason + "; it wrote no output"
	}
	return reason + "; " + output.LastLinesIntro + lines
}

// Error implements error.
func (e *WorkerExit) Error() string { return e.String() }

func (e WorkerExit) reason() string {
	was := "was"
	if e.ranks > 1 {
		was = "were"
	}
	text := e.name() + " "
	var x *exec.ExitError
	switch ok := errors.As(e.err, &x); {
	case ok && child.TerminatingSignal(x) == unix.SIGKILL:
		text += was + " killed by signal 9 (SIGKILL): by a user's kill -9, or by the operating system because memory ran out"
	case ok && child.TerminatingSignal(x) != 0:
		text += fmt.Sprintf("%s ended by signal %d (%s)", was, child.TerminatingSignal(x), unix.SignalName(child.TerminatingSignal(x)))
	case ok:
		text += fmt.Sprintf("ended with exit code %d", x.ExitCode())
	default:
		text += e.err.Error()
	}
	return text
}
