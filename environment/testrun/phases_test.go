package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A test that was renamed would run neither under the race detector nor in qemu, without notice.
func TestNamedTestsExist(t *testing.T) {
	source := func(path string) string {
		files, err := filepath.Glob(filepath.Join("..", "..", "pkg", path, "*_test.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("test files of pkg/%s: %d, %v", path, len(files), err)
		}
		var all strings.Builder
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			all.Write(text)
		}
		return all.String()
	}
	check := func(path, source string, names []string) {
		for _, name := range names {
			name, _, _ = strings.Cut(name, "/")
			if !strings.Contains(source, "\nfunc Test"+name+"(t *testing.T) {") {
				t.Errorf("%s has no test Test%s", path, name)
			}
		}
	}
	for path, names := range raceTests() {
		check(path, source(path), names)
	}
	check("engine/cpu, train", source("engine/cpu")+source("train"), slices.Concat(neonTests(), slowNEONTests()))
}

// TestTestPattern: of TestMPIRun, only the named subtests run. TestSlurmArray does not, although its
// name begins with that of TestSlurm.
func TestTestPattern(t *testing.T) {
	if got, want := testPattern([]string{"Slurm", "MPIRun/open|left", "Slurm"}), "^TestMPIRun$/(open|left)|^TestSlurm$"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
