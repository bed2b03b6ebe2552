package runs

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

// Tail follows a run folder that is still being written. Its method Read reads only what was
// appended since the last call, and Run returns the run so far: as the function Read does, except
// that an incomplete last line is no problem, but is read once it is complete.
//
//	tail := runs.NewTail("logs/demo/ddp-n2-s1")
//	changed, err := tail.Read()
//	run := tail.Run()
//
// It must not be used by several goroutines at once.
type Tail struct {
	dir         string
	stat        fs.FileInfo // of run.json
	info        Info
	epochLines  *tailLines
	rows        *epochReader
	epochs      []Epoch
	loads       []Load // as read after the last row of epochs.csv
	classes     []ClassScores
	rowProblems []Problem          // of loads and classes
	steps       map[int]*stepsTail // by rank
	read        int64              // bytes of run.json read
	// refused contains the problems of files that must not be opened, by path.
	refused map[string]Problem
}

// NewTail returns a Tail of the run folder dir. It reads nothing yet.
func NewTail(dir string) *Tail {
	return &Tail{dir: dir, epochLines: &tailLines{growing: newGrowingFileIn(dir, filepath.Join(dir, epochsFile))}, steps: map[int]*stepsTail{}, refused: map[string]Problem{}}
}

type stepsTail struct {
	file *tailLines
	rows *stepReader
}

// Read reads what was appended since the last call, and reports whether the run has changed. After
// an error, for example because there is no run.json yet, Read may be called again.
func (t *Tail) Read() (changed bool, err error) {
	changed, err = t.readInfo()
	if err != nil {
		return false, err
	}
	newEpochs, err := t.readEpochs()
	if err != nil {
		return false, fmt.Errorf("follow run %s: %w", t.dir, err)
	}
	newSteps, err := t.readSteps()
	if err != nil {
		return false, fmt.Errorf("follow run %s: %w", t.dir, err)
	}
	return changed || newEpochs || newSteps, nil
}

