package course

import (
	"reflect"
	"strings"
	"testing"

	"lockstep/pkg/course/internal/ipynb"
)

// A function may change its arguments: the message must show the call that was made.
func TestWrongResultNamesTheCall(t *testing.T) {
	f := &Function{Name: "double", Cases: []Case{{In: []any{[]any{1, 2}}, Out: []any{2, 4}}}}
	err := f.callCases(map[string]any{"double": func(v []float64) []float64 {
		v[0], v[1] = 7, 8
		return v
	}})
	if err == nil || !strings.Contains(err.Error(), "double([1 2]) returned [7 8]") {
		t.Fatalf("got the error %v, want the arguments before the call", err)
	}
}

func TestPanicInFunction(t *testing.T) {
	f := &Function{Name: "first", Cases: []Case{{In: []any{[]any{}}, Out: 1}}}
	err := f.callCases(map[string]any{"first": func(v []float64) float64 {
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
