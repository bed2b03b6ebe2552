package launch

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
)

// binaryVariable names the lockstep command; the notebook kernel's kernelspec
// sets it to the one that was built with it.
const binaryVariable = "LOCKSTEP_BIN"

// commandPackage is the lockstep command's main package.
const commandPackage = "lockstep/pkg/cmd/lockstep"

// versionTime bounds the question after the build id.
const versionTime = 20 * time.Second

// Binary finds the lockstep command that will be the workers: $LOCKSTEP_BIN,
// else the running program if it is lockstep itself, else a lockstep beside
// it. A command that was built from other sources than the running program is
// refused.
func Binary(ctx context.Context) (string, error) {
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
	if sameFile(found, self) {
		return found, nil
	}
	return found, checkBuild(ctx, found, self)
}

// checkBuild refuses a command that was built from other sources than self.
func checkBuild(ctx context.Context, found, self string) error {
	theirs, err := buildOf(ctx, found)
	if err != nil {
		return err
	}
	if theirs != buildid.ID {
		return fmt.Errorf("use %s for workers: it is build %q, this program is build %q: build both from the same sources, or set %s to the one that belongs to this program", found, theirs, buildid.ID, binaryVariable)
	}
	return nil
}

func sameFile(a, b string) bool {
	s, err := os.Stat(a)
	if err != nil {
		return false
	}
	t, err := os.Stat(b)
	return err == nil && os.SameFile(s, t)
}

// buildOf asks a lockstep command for its build id.
func buildOf(ctx context.Context, path string) (string, error) {
	limited, cancel := context.WithTimeout(ctx, versionTime)
	defer cancel()
	text, err := exec.CommandContext(limited, path, "version", "--json").Output()
	switch {
	case err != nil && ctx.Err() != nil: // which says nothing of the command
		return "", context.Cause(ctx)
	case err != nil && limited.Err() != nil:
		return "", fmt.Errorf("ask %s for its build id: no answer within %v; is it the lockstep command?", path, versionTime)
	case err != nil:
		return "", fmt.Errorf("ask %s for its build id: %w; is it the lockstep command?", path, err)
	}
	var v struct {
		BuildID string `json:"build_id"`
	}
	if err := json.Unmarshal(text, &v); err != nil || v.BuildID == "" {
		return "", fmt.Errorf("ask %s for its build id: %q is no answer; is it the lockstep command?", path, text)
	}
	return v.BuildID, nil
}
