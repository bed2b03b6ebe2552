package launch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"lockstep/pkg/runs"
)

// remote is a sweep that another process runs, or a single run that a process
// trains without a launcher. It is read from what that process writes down.
type remote struct {
	path string // of the sweep's record; empty: a single run

	mu     sync.Mutex
	record *record // as last read
	all    []*remoteRun
}

// remoteRun is what is known of one of its runs.
type remoteRun struct {
	read  *run // the folder, as last read
	lines lineCounter
}

// attached shows the sweep of r.
func attached(r *record) *remote { return &remote{path: r.path, record: r} }

// ownedRun is the record of a run that is trained without a launcher.
func ownedRun(dir string, owner runs.Owner) *record {
	n := runRecord{Name: filepath.Base(dir), Dir: dir, State: StateRunning, Started: owner.Started}
	if read, err := runs.Read(dir); err == nil {
		n.Workers, n.Seed = read.Info.Workers, read.Info.Seed
	}
	return &record{
		Study: filepath.Base(filepath.Dir(dir)), Dir: filepath.Dir(dir), PID: owner.PID, Host: owner.Host,
		Started: owner.Started, State: StateRunning, Runs: []runRecord{n},
	}
}

// shown says that the sweep of r is shown in place of a new one.
func (r *record) shown() string {
	what := "already running"
	if r.State == StateWaiting {
		what = "already waiting"
	}
	return fmt.Sprintf("%s since %s as pid %d%s; showing it", what, clock(r.Started), r.PID, r.elsewhere())
}

// elsewhere names the machine of the sweep if it is not this one.
func (r *record) elsewhere() string {
	if host, err := os.Hostname(); err != nil || host == r.Host {
		return ""
	}
	return " on " + r.Host
}

// refresh reads what the sweep's process wrote down. The caller holds mu.
func (m *remote) refresh() {
	if m.record.over() {
		return
	}
	if m.path == "" {
		m.refreshRun()
		return
	}
	// Whether it lives comes first: its last words are written before its end.
	alive := m.record.alive()
	if r, err := readRecord(m.path); err == nil {
		m.record = r
	}
	if !alive && !m.record.over() {
		m.killed(errKilled)
	}
}

// refreshRun is refresh for a single run.
func (m *remote) refreshRun() {
	n := &m.record.Runs[0]
	_, alive, err := runs.OwnerOf(n.Dir)
	if alive || err != nil {
		return
	}
	read, err := runs.Read(n.Dir)
	if err != nil || read.Info.Status == runs.StatusRunning || read.Info.Status == runs.StatusKilled {
		m.killed(errKilled)
		return
	}
	n.State, n.Error, n.Ended = read.Info.Status, read.Info.Error, read.Info.Ended
	m.record.State, m.record.Error = n.State, n.Error
	if n.Error != "" {
		m.record.Error = fmt.Sprintf("run %s: %s", n.Name, n.Error)
	}
}

// killed notes that the process ended without a word.
func (m *remote) killed(cause error) {
	m.record.State = StateFailed
	m.record.Error = fmt.Sprintf("launch %s: pid %d has ended without saying how: %v; to go on, launch it again with Resume (--resume)", m.record.Study, m.record.PID, cause)
	if tail := tailOf(strings.TrimSuffix(m.path, ".json") + ".log"); tail != "" {
		m.record.Error += "; the last lines of its log:\n    " + tail
	}
	for i := range m.record.Runs {
		if n := &m.record.Runs[i]; n.State == StateRunning {
			n.State, n.Error, n.Ended = StateFailed, cause.Error(), time.Now()
		}
	}
}

// tailOf returns the last lines of a file, indented; "" if there are none.
func tailOf(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	if size, err := f.Seek(0, io.SeekEnd); err == nil {
		_, _ = f.Seek(max(0, size-maxLine), io.SeekStart)
	}
	text, err := io.ReadAll(f)
	if err != nil {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-lastLines):], "\n    ")
}

func (m *remote) ended() (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.refresh()
	switch {
	case !m.record.over():
		return false, nil
	case m.record.State == StateDone:
		return true, nil
	case m.record.State == StateCanceled:
		return true, &canceledError{m.record.Error}
	}
	return true, errors.New(m.record.Error)
}

