package launch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"lockstep/pkg/launch/internal/output"
	"lockstep/pkg/launch/internal/queue"
	"lockstep/pkg/runs"
)

// externalSweep is a sweep that another process runs, or a single run that a process trains without a
// launcher. Its state comes from the record or the run folder that the process writes.
type externalSweep struct {
	path string // of the sweep's record; empty for a single run

	mu     sync.Mutex
	record *queue.SweepRecord // as last read
	runs   []*externalRun
}

type externalRun struct {
	*attachedRun
	lines output.LineCounter
}

func newExternalSweep(r *queue.SweepRecord) *externalSweep {
	return &externalSweep{path: r.Path, record: r}
}

// newSingleRunRecord returns a record for a run in dir that the process owner trains without a launcher.
func newSingleRunRecord(dir string, owner runs.Owner) *queue.SweepRecord {
	n := queue.RunRecord{Name: filepath.Base(dir), Dir: dir, State: StateRunning, Started: owner.Started}
	if read, err := runs.Read(dir); err == nil {
		n.Workers, n.Seed = read.Info.Workers, read.Info.Seed
	}
	return &queue.SweepRecord{
		Study: filepath.Base(filepath.Dir(dir)), Dir: filepath.Dir(dir), PID: owner.PID, Host: owner.Host,
		Started: owner.Started, State: StateRunning, Runs: []queue.RunRecord{n},
	}
}

// refreshRecord reads the record again and checks whether the process is alive. The caller holds mu.
func (m *externalSweep) refreshRecord() {
	if m.record.HasEnded() {
		return
	}
	if m.path == "" {
		m.refreshRun()
		return
	}
	// This is checked first: the process writes its last record before it ends.
	alive := m.record.HasLiveProcess()
	if r, err := queue.ReadRecord(m.path); err == nil {
		m.record = r
	}
	if !alive && !m.record.HasEnded() {
		m.markKilled(queue.ErrKilled)
	}
}

// refreshRun is refresh for a single run, which has no record file.
func (m *externalSweep) refreshRun() {
	n := &m.record.Runs[0]
	_, alive, err := runs.OwnerOf(n.Dir)
	if alive || err != nil {
		return
	}
	read, err := runs.Read(n.Dir)
	if err != nil || read.Info.Status == runs.StatusRunning || read.Info.Status == runs.StatusKilled {
		m.markKilled(queue.ErrKilled)
		return
	}
	n.State, n.Error, n.Ended = read.Info.Status, read.Info.Error, read.Info.Ended
	m.record.State, m.record.Error = n.State, n.Error
	if n.Error != "" {
		m.record.Error = fmt.Sprintf("run %s: %s", n.Name, n.Error)
	}
}

// markKilled marks the sweep and its running runs as failed because of cause, after the sweep's
// process has ended without writing its result.
func (m *externalSweep) markKilled(cause error) {
	m.record.State = StateFailed
	m.record.Error = fmt.Sprintf("launch %s: pid %d has ended without writing its result: %v; to continue, launch the sweep again with Resume (--resume)", m.record.Study, m.record.PID, cause)
	if tail := output.ReadLastLines(strings.TrimSuffix(m.path, ".json")+".log", output.MaxKeptLines); tail != "" {
		m.record.Error += "; the last lines of its log:\n    " + tail
	}
	for i := range m.record.Runs {
		if n := &m.record.Runs[i]; n.State == StateRunning {
			n.State, n.Error, n.Ended = StateFailed, cause.Error(), time.Now()
		}
	}
}

func (m *externalSweep) hasEnded() (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.refreshRecord()
	switch {
	case !m.record.HasEnded():
		return false, nil
	case m.record.State == StateDone:
		return true, nil
	case m.record.State == StateCanceled:
		return true, &canceledError{m.record.Error}
	}
	return true, errors.New(m.record.Error)
}

type canceledError struct{ text string }

func (e *canceledError) Error() string        { return e.text }
func (e *canceledError) Is(target error) bool { return target == context.Canceled }

func (m *externalSweep) waitsFor() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.refreshRecord()
	return m.record.WaitsFor
}

// done returns nil, because another process cannot close a channel of this one.
func (m *externalSweep) done() <-chan struct{} { return nil }

func (m *externalSweep) isOwn() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.refreshRecord()
	return m.record.BelongsToThisProcess()
}

// isEnding returns false: canceling a context in this process does not end the sweep's process.
func (m *externalSweep) isEnding() bool { return false }

func (m *externalSweep) status() []RunStatus {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.refreshRecord()
	var all []RunStatus
	for i, n := range m.record.Runs {
		if i == len(m.runs) {
			m.runs = append(m.runs, &externalRun{newAttachedRun(n), output.LineCounter{Path: filepath.Join(n.Dir, runs.WorkerLogName(0))}})
		}
		r := m.runs[i]
		r.updateFromRecord(n)
		s := r.status(&r.PlannedRun)
		if n.State != StateWaiting {
			s.Lines, s.Line = r.lines.ReadNewLines()
		}
		if m.record.HasEnded() {
			s.markNotStarted()
		}
		all = append(all, s)
	}
	return all
}

// end sends SIGTERM to the sweep's process, which then saves the runs and ends. It sends nothing
// unless it is certain that the recorded pid is that process's.
func (m *externalSweep) end(atOnce bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.refreshRecord()
	r := m.record
	switch {
	case r.HasEnded():
		return nil
	case r.FormatHost() != "":
		return fmt.Errorf("cancel %s: the sweep runs%s: use lockstep stop there, or \"kill %d\"", r.Study, r.FormatHost(), r.PID)
	case r.PID == os.Getpid():
		return fmt.Errorf("cancel %s: this program runs the sweep: cancel the Job that Local returned", r.Study)
	}
	p, err := os.FindProcess(r.PID) // on Linux, p stays the same process, although the pid may pass to another
	if err != nil {
		return fmt.Errorf("cancel %s: %w", r.Study, err)
	}
	defer func() { _ = p.Release() }()
	alive, err := m.isProcessAlive()
	if err != nil {
		return fmt.Errorf("cancel %s: %w", r.Study, err)
	}
	if !alive {
		return nil
	}
	err = p.Signal(syscall.SIGTERM)
	if atOnce && err == nil { // a second signal makes it kill the workers
		time.Sleep(minSignalInterval)
		err = p.Signal(syscall.SIGTERM)
	}
	if err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("cancel %s: %w", r.Study, err)
	}
	return nil
}

// isProcessAlive reports whether the sweep's process is alive. If the process is alive but may have
// another pid than the recorded one, as in a container with its own pids, it returns an error.
func (m *externalSweep) isProcessAlive() (alive bool, err error) {
	r := m.record
	if m.path == "" {
		owner, alive, err := runs.OwnerOf(r.Runs[0].Dir)
		if err == nil && alive && owner.PID != r.PID {
			err = fmt.Errorf("another process, pid %d, is training the run now: call Attach again, or repeat lockstep stop", owner.PID)
		}
		return alive, err
	}
	folder, err := queue.FindLocksFolder()
	if err != nil {
		return false, err
	}
	e := queue.Entry{Folder: folder, ID: r.ID, State: queue.EntryWaiting}
	if !e.HasLiveProcess() {
		return false, nil
	}
	if held, known := e.IsFileOpenIn(r.PID); known && !held && e.HasLiveProcess() {
		return true, fmt.Errorf("the process of the sweep is not pid %d of this machine; if it is in another container, use lockstep stop there", r.PID)
	}
	return true, nil
}

// minSignalInterval is the time between two signals, so that the operating system does not merge them.
const minSignalInterval = 100 * time.Millisecond
