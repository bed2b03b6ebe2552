// Package safeopen opens files in folders with untrusted content, such as a copied run
// folder or an unpacked data set. A named pipe would block the reader for ever, a device may
// have no end, and a link may lead to a private file outside the folder. Such files are
// refused before they are opened.
package safeopen

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// RefusedError reports that a file was not read because of its kind, location or size.
type RefusedError struct {
	Path   string
	Reason string // such as "it is a named pipe, not a file"
}

func (e *RefusedError) Error() string { return "open " + e.Path + ": " + e.Reason }

// OpenUserFile opens the regular file at path for reading. It follows links. Use it for a path
// that the user has given, and Open for a file found in a folder.
func OpenUserFile(path string) (*os.File, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if err := checkRegularFile(path, info); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	return requireRegularFile(path, f, err)
}

// Open opens the regular file at path for reading. The path must be in or below the folder dir.
// The folder itself may be a link, but Open refuses links that lead out of the folder.
func Open(dir, path string) (f *os.File, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	name, err := filepath.Rel(dir, path)
	if err != nil {
		return nil, err
	}
	info, err := root.Stat(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		// os.Root refuses all absolute links, even those that stay in the folder.
		if name, err = RelativePath(dir, path); err == nil {
			info, err = root.Stat(name)
		}
	}
	if err != nil {
		return nil, err
	}
	if err := checkRegularFile(path, info); err != nil {
		return nil, err
	}
	// The file may have been replaced: without O_NONBLOCK a named pipe would block here.
	f, err = root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	return requireRegularFile(path, f, err)
}

// RelativePath follows the links in path and returns the resulting path relative to dir. It
// returns a *RefusedError if the result is not in or below dir.
func RelativePath(dir, path string) (name string, err error) {
	folder, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return "", err
	}
	target, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", err
	}
	if name, err = filepath.Rel(folder, target); err != nil {
		return "", err
	}
	if name == ".." || strings.HasPrefix(name, ".."+string(filepath.Separator)) {
		return "", &RefusedError{Path: path, Reason: fmt.Sprintf("it is a link out of the folder %s; copy the file into the folder", dir)}
	}
	return name, nil
}

func checkRegularFile(path string, info fs.FileInfo) error {
	var kind string
	switch mode := info.Mode(); {
	case mode.IsRegular():
		return nil
	case mode.IsDir():
		kind = "a folder"
	case mode&fs.ModeNamedPipe != 0:
		kind = "a named pipe"
	case mode&fs.ModeSocket != 0:
		kind = "a socket"
	case mode&fs.ModeDevice != 0:
		kind = "a device"
	default:
		kind = "of the kind " + mode.Type().String()
	}
	return &RefusedError{Path: path, Reason: "it is " + kind + ", not a file"}
}

// requireRegularFile returns f if it is a regular file and err is nil. Otherwise it closes f
// and returns err or a *RefusedError.
func requireRegularFile(path string, f *os.File, err error) (*os.File, error) {
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil {
		err = checkRegularFile(path, info)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// ReadUserFile returns the content of the file at path, which it opens like OpenUserFile. If the
// file has more than limit bytes, it returns a *RefusedError before it allocates memory. If ctx
// is canceled, it returns the error of ctx.
func ReadUserFile(ctx context.Context, path string, limit int64) ([]byte, error) {
	f, err := OpenUserFile(path)
	if err != nil {
		return nil, err
	}
	return readAndClose(ctx, f, path, limit)
}

// ReadFile returns the content of the file at path, which it opens like Open. If the file has
// more than limit bytes, it returns a *RefusedError before it allocates memory.
func ReadFile(dir, path string, limit int64) ([]byte, error) {
	return ReadFileContext(context.Background(), dir, path, limit)
}

// ReadFileContext is ReadFile, but returns the error of ctx if ctx is canceled.
func ReadFileContext(ctx context.Context, dir, path string, limit int64) ([]byte, error) {
	f, err := Open(dir, path)
	if err != nil {
		return nil, err
	}
	return readAndClose(ctx, f, path, limit)
}

// readChunkBytes is the number of bytes that are read between two checks of the context.
const readChunkBytes = 16 << 20

// readAndClose returns the content of f and closes it.
func readAndClose(ctx context.Context, f *os.File, path string, limit int64) (text []byte, err error) {
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() > limit {
		return nil, &RefusedError{Path: path, Reason: fmt.Sprintf("it has %d bytes, the limit is %d", info.Size(), limit)}
	}
	// The file may grow while it is read.
	text = make([]byte, 0, info.Size()+1)
	for {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("read %s: %w", path, err)
		}
		n, err := f.Read(text[len(text):min(cap(text), len(text)+readChunkBytes)])
		text = text[:len(text)+n]
		switch {
		case errors.Is(err, io.EOF):
			return text, nil
		case err != nil:
			return text, err
		case int64(len(text)) > limit:
			return nil, &RefusedError{Path: path, Reason: fmt.Sprintf("it has more than the limit of %d bytes", limit)}
		case len(text) == cap(text):
			text = append(text, 0)[:len(text)]
		}
	}
}
