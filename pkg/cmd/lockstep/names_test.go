package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"lockstep/pkg/cmd/lockstep/internal/cli"
)

// TestNamesOutsideTheLogs: a config whose name leads out of the logs is refused by
// every command that would make a folder of this name, and none is made.
func TestNamesOutsideTheLogs(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "a", "b")
	logs := filepath.Join(dir, "logs")
	if err := os.MkdirAll(logs, 0o755); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "outside.yaml")
	text := "name: ../../outside\nmodel: {kind: unet2d, base: 4, depth: 1}\ndata: {kind: cells, count: 8, height: 16, width: 16, test_images: 2}\nepochs: 1\n"
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	binary, err := exec.LookPath("lockstep")
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"train", "--config", config}, {"launch", "--config", config, "--workers", "1"}} {
		var stderr bytes.Buffer
		c := exec.Command(binary, args...)
		c.Dir, c.Stderr = dir, &stderr
		c.Env = append(os.Environ(), "LOCKSTEP_LOGS="+logs, "LOCKSTEP_LOCKS="+filepath.Join(dir, "locks"))
		var exit *exec.ExitError
		if err := c.Run(); !errors.As(err, &exit) || exit.ExitCode() != cli.ExitUsage || !strings.Contains(stderr.String(), `name is "../../outside"`) {
			t.Errorf("lockstep %s ended with %v, want exit code 2 and the name\n%s", args[0], err, &stderr)
			continue
		}
	}
	for _, folder := range []string{root, filepath.Dir(dir), dir, logs} {
		entries, err := os.ReadDir(folder)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if strings.Contains(e.Name(), "outside") && e.Name() != "outside.yaml" || folder == logs {
				t.Errorf("%s was made", filepath.Join(folder, e.Name()))
			}
		}
	}
}
