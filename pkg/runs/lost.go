package runs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// LostError reports that a file of the run folder was deleted, moved or replaced during the run, so
// that what the run writes to it is lost.
type LostError struct{ Path string }

func (e *LostError) Error() string {
	return e.Path + " was deleted, moved or replaced during the run, so the record of the run is incomplete; train again in another run folder, or delete the rest of this one"
}

// CheckNotLost returns a *LostError if f's path no longer leads to the same file.
func CheckNotLost(f *os.File) error {
	own, err := f.Stat()
	if err != nil {
		return err
	}
	switch now, err := os.Stat(f.Name()); {
	case errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(own, now):
		return &LostError{f.Name()}
	case err != nil:
		return fmt.Errorf("check run folder: %w", err)
	}
	return nil
}

// Check returns an *OwnedError if another process has taken the run over, and a *LostError if a
// file that this Writer writes was deleted, moved or replaced.
func (w *Writer) Check() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.checkFilesNotLost()
}

func (w *Writer) checkFilesNotLost() error {
	if err := w.lock.Check(); err != nil {
		return err
	}
	for _, f := range []*os.File{w.epochs, w.log} {
		if err := CheckNotLost(f); err != nil {
			return err
		}
	}
	if _, err := os.Stat(w.path(infoFile)); errors.Is(err, fs.ErrNotExist) {
		return &LostError{w.path(infoFile)}
	}
	return nil
}
