package course

import (
	"crypto/md5"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"lockstep/pkg/course/internal/ipynb"
	"lockstep/pkg/internal/english"
	"lockstep/pkg/internal/wholefile"
)

// Text that replaces a solution in a release.
const (
	codeStub = "// YOUR CODE HERE"
	textStub = "YOUR ANSWER HERE"
)

const nbgraderSchema = 3

// Release writes the students' version of the notebook src, or of all notebooks in the folder src, to the
// folder out, with the files of their tasks. It removes outputs, solutions and hidden tests, locks cells,
// and adds nbgrader's checksums. It returns the paths of the written files.
func Release(src, out string, tasks Tasks) ([]string, error) {
	sources := []string{src}
	if info, err := os.Stat(src); err != nil {
		return nil, fmt.Errorf("release: %w", err)
	} else if info.IsDir() {
		if sources, err = filepath.Glob(filepath.Join(src, "*.ipynb")); err != nil {
			return nil, err
		}
		if len(sources) == 0 {
			return nil, fmt.Errorf("release: found no notebook in %s", src)
		}
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return nil, fmt.Errorf("release: %w", err)
	}
	var written []string
	for _, source := range sources {
		target := filepath.Join(out, filepath.Base(source))
		if isSameFile(source, target) {
			return written, fmt.Errorf("release %s: the release would replace its source; use another folder", source)
		}
		own := tasks.of(notebookName(source))
		nb, err := ipynb.Read(source)
		if err != nil {
			return written, fmt.Errorf("release: %w", err)
		}
		if err := validateSolutionNotebook(nb, own); err != nil {
			return written, fmt.Errorf("release %s: %w", source, err)
		}
		if err := removeSolutions(nb); err != nil {
			return written, fmt.Errorf("release %s: %w", source, err)
		}
		if err := nb.Write(target); err != nil {
			return written, fmt.Errorf("release: %w", err)
		}
		file, err := own.writeReleasedTasks(out)
		if err != nil {
			return written, fmt.Errorf("release: %w", err)
		}
		written = append(written, target, file)
	}
	return written, nil
}

func notebookName(path string) string { return strings.TrimSuffix(filepath.Base(path), ".ipynb") }

func isSameFile(a, b string) bool {
	x, err1 := os.Stat(a)
	y, err2 := os.Stat(b)
	return err1 == nil && err2 == nil && os.SameFile(x, y)
}

var gradeIDPattern = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// validateSolutionNotebook checks a solution notebook by nbgrader's rules. Each task must have a cell with its
// points, and each cell with points a task.
func validateSolutionNotebook(nb *ipynb.Notebook, tasks Tasks) error {
	seen := map[string]bool{}
	tasked := map[string]*Task{}
	for _, t := range tasks {
		tasked[t.GradeID()] = t
	}
	for i, c := range nb.Cells {
		g := c.Grading
		if g == nil {
			continue
		}
		if err := validateGrading(c, tasked[g.ID]); err != nil {
			return fmt.Errorf("cell %d (%s): %w", i+1, g.ID, err)
		}
		if seen[g.ID] {
			return fmt.Errorf("cell %d: grade_id %q is used twice", i+1, g.ID)
		}
		seen[g.ID] = true
	}
	for _, t := range tasks {
		if !seen[t.GradeID()] {
			return fmt.Errorf("task %s has no cell with the grade_id %s", t.ID, t.GradeID())
		}
		if !seen[t.answerCellID()] {
			return fmt.Errorf("task %s has no cell with the grade_id %s for its answer", t.ID, t.answerCellID())
		}
		if t.Function == nil {
			continue
		}
		for _, id := range t.Function.Needs {
			if !seen[id] {
				return fmt.Errorf("task %s needs the cell %s, which does not exist", t.ID, id)
			}
		}
	}
	return nil
}

// validateGrading checks the metadata of a cell. task may be nil.
func validateGrading(c *ipynb.Cell, task *Task) error {
	g := c.Grading
	switch {
	case g.Schema != nbgraderSchema:
		return fmt.Errorf("got schema_version %d, want %d", g.Schema, nbgraderSchema)
	case !gradeIDPattern.MatchString(g.ID):
		return errors.New("invalid grade_id: use letters, digits, _ and -")
	case g.Task:
		return errors.New("task cells of nbgrader are not supported")
	case c.Type == ipynb.Markdown && g.Grade != g.Solution:
		return errors.New("a text cell with points must be the student's answer: set grade and solution")
	case g.Grade && task == nil:
		return errors.New("has points, but no task with this id")
	case g.Grade && g.Points != task.Points:
		return fmt.Errorf("has %g points, but task %s has %g", g.Points, task.ID, task.Points)
	case g.Grade && (c.Type == ipynb.Markdown) != (task.Kind == KindText):
		return fmt.Errorf("a %s cell cannot answer a task of kind %s", c.Type, task.Kind)
	case c.Type == ipynb.Code && g.Solution && !strings.Contains(c.Source, beginSolution):
		return fmt.Errorf("the solution has no line %s", beginSolution)
	}
	return nil
}