// readInfo reads run.json if it was replaced or the run's status may have changed. It reports
// whether the content has changed.
func (t *Tail) readInfo() (bool, error) {
	stat, err := os.Stat(filepath.Join(t.dir, infoFile))
	same := err == nil && t.stat != nil && os.SameFile(t.stat, stat) && stat.Size() == t.stat.Size() && stat.ModTime().Equal(t.stat.ModTime())
	if same && t.info.Status != StatusRunning && t.info.Status != StatusKilled {
		return false, nil
	}
	info, err := readCurrentInfo(t.dir) // the lock may change when run.json does not
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

// readEpochs reads the rows appended to epochs.csv, load.csv and classes.csv. It reports whether
// anything has changed.
func (t *Tail) readEpochs() (bool, error) {
	path := filepath.Join(t.dir, epochsFile)
	text, anew, changed, err := t.nextLines(t.epochLines, path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // the run may have no epoch yet
		return false, err
	}
	if anew || t.rows == nil {
		t.rows, t.epochs = &epochReader{lines: newLineReader(nil, path)}, nil
	}
	if len(text) > 0 {
		t.rows.lines.r = bufio.NewReader(bytes.NewReader(text))
		t.epochs = t.rows.appendRows(t.epochs)
	}
	if anew || len(text) > 0 {
		if t.loads, t.rowProblems, err = readLoads(t.dir); err != nil {
			return false, err
		}
		classes, problems, err := readClasses(t.dir)
		if err != nil {
			return false, err
		}
		t.classes, t.rowProblems = classes, append(t.rowProblems, problems...)
	}
	return changed || anew || len(text) > 0, nil
}

// nextLines returns the lines appended to the file at path; see tailLines.next. If the file must not be
// opened, it returns none and adds the file to t.refused; changed reports whether t.refused has changed.
func (t *Tail) nextLines(lines *tailLines, path string) (text []byte, restarted, changed bool, err error) {
	text, restarted, err = lines.next()
	was, existed := t.refused[path]
	delete(t.refused, path)
	if !isRefusedFile(err) {
		return text, restarted, existed, err
	}
	now := newRefusedProblem(path, err)
	t.refused[path] = now
	return nil, false, now != was, nil
}

// readSteps reads the lines appended to the steps files. changed reports whether there are any, or
// whether the set of files has changed.
func (t *Tail) readSteps() (changed bool, err error) {
	ranks, err := Ranks(t.dir)
	if err != nil {
		return false, err
	}
	for rank := range t.steps {
		if !slices.Contains(ranks, rank) {
			delete(t.steps, rank)
			delete(t.refused, stepsPath(t.dir, rank))
			changed = true
		}
	}
	for _, rank := range ranks {
		path := stepsPath(t.dir, rank)
		s := t.steps[rank]
		if s == nil {
			s = &stepsTail{file: &tailLines{growing: newGrowingFileIn(t.dir, path)}}
			t.steps[rank] = s
		}
		text, anew, refused, err := t.nextLines(s.file, path)
		if err != nil {
			return changed, err
		}
		if anew || s.rows == nil {
			s.rows = &stepReader{lines: newLineReader(nil, path)}
		}
		if len(text) > 0 {
			s.rows.lines.r = bufio.NewReader(bytes.NewReader(text))
			for s.rows.next() { // Run needs only the workers and the problems
			}
		}
		changed = changed || refused || anew || len(text) > 0
	}
	return changed, nil
}

// Run returns the run so far. The Tail does not change it afterwards.
func (t *Tail) Run() Run {
	run := Run{Dir: t.dir, File: filepath.Join(t.dir, epochsFile), Kind: "run folder", Info: t.info, Epochs: slices.Clone(t.epochs), WallSeconds: t.info.WallSeconds}
	if p, ok := t.refused[run.File]; ok {
		run.Problems = append(run.Problems, p)
	} else if t.epochLines.growing.info == nil {
		run.Problems = append(run.Problems, Problem{File: run.File, Reason: "file is missing"})
	}
	if t.rows != nil {
		run.Problems = append(run.Problems, t.rows.lines.problems...)
		run.Problems = append(run.Problems, run.findMissingRows()...)
	}
	run.Loads, run.Classes = slices.Clone(t.loads), slices.Clone(t.classes)
	run.Problems = append(run.Problems, t.rowProblems...)
	for _, rank := range slices.Sorted(maps.Keys(t.steps)) {
		s := t.steps[rank]
		if p, ok := t.refused[stepsPath(t.dir, rank)]; ok {
			run.Problems = append(run.Problems, p)
			continue
		}
		run.Problems = append(run.Problems, s.rows.lines.problems...)
		if n := len(s.rows.workers); n > 0 {
			run.Workers = append(run.Workers, s.rows.workers[n-1])
			run.Starts = append(run.Starts, s.rows.workers...)
		}
	}
	return run
}

// BytesRead returns the number of bytes read so far; see [GrowingFile.BytesRead].
func (t *Tail) BytesRead() int64 {
	n := t.read + t.epochLines.growing.BytesRead()
	for _, s := range t.steps {
		n += s.file.growing.BytesRead()
	}
	return n
}

// tailLines returns the complete lines that were appended to a file, and keeps an incomplete one
// until the rest is appended.
type tailLines struct {
	growing *GrowingFile
	rest    []byte
}

// next returns the lines completed since the last call. restarted reports that the file was
// replaced or rewritten, so that the lines returned before are no longer valid.
func (l *tailLines) next() (text []byte, restarted bool, err error) {
	a, err := l.growing.Open()
	if a == nil || err != nil {
		return nil, false, err
	}
	if a.Restarted {
		l.rest = nil
	}
	more, err := io.ReadAll(a)
	if err = errors.Join(err, a.Close()); err != nil {
		return nil, a.Restarted, err
	}
	all := append(l.rest, more...)
	i := bytes.LastIndexByte(all, '\n') + 1
	l.rest = bytes.Clone(all[i:])
	return all[:i], a.Restarted, nil
}
