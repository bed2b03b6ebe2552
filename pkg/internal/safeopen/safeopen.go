// Package safeopen opens files of folders whose content nobody has checked: a
// copied run folder, an unpacked data set. A named pipe would block the reader
// for ever, a device may have no end, and a link may lead to a file that was
// never meant to be read. Such files are refused before they are opened.
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

// RefusedError reports a file that is not opened because of what it is.
type RefusedError struct {
	Path   string
	Reason string // such as "it is a named pipe, not a file"
}

// Error returns the path and the reason.
func (e *RefusedError) Error() string { return "open " + e.Path + ": " + e.Reason }

// File opens the regular file at path for reading. It follows links. Use it for
// a path that the user has named, and Open for a file that a folder holds.
func File(path string) (*os.File, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if err := refuse(path, info); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	return checked(path, f, err)
}

// Open opens the regular file at path, which names a file in the folder dir or
// below it, for reading. The folder may be a link, but no link below it may lead
// out of it.
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
		// os.Root refuses every absolute link, also one that stays in the folder.
		if name, err = Inside(dir, path); err == nil {
			info, err = root.Stat(name)
		}
	}
	if err != nil {
		return nil, err
	}
	if err := refuse(path, info); err != nil {
		return nil, err
	}
	// Whoever may write to the folder may have replaced the file since: without
	// O_NONBLOCK a named pipe would block here.
	f, err = root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	return checked(path, f, err)
}

// Inside follows the links of path and returns the name in dir of the file to
// which they lead. It returns a RefusedError if that file is not in dir.
func Inside(dir, path string) (name string, err error) {
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

// refuse returns a RefusedError unless info describes a regular file.
func refuse(path string, info fs.FileInfo) error {
	var what string
	switch mode := info.Mode(); {
	case mode.IsRegular():
		return nil
	case mode.IsDir():
		what = "a folder"
	case mode&fs.ModeNamedPipe != 0:
		what = "a named pipe"
	case mode&fs.ModeSocket != 0:
		what = "a socket"
	case mode&fs.ModeDevice != 0:
		what = "a device"
	default:
		what = "of the kind " + mode.Type().String()
	}
	return &RefusedError{Path: path, Reason: "it is " + what + ", not a file"}
}

// checked returns f if it is a regular file, and closes it otherwise.
func checked(path string, f *os.File, err error) (*os.File, error) {
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil {
		err = refuse(path, info)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// ReadNamed reads the file that File opens. A file of more than limit bytes is an
// error, before memory is taken for it.
func ReadNamed(path string, limit int64) ([]byte, error) {
	return ReadNamedContext(context.Background(), path, limit)
}

// ReadNamedContext does what ReadNamed does, and ends with the error of ctx once that
// is canceled.
func ReadNamedContext(ctx context.Context, path string, limit int64) ([]byte, error) {
	f, err := File(path)
	if err != nil {
		return nil, err
	}
	return readAll(ctx, f, path, limit)
}

// ReadFile reads the file that Open opens. A file of more than limit bytes is an
// error, before memory is taken for it.
func ReadFile(dir, path string, limit int64) ([]byte, error) {
	return ReadFileContext(context.Background(), dir, path, limit)
}

// ReadFileContext does what ReadFile does, and ends with the error of ctx once that
// is canceled.
func ReadFileContext(ctx context.Context, dir, path string, limit int64) ([]byte, error) {
	f, err := Open(dir, path)
	if err != nil {
		return nil, err
	}
	return readAll(ctx, f, path, limit)
}

// readBytes is how much is read between two looks at the context.
const readBytes = 16 << 20

// readAll reads f and closes it.
func readAll(ctx context.Context, f *os.File, path string, limit int64) (text []byte, err error) {
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() > limit {
		return nil, &RefusedError{Path: path, Reason: fmt.Sprintf("it has %d bytes, at most %d are read", info.Size(), limit)}
	}
	// The file may grow while it is read.
	text = make([]byte, 0, info.Size()+1)
	for {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("read %s: %w", path, err)
		}
		n, err := f.Read(text[len(text):min(cap(text), len(text)+readBytes)])
		text = text[:len(text)+n]
		switch {
		case errors.Is(err, io.EOF):
			return text, nil
		case err != nil:
			return text, err
		case int64(len(text)) > limit:
			return nil, &RefusedError{Path: path, Reason: fmt.Sprintf("it has more than %d bytes, which is the limit", limit)}
		case len(text) == cap(text):
			text = append(text, 0)[:len(text)]
		}
	}
}
