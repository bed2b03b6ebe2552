package workers

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"lockstep/pkg/launch/internal/child"
	"lockstep/pkg/launch/internal/mpirun"
	"lockstep/pkg/launch/internal/output"
)

// MPIProcesses describes the processes of a run that mpirun starts.
type MPIProcesses struct {
	Count int      // number of processes
	Argv  []string // mpirun and its arguments
	Env   []string // the environment of mpirun

	StopSignal unix.Signal // makes mpirun ask all ranks to end
}

// StartMPI starts mpirun, which starts the workers of the run, and returns the output of rank 0.
// The caller's goroutine must stay locked to its thread, as with Group.Start.
func (c *Group) StartMPI(p MPIProcesses) (*output.WorkerWriter, error) {
	m := &mpiOutput{out: output.NewWriter(c.run.linePrefix(mpirunName), io.Discard, c.run.Output), failed: make(chan struct{})}
	for process := range p.Count {
		t := c.run.NewTail(process * c.run.Ranks)
		if c.run.Resume {
			t.SkipExistingLines()
		} else if err := os.Remove(t.Path()); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("remove log of an earlier run: %w", err)
		}
		m.tails = append(m.tails, t)
	}
	w := &worker{rank: mpirunPseudoRank, out: m.out, guard: true, mpi: m}
	w.cmd = exec.Command(p.Argv[0], p.Argv[1:]...)
	w.cmd.Env = append(p.Env, child.RunEnvironment(c.run.Dir)...)
	w.cmd.Stdout, w.cmd.Stderr = m, m
	child.AddGuard(w.cmd) // also ends ranks that outlive mpirun
	w.cmd.WaitDelay = pipeTimeout
	if !c.run.Foreign {
		m.records = mpirun.FlightRecordSignal
	}
	if err := w.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start mpirun: %w", err)
	}
	c.workers, c.stopSignal, c.rankFailed = append(c.workers, w), p.StopSignal, m.failed
	m.followLogs()
	return m.tails[0].Out, nil
}

const logCopyInterval = 300 * time.Millisecond

const mpirunPseudoRank = -1

const mpirunName = "mpirun"

// mpiOutput receives the output of mpirun, and shows the logs of the ranks.
type mpiOutput struct {
	out     *output.WorkerWriter // of mpirun itself
	tails   []*output.LogTail    // by process
	records unix.Signal          // makes the ranks write records; 0 for another program

	mu      sync.Mutex
	first   []string        // the first lines of mpirun itself, which state the cause of an error
	part    []byte          // start of a line that has not ended
	reports []rankReport    // in the order of the failures
	failed  chan struct{}   // closed with the first report
	stop    chan struct{}   // closed to end the goroutine of follow
	over    *sync.WaitGroup // of that goroutine
}

// Write receives output of mpirun. It stores the reports of ranks that failed, and passes on all
// other lines.
func (m *mpiOutput) Write(p []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.part = append(m.part, p...)
	for {
		end := bytes.IndexByte(m.part, '\n')
		if end < 0 {
			return len(p), nil
		}
		line := m.part[:end+1]
		if r, ok := parseRankReport(string(line)); ok {
			if m.reports = append(m.reports, r); len(m.reports) == 1 {
				close(m.failed)
			}
		} else {
			m.keepFirst(string(line))
			if _, err := m.out.Write(line); err != nil {
				return 0, err
			}
		}
		m.part = slices.Delete(m.part, 0, end+1)
	}
}

// keepFirst keeps a line of mpirun if it is one of the first, without empty lines and rules. The
// caller holds mu.
func (m *mpiOutput) keepFirst(line string) {
	if text := strings.TrimSpace(line); len(m.first) < output.MaxKeptLines && strings.Trim(text, "-=") != "" {
		m.first = append(m.first, text)
	}
}

func (m *mpiOutput) followLogs() {
	m.stop, m.over = make(chan struct{}), &sync.WaitGroup{}
	m.over.Go(func() {
		tick := time.NewTicker(logCopyInterval)
		defer tick.Stop()
		for {
			select {
			case <-m.stop:
				return
			case <-tick.C:
				m.copyLogs()
			}
		}
	})
}

// close copies the rest of the output after the end of mpirun.
func (m *mpiOutput) close() error {
	close(m.stop)
	m.over.Wait()
	m.copyLogs()
	var errs []error
	for _, t := range m.tails {
		errs = append(errs, t.Out.Flush())
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.part) > 0 {
		_, err := m.out.Write(m.part)
		errs = append(errs, err)
	}
	return errors.Join(append(errs, m.out.Flush())...)
}

func (m *mpiOutput) hasRankReports() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.reports) > 0
}

func (m *mpiOutput) copyLogs() {
	for _, t := range m.tails {
		t.CopyNewLines()
	}
}

// describeFailure returns how the ranks failed, or how mpirun ended if none has reported a failure.
func (m *mpiOutput) describeFailure(e WorkerExit) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var text []string
	for _, r := range m.reports {
		lines := ""
		if r.Process >= 0 && r.Process < len(m.tails) {
			lines = m.tails[r.Process].Out.LastLines()
		}
		text = append(text, appendLastLines(r.Reason, lines))
	}
	if len(text) == 0 {
		if len(m.first) == 0 {
			return e.reason() + "; it wrote no output"
		}
		return e.reason() + "; its first lines:\n    " + strings.Join(m.first, "\n    ")
	}
	return strings.Join(text, "\nthen ")
}
