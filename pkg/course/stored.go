package course

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"

	"lockstep/pkg/course/internal/ipynb"
	"lockstep/pkg/internal/clean"
	"lockstep/pkg/runs"
)

// storedAnswer is the output of a check, as stored in a notebook; see Answer.JSON.
type storedAnswer struct {
	Version json.Number    `json:"lockstep_answer"`
	Task    string         `json:"task"`
	Values  map[string]any `json:"answer"`
	Runs    []RunReference `json:"runs"`
}

// cellsByGradeID returns the cells of a notebook with the given grade_id. A copied cell has the same
// ID as its original.
func cellsByGradeID(nb *ipynb.Notebook, id string) []*ipynb.Cell {
	var found []*ipynb.Cell
	for _, c := range nb.Cells {
		if c.Grading != nil && c.Grading.ID == id {
			found = append(found, c)
		}
	}
	return found
}

// findStoredAnswer returns the answer in the outputs of the task's check cell. Copies of the cell must have
// the same answer.
func (t *Task) findStoredAnswer(nb *ipynb.Notebook) (*storedAnswer, error) {
	cells := cellsByGradeID(nb, t.GradeID())
	if len(cells) == 0 {
		return nil, fmt.Errorf("the check cell %s is missing: copy it back from the released notebook, and run it", t.GradeID())
	}
	var found *storedAnswer
	for _, c := range cells {
		answer, err := t.parseStoredAnswer(c)
		if err != nil {
			if len(cells) == 1 {
				return nil, err
			}
			continue
		}
		if found != nil && !reflect.DeepEqual(found.Values, answer.Values) {
			return nil, fmt.Errorf("%d cells are named %s and have different answers: delete all but one", len(cells), t.GradeID())
		}
		found = answer
	}
	if found == nil {
		return nil, fmt.Errorf("none of the cells named %s has a right answer", t.GradeID())
	}
	return found, nil
}

func (t *Task) parseStoredAnswer(c *ipynb.Cell) (*storedAnswer, error) {
	for _, o := range c.Outputs {
		if o.Type == "error" {
			_, text, ok := strings.Cut(o.Error, t.ID+": ") // after the position in the cell
			if !ok {
				text = o.Error
			}
			return nil, errors.New(clean.EscapeMultiline(text))
		}
		data, ok := o.Data["application/json"].(map[string]any)
		if !ok || data["lockstep_answer"] == nil {
			continue
		}
		text, err := json.Marshal(data)
		if err != nil {
			return nil, err
		}
		d := json.NewDecoder(strings.NewReader(string(text)))
		d.UseNumber()
		var a storedAnswer
		if err := d.Decode(&a); err != nil || a.Version != "1" {
			return nil, fmt.Errorf("the output of the check cell %s is damaged: run the cell again", t.GradeID())
		}
		if a.Task != t.ID {
			return nil, fmt.Errorf("the output of the check cell %s belongs to task %q: run the cell again", t.GradeID(), a.Task)
		}
		return &a, nil
	}
	if c.ExecutionCount() == 0 {
		return nil, errors.New("the check cell has not run: run the notebook from top to bottom, and save it")
	}
	return nil, fmt.Errorf("the check cell %s has no answer in its output: run it again, unchanged", t.GradeID())
}

// checkStoredAnswer judges the answer in a notebook's outputs again, without executing a cell. locate returns
// the folder of a run that the answer names. notes are remarks about the runs.
func (t *Task) checkStoredAnswer(ctx context.Context, nb *ipynb.Notebook, locate func(RunReference) (string, error)) (a *storedAnswer, notes []string, err error) {
	a, err = t.findStoredAnswer(nb)
	if err != nil || t.Kind == KindCode {
		return a, nil, err
	}
	var all []runs.Run
	for _, reference := range a.Runs {
		dir, err := locate(reference)
		if err != nil {
			return a, nil, err
		}
		now, err := newRunReference(dir)
		if err != nil {
			return a, nil, err
		}
		if now.SHA256 != reference.SHA256 {
			return a, nil, fmt.Errorf("epochs.csv of %s has changed since the check: run the check cell again, and save the notebook", reference.Run)
		}
		r, err := runs.Read(dir)
		if err != nil {
			return a, nil, err
		}
		all = append(all, r)
	}
	e, err := t.collectEvidence(ctx, all)
	if err != nil {
		return a, nil, err
	}
	if err := e.checkAnswerValues(ctx, a.Values); err != nil {
		return a, nil, err
	}
	if note := e.disturbedNote(); note != "" {
		notes = append(notes, note)
	}
	return a, notes, nil
}

func (t *Task) isTextWritten(nb *ipynb.Notebook) bool {
	for _, c := range cellsByGradeID(nb, t.GradeID()) {
		if text := strings.TrimSpace(c.Source); text != "" && text != textStub {
			return true
		}
	}
	return false
}

// newRunLocator returns a function that finds the folder of a run, STUDY/RUN, in the logs folder of the
// working directory or of the notebook's folder.
func newRunLocator(notebook string) func(RunReference) (string, error) {
	return func(r RunReference) (string, error) {
		if !filepath.IsLocal(r.Run) {
			return "", fmt.Errorf("invalid run %q in the output of the check cell: run the cell again", r.Run)
		}
		if dir, err := runs.ResolveLogs(r.Run); err == nil && runs.IsRunFolder(dir) {
			return dir, nil
		}
		start, err := filepath.Abs(filepath.Dir(notebook))
		if err != nil {
			return "", err
		}
		for folder := start; ; folder = filepath.Dir(folder) {
			if dir := filepath.Join(folder, "logs", r.Run); runs.IsRunFolder(dir) {
				return dir, nil
			}
			if folder == filepath.Dir(folder) {
				break
			}
		}
		return "", fmt.Errorf("found no run folder %s: %w; set LOCKSTEP_LOGS to the logs folder that the notebook used", r.Run, os.ErrNotExist)
	}
}
