package course

import (
	"archive/zip"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"lockstep/pkg/course/internal/ipynb"
)

// A function may change its arguments: the message must show the call that was made.
func TestWrongResultNamesTheCall(t *testing.T) {
	f := &Function{Name: "double", Cases: []Case{{In: []any{[]any{1, 2}}, Out: []any{2, 4}}}}
	err := f.checkCases(map[string]any{"double": func(v []float64) []float64 {
		v[0], v[1] = 7, 8
		return v
	}})
	if err == nil || !strings.Contains(err.Error(), "double([1 2]) returned [7 8]") {
		t.Fatalf("got the error %v, want the arguments before the call", err)
	}
}

func TestPanicInFunction(t *testing.T) {
	f := &Function{Name: "first", Cases: []Case{{In: []any{[]any{}}, Out: 1}}}
	err := f.checkCases(map[string]any{"first": func(v []float64) float64 {
		return reflect.ValueOf(v).Index(0).Float() // as the interpreter does it
	}})
	const want = "first([]): panic: slice index out of range; call it in a cell of your own to see the line"
	if err == nil || err.Error() != want {
		t.Fatalf("got the error %v, want %s", err, want)
	}
}

// A function may call what the student wrote for an earlier task. All other cells come from the
// release.
func TestNeededCells(t *testing.T) {
	release := parseCells(t, "// YOUR CODE HERE", "import")
	nb := parseCells(t, "the answer", "an edited import")
	for _, c := range []struct {
		id   string
		nb   *ipynb.Notebook
		want string
		own  bool
	}{
		{"a-answer", nb, "the answer", true},
		{"a-imports", nb, "import", false},
		{"a-answer", nil, "// YOUR CODE HERE", false},
	} {
		cells, own := neededCells(c.id, release, c.nb)
		if len(cells) != 1 || cells[0].Source != c.want || own != c.own {
			t.Errorf("%s: got %v, own %t, want %q, own %t", c.id, cells, own, c.want, c.own)
		}
	}
}

// parseCells returns a notebook with the cells a-answer and a-imports.
func parseCells(t *testing.T, answer, imports string) *ipynb.Notebook {
	t.Helper()
	cell := func(id, source, solution string) string {
		return `{"cell_type": "code", "source": "` + source + `", "outputs": [], "execution_count": null, "metadata": {"nbgrader":
			{"grade_id": "` + id + `", "grade": false, "solution": ` + solution + `, "locked": true, "task": false, "schema_version": 3}}}`
	}
	nb, err := ipynb.Parse([]byte(`{"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [` +
		cell("a-answer", answer, "true") + "," + cell("a-imports", imports, "false") + "]}"))
	if err != nil {
		t.Fatal(err)
	}
	return nb
}

// TestRandomCall: lengths differ between calls, and arguments with the same letter have the same length.
func TestRandomCall(t *testing.T) {
	t.Parallel()
	f := Function{Name: "f", Arguments: []Argument{
		{Type: "[]int", Lengths: []string{"n"}, Min: 3, Max: 4},
		{Type: "[]int", Lengths: []string{"n"}, Min: -1, Max: -1},
	}}
	random, lengths := rand.New(rand.NewPCG(1, 2)), map[int]bool{}
	for range 30 {
		source, err := f.randomCallSource(random)
		if err != nil {
			t.Fatal(err)
		}
		n := strings.Count(source, "-1")
		lengths[n] = true
		if strings.Count(source, "3")+strings.Count(source, "4") != n || n < 2 || n > 6 {
			t.Errorf("got %s", source)
		}
	}
	if len(lengths) != 5 {
		t.Errorf("got the lengths %v, want 2 to 6", lengths)
	}
}

// TestAttempts counts the checks of a task, right and wrong ones.
func TestAttempts(t *testing.T) {
	right := map[string]any{"asynchronous": "late", "bottleneck": "shards"}
	first, err := Check("server/2", right)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Check("server/2", map[string]any{"asynchronous": "waits", "bottleneck": "shards"}); err == nil {
		t.Error("a wrong choice is right")
	}
	a, err := Check("server/2", right)
	if err != nil || a.Attempts != first.Attempts+2 || !strings.Contains(a.HTML(), fmt.Sprintf("(%d attempts)", a.Attempts)) {
		t.Errorf("got %v, %v after %d attempts and two more", a, err, first.Attempts)
	}
}

// TestUnpackLimits: a submission cannot fill the disk.
func TestUnpackLimits(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "large.zip")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	z := zip.NewWriter(f)
	for i := range mostSubmitted + 1 {
		w, err := z.Create(fmt.Sprint("runs/", i))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte("123456")); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(z.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := unpackSubmission(path, t.TempDir()); err == nil || !strings.Contains(err.Error(), "at most 10000 are allowed") {
		t.Errorf("got error %v for too many files", err)
	}
	r, err := zip.OpenReader(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }() // it was only read
	dir := t.TempDir()
	if _, err := unpackZipFile(r.File[0], filepath.Join(dir, "fits"), 6); err != nil {
		t.Error(err)
	}
	if _, err := unpackZipFile(r.File[0], filepath.Join(dir, "exceeds"), 5); err == nil || !strings.Contains(err.Error(), "more than 64 MiB") {
		t.Errorf("got error %v for a file over the limit", err)
	}
}
