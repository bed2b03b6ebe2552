package course

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"

	"lockstep/pkg/course/internal/ipynb"
	"lockstep/pkg/course/internal/kernelclient"
)

const randomCallCount = 20

// functionCalls contains random calls of a function, as Go source, and the results of the reference
// function.
type functionCalls struct {
	sources []string
	results []string
}

func (g *grader) gradeFunction(ctx context.Context, t *Task, nb, release *ipynb.Notebook) error {
	expected, err := g.referenceCalls(ctx, t, release)
	if err != nil {
		return fmt.Errorf("run the reference: %w", err)
	}
	k, err := g.startAnswerKernel(ctx, t, release, nb)
	if err != nil {
		return err
	}
	defer k.close()
	for i, source := range expected.sources {
		got, err := k.execute(ctx, source)
		if err == nil {
			err = compareResults(got, expected.results[i])
		}
		if err != nil {
			return fmt.Errorf("%s: %w", source, err)
		}
	}
	return nil
}

// startAnswerKernel starts a kernel, runs the cells that the student's answer needs, and then the answer.
func (g *grader) startAnswerKernel(ctx context.Context, t *Task, release, nb *ipynb.Notebook) (*functionKernel, error) {
	cells := cellsByGradeID(nb, t.answerCellID())
	if len(cells) != 1 {
		return nil, fmt.Errorf("%d cells are named %s, want one", len(cells), t.answerCellID())
	}
	k, err := g.startKernel(ctx, t, release, nb)
	if err != nil {
		return nil, err
	}
	if _, err := k.execute(ctx, cells[0].Source); err != nil {
		k.close()
		return nil, fmt.Errorf("the cell %s fails: %w", t.answerCellID(), err)
	}
	return k, nil
}

// checkAnswerRunsAlone runs the answer to a task of KindCode without the notebook's other cells, as
// grading does, and returns an error if that fails.
func (t *Task) checkAnswerRunsAlone(ctx context.Context, nb *ipynb.Notebook, kernel string) error {
	g := &grader{options: GradeOptions{Kernel: kernel, CellTimeout: time.Minute}}
	k, err := g.startAnswerKernel(ctx, t, nb, nb)
	if err != nil {
		return fmt.Errorf("right in this notebook, but it is graded without your other cells: %w\nput helper functions, constants and imports into the cell %s", err, t.answerCellID())
	}
	k.close()
	return nil
}

// referenceCalls returns random calls of the task's function with the reference's results. All
// submissions get the same calls.
func (g *grader) referenceCalls(ctx context.Context, t *Task, release *ipynb.Notebook) (*functionCalls, error) {
	if c := g.calls[t.ID]; c != nil {
		return c, nil
	}
	if t.Function.Reference == "" {
		return nil, fmt.Errorf("task %s has none: name the folder of its task file with --tests", t.ID)
	}
	k, err := g.startKernel(ctx, t, release, nil)
	if err != nil {
		return nil, err
	}
	defer k.close()
	if _, err := k.execute(ctx, t.Function.Reference); err != nil {
		return nil, err
	}
	c := &functionCalls{}
	random := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())) // a student must not know the inputs
	for range randomCallCount {
		source, err := t.Function.randomCallSource(random)
		if err != nil {
			return nil, err
		}
		result, err := k.execute(ctx, source)
		if err == nil && result == "" {
			err = errors.New("no result")
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", source, err)
		}
		c.sources, c.results = append(c.sources, source), append(c.results, result)
	}
	g.calls[t.ID] = c
	return c, nil
}

type functionKernel struct {
	kernel  *kernelclient.Kernel
	dir     string
	timeout time.Duration // of each cell
}

// neededCells returns the cells with the grade_id id, which run before a function. If they are
// answers to another task, they come from the student's notebook nb (own is true), because the
// function may call them. Other cells come from the release. If nb is nil, all cells do.
func neededCells(id string, release, nb *ipynb.Notebook) (cells []*ipynb.Cell, own bool) {
	cells = cellsByGradeID(release, id)
	if nb == nil || !slices.ContainsFunc(cells, func(c *ipynb.Cell) bool { return c.Grading.Solution }) {
		return cells, false
	}
	return cellsByGradeID(nb, id), true
}

// startKernel starts a kernel in a temporary folder, and runs the cells that the task's function needs.
// The kernel cannot launch runs, because LOCKSTEP_BIN names no command.
func (g *grader) startKernel(ctx context.Context, t *Task, release, nb *ipynb.Notebook) (*functionKernel, error) {
	dir, err := os.MkdirTemp("", "lockstep-function-")
	if err != nil {
		return nil, err
	}
	k := &functionKernel{dir: dir, timeout: g.options.CellTimeout}
	env := append(os.Environ(), "LOCKSTEP_BIN="+filepath.Join(dir, "launches-are-refused"), "LOCKSTEP_LOGS="+filepath.Join(dir, "logs"))
	if k.kernel, err = kernelclient.Start(ctx, g.options.Kernel, dir, env); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	for _, id := range t.Function.Needs {
		cells, own := neededCells(id, release, nb)
		for _, c := range cells {
			if _, err := k.execute(ctx, c.Source); err != nil && !own { // the function may not need an answer that fails
				k.close()
				return nil, fmt.Errorf("the cell %s of the release fails: %w", id, err)
			}
		}
	}
	return k, nil
}

// execute runs code, and returns the value of its last expression as text.
func (k *functionKernel) execute(ctx context.Context, code string) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, k.timeout, fmt.Errorf("no result after %s", k.timeout))
	defer cancel()
	r, err := k.kernel.Execute(ctx, code)
	switch {
	case ctx.Err() != nil:
		return "", context.Cause(ctx)
	case err != nil:
		return "", err
	case r.Err != nil:
		return "", r.Err
	}
	return r.Value, nil
}

func (k *functionKernel) close() {
	_ = k.kernel.Close()    // the kernel may have ended already
	_ = os.RemoveAll(k.dir) // a remaining temporary folder does no harm
}
