package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A test that was renamed would run under the race detector again, and no longer in qemu,
// without notice.
func TestNamedTestsExist(t *testing.T) {
	var source strings.Builder
	for _, dir := range racePackages() {
		dir, hasMore := strings.CutSuffix(dir, "/...")
		dir = filepath.Join("..", "..", dir)
		var files []string
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			switch {
			case err == nil && d.IsDir() && path != dir && !hasMore:
				return filepath.SkipDir
			case err == nil && strings.HasSuffix(path, "_test.go"):
				files = append(files, path)
			}
			return err
		})
		if err != nil || len(files) == 0 {
			t.Fatalf("test files of %s: %d, %v", dir, len(files), err)
		}
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			source.Write(text)
		}
	}
	for _, name := range slices.Concat(raceSkips(), neonTests()) {
		name, _, _ = strings.Cut(name, "/")
		if !strings.Contains(source.String(), "\nfunc Test"+name+"(t *testing.T) {") {
			t.Errorf("no package of the phases race and neon has a test Test%s", name)
		}
	}
}

// TestSkipPattern: of TestMPIRun, only the named subtests are skipped. TestSlurmArray runs, although
// its name begins with that of the skipped TestSlurm.
func TestSkipPattern(t *testing.T) {
	if got, want := skipPattern([]string{"Slurm", "MPIRun/open|left"}), "^TestSlurm$|^TestMPIRun$/(open|left)"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
