package train

import (
	"context"
	"errors"
	"fmt"

	"lockstep/pkg/runs"
)

// own ensures that no other process writes the run folder: rank 0 locks it. If that fails,
// own returns an error on every rank.
func (t *Trainer) own(ctx context.Context) (err error) {
	if t.options.Dir == "" {
		return nil
	}
	if t.group.Rank() == 0 {
		t.lock, err = runs.Acquire(t.options.Dir, t.options.Resume)
	}
	return t.agree(ctx, err)
}

// agree returns the error of rank 0 on every rank. All ranks must call it; err is ignored
// on ranks other than 0.
func (t *Trainer) agree(ctx context.Context, err error) error {
	if t.group.Size() == 1 {
		return err
	}
	root := t.group.Rank() == 0
	text := ""
	if root && err != nil {
		text = err.Error()
	}
	text, serr := t.textOfOne(ctx, text)
	if serr != nil || root {
		return errors.Join(err, serr)
	}
	if text == "" {
		return nil
	}
	return fmt.Errorf("rank 0: %s", text)
}

// textOfOne sends a text from one rank to all others: it returns this text on every rank.
// All ranks must call it, and at most one may pass a non-empty text.
func (t *Trainer) textOfOne(ctx context.Context, text string) (string, error) {
	length := []float64{float64(len(text))}
	if err := t.sum(ctx, length); err != nil || length[0] == 0 {
		return "", err
	}
	// A sum of zeros and one rank's bytes is that rank's bytes.
	letters := make([]float64, int(length[0]))
	for i := range len(text) {
		letters[i] = float64(text[i])
	}
	if err := t.sum(ctx, letters); err != nil {
		return "", err
	}
	bytes := make([]byte, len(letters))
	for i, v := range letters {
		bytes[i] = byte(v)
	}
	return string(bytes), nil
}

// checkFree returns an *runs.OwnedError if another process owns the run folder
// dir. It lets a worker fail before it loads anything; the lock that own takes is decisive.
func checkFree(dir string) error {
	owner, alive, err := runs.OwnerOf(dir)
	if err != nil || !alive {
		return err
	}
	return &runs.OwnedError{Dir: dir, Owner: owner}
}
