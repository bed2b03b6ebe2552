package launch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

	"lockstep/pkg/runs"
)

// local is a sweep that this process runs.
type local struct {
	all    []*run
	binary string
	ctx    context.Context
	cancel context.CancelFunc
	done   chan struct{}
	err    error // once done is closed
	now    chan struct{}
	kill   sync.Once // closes now

	mu     sync.Mutex
	record *record
	place  *place // in the queue; nil if there is nothing to do
}

// prepare plans s and looks at what is there already. The runs of the result are
// checked, but nothing has started.
func prepare(ctx context.Context, s *Sweep, dir string) (l *local, err error) {
	l = &local{done: make(chan struct{}), now: make(chan struct{})}
	if s.foreign() {
		_, err = exec.LookPath(s.Command[0])
	} else {
		l.binary, err = Binary(ctx)
	}
	if err != nil {
		return nil, err
	}
	l.all = s.plan(dir)
	if !s.foreign() {
		if err := s.check(ctx, l.binary, l.all); err != nil {
			return nil, err
		}
	}
	if err := makeFolder(filepath.Join(dir, recordsFolder)); err != nil {
		return nil, err
	}
	for _, r := range l.all {
		r.now, r.changed = l.now, l.save
	}
	return l, nil
}

// compare refuses a sweep of another config than that of the folders.
func (l *local) compare() error {
	for _, r := range l.all {
		before, err := runs.Read(r.dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("run %s: %w", r.name, err)
		}
		if err := r.differs(before.Info); err != nil {
			return err
		}
	}
	return nil
}

// look decides for each run what a folder that is there already means, and
// reports whether there is nothing to do.
func (l *local) look() (nothing bool, err error) {
	nothing = true
	for _, r := range l.all {
		if err := r.look(); err != nil {
			return false, err
		}
		nothing = nothing && r.skip && r.sweep.StudyLogs == ""
	}
	return nothing, nil
}

