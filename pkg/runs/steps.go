package runs

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"

	"lockstep/pkg/internal/filelock"
	"lockstep/pkg/internal/safeopen"
)

// StepWriter writes steps-<rank>.jsonl, the steps of one rank.
type StepWriter struct {
	mu    sync.Mutex
	f     *os.File
	b     *bufio.Writer
	epoch int
}

// ErrStepsInUse is wrapped by the error of OpenSteps if another process has the file open.
var ErrStepsInUse = errors.New("file is in use by another process")

// OpenSteps opens steps-<rank>.jsonl in the run folder dir, which must exist, and writes worker as
// a line at once. In a resumed run, it removes a torn last line of the file and then appends.
//
// The file is locked while it is open. The run's lock does not suffice: after a kill of rank 0, the
// run is unlocked although the other ranks may still write for a moment.
func OpenSteps(dir string, rank int, worker Worker) (*StepWriter, error) {
	path := stepsPath(dir, rank)
	f, held, err := openAndLock(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, filelock.Lock)
	if f == nil {
		return nil, wrapWriteError("open", path, err)
	}
	switch {
	case held:
		err = fmt.Errorf("open %s: %w; wait until that process has ended", path, ErrStepsInUse)
	case err == nil || errors.Is(err, errors.ErrUnsupported):
		err = repairFile(path, "")
	}
	s := &StepWriter{f: f, b: bufio.NewWriterSize(f, 1<<15)}
	if err == nil {
		err = errors.Join(s.writeJSONLine(worker), s.Flush())
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return s, nil
}

func stepsPath(dir string, rank int) string {
	return filepath.Join(dir, "steps-"+strconv.Itoa(rank)+".jsonl")
}

// AppendStep appends a step to a buffer, which the first step of the next epoch, Flush and Close
// write to the file.
func (s *StepWriter) AppendStep(step Step) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if step.Epoch != s.epoch {
		s.epoch = step.Epoch
		if err := s.b.Flush(); err != nil {
			return fmt.Errorf("write %s: %w", s.f.Name(), err)
		}
	}
	line, ok := step.appendJSON(s.b.AvailableBuffer())
	if !ok {
		return s.writeJSONLine(step) // which knows a loss that is not finite, and describes the error for times
	}
	if _, err := s.b.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("write %s: %w", s.f.Name(), err)
	}
	return nil
}

// appendJSON appends s to b in the encoding of json.Marshal, but takes a quarter of the time, which
// matters because it is called for each training step. ok is false if a value is not finite; the
// result is then incomplete.
func (s Step) appendJSON(b []byte) (_ []byte, ok bool) {
	integer := func(name string, v int64) { b = strconv.AppendInt(append(b, name...), v, 10) }
	integer(`{"epoch":`, int64(s.Epoch))
	integer(`,"step":`, int64(s.Step))
	integer(`,"samples":`, int64(s.Samples))
	ok = true
	float := func(name string, v float64) {
		b = appendJSONFloat(append(b, name...), v)
		ok = ok && !math.IsNaN(v) && !math.IsInf(v, 0)
	}
	float(`,"data_seconds":`, s.Data)
	float(`,"forward_seconds":`, s.Forward)
	float(`,"backward_seconds":`, s.Backward)
	float(`,"wait_seconds":`, s.Wait)
	float(`,"all_reduce_seconds":`, s.AllReduce)
	float(`,"optimizer_seconds":`, s.Optimizer)
	float(`,"until_collective_seconds":`, s.UntilCollective)
	if s.Staleness != 0 {
		integer(`,"staleness":`, int64(s.Staleness))
	}
	if s.Sent != 0 {
		integer(`,"sent_bytes":`, s.Sent)
	}
	if s.Dropped {
		b = append(b, `,"dropped":true`...)
	}
	float(`,"loss":`, s.Loss)
	return append(b, '}'), ok
}

