package filelock

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Lock acquires the write lock of f. held is true if it could not, because another open file
// description has a lock. The error is errors.ErrUnsupported if the file system has no such
// locks.
func Lock(f *os.File) (held bool, err error) {
	l := newFlock(unix.F_WRLCK)
	err = unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &l)
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		return true, nil
	}
	return false, wrapLockError(f, err)
}

// IsLocked reports whether another open file description has the write lock
// of f, without taking it. f may be open for reading only.
func IsLocked(f *os.File) (held bool, err error) {
	l := newFlock(unix.F_RDLCK) // only a write lock conflicts with it
	err = unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &l)
	return err == nil && l.Type != unix.F_UNLCK, wrapLockError(f, err)
}

func newFlock(kind int16) unix.Flock_t { return unix.Flock_t{Type: kind, Whence: io.SeekStart} }

// wrapLockError adds f's path to err. It returns errors.ErrUnsupported if err means that the file
// system has no locks, and nil if err is nil.
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
