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
	"strings"
	"sync"
	"time"

	"lockstep/pkg/launch/internal/child"
	"lockstep/pkg/launch/internal/queue"
	"lockstep/pkg/launch/internal/runfolder"
	"lockstep/pkg/runs"
)

// localSweep is a sweep that this process runs.
type localSweep struct {
	all     []*run
	binary  string
	ctx     context.Context
	cancel  context.CancelFunc
	done    chan struct{}
	err     error // valid once done is closed
	killNow chan struct{}
	kill    sync.Once // closes killNow

	mu     sync.Mutex
	record *queue.Record
	entry  *queue.LockedEntry // in the queue; nil if there is nothing to do
}

// newLocalSweep plans the runs of s in the study's folder dir, which it creates, and checks their
// configs. It starts nothing.
func newLocalSweep(ctx context.Context, s *Sweep, dir string) (*localSweep, error) {
	l, err := planLocalSweep(ctx, s, dir)
	if err == nil {
		err = runfolder.Make(filepath.Join(dir, queue.RecordsFolder))
	}
	return l, err
}

// planLocalSweep plans the runs of s in the study's folder dir and checks their configs. It writes
// nothing.
func planLocalSweep(ctx context.Context, s *Sweep, dir string) (l *localSweep, err error) {
	l = &localSweep{done: make(chan struct{}), killNow: make(chan struct{})}
	if s.isForeign() {
		_, err = exec.LookPath(s.Command[0])
	} else {
		l.binary, err = Binary(ctx)
	}
	if err == nil && s.onMPI {
		err = s.findMPI(ctx)
	}
	if err != nil {
		return nil, err
	}
	l.all = s.planRuns(dir)
	if !s.isForeign() {
		if err := s.checkConfigs(ctx, l.binary, l.all); err != nil {
			return nil, err
		}
	}
	if err := l.checkBindings(); err != nil && !s.onMPI {
		return nil, err
	}
	for _, r := range l.all {
		r.killNow, r.changed = l.killNow, l.saveRecord
	}
	return l, nil
}

// checkSameConfigs returns an error if an existing run folder of the sweep was made with
// another config.
func (l *localSweep) checkSameConfigs() error {
	for _, r := range l.all {
		before, err := runs.Read(r.dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("run %s: %w", r.name, err)
		}
		if err := r.checkSameConfig(before.Info); err != nil {
			return err
		}
	}
	return nil
}

// checkFolders checks the run folder of each run; see run.checkFolder. allDone reports
// whether nothing is left to do: all runs are done, and no study logs are to be written.
func (l *localSweep) checkFolders() (allDone bool, err error) {
	if err := checkSeparateFolders(l.all); err != nil {
		return false, err
	}
	allDone = true
	for _, r := range l.all {
		if err := r.checkFolder(); err != nil {
			return false, err
		}
		allDone = allDone && r.skip && r.sweep.StudyLogs == ""
	}
	return allDone, nil
}

// enqueue adds the sweep to the queue and starts a goroutine that runs it when no other
// sweep is before it. If another process is already training a run of the sweep, enqueue
// starts nothing and returns the record of that process as owner.
func (l *localSweep) enqueue(ctx context.Context, s Sweep, dir, id string, kernel int) (owner *queue.Record, err error) {
	folder, err := queue.Folder()
	if err != nil {
		return nil, err
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	l.record = &queue.Record{
		ID: id, Study: s.Study, Dir: dir, PID: os.Getpid(), Host: host, Started: time.Now(), State: StateWaiting,
		Detach: s.Detach, Kernel: kernel, Path: queue.RecordPath(dir, id),
	}
	var first *queue.Record
	err = queue.WithLock(ctx, folder, func() error {
		if owner, _, err = findOwner(folder, dir, l.all); owner != nil || err != nil {
			return err
		}
		if err := queue.RemoveOld(folder); err != nil {
			return err
		}
		l.updateRecord()
		if err := runfolder.WrapWriteError("write record of sweep", l.record.Write()); err != nil {
			return err
		}
		if l.entry, err = queue.Add(folder, id, l.record.Path, queue.EntryWaiting); err != nil {
			return err
		}
		if s.mustQueue() {
			if first, err = l.entry.FindPredecessor(); err != nil || first != nil {
				return err
			}
		}
		return l.entry.SetState(queue.EntryRunning)
	})
	if err == nil && first != nil && s.NoWait {
		err = &BusyError{Study: first.Study, PID: first.PID, Since: first.Started}
	}
	if err != nil || owner != nil {
		if l.entry != nil {
			err = errors.Join(err, l.entry.Remove(), os.Remove(l.record.Path))
		}
		return owner, err
	}
	l.ctx, l.cancel = context.WithCancel(ctx)
	if first != nil {
		l.record.WaitsFor = first.WaitNote()
	}
	l.saveRecord()
	go l.runAll(first != nil)
	return nil, nil
}

// runAll runs the sweep. If queued is true, it waits for other sweeps first.
func (l *localSweep) runAll(queued bool) {
	// The goroutine must stay on its thread: see run.startWorkers.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(l.done)
	defer l.cancel()
	if queued {
		l.err = l.awaitTurn()
	}
	for _, r := range l.all {
		if l.err != nil {
			break
		}
		l.err = r.execute(l.ctx, l.binary)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.record.State, l.record.Ended, l.record.WaitsFor = runfolder.StatusForError(l.err), time.Now(), ""
	if l.err != nil {
		l.record.Error = l.err.Error()
	}
	l.updateRecord()
	l.err = errors.Join(l.err, runfolder.WrapWriteError("write record of sweep", l.record.Write()), l.entry.MarkEnded())
}

// awaitTurn waits until no other sweep is before this one. It then checks the run folders
// again, because they may have changed in the meantime.
func (l *localSweep) awaitTurn() error {
	tick := time.NewTicker(queue.Interval)
	defer tick.Stop()
	for {
		first, err := l.entry.TryRun(l.ctx)
		if err != nil {
			return err
		}
		if first == nil {
			break
		}
		l.mu.Lock()
		changed := l.record.WaitsFor != first.WaitNote()
		l.record.WaitsFor = first.WaitNote()
		l.mu.Unlock()
		if changed {
			l.saveRecord()
		}
		select {
		case <-l.ctx.Done():
			return queue.EndCause(l.ctx)
		case <-tick.C:
		}
	}
	l.mu.Lock()
	l.record.WaitsFor = ""
	l.mu.Unlock()
	_, err := l.checkFolders()
	return err
}

// saveRecord writes the record. It ignores errors: a full disk must not end the training,
// and the run folders contain all results.
func (l *localSweep) saveRecord() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.record == nil {
		return
	}
	l.updateRecord()
	if l.record.WaitsFor == "" && !l.record.HasEnded() {
		l.record.State = StateRunning
	}
	_ = l.record.Write()
}

// updateRecord copies the states of the runs into the record.
func (l *localSweep) updateRecord() {
	l.record.Runs = l.record.Runs[:0]
	for _, r := range l.all {
		r.mu.Lock()
		n := queue.Run{
			Name: r.name, Dir: r.dir, Workers: r.workers, Seed: r.seed, State: r.state,
			Started: r.started, Ended: r.ended, Epochs: r.plannedEpochs(),
		}
		if r.err != nil {
			n.Error = r.err.Error()
		}
		r.mu.Unlock()
		l.record.Runs = append(l.record.Runs, n)
	}
}

func (l *localSweep) status() []RunStatus {
	all := make([]RunStatus, len(l.all))
	for i, r := range l.all {
		all[i] = r.status()
	}
	return all
}

func (l *localSweep) waitsFor() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.record == nil {
		return ""
	}
	return l.record.WaitsFor
}