// appendJSONFloat appends v to b as json.Marshal encodes it: as ECMAScript does, with an exponent
// only below 1e-6 or from 1e21.
func appendJSONFloat(b []byte, v float64) []byte {
	size := math.Abs(v)
	if size == 0 || size >= 1e-6 && size < 1e21 {
		return strconv.AppendFloat(b, v, 'f', -1, 64)
	}
	b = strconv.AppendFloat(b, v, 'e', -1, 64)
	if n := len(b); b[n-4] == 'e' && b[n-2] == '0' { // 1e-09 is 1e-9
		b[n-2] = b[n-1]
		b = b[:n-1]
	}
	return b
}

// Flush writes the buffered steps to the file. The error is a *LostError if the file was deleted,
// moved or replaced.
func (s *StepWriter) Flush() error {
	if err := s.flush(); err != nil {
		return err
	}
	return CheckNotLost(s.f)
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

func (s *StepWriter) writeJSONLine(v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode line of %s: %w", s.f.Name(), err)
	}
	if _, err := s.b.Write(append(text, '\n')); err != nil {
		return fmt.Errorf("write %s: %w", s.f.Name(), err)
	}
	return nil
}

// ReadSteps reads steps-<rank>.jsonl of the run folder dir. It returns the worker that wrote the
// file (in a resumed run, the last one), its steps in order, and a problem for each unusable line.
// A resumed run repeats the steps after its checkpoint. Of several steps with the same number,
// ReadSteps returns the last.
func ReadSteps(dir string, rank int) (Worker, []Step, []Problem, error) {
	path := stepsPath(dir, rank)
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
		steps = append(removeStepsFrom(steps, sr.step.Step), sr.step)
	}
	return sr.worker, steps, sr.lines.problems, sr.lines.err
}

// StepPart is the part of a steps file that one process wrote.
type StepPart struct {
	Worker Worker // the zero Worker if its line is missing
	Steps  []Step // in the order of the file
}

// ReadStepParts reads steps-<rank>.jsonl of the run folder dir. It returns one part for each
// process that wrote the file, including steps that a later part repeats, and unusable lines.
func ReadStepParts(dir string, rank int) ([]StepPart, []Problem, error) {
	path := stepsPath(dir, rank)
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

type stepReader struct {
	lines       *lineReader
	numbersOnly bool // read only the numbers of the steps, not their values: step stays zero

	worker        Worker   // of the last worker line so far
	workers       []Worker // of all worker lines so far that have a world size
	firstOfWorker bool     // whether the next step is the first of worker
	last          int      // step of the previous line; unknownEpochOrStep if that line cannot be read
	step          Step
}

// reportStepGap adds a problem if step does not follow the previous line's step. A worker's first step
// comes after its checkpoint, and may repeat steps of the previous worker.
func (r *stepReader) reportStepGap(step int) {
	last := r.last
	switch {
	case last == unknownEpochOrStep:
	case step > last+1:
		r.lines.addProblem("step %d follows step %d: lines are missing", step, last)
	case r.firstOfWorker && r.worker.FromStep > 0 && step != r.worker.FromStep+1:
		r.lines.addProblem("step %d follows a checkpoint of step %d: lines are missing", step, r.worker.FromStep)
	case !r.firstOfWorker && step <= last:
		r.lines.addProblem("duplicate step %d after step %d, although the run was not resumed in between; the later line counts", step, last)
	}
	r.last, r.firstOfWorker = step, false
}

// next reads up to the next step, including the worker lines before it, and reports whether there
// is one. A step that does not follow the previous one is a problem.
func (r *stepReader) next() bool {
	for r.lines.nextLine() {
		text := bytes.TrimRight(r.lines.raw, "\r\n")
		if len(text) == 0 {
			continue
		}
		if step, ok := scanStepNumber(text); r.numbersOnly && ok {
			r.reportStepGap(step)
			return true
		}
		w, s, err := parseStepLine(text)
		switch {
		case err != nil:
			r.lines.addProblem("%v", err)
			r.last = unknownEpochOrStep
		case w != nil:
			r.worker, r.firstOfWorker = *w, true
			if w.WorldSize > 0 {
				r.workers = append(r.workers, *w)
			}
		default:
			r.step = *s
			r.reportStepGap(s.Step)
			return true
		}
	}
	return false
}

// parseStepLine parses a line of a steps file. Without an error, one of the results is not nil.
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
		err := json.Unmarshal(text, w)
		return w, nil, err
	case kind.Step != nil:
		s := new(Step)
		err := json.Unmarshal(text, s)
		if err == nil {
			err = s.checkTimes()
		}
		return nil, s, err
	}
	return nil, nil, errors.New("got neither a worker nor a step: want a field world_size or a field step")
}

