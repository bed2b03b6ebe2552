// Package binary finds the lockstep command that the workers run, and checks that it was built from
// the same sources as the running program.
package binary

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"time"

	"lockstep/pkg/internal/buildid"
	"lockstep/pkg/notebook"
)

// binaryVariable is the environment variable with the path of the lockstep command. The notebook's
// kernelspec sets it to the command that was built together with the kernel.
const binaryVariable = "LOCKSTEP_BIN"

const commandPackage = "lockstep/pkg/cmd/lockstep"

// buildIDTimeout limits how long queryBuildID waits for a command to print its build id.
const buildIDTimeout = 20 * time.Second

// Find returns the path of the lockstep command that the workers run, as launch.Binary documents.
func Find(ctx context.Context) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find lockstep command: %w", err)
	}
	path := os.Getenv(binaryVariable)
	switch info, ok := debug.ReadBuildInfo(); {
	case path != "":
	case ok && info.Path == commandPackage:
		path = self
	default:
		path = filepath.Join(filepath.Dir(self), "lockstep")
	}
	found, err := exec.LookPath(path)
	if err != nil {
		return "", fmt.Errorf("find lockstep command: %w; set %s to the lockstep command that was built with %s", err, binaryVariable, self)
	}
	if isSameFile(found, self) {
		return found, nil
	}
	return found, checkSameBuild(ctx, found)
}

// FindLauncher returns the path of the lockstep command that runs sweeps: lockstep in the folder of
// the running program, else workers, else the result of Find. workers is the lockstep command of
// the workers, or "" if they run another program. The folder comes before $LOCKSTEP_BIN, which may
// be a user's program that can only train. FindLauncher does not compare build ids, because a
// launcher itself refuses a plan from another build.
func FindLauncher(ctx context.Context, workers string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find lockstep command: %w", err)
	}
	neighbor := filepath.Join(filepath.Dir(self), "lockstep")
	if _, err := exec.LookPath(neighbor); err == nil {
		return neighbor, nil
	}
	if workers != "" {
		return workers, nil
	}
	return Find(ctx)
}

// checkSameBuild returns an error if the lockstep command at the path command was not built
// from the same sources as the running program.
func checkSameBuild(ctx context.Context, command string) error {
	theirs, err := queryBuildID(ctx, command)
	if err != nil {
		return err
	}
	if theirs != buildid.ID {
		advice := ""
		if notebook.InNotebook() {
			advice = "if Lockstep was installed again while this kernel ran, restart the kernel; otherwise "
		}
		return fmt.Errorf("use %s for workers: got build %q, want build %q (this program's): %sbuild both from the same sources, or set %s to the lockstep command of this program", command, theirs, buildid.ID, advice, binaryVariable)
	}
	return nil
}

func isSameFile(a, b string) bool {
	s, err := os.Stat(a)
	if err != nil {
		return false
	}
	t, err := os.Stat(b)
	return err == nil && os.SameFile(s, t)
}

func queryBuildID(ctx context.Context, path string) (string, error) {
	limited, cancel := context.WithTimeout(ctx, buildIDTimeout)
	defer cancel()
	text, err := exec.CommandContext(limited, path, "version", "--json").Output()
	switch {
	case err != nil && ctx.Err() != nil: // not a fault of the command
		return "", context.Cause(ctx)
	case err != nil && limited.Err() != nil:
		return "", fmt.Errorf("ask %s for its build id: no answer within %v; is it the lockstep command?", path, buildIDTimeout)
	case err != nil:
		return "", fmt.Errorf("ask %s for its build id: %w; is it the lockstep command?", path, err)
	}
	var v struct {
		BuildID string `json:"build_id"`
	}
	if err := json.Unmarshal(text, &v); err != nil || v.BuildID == "" {
		return "", fmt.Errorf("ask %s for its build id: invalid answer %q; is it the lockstep command?", path, text)
	}
	return v.BuildID, nil
}
