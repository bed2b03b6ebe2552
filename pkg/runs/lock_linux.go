package runs

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// lockFile acquires the write lock of f. held reports that another open file description
// has the lock. The kernel releases an open file description lock when its last descriptor
// is closed, at the latest at the end of the process. The error is errors.ErrUnsupported if
// the file system has no such locks.
func lockFile(f *os.File) (held bool, err error) {
	l := newWriteLock()
	err = unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &l)
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		return true, nil
	}
	return false, wrapLockError(f, err)
}

// isLocked reports whether another open file description has the write lock
// of f, without taking it. f may be open for reading only.
func isLocked(f *os.File) (held bool, err error) {
	l := newWriteLock()
	err = unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &l)
	return err == nil && l.Type != unix.F_UNLCK, wrapLockError(f, err)
}

// newWriteLock returns the description of a write lock on a complete file.
func newWriteLock() unix.Flock_t {
	return unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart}
}

// wrapLockError adds the path of f to err. It returns errors.ErrUnsupported if err means that
// the file system has no locks, and nil for nil.
func wrapLockError(f *os.File, err error) error {
	// NFS without a lock daemon returns ENOLCK. Lustre that is mounted without -o flock
	// returns ENOSYS.
	for _, unsupported := range []error{unix.ENOLCK, unix.ENOSYS, unix.EINVAL, unix.EOPNOTSUPP} {
		if errors.Is(err, unsupported) {
			return errors.ErrUnsupported
		}
	}
	if err != nil {
		return &os.PathError{Op: "lock", Path: f.Name(), Err: err}
	}
	return nil
}
