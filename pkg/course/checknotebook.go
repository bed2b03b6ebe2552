package course

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"lockstep/pkg/course/internal/ipynb"
	"lockstep/pkg/course/internal/kernelclient"
)

// TaskState is the state of a task in a notebook.
type TaskState struct {
	Task   *Task
	Done   bool   // right, or a text that a person will read
	Reason string // what is missing, or remarks
}

// CheckOptions are the options of CheckNotebook.
type CheckOptions struct {
	// Kernel is the path of the kernel that executes the notebook's cells. If it is empty, no cell is
	// executed, and the outputs in the file are judged.
	Kernel string
	// CellTimeout limits each cell. 0 means 15 minutes.
	CellTimeout time.Duration
	// Executing is called before each cell with its number from 1, the number of cells, and its first line.
	Executing func(cell, cells int, line string)
}

// CheckNotebook returns the state of each task in the notebook at path, and leaves the file unchanged.
// It executes the cells in the notebook's folder, and goes on after a cell that fails.
func CheckNotebook(ctx context.Context, path string, all Tasks, o CheckOptions) ([]TaskState, error) {
	nb, err := ipynb.Read(path)
	if err != nil {
		return nil, fmt.Errorf("check: %w", err)
	}
	own := all.of(notebookName(path))
	if len(own) == 0 {
		return nil, fmt.Errorf("check %s: no tasks for a notebook of this name; keep the released notebook's name, or name the folder of its task file with --tasks", path)
	}
	if o.Kernel != "" {
		if err := executeCells(ctx, nb, filepath.Dir(path), o); err != nil {
			return nil, fmt.Errorf("check %s: %w", path, err)
		}
	}
	locate := newRunLocator(path)
	states := make([]TaskState, len(own))
	for i, t := range own {
		states[i] = t.notebookState(ctx, nb, locate)
		if t.Kind == KindCode && states[i].Done && o.Kernel != "" {
			if err := t.checkAnswerRunsAlone(ctx, nb, o.Kernel); err != nil {
				states[i] = TaskState{t, false, err.Error()}
			}
		}
	}
	return states, ctx.Err()
}

func (t *Task) notebookState(ctx context.Context, nb *ipynb.Notebook, locate func(RunReference) (string, error)) TaskState {
	if t.Kind == KindText {
		if t.isTextWritten(nb) {
			return TaskState{t, true, "by hand, " + t.formatPoints()}
		}
		return TaskState{t, false, "write your text in the cell " + t.GradeID()}
	}
	_, notes, err := t.checkStoredAnswer(ctx, nb, locate)
	if err != nil {
		reason := err.Error()
		if !strings.Contains(reason, "course.Hint(") {
			reason += "\n" + t.hintAdvice(0)
		}
		return TaskState{t, false, reason}
	}
	return TaskState{t, true, strings.Join(notes, "; ")}
}

// executeCells executes the code cells of nb in a fresh kernel in dir, and sets their outputs.
func executeCells(ctx context.Context, nb *ipynb.Notebook, dir string, o CheckOptions) error {
	if o.CellTimeout <= 0 {
		o.CellTimeout = 15 * time.Minute
	}
	k, err := kernelclient.Start(ctx, o.Kernel, dir, os.Environ())
	if err != nil {
		return err
	}
	defer func() { _ = k.Close() }() // the kernel may have ended already
	for i, c := range nb.Cells {
		c.ClearOutputs()
		if c.Type != ipynb.Code || strings.TrimSpace(c.Source) == "" {
			continue
		}
		if o.Executing != nil {
			line, _, _ := strings.Cut(strings.TrimSpace(c.Source), "\n")
			o.Executing(i+1, len(nb.Cells), line)
		}
		if err := executeCell(ctx, k, c, o.CellTimeout); err != nil {
			return fmt.Errorf("cell %d: %w", i+1, err)
		}
	}
	return nil
}

// executeCell executes a cell and sets its outputs. A cell that fails is no error.
func executeCell(ctx context.Context, k *kernelclient.Kernel, c *ipynb.Cell, timeout time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no result after %s: raise --timeout, or find out why the cell takes so long", timeout))
	defer cancel()
	r, err := k.Execute(ctx, c.Source)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return err
	}
	outputs := make([]map[string]any, len(r.Outputs))
	for i, text := range r.Outputs {
		if err := json.Unmarshal(text, &outputs[i]); err != nil {
			return fmt.Errorf("read an output of the kernel: %w", err)
		}
	}
	return c.SetOutputs(outputs, r.Count)
}
