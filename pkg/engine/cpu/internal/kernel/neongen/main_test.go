package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// TestGenerated regenerates the assembly and compares it with the files of
// package kernel, so that neither is changed without the other.
func TestGenerated(t *testing.T) {
	dir := t.TempDir()
	if err := generate(dir); err != nil {
		t.Fatal(err)
	}
	names, err := filepath.Glob(filepath.Join(dir, "*_arm64.*"))
	if err != nil || len(names) != 2*len(families()) {
		t.Fatalf("generated %d files for %d families: %v", len(names), len(families()), err)
	}
	for _, name := range names {
		want, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join("..", filepath.Base(name)))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s is not what the generator writes: run go generate ./pkg/engine/cpu/internal/kernel", filepath.Base(name))
		}
	}
}
