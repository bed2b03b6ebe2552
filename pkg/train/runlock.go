package train

import (
	"context"
	"errors"
	"fmt"

	"lockstep/pkg/runs"
)

// lockRunFolder locks the run folder and its folder of checkpoints on rank 0 against other processes.
// isNew makes it rename the checkpoints of other runs. A failure is an error on every rank.
func (t *Trainer) lockRunFolder(ctx context.Context, isNew bool) (err error) {
	if t.options.Dir == "" {
		return nil
	}
	if t.group.Rank() == 0 {
		if t.lock, err = runs.Acquire(t.options.Dir, t.options.Resume); err == nil {
			err = t.claimCheckpoints(ctx)
		}
		if err == nil && isNew {
			err = t.renameCheckpointsOfOthers()
		}
	}
	return t.shareRank0Error(ctx, err)
}

// shareRank0Error returns rank 0's error, which may be nil, on every rank. All ranks must call it.
func (t *Trainer) shareRank0Error(ctx context.Context, err error) error {
	if t.group.Size() == 1 {
		return err
	}
	root := t.group.Rank() == 0
	text := ""
	if root && err != nil {
		text = err.Error()
	}
	text, serr := t.shareText(ctx, text)
	if serr != nil || root {
		return errors.Join(err, serr)
	}
	if text == "" {
		return nil
	}
	return fmt.Errorf("rank 0: %s", text)
}

// shareText returns one rank's text on every rank. All ranks must call it, and at most one may pass
// a non-empty text.
func (t *Trainer) shareText(ctx context.Context, text string) (string, error) {
	length := []float64{float64(len(text))}
	if err := t.allReduce(ctx, length); err != nil || length[0] == 0 {
		return "", err
	}
	// All other ranks add zeros, so the sums are this rank's bytes.
	letters := make([]float64, int(length[0]))
	for i := range len(text) {
		letters[i] = float64(text[i])
	}
	if err := t.allReduce(ctx, letters); err != nil {
		return "", err
	}
	bytes := make([]byte, len(letters))
	for i, v := range letters {
		bytes[i] = byte(v)
	}
	return string(bytes), nil
}

// checkNotOwned returns a *runs.OwnedError if another process has locked the run folder dir. It
// only lets a worker fail early; lockRunFolder excludes other processes.
func checkNotOwned(dir string) error {
	owner, alive, err := runs.OwnerOf(dir)
	if err != nil || !alive {
		return err
	}
	return &runs.OwnedError{Dir: dir, Owner: owner}
}
