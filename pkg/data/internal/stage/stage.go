// Package stage copies a data set into a folder of this machine, such as /dev/shm,
// once for all processes that ask for it, and removes the copy when the last of them
// has ended.
//
// Each copy is a separate folder in FOLDER/lockstep-stage-UID, named by a hash of the content
// that was copied:
//
//	lock      held exclusively while the copy is made or removed, shared while it is used
//	progress  touched while the copy is made
//	data      the copy; it gets this name when it is complete
//
// The lock is flock(2), which the kernel releases when its process ends, however it
// ends. So a copy whose lock can be acquired exclusively has no user: a process that closes
// it, or that makes another copy, removes it.
package stage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	lockName     = "lock"
	progressName = "progress"
	dataName     = "data"
	partName     = "data.part"

	// defaultPatience is how long another process may copy without progress before
	// waiting ends with an error.
	defaultPatience = 2 * time.Minute
	pollEvery       = 50 * time.Millisecond
)

// Stage is a copy that this process uses.
type Stage struct {
	Bytes  int64         // total size of the files
	Took   time.Duration // time for copying; 0 if another process has copied
	Copied bool          // whether this process has copied

	dir  string
	lock *os.File
	base []string // name of each source within the copy
}

// stager makes copies. Tests replace its fields.
type stager struct {
	patience time.Duration
	free     func(dir string) (bytes int64, err error)
	began    func() // called when copying begins
}

// Open copies the sources, which are files or folders, into folder, or takes the copy
// that another process has made of the same content. While another process copies,
// Open waits, up to two minutes without progress.
func Open(ctx context.Context, folder string, sources []string) (*Stage, error) {
	s, err := stager{patience: defaultPatience, free: free}.open(ctx, folder, sources)
	if err != nil {
		return nil, fmt.Errorf("stage data to %s: %w", folder, err)
	}
	return s, nil
}

// Path returns the place of source i in the copy.
func (s *Stage) Path(i int) string { return filepath.Join(s.dir, dataName, s.base[i]) }

// Dir returns the folder of the copy.
func (s *Stage) Dir() string { return s.dir }

// Close ends the use of the copy, and removes it if no other process uses it.
func (s *Stage) Close() error {
	if s == nil || s.lock == nil {
		return nil
	}
	defer func() { s.lock = nil }()
	err := removeUnused(s.dir, s.lock)
	_ = os.Remove(filepath.Dir(s.dir)) // fails while another copy is in it
	if err != nil {
		return fmt.Errorf("remove staged data: %w", err)
	}
	return nil
}

func (o stager) open(ctx context.Context, folder string, sources []string) (*Stage, error) {
	set, err := list(ctx, sources)
	if err != nil {
		return nil, err
	}
	var waited waiting
	for {
		root, err := ownRoot(folder)
		if err != nil {
			return nil, err
		}
		dir := filepath.Join(root, set.name())
		s := &Stage{Bytes: set.bytes, dir: dir, base: set.base}
		done, err := o.try(ctx, s, set)
		if done {
			return s, nil
		}
		if err == nil {
			err = waited.more(ctx, dir, o.patience)
		}
		if err != nil {
			_ = os.Remove(root) // fails while a copy is in it
			return nil, err
		}
	}
}

// try takes the copy in s.dir or makes it. It reports false if another process is
// making or removing it.
func (o stager) try(ctx context.Context, s *Stage, set *files) (done bool, err error) {
	lock, err := openLock(s.dir)
	if err != nil || lock == nil {
		return false, err
	}
	defer func() {
		if !done {
			_ = lock.Close()
		}
	}()
	if !flock(lock, syscall.LOCK_EX) {
		// Others use it, or one of them makes it.
		if !flock(lock, syscall.LOCK_SH) || !sameFile(lock, s.dir) || !complete(s.dir) {
			return false, nil
		}
		s.lock = lock
		return true, nil
	}
	if !sameFile(lock, s.dir) {
		return false, nil
	}
	sweep(filepath.Dir(s.dir), s.dir)
	if !complete(s.dir) {
		begin := time.Now()
		if err := o.copy(ctx, s.dir, set); err != nil {
			return false, errors.Join(err, removeUnused(s.dir, lock))
		}
		s.Copied, s.Took = true, time.Since(begin)
	}
	// The kernel releases the exclusive lock before it grants the shared one, so that
	// another process may remove the copy in between: it is then made again.
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_SH); err != nil {
		return false, fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	if !sameFile(lock, s.dir) || !complete(s.dir) {
		return false, nil
	}
	s.lock = lock
	return true, nil
}

