package comparison

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"lockstep/pkg/internal/buildid"
	"lockstep/pkg/internal/english"
	"lockstep/pkg/launch"
	"lockstep/pkg/runs"
)

// DescribeMachine describes the processor, the number of cores, the operating system and the architecture.
func DescribeMachine() string {
	h := runs.DescribeHost()
	return fmt.Sprintf("%s, %s, %s/%s", h.CPU, english.FormatCount(h.Cores, "core"), h.OS, h.Arch)
}

// FindCommit returns the commit checked out in the source tree that contains the command, or else
// the command's build ID.
func FindCommit(ctx context.Context) string {
	exe, err := os.Executable()
	if err == nil {
		c := exec.CommandContext(ctx, "git", "rev-parse", "--short", "HEAD")
		c.Dir = filepath.Dir(exe)
		if out, err := c.Output(); err == nil {
			return strings.TrimSpace(string(out))
		}
	}
	return "build " + buildid.ID
}

// ContextCause returns the cause of ctx's cancellation, or err if ctx is not canceled.
func ContextCause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// Logf writes a formatted line to w. If w is nil, it does nothing.
func Logf(w io.Writer, format string, a ...any) {
	if w != nil {
		fmt.Fprintf(w, format+"\n", a...)
	}
}

// WorkerCommand returns the command line that starts a worker of Lockstep.
func WorkerCommand(ctx context.Context) ([]string, error) {
	binary, err := launch.Binary(ctx)
	if err != nil {
		return nil, err
	}
	return []string{binary, "bench", "worker"}, nil
}
