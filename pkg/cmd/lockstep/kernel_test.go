package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The line that kernel install prints is understood by a shell, whatever the
// folder is called.
func TestExportPathIsUnderstoodByAShell(t *testing.T) {
	for _, name := range []string{"plain", "with space", `a"b$HOME` + "`date`" + `\n`} {
		dir := filepath.Join(t.TempDir(), name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "lockstep"), []byte("#!/bin/sh\necho found\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command("sh", "-c", pathExportCommand(dir)+"\nlockstep").CombinedOutput()
		if err != nil || strings.TrimSpace(string(out)) != "found" {
			t.Errorf("after %s the command is not found: %v\n%s", pathExportCommand(dir), err, out)
		}
	}
}
