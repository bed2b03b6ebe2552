package launch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"lockstep/pkg/launch/internal/child"
	"lockstep/pkg/launch/internal/cores"
	"lockstep/pkg/launch/internal/output"
	"lockstep/pkg/launch/internal/queue"
	"lockstep/pkg/launch/internal/runfolder"
	"lockstep/pkg/runs"
)

// inProcessSweep is a sweep that this process runs.
type inProcessSweep struct {
	plan    *SweepPlan
	runs    []*runningRun
	ctx     context.Context
	cancel  context.CancelFunc // nil if there was nothing to do
	ended   chan struct{}
	err     error // valid once ended is closed
	killNow chan struct{}
	kill    sync.Once // closes killNow

	out   *output.LineWriter
	claim *cores.Claim // on cores of the machine; nil if users do not share it, or if it is not this sweep's turn

	mu     sync.Mutex
	record *queue.SweepRecord
	entry  *queue.LockedEntry // in the queue
}

func newInProcessSweep(p *SweepPlan) *inProcessSweep {
	out := output.NewLineWriter(p.Sweep.Output)
	l := &inProcessSweep{plan: p, out: out, ended: make(chan struct{}), killNow: make(chan struct{})}
	for i := range p.Runs {
		r := &runningRun{PlannedRun: &p.Runs[i], plan: p, out: out, killNow: l.killNow, changed: l.saveRecord}
		r.resetState()
		l.runs = append(l.runs, r)
	}
	return l
}

// A runsInUseError reports that another process trains runs of the sweep, or waits to train them.
type runsInUseError struct{}

func (*runsInUseError) Error() string { return "another process is training these runs" }

// startInThisProcess runs the sweep of p in this process. id is the id of its record, and kernel is
// the pid of the notebook's kernel that launched it, or 0. The sweep first waits in the queue until
// no other sweep is before it. If another process has begun to train the same runs since the sweep
// was planned, startInThisProcess starts nothing and returns a *runsInUseError.
func (p *SweepPlan) startInThisProcess(ctx context.Context, id string, kernel int) (*inProcessSweep, error) {
	folder, err := queue.FindLocksFolder()
	if err != nil {
		return nil, err
	}
	l, s := newInProcessSweep(p), &p.Sweep
	l.record = p.newRecord(id)
	l.record.PID, l.record.State, l.record.Detach, l.record.Kernel = os.Getpid(), StateWaiting, s.Detach, kernel
	var first *queue.SweepRecord
	err = queue.WithQueueLock(ctx, folder, func() error {
		owner, _, err := findRunOwner(folder, p.Dir, p.runDirs())
		if err == nil && owner != nil {
			err = &runsInUseError{}
		}
		if err != nil {
			return err
		}
		if err := queue.RemoveOldEntries(folder); err != nil {
			return err
		}
		l.updateRecord()
		l.record.Starting = true
		if err := runfolder.WrapWriteError("write record of sweep", l.record.Write()); err != nil {
			return err
		}
		if l.entry, err = queue.AddEntry(folder, id, l.record.Path, queue.EntryWaiting); err != nil {
			return err
		}
		if s.mustQueue() {
			if first, err = l.entry.FindPredecessor(); err != nil || first != nil {
				return err
			}
		}
		return l.entry.SetState(queue.EntryRunning)
	})
	hasCores := false
	switch {
	case err != nil:
	case first != nil:
		l.record.WaitsFor = first.WaitNote()
		if s.NoWait {
			err = &BusyError{Study: first.Study, PID: first.PID, Since: first.Started}
		}
	default:
		hasCores, err = l.tryTakeCores()
	}
	if err != nil {
		if l.entry != nil {
			err = errors.Join(err, l.entry.Remove(), os.Remove(l.record.Path))
		}
		return nil, err
	}
	l.ctx, l.cancel = context.WithCancel(ctx)
	l.record.Starting = false
	l.saveRecord()
	go l.runAll(first != nil, hasCores)
	return l, nil
}

func (p *SweepPlan) newRecord(id string) *queue.SweepRecord {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return &queue.SweepRecord{
		Schema: p.Schema, Build: p.Build, ID: id, Study: p.Sweep.Study, Dir: p.Dir, Host: host, Started: time.Now(), Path: queue.RecordPath(p.Dir, id),
	}
}

// runAll runs the sweep. If queued is set, it waits for other sweeps first. Unless hasCores is set,
// it then takes the cores, for which it may have to wait too.
func (l *inProcessSweep) runAll(queued, hasCores bool) {
	// The goroutine must stay on its thread: see runningRun.startWorkers.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(l.ended)
	defer l.cancel()
	if queued {
		l.err = l.awaitQueueTurn()
	}
	if l.err == nil && !hasCores {
		l.err = l.awaitCores()
	}
	for _, r := range l.runs {
		if l.err != nil {
			break
		}
		l.err = r.execute(l.ctx)
	}
	l.releaseCores()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.record.State, l.record.Ended, l.record.WaitsFor = runfolder.StatusForError(l.err), time.Now(), ""
	if l.err != nil {
		l.record.Error = l.err.Error()
	}
	l.updateRecord()
	l.err = errors.Join(l.err, runfolder.WrapWriteError("write record of sweep", l.record.Write()), l.entry.MarkEnded())
}

