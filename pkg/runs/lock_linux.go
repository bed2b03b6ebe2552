package runs

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// lockFile takes the write lock of f, or reports that another open file
// description has it. The kernel releases an open file description lock when
// the last descriptor of it is closed, thus at the latest when the process
// ends. errors.ErrUnsupported means that the file system has no such locks.
func lockFile(f *os.File) (held bool, err error) {
	l := wholeFile()
	err = unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &l)
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		return true, nil
	}
	return false, lockError(f, err)
}

// queryLock reports whether another open file description has the write lock
// of f, without taking it. f may be open for reading only.
func queryLock(f *os.File) (held bool, err error) {
	l := wholeFile()
	err = unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &l)
	return err == nil && l.Type != unix.F_UNLCK, lockError(f, err)
}

func wholeFile() unix.Flock_t {
	return unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart}
}

func lockError(f *os.File, err error) error {
	// ENOLCK is what NFS answers without a lock daemon, ENOSYS what Lustre does
	// when it is mounted without -o flock.
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

// bootID identifies the boot of this machine's kernel; containers on one
// machine have the same. It is empty where it cannot be read.
func bootID() string { return procLine("/proc/sys/kernel/random/boot_id") }
