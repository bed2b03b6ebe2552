//go:build unix

package segment

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"golang.org/x/sys/unix"
)

// SharedFileFolders returns the folders in which the shared file may be created, in the
// order in which they are tried. The first one is a file system in memory.
func SharedFileFolders() []string { return []string{"/dev/shm", os.TempDir()} }

// CreateFile creates a file of n bytes in dir and allocates all of them, because
// writing to an unallocated page would kill the process when the file system is full.
func CreateFile(dir string, n int) (*os.File, error) {
	f, err := newMemoryFile(dir)
	if err != nil {
		return nil, err
	}
	if err := allocateFile(f, int64(n)); err != nil {
		return nil, errors.Join(fmt.Errorf("reserve %d bytes in %s: %w", n, dir, err), CloseAndRemove(f))
	}
	return f, nil
}

// newNamedFile creates a file with an unpredictable name, which only this user may open.
func newNamedFile(dir string) (*os.File, error) {
	return os.OpenFile(filepath.Join(dir, "lockstep-"+rand.Text()), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
}

// namedFile matches the file names that newNamedFile chooses. unnamedFile matches the path of a
// file that has no name in a folder.
var (
	namedFile   = regexp.MustCompile(`^lockstep-[A-Z2-7]{26}$`)
	unnamedFile = regexp.MustCompile(`^/proc/[0-9]+/fd/[0-9]+$`)
)

// OpenFile opens a file that another process has created with CreateFile. path is the name of the
// file there. The file must belong to this user, and must have no name or one that CreateFile
// chooses, so that a wrong path never opens one of the user's own files.
func OpenFile(path string) (*os.File, error) {
	refused := func(reason string) error {
		return fmt.Errorf("%s is not the memory of a run: %s; was it sent by another program?", path, reason)
	}
	dir, name := filepath.Split(path)
	flags, stat := os.O_RDWR, os.Stat
	unnamed := unnamedFile.MatchString(path)
	if !unnamed {
		if !slices.Contains(SharedFileFolders(), filepath.Clean(dir)) || path != filepath.Clean(path) || !namedFile.MatchString(name) {
			return nil, refused("the path has another form")
		}
		flags, stat = flags|unix.O_NOFOLLOW, os.Lstat
	}
	if info, err := stat(path); err != nil {
		return nil, err
	} else if !info.Mode().IsRegular() {
		return nil, refused("it is no regular file")
	}
	f, err := os.OpenFile(path, flags, 0)
	if err != nil {
		return nil, err
	}
	var s unix.Stat_t
	switch err = unix.Fstat(int(f.Fd()), &s); {
	case err != nil:
	case int(s.Uid) != os.Geteuid():
		err = refused("it belongs to another user")
	case unnamed && s.Nlink > 0:
		err = refused("it has a name in a folder")
	default:
		return f, nil
	}
	return nil, errors.Join(err, f.Close())
}

// CloseAndRemove closes f and removes its name, if it has one.
func CloseAndRemove(f *os.File) error {
	var err error
	if hasName(f) {
		err = os.Remove(f.Name())
	}
	return errors.Join(err, f.Close())
}