func (l *localSweep) hasEnded() (bool, error) {
	select {
	case <-l.done:
		return true, l.err
	default:
		return false, nil
	}
}

func (l *localSweep) doneChannel() <-chan struct{} { return l.done }

func (l *localSweep) isOwn() bool { return true }

// isEnding reports whether the context of the sweep has been canceled. Wait calls it when
// its own context ends. The sweep's context often derives from that context, and is then
// canceled a moment later, so isEnding waits for derivedCancelTime. Without this time, Wait
// would return too early, and if the process then ended, its workers would be killed.
func (l *localSweep) isEnding() bool {
	if l.ctx == nil {
		return false
	}
	select {
	case <-l.ctx.Done():
		return true
	case <-time.After(derivedCancelTime):
		return false
	}
}

// derivedCancelTime is longer than the time between the cancellation of a context and the
// cancellation of the contexts that derive from it, even on a machine with many busy
// processes.
const derivedCancelTime = time.Second

func (l *localSweep) end(atOnce bool) error {
	if l.cancel == nil {
		return nil // there was nothing to do
	}
	l.cancel()
	if atOnce {
		l.kill.Do(func() { close(l.killNow) })
	}
	return nil
}

// markOrphaned records that the notebook's kernel that launched the sweep has ended.
func (l *localSweep) markOrphaned() {
	l.mu.Lock()
	l.record.Orphan = true
	l.mu.Unlock()
	l.saveRecord()
}

// findOwner looks for a process that is already training, or waits to train, one of the
// unfinished runs in all, which belong to the study's folder dir. It returns the record
// of that process's sweep, or a new record if the process trains the run without a
// launcher, or nil if there is no such process. folder is the locks folder.
//
// A process whose launcher was killed is no owner: findOwner ends it. note says so, and is ""
// if there was none.
func findOwner(folder, dir string, all []*run) (owner *queue.Record, note string, err error) {
	sweeps, err := queue.List(folder)
	if err != nil {
		return nil, "", err
	}
	for _, e := range sweeps {
		if filepath.Dir(filepath.Dir(e.Record)) != dir || e.State == queue.EntryEnded || !e.IsAlive() {
			continue
		}
		r, err := queue.ReadRecord(e.Record)
		if err != nil {
			continue // the study's folder is being deleted
		}
		shared := func(n queue.Run) bool {
			return n.State != StateDone && slices.ContainsFunc(all, func(r *run) bool { return r.dir == n.Dir })
		}
		if slices.ContainsFunc(r.Runs, shared) {
			return r, "", nil
		}
	}
	var dirs []string
	for _, r := range all {
		dirs = append(dirs, r.dir)
	}
	ended, err := child.EndLeftBehind(dirs...)
	if len(ended) > 0 {
		note = fmt.Sprintf("ended the processes that a killed launcher had left behind: pid %s", strings.Trim(fmt.Sprint(ended), "[]"))
	}
	if err != nil {
		return nil, note, err
	}
	for _, r := range all {
		owner, alive, err := runs.OwnerOf(r.dir)
		if err != nil {
			return nil, note, err
		}
		if alive {
			return newSingleRunRecord(r.dir, owner), note, nil
		}
	}
	return nil, note, nil
}