func removeSolutions(nb *ipynb.Notebook) error {
	nb.DeleteMetadata("lockstep") // the hash of the sources whose outputs are removed
	for i, c := range nb.Cells {
		c.ClearOutputs()
		var err error
		if c.Source, err = replaceMarkedRegions(c.Source, beginSolution, endSolution, codeStub); err != nil {
			return fmt.Errorf("cell %d: %w", i+1, err)
		}
		if c.Source, err = replaceMarkedRegions(c.Source, beginHidden, endHidden, ""); err != nil {
			return fmt.Errorf("cell %d: %w", i+1, err)
		}
		g := c.Grading
		if g == nil {
			continue
		}
		if c.Type == ipynb.Markdown && g.Solution {
			c.Source = textStub
		}
		g.Locked = !g.Solution
		g.CellType, g.Checksum = c.Type, nbgraderChecksum(c)
	}
	return nil
}

// Lines that begin and end the regions removed in a release.
const (
	beginSolution = "// BEGIN SOLUTION"
	endSolution   = "// END SOLUTION"
	beginHidden   = "// BEGIN HIDDEN TESTS"
	endHidden     = "// END HIDDEN TESTS"
)

// replaceMarkedRegions replaces each region of source, from a begin line to an end line, by stub, with the
// indentation of the begin line. If stub is "", it deletes the regions.
func replaceMarkedRegions(source, begin, end, stub string) (string, error) {
	var out []string
	inside := false
	for line := range strings.SplitSeq(source, "\n") {
		switch trimmed := strings.TrimSpace(line); {
		case trimmed == begin && inside:
			return "", fmt.Errorf("%s inside another one", begin)
		case trimmed == begin:
			inside = true
			if stub != "" {
				out = append(out, line[:strings.Index(line, begin)]+stub)
			}
		case trimmed == end && !inside:
			return "", fmt.Errorf("%s without %s", end, begin)
		case trimmed == end:
			inside = false
		case !inside:
			out = append(out, line)
		}
	}
	if inside {
		return "", fmt.Errorf("%s without %s", begin, end)
	}
	return strings.TrimRight(strings.Join(out, "\n"), "\n"), nil
}

// nbgraderChecksum returns the checksum by which nbgrader detects an edited cell: MD5 over source,
// type and metadata, as in nbgrader.utils.compute_checksum of version 0.9.
func nbgraderChecksum(c *ipynb.Cell) string {
	g := c.Grading
	text := c.Source + c.Type + formatPythonBool(g.Grade) + formatPythonBool(g.Solution) + formatPythonBool(g.Locked) + g.ID
	if g.Grade {
		text += formatPythonFloat(g.Points)
	}
	sum := md5.Sum([]byte(text))
	return hex.EncodeToString(sum[:])
}

func formatPythonBool(b bool) string {
	if b {
		return "True"
	}
	return "False"
}

// formatPythonFloat formats v as Python's str does, for example 2.0 or 0.5.
func formatPythonFloat(v float64) string {
	text := fmt.Sprintf("%g", v)
	if !strings.ContainsAny(text, ".e") {
		text += ".0"
	}
	return text
}

// writeReleasedTasks writes the students' version of a notebook's task file, and returns its path.
// It omits the references of functions, and replaces right options by hashes.
func (all Tasks) writeReleasedTasks(dir string) (string, error) {
	if len(all) == 0 {
		return "", errors.New("the notebook has no tasks: write NOTEBOOK.yaml, and pass its folder with --tasks")
	}
	var f taskFile
	for _, t := range all {
		released := *t
		if t.Function != nil {
			function := *t.Function
			function.Reference, function.Arguments = "", nil
			released.Function = &function
		}
		released.Choices = map[string]Choice{}
		for key, c := range t.Choices {
			for _, option := range c.Answer {
				c.Hashes = append(c.Hashes, hashOption(t.ID, key, option))
			}
			slices.Sort(c.Hashes)
			c.Answer = nil
			released.Choices[key] = c
		}
		f.Tasks = append(f.Tasks, released)
	}
	text, err := yaml.Marshal(f)
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, all[0].notebook+".yaml")
	header := fmt.Sprintf("# Tasks of %s.ipynb for students: %s.\n", all[0].notebook, english.FormatCount(len(all), "task"))
	return path, wholefile.WriteBytes(path, []byte(header+string(text)), 0o644)
}
