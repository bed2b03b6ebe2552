// Package slurm runs the commands of Slurm (sbatch, squeue, sacct, scancel) and reads what they print.
// Every command has a time-out, because it waits for minutes if the controller does not answer.
package slurm

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// DefaultTimeout is how long a command waits for Slurm's controller. On a large, busy cluster an
// answer takes some seconds.
const DefaultTimeout = 30 * time.Second

// Client runs Slurm's commands.
type Client struct {
	Timeout time.Duration // for each command; 0 means DefaultTimeout
}

// ErrNoAnswer means that Slurm's controller did not answer in time. The state of the jobs is then
// unknown.
var ErrNoAnswer = errors.New("the Slurm controller does not answer")

const noAnswerAdvice = "jobs that are waiting or running continue: repeat this in some minutes, and if the command sinfo gets no answer either, tell the site's support"

// runCommand runs a command and returns its standard output. The error contains its standard error.
func (c Client) runCommand(ctx context.Context, name string, args ...string) (string, error) {
	timeout := cmp.Or(c.Timeout, DefaultTimeout)
	if path := os.Getenv("SLURM_CONF"); path != "" { // without this file, a command waits for a minute
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("run %s: %w: SLURM_CONF is set to %s, and there is no such file: start the cluster, or set SLURM_CONF to the cluster's slurm.conf and start Jupyter, or this command, again", name, ErrNoAnswer, path)
		}
	}
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	cmd := exec.CommandContext(limited, name, args...)
	cmd.Env = submissionEnvironment(os.Environ())
	cmd.WaitDelay = time.Second
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	message := strings.TrimSpace(errs.String())
	switch {
	case err == nil:
		return out.String(), nil
	case errors.Is(err, exec.ErrNotFound):
		return "", fmt.Errorf("run %s: no Slurm on this machine: use a login node of the cluster, load the module with Slurm's commands, or choose --on local", name)
	case ctx.Err() != nil:
		return "", context.Cause(ctx)
	case limited.Err() != nil:
		return "", fmt.Errorf("run %s: %w (Lockstep waited for %v); %s", name, ErrNoAnswer, timeout, noAnswerAdvice)
	case strings.Contains(message, "Could not establish a configuration source"):
		return "", fmt.Errorf("run %s: %w: SLURM_CONF is not set, and there is no /etc/slurm/slurm.conf: use a login node of the cluster, or start Jupyter, or this command, from a shell in which SLURM_CONF is set", name, ErrNoAnswer)
	case isControllerUnreachable(message):
		return "", fmt.Errorf("run %s: %w: %s; %s", name, ErrNoAnswer, firstLine(message), noAnswerAdvice)
	case message != "":
		return "", &CommandError{Name: name, Message: message}
	}
	return "", fmt.Errorf("run %s: %w", name, err)
}

// A CommandError is the error that a command of Slurm reported.
type CommandError struct {
	Name    string
	Message string // what the command wrote to standard error
}

func (e *CommandError) Error() string {
	var lines []string
	for line := range strings.Lines(e.Message) {
		line = strings.TrimSpace(line)
		line = strings.TrimPrefix(strings.TrimPrefix(line, e.Name+": "), "error: ")
		lines = append(lines, line)
	}
	return fmt.Sprintf("%s: %s", e.Name, strings.Join(lines, "; "))
}

// isControllerUnreachable reports whether a command's error output means that it could not reach the controller.
func isControllerUnreachable(message string) bool {
	return slices.ContainsFunc([]string{"Unable to contact slurm controller", "Socket timed out", "Connection refused", "Communication connection failure"},
		func(text string) bool { return strings.Contains(message, text) })
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return strings.TrimSpace(line)
}

// submissionEnvironment returns the environment for Slurm's commands, which sbatch passes on to the
// job by default. It removes the secret of a run, because the ranks read that from the user's token
// file, and the variables that describe this process's own rank or job.
func submissionEnvironment(all []string) []string {
	describes := []string{
		"LOCKSTEP_TOKEN", "LOCKSTEP_RUN", "LOCKSTEP_LAUNCHER", "LOCKSTEP_SEED", "LOCKSTEP_BINDING", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
		"MASTER_ADDR", "MASTER_PORT", "TF_CONFIG",
	}
	prefixes := []string{"SLURM_", "SLURMD_", "OMPI_", "PMI_", "PMIX_"}
	return slices.DeleteFunc(slices.Clone(all), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		isOfJob := slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
		return slices.Contains(describes, name) || isOfJob && name != "SLURM_CONF"
	})
}
