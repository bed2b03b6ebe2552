package scaling

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lockstep/pkg/notebook"
)

// TestReadShowsItsNotes reads logs whose worker counts only the names state: a cell that reads them shows
// the assumption, once, also if it shows the table, and a cell that reads complete tables shows nothing.
func TestReadShowsItsNotes(t *testing.T) {
	var shown []any
	cell := t.Context()
	notebook.SetHook(notebook.Hook{Context: func() context.Context { return cell }, Display: func(v any, _ string, _ bool) error {
		shown = append(shown, v)
		return nil
	}})
	t.Cleanup(func() { notebook.SetHook(notebook.Hook{}) })
	assumed, known := t.TempDir(), filepath.Join(t.TempDir(), "table.csv")
	for path, text := range map[string]string{
		filepath.Join(assumed, "train_1gpu.csv"): "epoch,seconds\n1,8\n2,8\n",
		filepath.Join(assumed, "train_2gpu.csv"): "epoch,seconds\n1,4\n2,4\n",
		known:                                    "series,workers,epoch,seconds\na,1,1,8\na,1,2,8\na,2,1,4\na,2,2,4\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Read(known); err != nil || len(shown) != 0 {
		t.Errorf("a complete table shows %q, %v", shown, err)
	}
	s, err := Read(assumed)
	if err != nil {
		t.Fatal(err)
	}
	if len(shown) != 1 {
		t.Fatalf("a study with the notes %q shows %q", s.ReadingNotes(), shown)
	}
	text, _ := shown[0].(string)
	if !strings.HasPrefix(text, "note: workers of 2 runs assumed from file names") || strings.Count(text, "\n")+1 != len(s.ReadingNotes()) {
		t.Errorf("a study with the notes %q shows %q", s.ReadingNotes(), text)
	}
	other, err := s.WithRule(Rule{Epochs: "2"})
	if err != nil || len(shown) != 1 {
		t.Fatalf("another rule shows the notes again: %q, %v", shown, err)
	}
	for _, study := range []*Study{s, other} {
		if page := study.HTML(); strings.Contains(page, "assumed from file names") || !strings.Contains(page, "rule: ") {
			t.Errorf("the table in the same cell has the notes again: %s", page)
		}
	}
	cell, cancel := context.WithCancel(t.Context()) // the next cell
	defer cancel()
	notebook.SetHook(notebook.Hook{Context: func() context.Context { return cell }, Display: func(any, string, bool) error { return nil }})
	if page := s.HTML(); !strings.Contains(page, "assumed from file names") {
		t.Errorf("the table in another cell lacks the notes: %s", page)
	}
}