// removeInvalidTimes returns an error for a negative time. UntilCollective may be negative: asynchronous
// strategies and pipelines begin an exchange before the step.
func (s *Step) checkTimes() error {
	for _, x := range []struct {
		name string
		v    float64
	}{
		{"data_seconds", s.Data},
		{"forward_seconds", s.Forward},
		{"backward_seconds", s.Backward},
		{"wait_seconds", s.Wait},
		{"all_reduce_seconds", s.AllReduce},
		{"optimizer_seconds", s.Optimizer},
	} {
		if x.v < 0 { // JSON has no NaN and no infinity
			return fmt.Errorf("step %d: got %s %g, which is no possible value; the step is not used", s.Step, x.name, x.v)
		}
	}
	return nil
}

// ReadWorkers returns the workers that wrote steps-<rank>.jsonl in the run folder dir: one, and one
// more for each resumption. It does not parse the steps, which is much faster. A line that is not a
// complete JSON object is a problem.
func ReadWorkers(dir string, rank int) ([]Worker, []Problem, error) {
	path := stepsPath(dir, rank)
	f, err := safeopen.Open(dir, path)
	if err != nil {
		return nil, nil, fmt.Errorf("read steps of rank %d: %w", rank, err)
	}
	workers, problems, err := readWorkers(f, path)
	return workers, problems, errors.Join(err, f.Close())
}

// LastStep returns the number of the last step in steps-<rank>.jsonl of the run folder dir, or 0.
func LastStep(dir string, rank int) (int, error) {
	path := stepsPath(dir, rank)
	f, err := safeopen.Open(dir, path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read steps of rank %d: %w", rank, err)
	}
	sr := &stepReader{lines: newLineReader(f, path), numbersOnly: true}
	for sr.next() {
	}
	return max(0, sr.last), errors.Join(sr.lines.err, f.Close())
}

func readWorkers(r io.Reader, name string) ([]Worker, []Problem, error) {
	sr := &stepReader{lines: newLineReader(r, name), numbersOnly: true}
	for sr.next() {
	}
	return sr.workers, sr.lines.problems, sr.lines.err
}

// scanStepNumber returns the number of the step in a line without parsing all of it. ok is false
// unless the line looks like one complete object of StepWriter: a kill may have joined two lines.
func scanStepNumber(text []byte) (step int, ok bool) {
	rest, ok := bytes.CutPrefix(text, []byte(stepLinePrefix))
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
		if step > maxStepNumber {
			return 0, false
		}
		step = 10*step + int(c-'0')
	}
	return 0, false
}

// maxStepNumber limits step numbers, so that a number of many digits does not overflow.
const maxStepNumber = 1 << 50

// stepLinePrefix is the beginning of each line that contains a step, but of no line that contains a
// worker.
const stepLinePrefix = `{"epoch":`

// removeStepsFrom removes the steps from number step on, which a resumed run repeats.
func removeStepsFrom(steps []Step, step int) []Step {
	i := len(steps)
	for i > 0 && steps[i-1].Step >= step {
		i--
	}
	return steps[:i]
}

// Ranks returns the ranks with a steps file in the run folder dir, in ascending order.
func Ranks(dir string) ([]int, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("list ranks: %w", err)
	}
	var found []int
	for _, e := range entries {
		if rank, ok := parseRankBetween(e.Name(), "steps-", ".jsonl"); ok {
			found = append(found, rank)
		}
	}
	slices.Sort(found)
	return found, nil
}
