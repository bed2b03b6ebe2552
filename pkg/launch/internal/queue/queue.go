package queue

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

	"lockstep/pkg/collective/rendezvous"
	"lockstep/pkg/internal/safeopen"
	"lockstep/pkg/launch/internal/output"
)

// FolderVariable is the environment variable with the path of the locks folder.
const FolderVariable = "LOCKSTEP_LOCKS"

// The states of a sweep in the queue, as extensions of its file in the locks folder. Each sweep of
// a user on a machine has one such file, which its process keeps locked until it ends, even by a
// kill. The state changes by a rename, which is atomic and keeps the lock.
const (
	EntryWaiting = ".waiting"
	EntryRunning = ".running"
	EntryEnded   = ".ended"
)

const (
	queueFile = "queue.lock"
	// Interval is the time between two checks of the queue by a waiting sweep.
	Interval = 200 * time.Millisecond
	// Kept is the number of ended sweeps that stay listed.
	Kept = 50
)

// FindLocksFolder returns the path of the locks folder of this user on this machine, and creates the
// folder if necessary. The path is $LOCKSTEP_LOCKS if that is set. Otherwise it is the first of
// these folders that can be private to this user and whose file system supports locks:
//   - lockstep in $XDG_RUNTIME_DIR, if that is private too
//   - locks-HOST in the state folder, which several machines may share: lockstep in $XDG_STATE_HOME
//     (default: ~/.local/state)
//   - lockstep-UID in the temporary directory
//
// If another user has already created a folder with this name, FindLocksFolder uses the name that
// safeopen.CreatePrivateFolder chooses.
func FindLocksFolder() (string, error) { return findLocksFolder(os.Getenv, os.TempDir()) }

// findLocksFolder implements FindLocksFolder. getenv reads the environment, and temporary is the path
// of the temporary directory.
func findLocksFolder(getenv func(string) string, temporary string) (string, error) {
	if dir := getenv(FolderVariable); dir != "" {
		dir, err := filepath.Abs(dir)
		if err == nil {
			err = os.MkdirAll(dir, 0o700)
		}
		if err != nil {
			return "", fmt.Errorf("create locks folder: %w; set %s to a folder that belongs to you", err, FolderVariable)
		}
		return dir, nil
	}
	var errs []error
	use := func(parent, name string) string {
		dir, err := safeopen.CreatePrivateFolder(parent, name)
		if err == nil {
			err = checkLocking(dir)
		}
		errs = append(errs, err)
		if err != nil {
			return ""
		}
		return dir
	}
	if runtime := getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(runtime) && safeopen.IsPrivateFolder(runtime) {
		if dir := use(runtime, "lockstep"); dir != "" {
			return dir, nil
		}
	}
	if token, err := rendezvous.TokenPath(getenv); err == nil {
		state := filepath.Dir(token)
		if err := os.MkdirAll(state, 0o700); err != nil {
			errs = append(errs, err)
		} else if dir := use(state, "locks-"+hostName()); dir != "" {
			return dir, nil
		}
	}
	if dir := use(temporary, fmt.Sprintf("lockstep-%d", os.Getuid())); dir != "" {
		return dir, nil
	}
	return "", fmt.Errorf("create locks folder: %w; set %s to a folder on a local disk that belongs to you", errors.Join(errs...), FolderVariable)
}

func hostName() string {
	host, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return host
}

// checkLocking returns an error if files in dir cannot be locked, as on some network file systems.
func checkLocking(dir string) error {
	f, err := os.OpenFile(filepath.Join(dir, queueFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	if err = unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
		err = nil // another process has the lock
	}
	if err != nil {
		err = &os.PathError{Op: "lock", Path: f.Name(), Err: err}
	}
	return errors.Join(err, f.Close())
}

// Entry is the file of one sweep in the locks folder.
type Entry struct {
	Folder string `json:"-"`
	ID     string `json:"-"`
	State  string `json:"-"`      // one of the Entry constants
	Record string `json:"record"` // path of the sweep's record
}

func (e Entry) path() string { return filepath.Join(e.Folder, e.ID+e.State) }

// ListEntries returns the sweeps in the locks folder, in the order in which they were launched.
func ListEntries(folder string) ([]Entry, error) {
	files, err := os.ReadDir(folder)
	if err != nil {
		return nil, fmt.Errorf("list sweeps: %w", err)
	}
	var all []Entry
	for _, f := range files {
		state := filepath.Ext(f.Name())
		if state != EntryWaiting && state != EntryRunning && state != EntryEnded {
			continue
		}
		e := Entry{Folder: folder, ID: strings.TrimSuffix(f.Name(), state), State: state}
		text, err := os.ReadFile(e.path())
		if err != nil || json.Unmarshal(text, &e) != nil {
			continue // renamed or removed in the meantime
		}
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b Entry) int { return strings.Compare(a.ID, b.ID) })
	return all, nil
}

