// Package logread reads logs that training left, our own run folders and
// other programs' files alike, into [runs.Run].
//
// [Read] walks a path. A folder that holds run.json is a run of ours. A file
// is recognised by its content, by the table in kinds; which run it is (worker
// count, series) comes from its name where the content does not say. Files of
// no known kind are left alone. What is of a known kind but cannot be used is
// reported as a [runs.Problem] with its file and line: nothing is guessed in
// silence.
//
// [Tidy] gives what was read as one table, a row a measured value.
//
// Kinds read: the CSV logs of the U-Net scaling study (log_<N>.csv of native
// data parallelism, log_hvd_<N>.csv of Horovod; see study.go).
package logread

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"lockstep/pkg/runs"
)

// headBytes is how much of a file a recogniser sees.
const headBytes = 512

// kind is a kind of foreign log: a file that matches is read into one run.
// Problems of what was read are in the run.
type kind struct {
	name    string
	matches func(path string, head []byte) bool
	read    func(path string, r io.Reader) (runs.Run, error)
}

// kinds are the foreign logs that are known; the first that matches reads.
func kinds() []kind {
	return []kind{
		{name: "study CSV", matches: isStudy, read: readStudy},
	}
}

// errNoRun is what a kind returns when the file holds no run; why is in the
// run's problems.
var errNoRun = errors.New("no run")

// Read reads every run in and under path, a folder or one file, in natural
// order of their paths (log_2.csv before log_10.csv). The problems are those
// of all runs together with those of files that gave no run. An error means
// that path could not be read at all; runs that are damaged are problems.
func Read(path string) ([]runs.Run, []runs.Problem, error) {
	var found []runs.Run
	problems, err := each(path, func(run runs.Run) error {
		found = append(found, run)
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	return found, problems, nil
}

// each hands over the runs in and under path, one at a time; it ends at the
// first error of use, which it returns. The problems are as Read's.
func each(path string, use func(runs.Run) error) ([]runs.Problem, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("read logs: %w", err)
	}
	w := &walk{use: use}
	if info.IsDir() {
		err = w.folder(path)
	} else {
		err = w.named(path)
	}
	if err != nil {
		return nil, fmt.Errorf("read logs in %s: %w", path, err)
	}
	return w.problems, nil
}

// walk hands over the runs that it meets.
type walk struct {
	use      func(runs.Run) error
	problems []runs.Problem
}

func (w *walk) add(run runs.Run) error {
	w.problems = append(w.problems, run.Problems...)
	return w.use(run)
}

// folder reads dir, or where it is no run of ours, what lies in it.
func (w *walk) folder(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	holds := func(name string) bool {
		return slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == name })
	}
	if holds("run.json") || holds("epochs.csv") { // the latter alone: runs.Read says what is wrong
		run, err := runs.Read(dir)
		if err != nil {
			w.problems = append(w.problems, runs.Problem{File: dir, Reason: err.Error()})
			return nil
		}
		return w.add(run)
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return runs.NaturalCompare(a.Name(), b.Name()) })
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		switch {
		case strings.HasPrefix(e.Name(), "."):
		case e.IsDir():
			err = w.folder(path)
		case e.Type().IsRegular():
			_, err = w.file(path)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// named reads a file that the caller named: it must be of a known kind. The
// file run.json or epochs.csv of a run stands for its folder.
func (w *walk) named(path string) error {
	if base := filepath.Base(path); base == "run.json" || base == "epochs.csv" {
		return w.folder(filepath.Dir(path))
	}
	known, err := w.file(path)
	if err == nil && !known {
		var names []string
		for _, k := range kinds() {
			names = append(names, k.name)
		}
		err = fmt.Errorf("the file is of no known kind; expected a run folder or: %s", strings.Join(names, ", "))
	}
	return err
}

// file reads a file if it is of a known kind.
func (w *walk) file(path string) (known bool, err error) {
	f, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	head := make([]byte, headBytes)
	n, err := io.ReadFull(f, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return false, err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return false, err
	}
	for _, k := range kinds() {
		if !k.matches(path, head[:n]) {
			continue
		}
		run, err := k.read(path, f)
		if errors.Is(err, errNoRun) {
			w.problems = append(w.problems, run.Problems...)
			return true, nil
		}
		if err != nil {
			return true, fmt.Errorf("%s: %w", k.name, err)
		}
		return true, w.add(run)
	}
	return false, nil
}
