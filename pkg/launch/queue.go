package launch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// locksVariable is the environment variable with the path of the locks folder.
const locksVariable = "LOCKSTEP_LOCKS"

// Each sweep of a user on a machine has a file in the locks folder. The process of the sweep
// locks the file until it ends, even by a kill. The extension of the file is the state of
// the sweep. It is changed by a rename, which is one step and keeps the lock.
const (
	entryWaiting = ".waiting"
	entryRunning = ".running"
	entryEnded   = ".ended"
)

const (
	queueFile = "queue.lock"
	// queueInterval is the time after which a waiting sweep checks the queue again.
	queueInterval = 200 * time.Millisecond
	// keptEntries is the number of ended sweeps that stay listed.
	keptEntries = 50
)

// locksFolder returns the path of this user's locks folder, which it creates if necessary:
// $LOCKSTEP_LOCKS, else lockstep in $XDG_RUNTIME_DIR, else a folder in the temporary
// directory.
func locksFolder() (string, error) {
	dir := os.Getenv(locksVariable)
	if runtime := os.Getenv("XDG_RUNTIME_DIR"); dir == "" && runtime != "" {
		if s, err := os.Stat(runtime); err == nil && s.IsDir() {
			dir = filepath.Join(runtime, "lockstep")
		}
	}
	shared := dir == ""
	if shared {
		dir = filepath.Join(os.TempDir(), fmt.Sprintf("lockstep-%d", os.Getuid()))
	}
	dir, err := filepath.Abs(dir)
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err != nil {
		return "", fmt.Errorf("create locks folder: %w; set %s to a folder that belongs to you", err, locksVariable)
	}
	if !shared {
		return dir, nil
	}
	// In the temporary directory, any user can create a folder of that name.
	var s unix.Stat_t
	if err := unix.Lstat(dir, &s); err != nil {
		return "", fmt.Errorf("create locks folder %s: %w", dir, err)
	}
	if s.Mode&unix.S_IFMT != unix.S_IFDIR || int(s.Uid) != os.Getuid() || s.Mode&0o022 != 0 {
		return "", fmt.Errorf("use locks folder %s: want a folder that only you can write to; set %s to a folder that belongs to you", dir, locksVariable)
	}
	return dir, nil
}

// queueEntry is the file of one sweep in the locks folder.
type queueEntry struct {
	folder string
	id     string
	state  string // one of the entry constants
	Record string `json:"record"` // path of the sweep's record
}

func (e queueEntry) path() string { return filepath.Join(e.folder, e.id+e.state) }

// listEntries returns the sweeps in the locks folder, in the order in which they were
// launched.
func listEntries(folder string) ([]queueEntry, error) {
	files, err := os.ReadDir(folder)
	if err != nil {
		return nil, fmt.Errorf("list sweeps: %w", err)
	}
	var all []queueEntry
	for _, f := range files {
		state := filepath.Ext(f.Name())
		if state != entryWaiting && state != entryRunning && state != entryEnded {
			continue
		}
		e := queueEntry{folder: folder, id: strings.TrimSuffix(f.Name(), state), state: state}
		text, err := os.ReadFile(e.path())
		if err != nil || json.Unmarshal(text, &e) != nil {
			continue // renamed or removed in the meantime
		}
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b queueEntry) int { return strings.Compare(a.id, b.id) })
	return all, nil
}

// isAlive reports whether the process of the sweep is alive. The process may have renamed
// the file since the entry was listed.
func (e queueEntry) isAlive() bool {
	for _, state := range []string{e.state, entryRunning, entryEnded} {
		e.state = state
		f, err := os.Open(e.path())
		if err != nil {
			continue
		}
		err = unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB)
		_ = f.Close() // also releases this lock
		return errors.Is(err, unix.EWOULDBLOCK)
	}
	return false
}

// isOpenIn reports whether the process pid has the file of the sweep open, as the process of the
// sweep has, which keeps its lock. known is false if the system does not show the files of a
// process.
func (e queueEntry) isOpenIn(pid int) (open, known bool) {
	files := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(files)
	if err != nil {
		_, err = os.Stat("/proc/self/fd")
		return false, err == nil
	}
	for _, state := range []string{e.state, entryRunning, entryEnded} {
		e.state = state
		want, err := os.Stat(e.path())
		if err != nil {
			continue
		}
		for _, f := range entries {
			if got, err := os.Stat(filepath.Join(files, f.Name())); err == nil && os.SameFile(got, want) {
				return true, true
			}
		}
	}
	return false, true
}

// lockedEntry is the locked entry of a sweep that this process runs.
type lockedEntry struct {
	queueEntry
	lock *os.File
}

