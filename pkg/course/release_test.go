package course

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lockstep/pkg/course/internal/ipynb"
)

// TestChecksum: the value was computed by nbgrader 0.9.5 for a notebook's cell, once by hand.
func TestChecksum(t *testing.T) {
	t.Parallel()
	c := &ipynb.Cell{Type: ipynb.Code, Source: "0.5", Grading: &ipynb.Grading{ID: "partial", Grade: true, Locked: true, Points: 2}}
	if got := nbgraderChecksum(c); got != "85d3ca94990cf17f6cd7b18ec40ebf5c" {
		t.Errorf("got checksum %s", got)
	}
}

func TestPythonFloat(t *testing.T) {
	t.Parallel()
	for v, want := range map[float64]string{2: "2.0", 0.5: "0.5", 0: "0.0", 12.25: "12.25", 100000: "100000.0"} {
		if got := formatPythonFloat(v); got != want {
			t.Errorf("got %s for %g, want %s", got, v, want)
		}
	}
}

func TestReplaceRegions(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ source, want, err string }{
		{"x := 0\n    // BEGIN SOLUTION\n    x = 1\n    // END SOLUTION\nx", "x := 0\n    // YOUR CODE HERE\nx", ""},
		{"// BEGIN SOLUTION\na\n// END SOLUTION\nb\n// BEGIN SOLUTION\nc\n// END SOLUTION", "// YOUR CODE HERE\nb\n// YOUR CODE HERE", ""},
		{"nothing", "nothing", ""},
		{"// BEGIN SOLUTION\na", "", "// BEGIN SOLUTION without // END SOLUTION"},
		{"a\n// END SOLUTION", "", "// END SOLUTION without // BEGIN SOLUTION"},
		{"// BEGIN SOLUTION\n// BEGIN SOLUTION\n// END SOLUTION", "", "inside another one"},
	} {
		got, err := replaceMarkedRegions(c.source, beginSolution, endSolution, codeStub)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%q: got error %v, want %q", c.source, err, c.err)
			}
		} else if got != c.want || err != nil {
			t.Errorf("%q: got %q, %v; want %q", c.source, got, err, c.want)
		}
	}
}

// TestRelease releases the shipped notebooks: each is valid by nbgrader's rules and by its tasks, and
// its release has no answer in it.
func TestRelease(t *testing.T) {
	t.Parallel()
	source, out := "../../notebooks/course", t.TempDir()
	all, err := ReadTasks("")
	if err != nil {
		t.Fatal(err)
	}
	written, err := Release(source, out, all)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range written {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, secret := range []string{"SOLUTION", "HIDDEN", "reference:", "answer:", "lockstep_answer"} {
			if strings.Contains(string(text), secret) {
				t.Errorf("%s contains %q", path, secret)
			}
		}
	}
	released, err := ReadTasks(out)
	if err != nil {
		t.Fatalf("the released tasks cannot be read: %v", err)
	}
	for _, path := range written {
		if filepath.Ext(path) != ".ipynb" {
			continue
		}
		own := released.of(notebookName(path))
		for _, task := range own {
			for key, c := range task.Choices {
				if c.Larger == nil && len(c.Hashes) == 0 {
					t.Errorf("%s: the released choice %s has no answer", task.ID, key)
				}
			}
		}
		checkReleased(t, path, own)
	}
}

// checkReleased checks the cells of a released notebook.
func checkReleased(t *testing.T, path string, tasks Tasks) {
	t.Helper()
	nb, err := ipynb.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	stubs := 0
	for i, c := range nb.Cells {
		if len(c.Outputs) > 0 || c.ExecutionCount() > 0 {
			t.Errorf("%s: cell %d has outputs", path, i+1)
		}
		g := c.Grading
		if g == nil {
			continue
		}
		if strings.Contains(c.Source, codeStub) || c.Source == textStub {
			stubs++
		}
		if g.CellType != c.Type || g.Checksum != nbgraderChecksum(c) || g.Locked == g.Solution {
			t.Errorf("%s: cell %s: got type %q, checksum %q, locked %t, solution %t", path, g.ID, g.CellType, g.Checksum, g.Locked, g.Solution)
		}
	}
	if len(tasks) == 0 || stubs < len(tasks) {
		t.Errorf("%s: got %d places for answers to %d tasks", path, stubs, len(tasks))
	}
	for _, task := range tasks {
		if task.Kind == KindText && task.isTextWritten(nb) {
			t.Errorf("%s: the text of %s is released", path, task.ID)
		}
	}
}

// TestValidateSource: a mistake in a solution notebook is found before it is released.
func TestValidateSource(t *testing.T) {
	t.Parallel()
	tasks, err := parseTasks("09-test", []byte(testTasks))
	if err != nil {
		t.Fatal(err)
	}
	valid := func() *ipynb.Notebook { return solutionNotebook(t, tasks) }
	if err := validateSolutionNotebook(valid(), tasks); err != nil {
		t.Fatal(err)
	}
	cell := func(nb *ipynb.Notebook, id string) *ipynb.Cell { return cellsByGradeID(nb, id)[0] }
	for _, c := range []struct {
		want   string
		change func(nb *ipynb.Notebook)
	}{
		{"schema_version 2", func(nb *ipynb.Notebook) { cell(nb, "test-1").Grading.Schema = 2 }},
		{"used twice", func(nb *ipynb.Notebook) { nb.Cells = append(nb.Cells, cell(nb, "test-1")) }},
		{"invalid grade_id", func(nb *ipynb.Notebook) { cell(nb, "test-1-answer").Grading.ID = "test 1" }},
		{"set grade and solution", func(nb *ipynb.Notebook) { cell(nb, "test-3").Grading.Solution = false }},
		{"has 5 points, but task test/1 has 3", func(nb *ipynb.Notebook) { cell(nb, "test-1").Grading.Points = 5 }},
		{"no task with this id", func(nb *ipynb.Notebook) { cell(nb, "test-1").Grading.ID = "other" }},
		{"task test/1 has no cell with the grade_id test-1-answer", func(nb *ipynb.Notebook) { cell(nb, "test-1-answer").Grading.ID = "other" }},
		{"no line // BEGIN SOLUTION", func(nb *ipynb.Notebook) { cell(nb, "test-1-answer").Source = "x := 1" }},
	} {
		nb := valid()
		c.change(nb)
		if err := validateSolutionNotebook(nb, tasks); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got error %v, want %q", err, c.want)
		}
	}
}

func TestReleaseRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "09-test.ipynb")
	tasks, err := parseTasks("09-test", []byte(testTasks))
	if err != nil {
		t.Fatal(err)
	}
	if err := solutionNotebook(t, tasks).Write(path); err != nil {
		t.Fatal(err)
	}
	damaged := filepath.Join(dir, "damaged.ipynb")
	if err := os.WriteFile(damaged, []byte(`{"cells": [`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ src, out, want string }{
		{path, dir, "would replace its source"},
		{damaged, t.TempDir(), "damaged JSON"},
		{t.TempDir(), t.TempDir(), "found no notebook"},
		{filepath.Join(dir, "absent"), t.TempDir(), "absent"},
	} {
		if _, err := Release(c.src, c.out, tasks); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got error %v, want %q", c.src, err, c.want)
		}
	}
}
