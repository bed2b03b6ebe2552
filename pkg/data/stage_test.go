package data_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lockstep/pkg/data"
)

// TestStage reads the same samples from a copy, which $STAGE_HERE says where to make.
func TestStage(t *testing.T) {
	dir, folder := filepath.Join(t.TempDir(), "set"), t.TempDir()
	if err := data.WriteCells(t.Context(), dir, data.CellsOptions{Count: 4, Height: 16, Width: 16, Seed: 3}); err != nil {
		t.Fatal(err)
	}
	t.Setenv("STAGE_HERE", folder)
	c := data.Config{Kind: "pairs", Path: dir, TestImages: 1, Stage: "$STAGE_HERE"}
	s, err := data.Stage(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(s.Config.Path, folder) || !s.Copied || s.Bytes == 0 {
		t.Errorf("%+v", s)
	}
	want, err := data.Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	got, err := data.Open(t.Context(), s.Config)
	if err != nil {
		t.Fatal(err)
	}
	for i := range want.Train.Len() {
		a, b, m := make([]float32, 256), make([]float32, 256), make([]float32, 256)
		if err := want.Train.Get(i, a, m); err != nil {
			t.Fatal(err)
		}
		if err := got.Train.Get(i, b, m); err != nil {
			t.Fatal(err)
		}
		for k := range a {
			if a[k] != b[k] {
				t.Fatalf("sample %d differs at %d", i, k)
			}
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(folder); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestStageErrors(t *testing.T) {
	t.Setenv("STAGE_HERE", "relative")
	t.Setenv("STAGE_EMPTY", "")
	for _, c := range []struct{ stage, kind, want string }{
		{"$STAGE_EMPTY", "pairs", "$STAGE_EMPTY is not set on this machine"},
		{"$STAGE_HERE/x", "pairs", "relative/x is not an absolute path"},
		{"shm", "pairs", `data.stage is "shm": use an absolute path, such as /dev/shm, or $TMPDIR`},
		{"/dev/shm", "cells", "data of kind cells are generated, not read from files: leave data.stage out"},
	} {
		d := data.Config{Kind: c.kind, Path: "somewhere", TestImages: 1, Count: 2, Height: 16, Width: 16, Stage: c.stage}
		if _, err := data.Stage(t.Context(), d); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", c.stage, err, c.want)
		}
	}
	// ImageNet's list may name pictures that are elsewhere.
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "train_data.pkl"), []byte("(dp0\nV/far/a.png\np1\nI0\ns."), 0o644); err != nil {
		t.Fatal(err)
	}
	d := data.Config{Kind: "imagenet", Path: dir, TestImages: 1, Resize: 8, Stage: t.TempDir()}
	if _, err := data.Stage(t.Context(), d); err == nil || !strings.Contains(err.Error(), "contains absolute paths such as /far/a.png") {
		t.Errorf("absolute paths: %v", err)
	}
}