// HasLiveProcess reports whether the process of the sweep is alive. It also finds the file if its name has
// changed with the state since the entry was listed.
func (e Entry) HasLiveProcess() bool {
	for _, state := range []string{e.State, EntryRunning, EntryEnded} {
		e.State = state
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

// IsFileOpenIn reports whether the process pid has the sweep's file open, as only the process that runs
// the sweep does. known is false if the system does not show which files a process has open.
func (e Entry) IsFileOpenIn(pid int) (open, known bool) {
	files := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(files)
	if err != nil {
		_, err = os.Stat("/proc/self/fd")
		return false, err == nil
	}
	for _, state := range []string{e.State, EntryRunning, EntryEnded} {
		e.State = state
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

// LockedEntry is the locked entry of a sweep that this process runs.
type LockedEntry struct {
	Entry
	lock *os.File
}

// AddEntry adds a sweep to the locks folder. id is the sweep's id, record the path of its record,
// and state one of the Entry constants. The caller must hold the queue's lock, see WithQueueLock.
func AddEntry(folder, id, record, state string) (*LockedEntry, error) {
	p := &LockedEntry{Entry: Entry{Folder: folder, ID: id, State: state, Record: record}}
	text, err := json.Marshal(p.Entry)
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

// SetState changes the state of the sweep to one of the Entry constants.
func (p *LockedEntry) SetState(state string) error {
	from := p.path()
	p.State = state
	if err := os.Rename(from, p.path()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("change state of sweep to %q: %w", state, err)
	}
	return nil
}

// MarkEnded marks the sweep as ended and releases its lock. The entry stays listed.
func (p *LockedEntry) MarkEnded() error { return errors.Join(p.SetState(EntryEnded), p.lock.Close()) }

// Remove removes the entry and releases its lock.
func (p *LockedEntry) Remove() error { return errors.Join(os.Remove(p.path()), p.lock.Close()) }

// WithQueueLock calls do while this process has the queue's lock: no other process reads or changes the queue.
func WithQueueLock(ctx context.Context, folder string, do func() error) (err error) {
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
			return fmt.Errorf("lock queue of sweeps %s: %w; set %s to a folder on a local disk", f.Name(), err, FolderVariable)
		}
		select {
		case <-ctx.Done():
			return ContextEndError(ctx)
		case <-time.After(again):
		}
	}
}

// FindPredecessor returns the sweep that p waits for: a running sweep, else the first waiting one
// that was launched earlier, or nil if p may start. The caller has the queue's lock.
func (p *LockedEntry) FindPredecessor() (*SweepRecord, error) {
	all, err := ListEntries(p.Folder)
	if err != nil {
		return nil, err
	}
	var waiting *SweepRecord
	for _, e := range all {
		if e.ID == p.ID || e.State == EntryEnded || !e.HasLiveProcess() {
			continue
		}
		if e.State == EntryWaiting && (e.ID > p.ID || waiting != nil) {
			continue
		}
		r, err := ReadRecord(e.Record)
		if err != nil { // the study's folder was deleted, but the sweep still uses the machine
			r = &SweepRecord{Study: filepath.Base(filepath.Dir(filepath.Dir(e.Record)))}
		}
		if e.State == EntryRunning {
			return r, nil
		}
		waiting = r
	}
	return waiting, nil
}

// TryMarkRunning marks p as running and returns nil, or the sweep that p waits for.
func (p *LockedEntry) TryMarkRunning(ctx context.Context) (first *SweepRecord, err error) {
	err = WithQueueLock(ctx, p.Folder, func() error {
		if first, err = p.FindPredecessor(); err != nil || first != nil {
			return err
		}
		return p.SetState(EntryRunning)
	})
	return first, err
}

// RemoveOldEntries removes the oldest entries of ended sweeps, so that Kept remain. The caller has the
// queue's lock.
func RemoveOldEntries(folder string) error {
	all, err := ListEntries(folder)
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(e Entry) bool { return e.State != EntryEnded && e.HasLiveProcess() })
	for _, e := range all[:max(0, len(all)-Kept)] {
		if err := os.Remove(e.path()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove old sweep: %w", err)
		}
	}
	return nil
}

// ErrNotebookKernelEnded is the cause of the end of a sweep whose notebook's kernel has ended. It is a
// context.Canceled.
var ErrNotebookKernelEnded error = notebookKernelEndedError{}

type notebookKernelEndedError struct{}

func (notebookKernelEndedError) Error() string        { return output.NotebookEndedText }
func (notebookKernelEndedError) Is(target error) bool { return target == context.Canceled }

// ContextEndError returns the error to report after ctx has ended: ErrNotebookKernelEnded or a time-out's error,
// otherwise context.Canceled.
func ContextEndError(ctx context.Context) error {
	if cause := context.Cause(ctx); errors.Is(cause, context.DeadlineExceeded) || errors.Is(cause, ErrNotebookKernelEnded) {
		return cause
	}
	return context.Canceled
}
