// Package localcopy copies a data set into a folder of this machine, such as /dev/shm, once for
// all processes that use it, and removes the copy when no process uses it any more.
//
// Each copy is a separate folder in FOLDER/lockstep-stage-UID. Its name is a hash of the
// sources' paths and of their files' names, sizes and modification times. It contains:
//
//	lock      held exclusively while the copy is made or removed, shared while it is used
//	progress  touched while the copy is made
//	data      the copy; it gets this name when it is complete
//
// The lock is a flock(2) lock. The kernel releases it when the process ends, even if the
// process is killed. So if a process can acquire the lock exclusively, no other process
// uses the copy, and it may remove the copy. A process does so when it closes a copy, and
// for all unused copies when it makes another one.
package localcopy

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

	"lockstep/pkg/internal/safeopen"
)

const (
	lockName     = "lock"
	progressName = "progress"
	dataName     = "data"
	partName     = "data.part"

	// defaultPatience is how long Open waits for a process that copies without progress.
	defaultPatience = 2 * time.Minute
	pollEvery       = 50 * time.Millisecond
)

// Copy is a copy of the sources passed to Open. No process removes it before Close.
type Copy struct {
	Bytes  int64         // total size of the files
	Took   time.Duration // duration of copying; 0 if another process made the copy
	Copied bool          // whether this process made the copy

	dir  string
	lock *os.File
	base []string // name of each source within the copy
}

// localCopier implements Open with parameters that tests change.
type localCopier struct {
	stallTimeout time.Duration
	free         func(dir string) (bytes int64, err error)
	began        func() // if not nil, called when copying begins
}

// Open copies the sources, which are files or folders, into folder. If another process has made a
// copy of the same content, Open returns that copy; if another process is making one, Open waits for
// it. It returns an error after two minutes without progress.
func Open(ctx context.Context, folder string, sources []string) (*Copy, error) {
	s, err := localCopier{stallTimeout: defaultPatience, free: freeBytes}.open(ctx, folder, sources)
	if err != nil {
		return nil, fmt.Errorf("stage data to %s: %w", folder, err)
	}
	return s, nil
}

// SourcePath returns the path of source i in the copy.
func (s *Copy) SourcePath(i int) string { return filepath.Join(s.dir, dataName, s.base[i]) }

// Dir returns the folder of the copy.
func (s *Copy) Dir() string { return s.dir }

// Close releases the copy, and removes it if no other process uses it.
func (s *Copy) Close() error {
	if s == nil || s.lock == nil {
		return nil
	}
	defer func() { s.lock = nil }()
	err := removeUnusedCopy(s.dir, s.lock)
	_ = os.Remove(filepath.Dir(s.dir)) // fails while another copy is in it
	if err != nil {
		return fmt.Errorf("remove staged data: %w", err)
	}
	return nil
}

func (o localCopier) open(ctx context.Context, folder string, sources []string) (*Copy, error) {
	set, err := listSources(ctx, sources)
	if err != nil {
		return nil, err
	}
	var waited copyWaiter
	for {
		root, err := createPrivateRoot(folder)
		if err != nil {
			return nil, err
		}
		dir := filepath.Join(root, set.key)
		s := &Copy{Bytes: set.bytes, dir: dir, base: set.base}
		done, err := o.tryOpen(ctx, s, set)
		if done {
			return s, nil
		}
		if err == nil {
			err = waited.waitForProgress(ctx, dir, o.stallTimeout)
		}
		if err != nil {
			_ = os.Remove(root) // fails while a copy is in it
			return nil, err
		}
	}
}

// tryOpen uses the existing copy in s.dir, or makes it. done is false if another process is making
// or removing the copy.
func (o localCopier) tryOpen(ctx context.Context, s *Copy, set *sourceFiles) (done bool, err error) {
	lock, err := openLock(s.dir)
	if err != nil || lock == nil {
		return false, err
	}
	defer func() {
		if !done {
			_ = lock.Close()
		}
	}()
	if !tryLock(lock, syscall.LOCK_EX) {
		// Other processes use the copy, or one of them is making it.
		if !tryLock(lock, syscall.LOCK_SH) || !isCurrentLock(lock, s.dir) || !isCompleteCopy(s.dir) {
			return false, nil
		}
		s.lock = lock
		return true, nil
	}
	if !isCurrentLock(lock, s.dir) {
		return false, nil
	}
	removeAbandonedCopies(filepath.Dir(s.dir), s.dir)
	if !isCompleteCopy(s.dir) {
		begin := time.Now()
		if err := o.makeCopy(ctx, s.dir, set); err != nil {
			return false, errors.Join(err, removeUnusedCopy(s.dir, lock))
		}
		s.Copied, s.Took = true, time.Since(begin)
	}
	// The kernel releases the exclusive lock before it grants the shared one. If another process
	// removes the copy in between, the caller tries again.
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_SH); err != nil {
		return false, fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	if !isCurrentLock(lock, s.dir) || !isCompleteCopy(s.dir) {
		return false, nil
	}
	s.lock = lock
	return true, nil
}

