package main

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestVariables: the list has every variable that the packages read, and a misspelled name is noted.
func TestVariables(t *testing.T) {
	t.Parallel()
	quoted := regexp.MustCompile(`"(LOCKSTEP_[A-Z_]+)"`)
	check := func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range quoted.FindAllSubmatch(text, -1) {
			if name := string(m[1]); !slices.Contains(environmentVariables(), name) && !strings.HasPrefix(name, "LOCKSTEP_TEST") {
				t.Errorf("%s: %s is not in the list of variables", path, name)
			}
		}
		return err
	}
	for _, root := range []string{"../..", "../../../kernels/kernelspec", "../../../kernels/internal"} {
		if err := filepath.WalkDir(root, check); err != nil {
			t.Fatal(err)
		}
	}
	var notes bytes.Buffer
	noteMisspelledVariables([]string{"LOCKSTEP_LOKS=/x", "LOCKSTEP_LOGS=/x", "LOCKSTEP_DEMO_DIRECTORY=/x", "PATH=/bin"}, &notes)
	if got := notes.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "LOCKSTEP_LOKS (did you mean LOCKS?)") {
		t.Errorf("got the notes %q", got)
	}
}