// addEntry adds a sweep with the given id to the locks folder. record is the path of its
// record. The caller has the queue's lock.
func addEntry(folder, id, record, state string) (*lockedEntry, error) {
	p := &lockedEntry{queueEntry: queueEntry{folder: folder, id: id, state: state, Record: record}}
	text, err := json.Marshal(p.queueEntry)
	if err != nil {
		return nil, err
	}
	// The file is renamed once it is complete and locked.
	f, err := os.CreateTemp(folder, id+"-*.new")
	if err != nil {
		return nil, fmt.Errorf("queue sweep: %w", err)
	}
	if _, err = f.Write(text); err == nil {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
	}
	if err == nil {
		err = os.Rename(f.Name(), p.path())
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("queue sweep: %w", err), f.Close(), os.Remove(f.Name()))
	}
	p.lock = f
	return p, nil
}

// setState changes the state of the sweep to one of the entry constants.
func (p *lockedEntry) setState(state string) error {
	from := p.path()
	p.state = state
	if err := os.Rename(from, p.path()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("change state of sweep to %q: %w", state, err)
	}
	return nil
}

// markEnded marks the sweep as ended and releases its lock. The entry stays listed.
func (p *lockedEntry) markEnded() error { return errors.Join(p.setState(entryEnded), p.lock.Close()) }

// remove removes the entry and releases its lock.
func (p *lockedEntry) remove() error { return errors.Join(os.Remove(p.path()), p.lock.Close()) }

// withQueueLock calls do while this process has the queue's lock, so that no other process
// reads or changes the queue.
func withQueueLock(ctx context.Context, folder string, do func() error) (err error) {
	f, err := os.OpenFile(filepath.Join(folder, queueFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("lock queue of sweeps: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	const again = 5 * time.Millisecond
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return do()
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("lock queue of sweeps %s: %w; set %s to a folder on a local disk", f.Name(), err, locksVariable)
		}
		select {
		case <-ctx.Done():
			return endCause(ctx)
		case <-time.After(again):
		}
	}
}

// findPredecessor returns the sweep that p waits for: a running sweep, else the first of the
// waiting sweeps that were launched earlier. It returns nil if p may start. The caller has
// the queue's lock.
func (p *lockedEntry) findPredecessor() (*sweepRecord, error) {
	all, err := listEntries(p.folder)
	if err != nil {
		return nil, err
	}
	var waiting *sweepRecord
	for _, e := range all {
		if e.id == p.id || e.state == entryEnded || !e.isAlive() {
			continue
		}
		if e.state == entryWaiting && (e.id > p.id || waiting != nil) {
			continue
		}
		r, err := readRecord(e.Record)
		if err != nil { // the study's folder was deleted, but the sweep still uses the machine
			r = &sweepRecord{Study: filepath.Base(filepath.Dir(filepath.Dir(e.Record)))}
		}
		if e.state == entryRunning {
			return r, nil
		}
		waiting = r
	}
	return waiting, nil
}

// tryRun marks p as running and returns nil if no other sweep is before p. Otherwise it
// returns the sweep that p waits for.
func (p *lockedEntry) tryRun(ctx context.Context) (first *sweepRecord, err error) {
	err = withQueueLock(ctx, p.folder, func() error {
		if first, err = p.findPredecessor(); err != nil || first != nil {
			return err
		}
		return p.setState(entryRunning)
	})
	return first, err
}

// removeOldEntries removes the oldest entries of ended sweeps, so that keptEntries
// remain. The caller has the queue's lock.
func removeOldEntries(folder string) error {
	all, err := listEntries(folder)
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(e queueEntry) bool { return e.state != entryEnded && e.isAlive() })
	for _, e := range all[:max(0, len(all)-keptEntries)] {
		if err := os.Remove(e.path()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove old sweep: %w", err)
		}
	}
	return nil
}

// schedulerVariables are the environment variables that identify a job of Slurm, PBS, LSF,
// Grid Engine, HTCondor, Flux or OAR. These schedulers reserve a part of the machine for each
// job.
var schedulerVariables = []string{"SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "JOB_ID", "_CONDOR_JOB_AD", "FLUX_JOB_ID", "OAR_JOB_ID"}

// mustQueue reports whether s has to wait for other sweeps.
func (s Sweep) mustQueue() bool {
	if s.Now || os.Getenv("LOCKSTEP_RUN") != "" {
		return false
	}
	return !slices.ContainsFunc(schedulerVariables, func(name string) bool { return os.Getenv(name) != "" })
}

// A BusyError reports a sweep that would have to wait for another.
type BusyError struct {
	Study string // of the other sweep
	PID   int
	Since time.Time
}

func (e *BusyError) Error() string {
	return fmt.Sprintf("%s; wait for it, or start anyway (Now, --now)", (&sweepRecord{Study: e.Study, PID: e.PID, Started: e.Since}).describe())
}