// awaitQueueTurn waits until no other sweep is before this one. It then checks the run folders again,
// because they may have changed in the meantime.
func (l *inProcessSweep) awaitQueueTurn() error {
	tick := time.NewTicker(queue.Interval)
	defer tick.Stop()
	for {
		first, err := l.entry.TryMarkRunning(l.ctx)
		if err != nil {
			return err
		}
		if first == nil {
			break
		}
		l.setWaitsFor(first.WaitNote())
		select {
		case <-l.ctx.Done():
			return queue.ContextEndError(l.ctx)
		case <-tick.C:
		}
	}
	return l.endWaiting()
}

// setWaitsFor records what the sweep waits for, and reports whether this has changed.
func (l *inProcessSweep) setWaitsFor(note string) (changed bool) {
	l.mu.Lock()
	changed = l.record.WaitsFor != note
	l.record.WaitsFor = note
	l.mu.Unlock()
	if changed {
		l.saveRecord()
	}
	return changed
}

func (l *inProcessSweep) endWaiting() error {
	l.mu.Lock()
	l.record.WaitsFor = ""
	l.mu.Unlock()
	if err := l.plan.chooseActions(); err != nil {
		return err
	}
	for _, r := range l.runs {
		r.resetState()
	}
	return nil
}

// saveRecord writes the record. It ignores errors: a full disk must not end the training, and the
// run folders contain all results.
func (l *inProcessSweep) saveRecord() {
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

func (l *inProcessSweep) updateRecord() {
	l.record.Runs = l.record.Runs[:0]
	for _, r := range l.runs {
		l.record.Runs = append(l.record.Runs, r.toRecord(r.PlannedRun))
	}
}

func (l *inProcessSweep) status() []RunStatus {
	all := make([]RunStatus, len(l.runs))
	over, _ := l.hasEnded()
	for i, r := range l.runs {
		if all[i] = r.status(r.PlannedRun); over {
			all[i].markNotStarted()
		}
	}
	return all
}

func (l *inProcessSweep) waitsFor() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.record == nil {
		return ""
	}
	return l.record.WaitsFor
}

func (l *inProcessSweep) hasEnded() (bool, error) {
	select {
	case <-l.ended:
		return true, l.err
	default:
		return false, nil
	}
}

func (l *inProcessSweep) done() <-chan struct{} { return l.ended }

func (l *inProcessSweep) isOwn() bool { return true }

// isEnding reports whether the context of the sweep has been canceled. Wait calls it when its own
// context ends. The sweep's context often derives from Wait's context and is canceled a moment
// later, so isEnding waits up to cancelPropagationTime. Without this delay, Wait would return too
// early, and if the process then ended, its workers would be killed.
func (l *inProcessSweep) isEnding() bool {
	if l.ctx == nil {
		return false
	}
	select {
	case <-l.ctx.Done():
		return true
	case <-time.After(cancelPropagationTime):
		return false
	}
}

// cancelPropagationTime is longer than it takes to cancel the contexts that derive from a canceled
// context, even on a machine with many busy processes.
const cancelPropagationTime = time.Second

func (l *inProcessSweep) end(atOnce bool) error {
	if l.cancel == nil {
		return nil // there was nothing to do
	}
	l.cancel()
	if atOnce {
		l.kill.Do(func() { close(l.killNow) })
	}
	return nil
}

func (l *inProcessSweep) markOrphaned() {
	l.mu.Lock()
	l.record.Orphan = true
	l.mu.Unlock()
	l.saveRecord()
}

// findRunOwner looks for a process that trains, or waits to train, an unfinished run. dirs lists the
// run folders, dir is the study's folder, and folder the locks folder. findRunOwner returns the record
// of the process's sweep, a new record if the process trains the run without a launcher, or nil if
// there is no such process.
//
// If the launcher of a process was killed, findRunOwner kills that process too, and describes this in
// note.
func findRunOwner(folder, dir string, dirs []string) (owner *queue.SweepRecord, note string, err error) {
	sweeps, err := queue.ListEntries(folder)
	if err != nil {
		return nil, "", err
	}
	for _, e := range sweeps {
		if filepath.Dir(filepath.Dir(e.Record)) != dir || e.State == queue.EntryEnded || !e.HasLiveProcess() {
			continue
		}
		r, err := queue.ReadRecord(e.Record)
		if err != nil {
			continue // the study's folder is being deleted
		}
		shared := func(n queue.RunRecord) bool { return n.State != StateDone && slices.Contains(dirs, n.Dir) }
		if slices.ContainsFunc(r.Runs, shared) {
			return r, "", nil
		}
	}
	ended, err := child.KillOrphans(dirs...)
	if len(ended) > 0 {
		note = fmt.Sprintf("ended the processes that a killed launcher had left behind: pid %s", strings.Trim(fmt.Sprint(ended), "[]"))
	}
	if err != nil {
		return nil, note, err
	}
	owner, err = findTrainingProcess(dirs)
	return owner, note, err
}

// findTrainingProcess returns a record for a run in dirs that a process trains without a launcher, or nil.
func findTrainingProcess(dirs []string) (*queue.SweepRecord, error) {
	for _, dir := range dirs {
		owner, alive, err := runs.OwnerOf(dir)
		if err != nil {
			return nil, err
		}
		if alive {
			return newSingleRunRecord(dir, owner), nil
		}
	}
	return nil, nil
}
