// Package wholefile writes files that are complete or not there.
//
// A regular file is written under a temporary name in the folder of its target
// and then renamed, so that a full disk, an error or a kill leaves the target as
// it was. Devices, FIFOs and whatever else is not a regular file are never
// replaced: they are opened and written to, as a shell's redirection does.
package wholefile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/google/renameio/v2"
)

// Write writes to the file path what fill writes to f. Symbolic links are
// followed: the link stays, and the file that it leads to is replaced. A new
// file gets the permissions perm, less the umask; an existing one keeps its own.
// The content reaches the disk before the rename. A folder, and a file that this
// process may not write, are errors.
func Write(path string, perm fs.FileMode, fill func(f *os.File) error) error {
	return write(path, perm, fill, (*renameio.PendingFile).CloseAtomicallyReplace)
}

// WriteBytes writes content to the file path, as Write does.
func WriteBytes(path string, content []byte, perm fs.FileMode) error {
	return Write(path, perm, func(f *os.File) error {
		_, err := f.Write(content)
		return err
	})
}

// WriteUnsynced is Write without the wait for the disk, for the thousands of
// files of a data set. A file may be empty after a loss of power.
func WriteUnsynced(path string, perm fs.FileMode, fill func(f *os.File) error) error {
	target, _, err := resolve(path)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return write(path, perm, fill, func(f *renameio.PendingFile) error {
		if err := f.Close(); err != nil {
			return err
		}
		return os.Rename(f.Name(), target)
	})
}

// write replaces the file path, or writes straight to it where that is not a
// regular file. replace closes the temporary file and gives it its name.
func write(path string, perm fs.FileMode, fill func(f *os.File) error, replace func(*renameio.PendingFile) error) error {
	target, straight, err := resolve(path)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if straight {
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
		if err != nil {
			return err
		}
		return errors.Join(fill(f), f.Close())
	}
	f, err := renameio.NewPendingFile(target, renameio.WithTempDir(filepath.Dir(target)), renameio.WithPermissions(perm), renameio.WithExistingPermissions())
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err = fill(f.File); err == nil {
		err = replace(f)
	}
	if err == nil {
		return nil
	}
	_, _ = f.Close(), os.Remove(f.Name()) // the temporary file; err says what matters
	var failed *fs.PathError
	if errors.As(err, &failed) && failed.Path == f.Name() {
		failed.Path = path // nobody knows the temporary name
		return err
	}
	return fmt.Errorf("write %s: %w", path, err)
}

// maxLinks is how many symbolic links Linux follows in a path.
const maxLinks = 40

// resolve returns the path that the links of path lead to, which need not exist
// yet. straight reports that path must be written to as it is: it is not a
// regular file, or a link of /proc such as /dev/stdout leads to an open file.
func resolve(path string) (target string, straight bool, err error) {
	switch info, err := os.Stat(path); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return "", false, err
	case info.IsDir():
		return "", false, fmt.Errorf("%w: name a file in it", syscall.EISDIR)
	case !info.Mode().IsRegular():
		return "", true, nil
	default:
		f, err := os.OpenFile(path, os.O_WRONLY, 0) // a rename would also replace a file that is protected
		if err != nil {
			return "", false, err
		}
		if err := f.Close(); err != nil {
			return "", false, err
		}
	}
	target = path
	for range maxLinks {
		info, err := os.Lstat(target)
		if errors.Is(err, fs.ErrNotExist) || err == nil && info.Mode()&fs.ModeSymlink == 0 {
			return target, false, nil
		}
		if err != nil {
			return "", false, err
		}
		folder, err := filepath.EvalSymlinks(filepath.Dir(target)) // /dev/fd is a link itself
		if err != nil {
			return "", false, err
		}
		if folder == "/proc" || strings.HasPrefix(folder, "/proc/") {
			return "", true, nil
		}
		next, err := os.Readlink(target)
		if err != nil {
			return "", false, err
		}
		if target = next; !filepath.IsAbs(next) {
			target = filepath.Join(folder, next)
		}
	}
	return "", false, syscall.ELOOP
}
