package train

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"lockstep/pkg/notebook"
	"lockstep/pkg/runs"
)

// TestNotesAreKept: a note about the data is in the cell that opens them, and in run.json of a run that
// trains on them.
func TestNotesAreKept(t *testing.T) {
	cfg, folder := tiny(), t.TempDir()
	for _, name := range []string{"1.png", "2.png", "3.png", "4.png"} {
		writeGrey(t, filepath.Join(folder, "image", name), 16, 0, 15) // as with 12 bits in a file of 16
		writeGrey(t, filepath.Join(folder, "label", name), 16, 0, 255)
	}
	cfg.Data = DataConfig{Kind: "pairs", Path: folder, TestImages: 1}
	cfg.Epochs = 1
	want := "the brightest image pixel of " + folder + " is 15 of 255"

	shown := ""
	notebook.SetHook(notebook.Hook{Context: context.Background, Display: func(v any, _ string, _ bool) error {
		shown += fmt.Sprintln(v)
		return nil
	}})
	t.Cleanup(func() { notebook.SetHook(notebook.Hook{}) })
	if _, err := OpenSamples(t.Context(), cfg.Data); err != nil {
		t.Fatal(err)
	}
	if strings.Count(shown, "note: "+want) != 1 {
		t.Errorf("the cell shows %q, want %q once", shown, want)
	}
	shown = ""
	dir := filepath.Join(t.TempDir(), "run")
	if _, err := trainAll(t, cfg, 2, WorkerOptions{Dir: dir}); err != nil {
		t.Fatal(err)
	}
	cfg.Epochs = 2
	if _, err := trainAll(t, cfg, 2, WorkerOptions{Dir: dir, Resume: true}); err != nil {
		t.Fatal(err)
	}
	if shown != "" {
		t.Errorf("training shows %q in the cell, which Watch does", shown)
	}
	read, err := runs.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	if notes := strings.Join(read.Info.Notes, "\n"); strings.Count(notes, want) != 1 {
		t.Errorf("run.json has the notes %q, want %q once", notes, want)
	}
	wantLog(t, dir, "note: "+want)
}