// begin enters the sweep into the queue and runs it in the background when its
// turn has come. If a run of it is being trained, it does not, and gives the
// owner's record in place of an error.
func (l *local) begin(ctx context.Context, s Sweep, dir, id string, kernel int) (owner *record, err error) {
	folder, err := locksFolder()
	if err != nil {
		return nil, err
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	l.record = &record{
		ID: id, Study: s.Study, Dir: dir, PID: os.Getpid(), Host: host, Started: time.Now(), State: StateWaiting,
		Detach: s.Detach, Kernel: kernel, path: recordPath(dir, id),
	}
	var first *record
	err = inQueue(ctx, folder, func() error {
		if owner, err = ownerOf(folder, dir, l.all); owner != nil || err != nil {
			return err
		}
		if err := prune(folder); err != nil {
			return err
		}
		l.fill()
		if err := l.record.write(); err != nil {
			return err
		}
		if l.place, err = enter(folder, id, l.record.path, entryWaiting); err != nil {
			return err
		}
		if s.queues() {
			if first, err = l.place.before(); err != nil || first != nil {
				return err
			}
		}
		return l.place.move(entryRunning)
	})
	if err == nil && first != nil && s.NoWait {
		err = &BusyError{Study: first.Study, PID: first.PID, Since: first.Started}
	}
	if err != nil || owner != nil {
		if l.place != nil {
			err = errors.Join(err, l.place.remove(), os.Remove(l.record.path))
		}
		return owner, err
	}
	l.ctx, l.cancel = context.WithCancel(ctx)
	if first != nil {
		l.record.WaitsFor = first.waiting()
	}
	l.save()
	go l.work(first != nil)
	return nil, nil
}

// work waits for the sweep's turn and runs it.
func (l *local) work(queued bool) {
	// See run.start.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(l.done)
	defer l.cancel()
	if queued {
		l.err = l.await()
	}
	for _, r := range l.all {
		if l.err != nil {
			break
		}
		l.err = r.do(l.ctx, l.binary)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.record.State, l.record.Ended, l.record.WaitsFor = stateOf(l.err), time.Now(), ""
	if l.err != nil {
		l.record.Error = l.err.Error()
	}
	l.fill()
	l.err = errors.Join(l.err, l.record.write(), l.place.leave())
}

// await returns when it is the sweep's turn. What its runs need may have changed
// until then.
func (l *local) await() error {
	tick := time.NewTicker(turnTime)
	defer tick.Stop()
	for {
		first, err := l.place.turn(l.ctx)
		if err != nil {
			return err
		}
		if first == nil {
			break
		}
		l.mu.Lock()
		changed := l.record.WaitsFor != first.waiting()
		l.record.WaitsFor = first.waiting()
		l.mu.Unlock()
		if changed {
			l.save()
		}
		select {
		case <-l.ctx.Done():
			return why(l.ctx)
		case <-tick.C:
		}
	}
	l.mu.Lock()
	l.record.WaitsFor = ""
	l.mu.Unlock()
	_, err := l.look()
	return err
}

// save writes the record. A disk that is full must not end the training, and
// the run folders have all that matters.
func (l *local) save() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.record == nil {
		return
	}
	l.fill()
	if l.record.WaitsFor == "" && !l.record.over() {
		l.record.State = StateRunning
	}
	_ = l.record.write()
}

// fill copies the runs' states into the record.
func (l *local) fill() {
	l.record.Runs = l.record.Runs[:0]
	for _, r := range l.all {
		r.mu.Lock()
		n := runRecord{
			Name: r.name, Dir: r.dir, Workers: r.workers, Seed: r.seed, State: r.state,
			Started: r.started, Ended: r.ended, Epochs: r.epochs(),
		}
		if r.err != nil {
			n.Error = r.err.Error()
		}
		r.mu.Unlock()
		l.record.Runs = append(l.record.Runs, n)
	}
}

func (l *local) status() []RunStatus {
	all := make([]RunStatus, len(l.all))
	for i, r := range l.all {
		all[i] = r.status()
	}
	return all
}

func (l *local) waits() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.record == nil {
		return ""
	}
	return l.record.WaitsFor
}

func (l *local) ended() (bool, error) {
	select {
	case <-l.done:
		return true, l.err
	default:
		return false, nil
	}
}

func (l *local) wake() <-chan struct{} { return l.done }

func (l *local) mine() bool { return true }

func (l *local) ending() bool { return l.ctx != nil && l.ctx.Err() != nil }

func (l *local) end(atOnce bool) error {
	if l.cancel == nil {
		return nil // there was nothing to do
	}
	l.cancel()
	if atOnce {
		l.kill.Do(func() { close(l.now) })
	}
	return nil
}

// orphaned notes that the notebook's kernel, which launched the sweep, is gone.
func (l *local) orphaned() {
	l.mu.Lock()
	l.record.Orphan = true
	l.mu.Unlock()
	l.save()
}

// ownerOf returns the sweep, or the process that trains without one, that has a
// run of all now; nil if there is none. The caller has the queue's lock.
func ownerOf(folder, dir string, all []*run) (*record, error) {
	sweeps, err := entries(folder)
	if err != nil {
		return nil, err
	}
	for _, e := range sweeps {
		if filepath.Dir(filepath.Dir(e.Record)) != dir || e.state == entryEnded || !e.alive() {
			continue
		}
		r, err := readRecord(e.Record)
		if err != nil {
			continue // its folder is being deleted
		}
		shared := func(n runRecord) bool {
			return n.State != StateDone && slices.ContainsFunc(all, func(r *run) bool { return r.dir == n.Dir })
		}
		if slices.ContainsFunc(r.Runs, shared) {
			return r, nil
		}
	}
	for _, r := range all {
		owner, alive, err := runs.OwnerOf(r.dir)
		if err != nil {
			return nil, err
		}
		if alive {
			return ownedRun(r.dir, owner), nil
		}
	}
	return nil, nil
}
