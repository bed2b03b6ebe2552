//go:build unix

package segment

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
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

// newNamedFile creates a file in dir with an unpredictable name. Only this user may open it.
func newNamedFile(dir string) (*os.File, error) {
	return os.OpenFile(filepath.Join(dir, "lockstep-"+rand.Text()), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
}

// CloseAndRemove closes f and removes its name, if it has one.
func CloseAndRemove(f *os.File) error {
	var err error
	if hasName(f) {
		err = os.Remove(f.Name())
	}
	return errors.Join(err, f.Close())
}
