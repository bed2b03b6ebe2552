package runs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// LostError reports that a file of the run folder was deleted, moved or replaced
// while the run wrote it: what is written now, nobody will find.
type LostError struct{ Path string }

func (e *LostError) Error() string {
	return e.Path + " was deleted, moved or replaced during the run, so that its record is not whole; train again in another run folder, or delete what is left of this one"
}

// CheckPlace returns a *LostError unless the path of f still leads to f.
func CheckPlace(f *os.File) error {
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

// Check returns an error if another process has taken the run over, or if files
// of the run folder that this Writer writes are no longer there (*LostError).
func (w *Writer) Check() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.check()
}

func (w *Writer) check() error {
	if err := w.lock.Check(); err != nil {
		return err
	}
	for _, f := range []*os.File{w.epochs, w.log} {
		if err := CheckPlace(f); err != nil {
			return err
		}
	}
	if _, err := os.Stat(w.path(infoFile)); errors.Is(err, fs.ErrNotExist) {
		return &LostError{w.path(infoFile)}
	}
	return nil
}
