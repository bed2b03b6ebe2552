package course

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"lockstep/pkg/course/internal/ipynb"
	"lockstep/pkg/internal/clean"
	"lockstep/pkg/internal/english"
)

// Grade is the result of one task of one student.
type Grade struct {
	Student string
	Task    string // "" if the submission could not be read
	Points  float64
	ByHand  float64 // points that a person still has to give
	Reason  string
}

// GradeOptions are the options of Grades.
type GradeOptions struct {
	// Release is the folder of the released notebooks. Grading takes from it the cells that students
	// must not edit, whatever a submission contains.
	Release string
	// Tests is a folder of task files that add to the shipped ones or replace them, with the answers
	// and references that the release does not contain. It may be empty.
	Tests string
	// Kernel is the path of the kernel that runs functions of students.
	Kernel string
	// CellTimeout limits each cell and each call of a student's function. 0 means one minute.
	CellTimeout time.Duration
}

// Grades grades submissions. For numbers and choices, it judges the notebook's stored outputs and the
// submitted runs, without executing cells. For functions, it runs the cell in a fresh kernel and compares
// the results with those of the task's reference. An unreadable submission has one Grade without a task.
func Grades(ctx context.Context, submissions []string, o GradeOptions) ([]Grade, error) {
	tasks, err := ReadTasks(o.Tests)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(o.Release); err != nil {
		return nil, fmt.Errorf("grade: find the released notebooks: %w", err)
	}
	if o.CellTimeout <= 0 {
		o.CellTimeout = time.Minute
	}
	g := &grader{options: o, tasks: tasks, calls: map[string]*functionCalls{}}
	for _, path := range submissions {
		if err := g.gradeSubmission(ctx, path); err != nil {
			if ctx.Err() != nil {
				return nil, err
			}
			name := strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
			g.grades = append(g.grades, &Grade{Student: name, Reason: err.Error()})
		}
	}
	g.reportSharedRuns()
	all := make([]Grade, len(g.grades))
	for i, grade := range g.grades {
		all[i] = *grade
	}
	return all, nil
}

type grader struct {
	options GradeOptions
	tasks   Tasks
	grades  []*Grade
	used    []usedRun
	calls   map[string]*functionCalls // of the functions, by task
}

// usedRun is a run that counts for a grade.
type usedRun struct {
	grade  *Grade
	sha256 string
}

