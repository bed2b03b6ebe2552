// Package wholefile writes files in one step, so that no reader ever sees an incomplete file.
//
// A regular file is written under a temporary name in the folder of its target and then
// renamed. If the disk is full, or after an error or a kill, the target is unchanged.
// Devices, FIFOs and other files that are not regular are never replaced: they are opened
// and written to, as a shell's redirection does.
package wholefile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/google/renameio/v2"
)

// Write replaces the content of the file at path with the bytes that fill writes to f. It
// follows symbolic links: the link stays, and its target is replaced. A new file gets the
// permissions perm, minus the umask; an existing file keeps its permissions. The content is
// synced to disk before the rename. Write returns an error if path is a folder, or a file that
// this process has no permission to write.
func Write(path string, perm fs.FileMode, fill func(f *os.File) error) error {
	return writeAndReplace(path, perm, fill, (*renameio.PendingFile).CloseAtomicallyReplace)
}

// WriteBytes is like Write, but writes the given content.
func WriteBytes(path string, content []byte, perm fs.FileMode) error {
	return Write(path, perm, func(f *os.File) error {
		_, err := f.Write(content)
		return err
	})
}

// WriteUnsynced is like Write, but does not sync to disk: a file may be empty after a power
// cut. It is faster for data sets of thousands of files.
func WriteUnsynced(path string, perm fs.FileMode, fill func(f *os.File) error) error {
	target, _, err := resolveSymlinks(path)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return writeAndReplace(path, perm, fill, func(f *renameio.PendingFile) error {
		if err := f.Close(); err != nil {
			return err
		}
		return os.Rename(f.Name(), target)
	})
}

// BreakHardLinks makes path the only name of its file. If the file has other names, as in a snapshot by
// "cp -al" or "rsync --link-dest", path gets a copy of the file, and the other names keep the
// file itself. Call it before the file is changed in place. It does nothing if there is no file at
// path, or no regular one.
func BreakHardLinks(path string) error {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); !ok || !info.Mode().IsRegular() || stat.Nlink < 2 {
		return nil
	}
	from, err := os.Open(path)
	if err != nil {
		return err
	}
	err = Write(path, info.Mode().Perm(), func(f *os.File) error {
		_, err := io.Copy(f, from)
		return err
	})
	return errors.Join(err, from.Close())
}

// writeAndReplace implements Write and its variants. replace closes the temporary file and
// renames it to the target.
func writeAndReplace(path string, perm fs.FileMode, fill func(f *os.File) error, replace func(*renameio.PendingFile) error) error {
	target, direct, err := resolveSymlinks(path)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if direct {
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
	_, _ = f.Close(), os.Remove(f.Name()) // remove the temporary file; err is the more important error
	var failed *fs.PathError
	if errors.As(err, &failed) && failed.Path == f.Name() {
		failed.Path = path // the user does not know the temporary name
		return err
	}
	return fmt.Errorf("write %s: %w", path, err)
}

// maxSymlinks is Linux's limit on symbolic links in a path.
const maxSymlinks = 40

// resolveSymlinks follows the symbolic links of path and returns the target, which need not exist
// yet. If path must be opened and written to directly, direct is true and target is "". That
// is so for files that are not regular, and for links in /proc to an open file, such as
// /dev/stdout.
func resolveSymlinks(path string) (target string, direct bool, err error) {
	switch info, err := os.Stat(path); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return "", false, err
	case info.IsDir():
		return "", false, fmt.Errorf("%w: give the path of a file in this folder", syscall.EISDIR)
	case !info.Mode().IsRegular():
		return "", true, nil
	default:
		f, err := os.OpenFile(path, os.O_WRONLY, 0) // a rename would also replace a write-protected file
		if err != nil {
			return "", false, err
		}
		if err := f.Close(); err != nil {
			return "", false, err
		}
	}
	target = path
	for range maxSymlinks {
		info, err := os.Lstat(target)
		if errors.Is(err, fs.ErrNotExist) || err == nil && info.Mode()&fs.ModeSymlink == 0 {
			return target, false, nil
		}
		if err != nil {
			return "", false, err
		}
		folder, err := filepath.EvalSymlinks(filepath.Dir(target)) // /dev/fd is also a link
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
