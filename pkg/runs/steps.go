package runs

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"lockstep/pkg/internal/safeopen"
)

// StepWriter writes steps-<rank>.jsonl. Each rank has its own.
type StepWriter struct {
	mu    sync.Mutex
	f     *os.File
	b     *bufio.Writer
	epoch int
}

// ErrStepsInUse is wrapped by the error of OpenSteps if another process has the
// file open.
var ErrStepsInUse = errors.New("another process writes this file")

// OpenSteps opens steps-<rank>.jsonl in the run folder dir, which must exist,
// and writes worker as a line at once. A file that is there already (a resumed
// run) is appended to, after a torn last line was cut off.
//
// The file is locked as long as it is open: when rank 0 of a run was killed, its
// lock of the run is free a moment before the other ranks notice and end.
func OpenSteps(dir string, rank int, worker Worker) (*StepWriter, error) {
	path := stepsFile(dir, rank)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, unwritable("open", path, err)
	}
	held, err := lockFile(f)
	switch {
	case held:
		err = fmt.Errorf("open %s: %w; wait until it has ended", path, ErrStepsInUse)
	case err == nil || errors.Is(err, errors.ErrUnsupported):
		err = mend(path, "")
	}
	s := &StepWriter{f: f, b: bufio.NewWriterSize(f, 1<<15)}
	if err == nil {
		err = errors.Join(s.write(worker), s.Flush())
	}
	if err != nil {
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

// Flush writes to the file what is still in memory. The error is a *LostError if
// the file is gone.
func (s *StepWriter) Flush() error {
	if err := s.flush(); err != nil {
		return err
	}
	return CheckPlace(s.f)
}

func (s *StepWriter) flush() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.b.Flush(); err != nil {
		return fmt.Errorf("write %s: %w", s.f.Name(), err)
	}
	return nil
}

// Close flushes and closes the file.
func (s *StepWriter) Close() error { return errors.Join(s.flush(), s.f.Close()) }

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
	f, err := safeopen.Open(dir, path)
	if err != nil {
		return Worker{}, nil, nil, fmt.Errorf("read steps of rank %d: %w", rank, err)
	}
	worker, steps, problems, err := readSteps(f, path)
	return worker, steps, problems, errors.Join(err, f.Close())
}

func readSteps(r io.Reader, name string) (Worker, []Step, []Problem, error) {
	sr := &stepReader{lines: newLineReader(r, name)}
	var steps []Step
	for sr.next() {
		steps = append(superseded(steps, sr.step.Step), sr.step)
	}
	return sr.worker, steps, sr.lines.problems, sr.lines.err
}

// StepPart is what one process wrote to a steps file.
type StepPart struct {
	Worker Worker // the zero Worker where its line is missing
	Steps  []Step // in the order of the file
}

// ReadStepParts reads steps-<rank>.jsonl of the run folder dir as it was
// written: a part for every process, with steps that a later part repeats.
func ReadStepParts(dir string, rank int) ([]StepPart, []Problem, error) {
	path := stepsFile(dir, rank)
	f, err := safeopen.Open(dir, path)
	if err != nil {
		return nil, nil, fmt.Errorf("read steps of rank %d: %w", rank, err)
	}
	sr := &stepReader{lines: newLineReader(f, path)}
	var parts []StepPart
	for sr.next() {
		if len(parts) == 0 || sr.worker != parts[len(parts)-1].Worker {
			parts = append(parts, StepPart{Worker: sr.worker})
		}
		last := &parts[len(parts)-1]
		last.Steps = append(last.Steps, sr.step)
	}
	return parts, sr.lines.problems, errors.Join(sr.lines.err, f.Close())
}

// stepReader reads a steps file line by line.
type stepReader struct {
	lines  *lineReader
	form   bool   // only the form of the steps is looked at: step stays zero
	worker Worker // the last one so far
	begins bool   // the next step is the first of worker
	last   int    // step of the line before; unknownNumber where that cannot be read
	step   Step
}

