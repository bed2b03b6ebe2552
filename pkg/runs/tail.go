package runs

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// Tail follows a run folder that is still written: each Read takes only what
// was appended since the last one, and Run is the run so far, as Read of the
// package gives it, but for a last line that is not whole yet: it waits.
//
//	tail := runs.NewTail("logs/demo/ddp-n2-s1")
//	changed, err := tail.Read()
//	run := tail.Run()
//
// It is for one goroutine at a time.
type Tail struct {
	dir    string
	stat   fs.FileInfo // of run.json
	info   Info
	epochs *tailLines
	rows   *epochReader
	list   []Epoch
	loads  []Load    // as of the last row of epochs
	bad    []Problem // of loads
	steps  map[int]*tailSteps
	read   int64 // of run.json
	// refused has the problems of files that must not be opened, by their path.
	refused map[string]Problem
}

// NewTail makes a Tail of the run folder dir, of which nothing was read yet.
func NewTail(dir string) *Tail {
	return &Tail{dir: dir, epochs: &tailLines{growing: newGrowingIn(dir, filepath.Join(dir, epochsFile))}, steps: map[int]*tailSteps{}, refused: map[string]Problem{}}
}

type tailSteps struct {
	file *tailLines
	rows *stepReader
}

// Read reads what was appended and says whether anything changed. After an
// error, such as one of a folder that has no run.json yet, it may be called
// again.
func (t *Tail) Read() (changed bool, err error) {
	changed, err = t.readInfo()
	if err != nil {
		return false, err
	}
	grown, err := t.readEpochs()
	if err != nil {
		return false, fmt.Errorf("follow run %s: %w", t.dir, err)
	}
	stepped, err := t.readSteps()
	if err != nil {
		return false, fmt.Errorf("follow run %s: %w", t.dir, err)
	}
	return changed || grown || stepped, nil
}

// readInfo reads run.json, which is replaced as a whole, when it was.
func (t *Tail) readInfo() (bool, error) {
	stat, err := os.Stat(filepath.Join(t.dir, infoFile))
	same := err == nil && t.stat != nil && os.SameFile(t.stat, stat) && stat.Size() == t.stat.Size() && stat.ModTime().Equal(t.stat.ModTime())
	if same && t.info.Status != StatusRunning && t.info.Status != StatusKilled {
		return false, nil
	}
	info, err := readStatus(t.dir) // the lock changes without run.json
	if err != nil {
		return false, err
	}
	if same && info.Status == t.info.Status {
		return false, nil
	}
	t.info, t.stat = info, stat
	if stat != nil {
		t.read += stat.Size()
	}
	return true, nil
}

func (t *Tail) readEpochs() (bool, error) {
	path := filepath.Join(t.dir, epochsFile)
	text, anew, changed, err := t.next(t.epochs, path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // a run that has no epoch yet
		return false, err
	}
	if anew || t.rows == nil {
		t.rows, t.list = &epochReader{lines: newLineReader(nil, path)}, nil
	}
	if len(text) > 0 {
		t.rows.lines.r = bufio.NewReader(bytes.NewReader(text))
		t.list = t.rows.rest(t.list)
	}
	if anew || len(text) > 0 {
		if t.loads, t.bad, err = readLoads(t.dir); err != nil {
			return false, err
		}
	}
	return changed || anew || len(text) > 0, nil
}

// next gives what was appended to the file at path, as lines does. A file that
// must not be opened has no lines and is in t.refused; changed reports whether
// that is new.
func (t *Tail) next(lines *tailLines, path string) (text []byte, anew, changed bool, err error) {
	text, anew, err = lines.next()
	was, before := t.refused[path]
	delete(t.refused, path)
	if !isRefused(err) {
		return text, anew, before, err
	}
	now := refusal(path, err)
	t.refused[path] = now
	return nil, false, now != was, nil
}

func (t *Tail) readSteps() (changed bool, err error) {
	ranks, err := Ranks(t.dir)
	if err != nil {
		return false, err
	}
	for rank := range t.steps {
		if !slices.Contains(ranks, rank) {
			delete(t.steps, rank)
			delete(t.refused, stepsFile(t.dir, rank))
			changed = true
		}
	}
	for _, rank := range ranks {
		path := stepsFile(t.dir, rank)
		s := t.steps[rank]
		if s == nil {
			s = &tailSteps{file: &tailLines{growing: newGrowingIn(t.dir, path)}}
			t.steps[rank] = s
		}
		text, anew, refused, err := t.next(s.file, path)
		if err != nil {
			return changed, err
		}
		if anew || s.rows == nil {
			s.rows = &stepReader{lines: newLineReader(nil, path)}
		}
		if len(text) > 0 {
			s.rows.lines.r = bufio.NewReader(bytes.NewReader(text))
			for s.rows.next() { // only the worker and the problems count here
			}
		}
		changed = changed || refused || anew || len(text) > 0
	}
	return changed, nil
}

// Run is the run so far. The caller may keep it.
func (t *Tail) Run() Run {
	run := Run{Dir: t.dir, File: filepath.Join(t.dir, epochsFile), Kind: "run folder", Info: t.info, Epochs: slices.Clone(t.list), WallSeconds: t.info.WallSeconds}
	if p, ok := t.refused[run.File]; ok {
		run.Problems = append(run.Problems, p)
	} else if t.epochs.growing.info == nil {
		run.Problems = append(run.Problems, Problem{File: run.File, Reason: "file is missing"})
	}
	if t.rows != nil {
		run.Problems = append(run.Problems, t.rows.lines.problems...)
		run.Problems = append(run.Problems, run.missingRows()...)
	}
	run.Loads, run.Problems = slices.Clone(t.loads), append(run.Problems, t.bad...)
	var ranks []int
	for rank := range t.steps {
		ranks = append(ranks, rank)
	}
	slices.Sort(ranks)
	for _, rank := range ranks {
		s := t.steps[rank]
		if p, ok := t.refused[stepsFile(t.dir, rank)]; ok {
			run.Problems = append(run.Problems, p)
			continue
		}
		run.Problems = append(run.Problems, s.rows.lines.problems...)
		if s.rows.worker.WorldSize > 0 {
			run.Workers = append(run.Workers, s.rows.worker)
		}
	}
	return run
}

// BytesRead is how many bytes were read so far, as [Growing.BytesRead] counts
// them.
func (t *Tail) BytesRead() int64 {
	n := t.read + t.epochs.growing.BytesRead()
	for _, s := range t.steps {
		n += s.file.growing.BytesRead()
	}
	return n
}

// tailLines gives the whole lines that were appended to a file; half a line at
// the end waits for its rest.
type tailLines struct {
	growing *Growing
	rest    []byte
}

// next gives the lines that became whole since the last call; anew says that
// those before do not count any more.
func (l *tailLines) next() (text []byte, anew bool, err error) {
	a, err := l.growing.Open()
	if a == nil || err != nil {
		return nil, false, err
	}
	if a.Anew {
		l.rest = nil
	}
	more, err := io.ReadAll(a)
	if err = errors.Join(err, a.Close()); err != nil {
		return nil, a.Anew, err
	}
	all := append(l.rest, more...)
	i := bytes.LastIndexByte(all, '\n') + 1
	l.rest = bytes.Clone(all[i:])
	return all[:i], a.Anew, nil
}
