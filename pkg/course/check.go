package course

import (
	"context"
	"fmt"
	"html"
	"os"
	"strings"
	"sync"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/notebook"
)

// TasksVariable is an environment variable that names a folder of task files. They add to the
// shipped tasks or replace them; see ReadTasks. If it is not set, Lockstep uses task files beside
// notebooks in the working directory in the same way.
const TasksVariable = "LOCKSTEP_COURSE_TASKS"

// Answer is a right answer. If it is the last value of a cell, it is displayed and stored in the
// notebook, where lockstep course grade finds it.
type Answer struct {
	Task     string
	Values   map[string]any
	Runs     []RunReference
	Attempts int      // checks of the task since the kernel started, including this one
	Notes    []string // remarks about the runs, such as disturbed ones
}

// checkAttempts is the package's only state. It is global because a check must be one call in a cell.
var checkAttempts struct {
	sync.Mutex
	of map[string]int
}

func countAttempt(task string) int {
	checkAttempts.Lock()
	defer checkAttempts.Unlock()
	if checkAttempts.of == nil {
		checkAttempts.of = map[string]int{}
	}
	checkAttempts.of[task]++
	return checkAttempts.of[task]
}

// Check judges the answer to a task, such as server/6, whose text names the keys of answer. Numbers are
// recomputed from the runs in studies: folders of runs, or names in the logs folder. A function is called
// with inputs.
//
// A wrong answer is an error that says what is wrong and what to do next, but not the right value
// (see Hint). Published and recorded runs are refused unless the task asks for them.
func Check(task string, answer map[string]any, studies ...string) (*Answer, error) {
	all, err := currentTasks()
	if err != nil {
		return nil, err
	}
	t, err := all.find(task)
	if err != nil {
		return nil, fmt.Errorf("check: %w", err)
	}
	a := &Answer{Task: t.ID, Values: answer, Attempts: countAttempt(t.ID)}
	if err := t.checkAnswer(notebook.Context(), a, studies); err != nil {
		if len(t.Hints) == 0 {
			return nil, fmt.Errorf("%s: %w", t.ID, err)
		}
		return nil, fmt.Errorf("%s: %w\n%s", t.ID, err, t.hintAdvice(0))
	}
	if t.Kind == KindCode {
		a.Values = map[string]any{"function": t.Function.Name} // a function has no JSON
	}
	return a, nil
}

func (t *Task) checkAnswer(ctx context.Context, a *Answer, studies []string) error {
	switch t.Kind {
	case KindText:
		return fmt.Errorf("the answer is text, which your teacher reads: write it in the cell %s", t.GradeID())
	case KindCode:
		return t.Function.checkCases(a.Values)
	}
	all, err := readRuns(ctx, studies)
	if err != nil {
		return err
	}
	e, err := t.collectEvidence(ctx, all)
	if err != nil {
		return err
	}
	if err := e.checkAnswerValues(ctx, a.Values); err != nil {
		return err
	}
	for _, r := range e.ownRuns() {
		reference, err := newRunReference(r.Dir)
		if err != nil {
			return err
		}
		a.Runs = append(a.Runs, reference)
	}
	if note := e.disturbedNote(); note != "" {
		a.Notes = append(a.Notes, note)
	}
	return nil
}

// Hint returns the n-th hint of a task, from 1.
func Hint(task string, n int) (string, error) {
	all, err := currentTasks()
	if err != nil {
		return "", err
	}
	t, err := all.find(task)
	if err != nil {
		return "", fmt.Errorf("hint: %w", err)
	}
	if t.Kind == KindText {
		return "", fmt.Errorf("hint: %s is a text, which your teacher reads; it has no hints", t.ID)
	}
	if n < 1 || n > len(t.Hints) {
		return "", fmt.Errorf("hint %d of %s: the task has %s, numbered from 1", n, t.ID, english.FormatCount(len(t.Hints), "hint"))
	}
	text := t.Hints[n-1]
	if n < len(t.Hints) {
		text += "\n" + t.hintAdvice(n)
	}
	return text, nil
}

func (t *Task) hintAdvice(n int) string {
	return fmt.Sprintf("course.Hint(%q, %d) shows a hint", t.ID, n+1)
}

// currentTasks returns the shipped tasks and the tasks in the folder that TasksVariable names. If
// the variable is not set, it uses the working directory.
func currentTasks() (Tasks, error) {
	if dir := os.Getenv(TasksVariable); dir != "" {
		return ReadTasks(dir)
	}
	return TasksBeside(".")
}

// String formats the answer for a terminal.
func (a *Answer) String() string {
	return strings.Join(append([]string{a.verdict()}, a.Notes...), "\n")
}

func (a *Answer) verdict() string {
	text := "right: " + a.Task
	if n := len(a.Runs); n > 0 {
		text += ", computed again from " + english.FormatCount(n, "run")
	}
	return text + " (" + english.FormatCount(a.Attempts, "attempt") + ")"
}

// HTML formats the answer for a cell.
func (a *Answer) HTML() string {
	var b strings.Builder
	fmt.Fprintf(&b, `<p style="border-left:4px solid #2a7;padding-left:8px">&#10003; %s</p>`, html.EscapeString(a.verdict()))
	for _, note := range a.Notes {
		fmt.Fprintf(&b, `<p style="border-left:4px solid #c80;padding-left:8px">%s</p>`, html.EscapeString(note))
	}
	return b.String()
}

// JSON returns the data that lockstep course grade reads from the cell's output.
func (a *Answer) JSON() map[string]any {
	references := make([]any, len(a.Runs))
	for i, r := range a.Runs {
		references[i] = map[string]any{"run": r.Run, "sha256": r.SHA256}
	}
	return map[string]any{"lockstep_answer": 1, "task": a.Task, "answer": a.Values, "runs": references, "attempts": a.Attempts}
}