// follows reports a step that does not follow the one before it. A worker's first
// step follows its checkpoint, and may repeat steps of the worker before it.
func (r *stepReader) follows(step int) {
	last := r.last
	switch {
	case last == unknownNumber:
	case step > last+1:
		r.lines.problem("step %d follows step %d: lines are missing", step, last)
	case r.begins && r.worker.FromStep > 0 && step != r.worker.FromStep+1:
		r.lines.problem("step %d follows a checkpoint of step %d: lines are missing", step, r.worker.FromStep)
	case !r.begins && step <= last:
		r.lines.problem("step %d stands here again, after step %d, without a resumption; the later line counts", step, last)
	}
	r.last, r.begins = step, false
}

// next reads up to the next step, and a worker's line on the way. A step that does
// not follow the one before it is a problem.
func (r *stepReader) next() bool {
	for r.lines.nextLine() {
		text := bytes.TrimRight(r.lines.raw, "\r\n")
		if len(text) == 0 {
			continue
		}
		if step, ok := stepForm(text); r.form && ok {
			r.follows(step)
			return true
		}
		w, s, err := parseStepLine(text)
		switch {
		case err != nil:
			r.lines.problem("%v", err)
			r.last = unknownNumber
		case w != nil:
			r.worker, r.begins = *w, true
		default:
			r.step = *s
			r.follows(s.Step)
			return true
		}
	}
	return false
}

// parseStepLine reads a line: either of the two is not nil.
func parseStepLine(text []byte) (*Worker, *Step, error) {
	// Only a Worker line has a world size, only a Step line has a step.
	var kind struct {
		WorldSize *int `json:"world_size"`
		Step      *int `json:"step"`
	}
	if err := json.Unmarshal(text, &kind); err != nil {
		return nil, nil, err
	}
	switch {
	case kind.WorldSize != nil:
		w := new(Worker)
		return w, nil, json.Unmarshal(text, w)
	case kind.Step != nil:
		s := new(Step)
		return nil, s, json.Unmarshal(text, s)
	}
	return nil, nil, errors.New("expected a worker (world_size) or a step (step)")
}

// ReadWorker reads of steps-<rank>.jsonl in the run folder dir who wrote it, as
// ReadSteps does, without parsing the steps: many runs are read at the speed of
// the disk. A line that is no whole JSON object is a problem.
func ReadWorker(dir string, rank int) (Worker, []Problem, error) {
	path := stepsFile(dir, rank)
	f, err := safeopen.Open(dir, path)
	if err != nil {
		return Worker{}, nil, fmt.Errorf("read steps of rank %d: %w", rank, err)
	}
	worker, problems, err := readWorker(f, path)
	return worker, problems, errors.Join(err, f.Close())
}

// LastStep returns the last step of steps-<rank>.jsonl in the run folder dir, 0 if
// it has none.
func LastStep(dir string, rank int) (int, error) {
	path := stepsFile(dir, rank)
	f, err := safeopen.Open(dir, path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read steps of rank %d: %w", rank, err)
	}
	sr := &stepReader{lines: newLineReader(f, path), form: true}
	for sr.next() {
	}
	return max(0, sr.last), errors.Join(sr.lines.err, f.Close())
}

func readWorker(r io.Reader, name string) (Worker, []Problem, error) {
	sr := &stepReader{lines: newLineReader(r, name), form: true}
	for sr.next() {
	}
	return sr.worker, sr.lines.problems, sr.lines.err
}

// stepForm returns the step of a line that looks like a whole step's: one object,
// not the beginning of one with another behind it, in the order of fields that
// StepWriter writes.
func stepForm(text []byte) (step int, ok bool) {
	rest, ok := bytes.CutPrefix(text, []byte(stepStart))
	if !ok || text[len(text)-1] != '}' || bytes.IndexByte(rest, '{') >= 0 {
		return 0, false
	}
	rest = bytes.TrimLeft(rest, "0123456789")
	if rest, ok = bytes.CutPrefix(rest, []byte(`,"step":`)); !ok {
		return 0, false
	}
	for i, c := range rest {
		if c < '0' || c > '9' {
			return step, i > 0
		}
		if step > maxStep {
			return 0, false
		}
		step = 10*step + int(c-'0')
	}
	return 0, false
}

// maxStep keeps a number of many digits from overflowing.
const maxStep = 1 << 50

// stepStart is how StepWriter begins a step's line, and no worker's: the first
// field of Step.
const stepStart = `{"epoch":`

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
