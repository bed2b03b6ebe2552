package slurm

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
)

var jobID = regexp.MustCompile(`^[0-9]+$`)

// SubmitCommand returns the command that submits the job script at path. If the job is requeued,
// Slurm appends to its output.
func SubmitCommand(path string) []string {
	return []string{"sbatch", "--parsable", "--open-mode=append", path}
}

// Submit submits the job script at path and returns the id of the job, or of the job array. It does not stop when ctx
// ends, because Slurm may have accepted the job then, whose id would be lost.
func (c Client) Submit(ctx context.Context, path string) (id string, err error) {
	command := SubmitCommand(path)
	text, err := c.run(context.WithoutCancel(ctx), command[0], command[1:]...)
	if err != nil {
		return "", fmt.Errorf("submit %s: %w", path, err)
	}
	id, _, _ = strings.Cut(strings.TrimSpace(text), ";") // the name of the cluster follows, if there are several
	if !jobID.MatchString(id) {
		return "", fmt.Errorf("submit %s: got answer %q of sbatch, want the id of a job", path, text)
	}
	return id, nil
}

// Cancel cancels jobs. It returns no error if they have already ended. If atOnce is true, their
// processes are killed without time to shut down.
func (c Client) Cancel(ctx context.Context, ids []string, atOnce bool) error {
	if len(ids) == 0 {
		return nil
	}
	short := ShortenIDs(ids)
	if atOnce {
		// scancel fails with --signal if a job has ended.
		if _, err := c.run(ctx, "scancel", append([]string{"--quiet", "--signal=KILL", "--full"}, short...)...); errors.Is(err, ErrNoAnswer) {
			return fmt.Errorf("cancel jobs %s: %w", strings.Join(short, ", "), err)
		}
	}
	if _, err := c.run(ctx, "scancel", append([]string{"--quiet"}, short...)...); err != nil {
		return fmt.Errorf("cancel jobs %s: %w", strings.Join(short, ", "), err)
	}
	return nil
}
