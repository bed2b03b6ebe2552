package slurm

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
)

var jobIDPattern = regexp.MustCompile(`^[0-9]+$`)

// SubmitCommand returns the command that submits the job script at path. A requeued job appends to
// its output.
func SubmitCommand(path string) []string {
	return []string{"sbatch", "--parsable", "--open-mode=append", path}
}

// Submit submits the job script at path and returns the id of the job or job array. It does not
// stop when ctx ends: Slurm may already have accepted the job, and its id would be lost.
func (c Client) Submit(ctx context.Context, path string) (id string, err error) {
	command := SubmitCommand(path)
	text, err := c.runCommand(context.WithoutCancel(ctx), command[0], command[1:]...)
	if err != nil {
		var refused *CommandError
		if errors.As(err, &refused) {
			err = fmt.Errorf("%w%s", err, adviceOnRefusal(refused.Message))
		}
		return "", fmt.Errorf("submit %s: %w", path, err)
	}
	id, _, _ = strings.Cut(strings.TrimSpace(text), ";") // the name of the cluster follows, if there are several
	if !jobIDPattern.MatchString(id) {
		return "", fmt.Errorf("submit %s: got answer %q of sbatch, want the id of a job", path, text)
	}
	return id, nil
}

// adviceOnRefusal returns advice to append to message, with which sbatch has refused a job. It
// returns "" if the message is clear enough.
func adviceOnRefusal(message string) string {
	for _, a := range []struct{ message, advice string }{
		{"dependency problem", "name jobs in the queue (squeue lists yours), as in afterok:17 (Dependency, --dependency)"},
		{"Invalid account", "sacctmgr show associations user=$USER lists your accounts (Account, --account)"},
		{"Invalid qos", "the account or the partition does not allow this QOS: ask the site's support which one to use"},
		{"time limit is invalid", "use a shorter time limit (Time, --time); sinfo lists the longest time of each partition"},
		{"node configuration is not available", "no node has what the job asks for: use fewer CPUs, GPUs or less memory for each node"},
		{"Invalid feature", "write one of the features that sinfo -o %f lists to constraint in a copy of the site profile"},
		{"not permitted to use this partition", "use another partition (Partition, --partition) or account (Account, --account)"},
	} {
		if strings.Contains(message, a.message) {
			return ": " + a.advice
		}
	}
	return ""
}

// Cancel cancels jobs, unless they have already ended. If atOnce is set, their processes are killed
// without time to shut down.
func (c Client) Cancel(ctx context.Context, ids []string, atOnce bool) error {
	if len(ids) == 0 {
		return nil
	}
	short := ShortenIDs(ids)
	if atOnce {
		// scancel fails with --signal if a job has ended.
		if _, err := c.runCommand(ctx, "scancel", append([]string{"--quiet", "--signal=KILL", "--full"}, short...)...); errors.Is(err, ErrNoAnswer) {
			return fmt.Errorf("cancel jobs %s: %w", strings.Join(short, ", "), err)
		}
	}
	if _, err := c.runCommand(ctx, "scancel", append([]string{"--quiet"}, short...)...); err != nil {
		return fmt.Errorf("cancel jobs %s: %w", strings.Join(short, ", "), err)
	}
	return nil
}