// createPrivateRoot returns folder/lockstep-stage-UID, which it creates if necessary. If that name
// belongs to another user, it returns the next name of safeopen.CreatePrivateFolder.
func createPrivateRoot(folder string) (string, error) {
	if info, err := os.Stat(folder); err != nil || !info.IsDir() {
		return "", errors.New("the folder does not exist on this machine: name a folder that exists on every node, such as /dev/shm, or leave data.stage out")
	}
	return safeopen.CreatePrivateFolder(folder, "lockstep-stage-"+strconv.Itoa(os.Getuid()))
}

// openLock opens the lock file in dir, and creates dir if necessary. It returns nil without an
// error if another process has just removed dir.
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

// tryLock tries to lock f without waiting. mode is LOCK_EX or LOCK_SH.
func tryLock(f *os.File, mode int) bool {
	return syscall.Flock(int(f.Fd()), mode|syscall.LOCK_NB) == nil
}

// isCurrentLock reports whether lock is still the lock file in dir. It is not if another process has
// removed dir meanwhile.
func isCurrentLock(lock *os.File, dir string) bool {
	a, err := lock.Stat()
	if err != nil {
		return false
	}
	b, err := os.Lstat(filepath.Join(dir, lockName))
	return err == nil && os.SameFile(a, b)
}

func isCompleteCopy(dir string) bool {
	_, err := os.Lstat(filepath.Join(dir, dataName))
	return err == nil
}

// removeUnusedCopy removes the copy in dir if no other process holds its lock, and closes the lock.
// It renames the copy first, so that processes that need the same content make a new one meanwhile.
func removeUnusedCopy(dir string, lock *os.File) error {
	defer lock.Close()
	if !tryLock(lock, syscall.LOCK_EX) || !isCurrentLock(lock, dir) {
		return nil
	}
	gone := dir + removedSuffix
	if err := os.RemoveAll(gone); err != nil { // left by a process that was killed while it removed the copy
		return err
	}
	if err := os.Rename(dir, gone); err != nil {
		return err
	}
	return os.RemoveAll(gone)
}

// removedSuffix is appended to the name of a copy that is being removed.
const removedSuffix = ".gone"

// removeAbandonedCopies removes copies in root that no process uses, which remain if their users
// were killed. It never removes keep. It ignores errors.
func removeAbandonedCopies(root, keep string) {
	entries, err := os.ReadDir(root)
	if err != nil {
		return
	}
	for _, e := range entries {
		dir := filepath.Join(root, e.Name())
		if !e.IsDir() || !isCopyName(e.Name()) || dir == keep {
			continue
		}
		if strings.HasSuffix(dir, removedSuffix) {
			_ = os.RemoveAll(dir)
			continue
		}
		lock, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR, 0)
		if err != nil {
			_ = os.Remove(dir) // removes an empty folder: its process was killed before it created the lock
			continue
		}
		_ = removeUnusedCopy(dir, lock)
	}
}

// copyWaiter waits for a copy that another process is making.
type copyWaiter struct {
	last  time.Time // modification time of the progress file
	since time.Time // when this process first saw that time
}

// waitForProgress waits for pollEvery. It returns an error if copying to dir has made no progress for longer
// than stallTimeout.
func (w *copyWaiter) waitForProgress(ctx context.Context, dir string, stallTimeout time.Duration) error {
	var now time.Time
	if info, err := os.Stat(filepath.Join(dir, progressName)); err == nil {
		now = info.ModTime()
	}
	if w.since.IsZero() || !now.Equal(w.last) {
		w.last, w.since = now, time.Now()
	}
	if time.Since(w.since) > stallTimeout {
		return fmt.Errorf("another process on this machine is copying to %s and has made no progress for %v: end it if it hangs (it has %s open), or leave data.stage out", dir, stallTimeout, filepath.Join(dir, lockName))
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(pollEvery):
		return nil
	}
}
