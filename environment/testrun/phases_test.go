package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A test that was renamed would run under the race detector again, and no longer in qemu,
// without notice.
func TestNamedTestsExist(t *testing.T) {
	var source strings.Builder
	for _, dir := range racePackages() {
		files, err := filepath.Glob(filepath.Join("..", "..", strings.TrimSuffix(dir, "/..."), "*_test.go"))
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
	for _, name := range append(numericTests(), neonTests()...) {
		if !strings.Contains(source.String(), "\nfunc Test"+name+"(t *testing.T) {") {
			t.Errorf("no package of the phases race and neon has a test Test%s", name)
		}
	}
}