// ownRoot returns folder/lockstep-stage-UID, which it makes if there is none. It
// refuses one that others may write to.
func ownRoot(folder string) (string, error) {
	if info, err := os.Stat(folder); err != nil || !info.IsDir() {
		return "", errors.New("there is no such folder on this machine: name one that every node has, such as /dev/shm, or leave data.stage out")
	}
	uid := os.Getuid()
	root := filepath.Join(folder, "lockstep-stage-"+strconv.Itoa(uid))
	if err := os.Mkdir(root, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	info, err := os.Lstat(root)
	if errors.Is(err, fs.ErrNotExist) { // its last user has just removed it
		return ownRoot(folder)
	}
	if err != nil {
		return "", err
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || info.Mode().Perm()&0o077 != 0 || ok && int(owner.Uid) != uid {
		return "", fmt.Errorf("%s is not a folder of this user alone (%s): remove it, or name another folder in data.stage", root, info.Mode())
	}
	return root, nil
}

// openLock opens the lock of a copy, whose folder it makes if there is none. It
// returns nil if another process has just removed the folder.
func openLock(dir string) (*os.File, error) {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, lockName), os.O_CREATE|os.O_RDWR, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return f, err
}

// flock acquires a lock without waiting. It reports whether it has succeeded.
func flock(f *os.File, how int) bool {
	return syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB) == nil
}

// sameFile reports whether the lock is still the one in dir.
func sameFile(lock *os.File, dir string) bool {
	a, err := lock.Stat()
	if err != nil {
		return false
	}
	b, err := os.Lstat(filepath.Join(dir, lockName))
	return err == nil && os.SameFile(a, b)
}

// complete reports whether the copy in dir was made to its end.
func complete(dir string) bool {
	_, err := os.Lstat(filepath.Join(dir, dataName))
	return err == nil
}

// removeUnused removes the copy in dir if no other process has its lock, and closes
// the lock. The copy gets another name first, so that a process that comes for the
// same content makes a new one.
func removeUnused(dir string, lock *os.File) error {
	defer lock.Close()
	if !flock(lock, syscall.LOCK_EX) || !sameFile(lock, dir) {
		return nil
	}
	gone := dir + goneSuffix
	if err := os.RemoveAll(gone); err != nil { // left by a process that was killed while it removed the copy
		return err
	}
	if err := os.Rename(dir, gone); err != nil {
		return err
	}
	return os.RemoveAll(gone)
}

// goneSuffix ends the name of a copy that is being removed.
const goneSuffix = ".gone"

// sweep removes the copies in root, except keep, that no process uses because their
// owners were killed. It ignores copies that cannot be removed.
func sweep(root, keep string) {
	entries, err := os.ReadDir(root)
	if err != nil {
		return
	}
	for _, e := range entries {
		dir := filepath.Join(root, e.Name())
		if !e.IsDir() || !isName(e.Name()) || dir == keep {
			continue
		}
		if strings.HasSuffix(dir, goneSuffix) {
			_ = os.RemoveAll(dir)
			continue
		}
		lock, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR, 0)
		if err != nil {
			_ = os.Remove(dir) // if it is empty: its owner was killed before there was a lock
			continue
		}
		_ = removeUnused(dir, lock)
	}
}

// waiting is the state of a wait for another process that copies.
type waiting struct {
	last  time.Time // modification time of the progress file
	since time.Time // when this process first saw that time
}

// more waits for a moment. It returns an error if the copy has made no progress for
// longer than patience.
func (w *waiting) more(ctx context.Context, dir string, patience time.Duration) error {
	var now time.Time
	if info, err := os.Stat(filepath.Join(dir, progressName)); err == nil {
		now = info.ModTime()
	}
	if w.since.IsZero() || !now.Equal(w.last) {
		w.last, w.since = now, time.Now()
	}
	if time.Since(w.since) > patience {
		return fmt.Errorf("another process of this machine is copying to %s, without progress for %v: end it if it hangs (see who has %s open), or leave data.stage out", dir, patience, filepath.Join(dir, lockName))
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(pollEvery):
		return nil
	}
}
