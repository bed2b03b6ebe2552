package runs

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// StepWriter writes steps-<rank>.jsonl. Each rank has its own.
type StepWriter struct {
	mu    sync.Mutex
	f     *os.File
	b     *bufio.Writer
	epoch int
}

// OpenSteps opens steps-<rank>.jsonl in the run folder dir, which must exist,
// and writes worker as a line at once. A file that is there already (a resumed
// run) is appended to, after a torn last line was cut off.
func OpenSteps(dir string, rank int, worker Worker) (*StepWriter, error) {
	path := stepsFile(dir, rank)
	if err := mend(path, ""); err != nil {
		return nil, unwritable("open", path, err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return nil, unwritable("open", path, err)
	}
	s := &StepWriter{f: f, b: bufio.NewWriterSize(f, 1<<15)}
	if err := errors.Join(s.write(worker), s.Flush()); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return s, nil
}

func stepsFile(dir string, rank int) string {
	return filepath.Join(dir, "steps-"+strconv.Itoa(rank)+".jsonl")
}

// Step appends a step. It reaches the file at the latest with the first step
// of the next epoch, or by Flush.
func (s *StepWriter) Step(step Step) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if step.Epoch != s.epoch {
		s.epoch = step.Epoch
		if err := s.b.Flush(); err != nil {
			return fmt.Errorf("write %s: %w", s.f.Name(), err)
		}
	}
	return s.write(step)
}

// Flush writes to the file what is still in memory.
func (s *StepWriter) Flush() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.b.Flush(); err != nil {
		return fmt.Errorf("write %s: %w", s.f.Name(), err)
	}
	return nil
}

// Close flushes and closes the file.
func (s *StepWriter) Close() error { return errors.Join(s.Flush(), s.f.Close()) }

func (s *StepWriter) write(v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode line of %s: %w", s.f.Name(), err)
	}
	if _, err := s.b.Write(append(text, '\n')); err != nil {
		return fmt.Errorf("write %s: %w", s.f.Name(), err)
	}
	return nil
}

// ReadSteps reads steps-<rank>.jsonl of the run folder dir: the worker that
// wrote it (the last one, where the run was resumed), its steps in order, and
// the lines that could not be used. A resumed run repeats the steps after its
// checkpoint; those that count are the later ones.
func ReadSteps(dir string, rank int) (Worker, []Step, []Problem, error) {
	path := stepsFile(dir, rank)
	f, err := os.Open(path)
	if err != nil {
		return Worker{}, nil, nil, fmt.Errorf("read steps of rank %d: %w", rank, err)
	}
	worker, steps, problems, err := readSteps(f, path)
	return worker, steps, problems, errors.Join(err, f.Close())
}

func readSteps(r io.Reader, name string) (Worker, []Step, []Problem, error) {
	lines := newLineReader(r, name)
	var worker Worker
	var steps []Step
	for lines.next() {
		if lines.text == "" {
			continue
		}
		// Only a Worker line has a world size, only a Step line has a step.
		var kind struct {
			WorldSize *int `json:"world_size"`
			Step      *int `json:"step"`
		}
		text := []byte(lines.text)
		err := json.Unmarshal(text, &kind)
		switch {
		case err != nil:
		case kind.WorldSize != nil:
			var w Worker
			if err = json.Unmarshal(text, &w); err == nil {
				worker = w
			}
		case kind.Step != nil:
			var s Step
			if err = json.Unmarshal(text, &s); err == nil {
				steps = append(superseded(steps, s.Step), s)
			}
		default:
			err = errors.New("expected a worker (world_size) or a step (step)")
		}
		if err != nil {
			lines.problem("%v", err)
		}
	}
	return worker, steps, lines.problems, lines.err
}

// superseded removes what a resumed run did again: the step and those after it.
func superseded(steps []Step, step int) []Step {
	i := len(steps)
	for i > 0 && steps[i-1].Step >= step {
		i--
	}
	return steps[:i]
}

// Ranks lists the ranks that left a steps file in the run folder dir, in order.
func Ranks(dir string) ([]int, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("list ranks: %w", err)
	}
	var found []int
	for _, e := range entries {
		name, isSteps := strings.CutPrefix(e.Name(), "steps-")
		name, isLines := strings.CutSuffix(name, ".jsonl")
		rank, err := strconv.Atoi(name)
		// Only the spelling that OpenSteps uses: not steps-01.jsonl.
		if isSteps && isLines && err == nil && rank >= 0 && strconv.Itoa(rank) == name {
			found = append(found, rank)
		}
	}
	slices.Sort(found)
	return found, nil
}