// canceledError is the error of a sweep that another process canceled.
type canceledError struct{ text string }

func (e *canceledError) Error() string        { return e.text }
func (e *canceledError) Is(target error) bool { return target == context.Canceled }

func (m *remote) waits() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.refresh()
	return m.record.WaitsFor
}

// wake is nil: another process closes no channel of this one.
func (m *remote) wake() <-chan struct{} { return nil }

func (m *remote) mine() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.refresh()
	return m.record.mine()
}

// ending is false: that this process stops to wait ends no other.
func (m *remote) ending() bool { return false }

func (m *remote) status() []RunStatus {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.refresh()
	var all []RunStatus
	for i, n := range m.record.Runs {
		if i == len(m.all) {
			m.all = append(m.all, &remoteRun{
				read:  &run{dir: n.Dir, name: n.Name, workers: n.Workers, seed: n.Seed, sweep: &Sweep{Epochs: n.Epochs}},
				lines: lineCounter{path: filepath.Join(n.Dir, workerLog(0))},
			})
		}
		of := m.all[i]
		r := of.read
		r.state, r.started, r.ended, r.err = n.State, n.Started, n.Ended, nil
		if n.Error != "" {
			r.err = errors.New(n.Error)
		}
		s := r.status()
		s.foreign = len(r.read.Info.Command) > 0 && s.Epochs == 0
		if n.State != StateWaiting {
			s.Lines, s.Line = of.lines.latest()
		}
		all = append(all, s)
	}
	return all
}

// mine reports whether this process may end the sweep: it launched the sweep, or
// the notebook's kernel that did is gone.
func (r *record) mine() bool { return r.Orphan || r.Kernel == os.Getpid() }

func (m *remote) end(atOnce bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.refresh()
	r := m.record
	switch {
	case r.over():
		return nil
	case r.Kernel != 0 && !r.mine():
		return fmt.Errorf("cancel %s: it was launched by another notebook, whose kernel is pid %d, and goes on: cancel it there, or with \"kill %d\"", r.Study, r.Kernel, r.PID)
	case !r.mine():
		return fmt.Errorf("cancel %s: it was launched elsewhere and goes on: end it with Ctrl-C in its terminal, or with \"kill %d\"%s", r.Study, r.PID, r.elsewhere())
	}
	p, err := os.FindProcess(r.PID)
	if err != nil {
		return fmt.Errorf("cancel %s: %w", r.Study, err)
	}
	// The process that p is cannot be another one if the sweep still lives.
	if !r.alive() {
		return nil
	}
	err = p.Signal(syscall.SIGTERM)
	if atOnce && err == nil { // the second one
		time.Sleep(signalGap)
		err = p.Signal(syscall.SIGTERM)
	}
	if err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("cancel %s: %w", r.Study, err)
	}
	return nil
}

// signalGap is the time between two signals that must not become one.
const signalGap = 100 * time.Millisecond

// lineCounter counts the lines of a file that grows.
type lineCounter struct {
	path   string
	offset int64
	count  int
	last   string
}

func (c *lineCounter) latest() (count int, last string) {
	f, err := os.Open(c.path)
	if err != nil {
		return c.count, c.last
	}
	defer func() { _ = f.Close() }()
	if stat, err := f.Stat(); err == nil && stat.Size() < c.offset { // begun anew
		*c = lineCounter{path: c.path}
	}
	if _, err := f.Seek(c.offset, io.SeekStart); err != nil {
		return c.count, c.last
	}
	text, err := io.ReadAll(f)
	if err != nil {
		return c.count, c.last
	}
	whole := text[:bytes.LastIndexByte(text, '\n')+1]
	if len(whole) == 0 {
		return c.count, c.last
	}
	c.offset += int64(len(whole))
	c.count += bytes.Count(whole, []byte("\n"))
	line := strings.TrimRight(string(whole), "\r\n")
	line = line[strings.LastIndexAny(line, "\r\n")+1:]
	c.last = line
	return c.count, c.last
}