func (g *grader) gradeSubmission(ctx context.Context, path string) error {
	dir, err := os.MkdirTemp("", "lockstep-submission-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // a remaining temporary folder does no harm
	m, err := unpackSubmission(path, dir)
	if err != nil {
		return fmt.Errorf("read submission %s: %w", path, err)
	}
	nb, err := ipynb.Read(filepath.Join(dir, m.Notebook))
	if err != nil {
		return fmt.Errorf("read submission %s: %w", path, err)
	}
	release, err := ipynb.Read(filepath.Join(g.options.Release, m.Notebook))
	if err != nil {
		return fmt.Errorf("grade %s: find the released notebook: %w", path, err)
	}
	own := g.tasks.of(notebookName(m.Notebook))
	for _, c := range release.Cells {
		if c.Grading != nil && c.Grading.Grade && !slices.ContainsFunc(own, func(t *Task) bool { return t.GradeID() == c.Grading.ID }) {
			return fmt.Errorf("grade %s: no task for the cell %s of the released notebook: name the folder of its task file with --tests", path, c.Grading.ID)
		}
	}
	locate := func(r RunReference) (string, error) {
		run := filepath.Join(dir, "runs", r.Run)
		if _, err := os.Stat(run); err != nil || !filepath.IsLocal(r.Run) {
			return "", fmt.Errorf("the run %q of the answer is not in the submission: run lockstep course submit again", clean.EscapeText(r.Run))
		}
		return run, nil
	}
	for _, t := range own {
		grade := &Grade{Student: m.Student, Task: t.ID}
		g.grades = append(g.grades, grade)
		if err := g.gradeTask(ctx, t, grade, nb, release, locate); err != nil {
			if ctx.Err() != nil {
				return err
			}
			grade.Points = 0
			grade.Reason, _, _ = strings.Cut(err.Error(), "\n"+t.hintAdvice(0)) // the hint is for students
		}
		if edited := describeEditedCell(nb, release, t.GradeID()); edited != "" && t.Kind != KindText {
			grade.Reason += "; " + edited
		}
	}
	return nil
}

// gradeTask grades one task. If it returns an error, the task gets 0 points, and the error is the reason.
func (g *grader) gradeTask(ctx context.Context, t *Task, grade *Grade, nb, release *ipynb.Notebook, locate func(RunReference) (string, error)) error {
	switch t.Kind {
	case KindText:
		if !t.isTextWritten(nb) {
			return errors.New("no text")
		}
		grade.ByHand, grade.Reason = t.Points, "by hand, "+t.formatPoints()
		return nil
	case KindCode:
		if err := g.gradeFunction(ctx, t, nb, release); err != nil {
			return err
		}
		grade.Points, grade.Reason = t.Points, "right for "+english.FormatCount(len(g.calls[t.ID].sources), "random input")
		return nil
	}
	a, notes, err := t.checkStoredAnswer(ctx, nb, locate)
	if err != nil {
		return err
	}
	grade.Points, grade.Reason = t.Points, "right"
	if len(a.Runs) > 0 {
		grade.Reason += ", computed again from " + english.FormatCount(len(a.Runs), "run")
	}
	grade.Reason = strings.Join(append([]string{grade.Reason}, notes...), "; ")
	for _, r := range a.Runs {
		g.used = append(g.used, usedRun{grade, r.SHA256})
	}
	return nil
}

// describeEditedCell describes how a cell that students must not edit differs from the release, or
// returns "" if it does not differ.
func describeEditedCell(nb, release *ipynb.Notebook, id string) string {
	want, got := cellsByGradeID(release, id), cellsByGradeID(nb, id)
	switch {
	case len(want) == 0 || len(got) == 0:
		return "" // the grade's reason says so
	case len(got) > 1:
		return fmt.Sprintf("%d cells are named %s", len(got), id)
	case strings.TrimSpace(got[0].Source) != strings.TrimSpace(want[0].Source):
		return "the check cell " + id + " was edited; its answer was judged all the same"
	}
	return ""
}

// reportSharedRuns finds runs that several students submitted, and appends them to the reasons of
// the grades.
func (g *grader) reportSharedRuns() {
	students := map[string][]string{} // by the hash of a run
	for _, u := range g.used {
		if !slices.Contains(students[u.sha256], u.grade.Student) {
			students[u.sha256] = append(students[u.sha256], u.grade.Student)
		}
	}
	reported := map[*Grade]bool{}
	for _, u := range g.used {
		others := slices.DeleteFunc(slices.Clone(students[u.sha256]), func(s string) bool { return s == u.grade.Student })
		if len(others) > 0 && !reported[u.grade] {
			reported[u.grade] = true
			u.grade.Reason += "; the same run was handed in by " + english.JoinAnd(others)
		}
	}
}

// WriteGrades writes grades as CSV: student, task, points, by_hand, reason.
func WriteGrades(w io.Writer, grades []Grade) error {
	c := clean.NewCSVWriter(w)
	if err := c.Write([]string{"student", "task", "points", "by_hand", "reason"}); err != nil {
		return err
	}
	for _, g := range grades {
		row := []string{g.Student, g.Task, formatPoints(g.Points), formatPoints(g.ByHand), strings.ReplaceAll(g.Reason, "\n", " ")}
		if err := c.Write(row); err != nil {
			return err
		}
	}
	c.Flush()
	return c.Error()
}

func formatPoints(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }
