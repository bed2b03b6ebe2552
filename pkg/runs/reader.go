package runs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/internal/plaintext"
	"lockstep/pkg/internal/safeopen"
	"lockstep/pkg/runs/flight"
)

// Read reads a run folder. Lines that cannot be used, such as one torn by a kill, are in Run.Problems with
// their line number. Steps are not parsed, because there may be many: ReadSteps finds the faults in their
// lines. A file that is a named pipe, a device or a link out of the folder is a problem and not opened.
//
// Read returns an error if run.json is missing, damaged or newer than this program. A run
// with status running but without a living owner gets StatusKilled.
func Read(dir string) (Run, error) {
	run := Run{Dir: dir, File: filepath.Join(dir, epochsFile), Kind: "run folder"}
	info, err := readCurrentInfo(dir)
	if err != nil {
		return run, err
	}
	run.Info, run.WallSeconds = info, info.WallSeconds
	path := run.File
	switch f, err := safeopen.Open(dir, path); {
	case errors.Is(err, fs.ErrNotExist): // killed before the file was created
		run.Problems = append(run.Problems, Problem{File: path, Reason: "file is missing"})
	case isRefusedFile(err):
		run.Problems = append(run.Problems, newRefusedProblem(path, err))
	case err != nil:
		return run, fmt.Errorf("read run %s: %w", dir, err)
	default:
		epochs, problems, err := readEpochs(f, path)
		if err = errors.Join(err, f.Close()); err != nil {
			return run, fmt.Errorf("read run %s: %w", dir, err)
		}
		run.Epochs = epochs
		run.Problems = append(run.Problems, problems...)
		run.Problems = append(run.Problems, run.findMissingRows()...)
	}
	loads, problems, err := readLoads(dir)
	if err != nil {
		return run, fmt.Errorf("read run %s: %w", dir, err)
	}
	run.Loads, run.Problems = loads, append(run.Problems, problems...)
	classes, problems, err := readClasses(dir)
	if err != nil {
		return run, fmt.Errorf("read run %s: %w", dir, err)
	}
	run.Classes, run.Problems = classes, append(run.Problems, problems...)
	found, err := Ranks(dir)
	if err != nil {
		return run, fmt.Errorf("read run %s: %w", dir, err)
	}
	for _, rank := range found {
		workers, problems, err := ReadWorkers(dir, rank)
		if isRefusedFile(err) {
			run.Problems = append(run.Problems, newRefusedProblem(stepsPath(dir, rank), err))
			continue
		}
		if err != nil {
			return run, fmt.Errorf("read run %s: %w", dir, err)
		}
		run.Problems = append(run.Problems, problems...)
		if n := len(workers); n > 0 { // else killed before its first line was complete
			run.Workers = append(run.Workers, workers[n-1])
		}
		run.Starts = append(run.Starts, workers...)
	}
	run.Problems = append(run.Problems, run.explainCollectives()...)
	return run, nil
}

// explainCollectives returns a problem for each rank for which other ranks waited, according to the
// records of collective operations in the run folder, unless the run is done. In a canceled run, it
// ignores failed operations, which failed only because another rank ended a moment earlier.
func (r Run) explainCollectives() (all []Problem) {
	if r.Info.Status == StatusDone {
		return nil
	}
	entries, err := os.ReadDir(r.Dir)
	if err != nil {
		return nil
	}
	var records []flight.Record
	for _, e := range entries {
		if _, ok := parseRankBetween(e.Name(), "collectives-", ".jsonl"); !ok || len(records) == maxFlightRecords {
			continue
		}
		path := filepath.Join(r.Dir, e.Name())
		record, err := flight.ReadFile(r.Dir, e.Name())
		switch {
		case isRefusedFile(err):
			all = append(all, newRefusedProblem(path, err))
		case err != nil:
			all = append(all, Problem{File: path, Reason: err.Error()})
		case r.Info.Status == StatusCanceled && record.Error != "":
		default:
			records = append(records, record)
		}
	}
	places := map[int]flight.Place{}
	for _, w := range r.Workers {
		places[w.Rank] = flight.Place{Host: w.Host, PID: w.PID}
	}
	for _, text := range flight.Explain(records, places) {
		all = append(all, Problem{File: r.Dir, Reason: text})
	}
	return all
}

// maxFlightRecords limits the records of collective operations that are read.
const maxFlightRecords = 1024

// isRefusedFile reports whether a file was not opened because of its kind, such as a named pipe.
func isRefusedFile(err error) bool {
	_, refused := errors.AsType[*safeopen.RefusedError](err)
	return refused
}

func newRefusedProblem(path string, err error) Problem {
	refused, _ := errors.AsType[*safeopen.RefusedError](err)
	return Problem{File: path, Reason: "file is not read: " + refused.Reason}
}

const (
	// maxInfo limits the size of run.json in bytes, which is read into memory.
	maxInfo = 64 << 20
	// maxWorkers limits the world size, because readers loop over the ranks.
	maxWorkers = 1 << 20
)

// readCurrentInfo reads run.json of dir, and changes status running to StatusKilled if no process
// owns the run.
func readCurrentInfo(dir string) (Info, error) {
	info, err := ReadInfo(dir)
	if err != nil || info.Status != StatusRunning {
		return info, err
	}
	_, alive, err := OwnerOf(dir)
	if alive || err != nil { // without permission to query the lock, trust run.json
		return info, nil
	}
	// The owner writes run.json and then releases the lock, so it may have ended the run in between.
	if info, err = ReadInfo(dir); err == nil && info.Status == StatusRunning {
		info.Status = StatusKilled
	}
	return info, err
}

// findMissingRows returns a problem if the run is done but epochs.csv ends before the last epoch
// of its config.
func (r Run) findMissingRows() []Problem {
	epochs, _ := r.Info.Config["epochs"].(float64) // 0 for a run of another program
	last := 0
	if len(r.Epochs) > 0 {
		last = r.Epochs[len(r.Epochs)-1].Epoch
	}
	if r.Info.Status != StatusDone || float64(last) >= epochs {
		return nil
	}
	return []Problem{{File: r.File, Reason: fmt.Sprintf("last row is epoch %d, but the run is done with %.0f epochs: rows are missing", last, epochs)}}
}

// ReadInfo reads run.json of the run folder dir. It returns an error if the file is missing,
// damaged or newer than this program.
func ReadInfo(dir string) (Info, error) {
	var info Info
	path := filepath.Join(dir, infoFile)
	text, err := safeopen.ReadFile(dir, path, maxInfo)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if part := findRunRecordFile(dir); part != "" {
			return info, fmt.Errorf("read run %s: run.json is missing, although the folder contains %s; restore run.json from a copy, or delete the folder", dir, part)
		}
		if named := describeRunsBelow(dir); named != "" {
			return info, fmt.Errorf("read run %s: not a run folder; it contains %s: name one of them", dir, named)
		}
		return info, fmt.Errorf("read run %s: not a run folder: %w", dir, err)
	case err != nil:
		return info, fmt.Errorf("read run %s: %w", dir, err)
	}
	if text, err = plaintext.Decode(text); err != nil {
		return info, fmt.Errorf("read %s: %w", path, err)
	}
	if kept := bytes.TrimRight(text, "\x00"); len(kept) > 0 { // a power cut may leave NUL bytes
		text = kept
	}
	// Parse only the version first, because a newer schema may have changed other fields.
	var version struct {
		Schema int `json:"schema"`
	}
	err = json.Unmarshal(text, &version)
	if err == nil && version.Schema > SchemaVersion {
		return info, fmt.Errorf("read run %s: run.json has schema %d, but this program reads schemas up to %d; use a newer lockstep", dir, version.Schema, SchemaVersion)
	}
	if err == nil && version.Schema < 1 {
		return info, fmt.Errorf("read run %s: run.json has no schema version, want \"schema\": %d: the file is damaged or from another program; name a run folder, or restore run.json from a copy", dir, SchemaVersion)
	}
	if err == nil {
		err = json.Unmarshal(text, &info)
	}
	if err != nil {
		return info, fmt.Errorf("read %s:%d: %w; the file is damaged: restore it from a copy, or delete the folder and train again", path, findErrorLine(text, err), err)
	}
	if info.Workers < 0 || info.Workers > maxWorkers {
		return info, fmt.Errorf("read %s: got %d workers, want 0 to %d", path, info.Workers, maxWorkers)
	}
	return info, nil
}

// describeRunsBelow states how many run folders dir contains, as the folder of a study does, and
// names up to five of them. It returns "" if there are none.
func describeRunsBelow(dir string) string {
	paths, err := filepath.Glob(filepath.Join(dir, "*", infoFile))
	if err != nil || len(paths) == 0 {
		return ""
	}
	slices.SortFunc(paths, NaturalCompare)
	var names []string
	for _, path := range paths[:min(len(paths), 5)] {
		names = append(names, filepath.Base(filepath.Dir(path)))
	}
	if len(names) < len(paths) {
		names = append(names, "…")
	}
	return english.FormatCount(len(paths), "run") + " (" + strings.Join(names, ", ") + ")"
}

// findErrorLine returns the line of text, from 1, of encoding/json's error err.
func findErrorLine(text []byte, err error) int {
	offset := int64(len(text))
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		offset = syntax.Offset
	} else if kind, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		offset = kind.Offset
	}
	return 1 + strings.Count(string(text[:min(offset, int64(len(text)))]), "\n")
}

// Find returns the run folders in and below root, which are the folders with a run.json, in natural
// order: unet-n2-s1 before unet-n10-s1. It includes a link to a run folder unless it also finds the
// folder itself.
func Find(root string) ([]string, error) {
	var found, links []string
	var walk func(dir string) error
	walk = func(dir string) error {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == infoFile }) {
			found = append(found, dir)
			return nil // there are no runs inside a run folder
		}
		for _, e := range entries {
			path := filepath.Join(dir, e.Name())
			switch {
			case strings.HasPrefix(e.Name(), "."):
			case e.Type()&fs.ModeSymlink != 0:
				links = append(links, path)
			case e.IsDir():
				if err := walk(path); err != nil {
					return err
				}
			}
		}
		return nil
	}
	if err := walk(root); err != nil {
		return nil, fmt.Errorf("find runs: %w", err)
	}
	for _, link := range links {
		if _, err := os.Stat(filepath.Join(link, infoFile)); err != nil {
			continue
		}
		target, err := os.Stat(link)
		if err != nil {
			continue
		}
		isTarget := func(dir string) bool {
			info, err := os.Stat(dir)
			return err == nil && os.SameFile(info, target)
		}
		if !slices.ContainsFunc(found, isTarget) {
			found = append(found, link)
		}
	}
	slices.SortFunc(found, NaturalCompare)
	return found, nil
}

// NaturalCompare compares two strings with digits as numbers, so that log_2 comes before log_10.
// The result is negative if a comes before b, positive if a comes after b, and 0 if they are equal.
func NaturalCompare(a, b string) int {
	x, y := a, b
	for x != "" && y != "" {
		m, n := countDigits(x), countDigits(y)
		if m == 0 || n == 0 {
			if x[0] != y[0] {
				return int(x[0]) - int(y[0])
			}
			x, y = x[1:], y[1:]
			continue
		}
		p, q := strings.TrimLeft(x[:m], "0"), strings.TrimLeft(y[:n], "0")
		if len(p) != len(q) {
			return len(p) - len(q)
		}
		if c := strings.Compare(p, q); c != 0 {
			return c
		}
		x, y = x[m:], y[n:]
	}
	if c := len(x) - len(y); c != 0 {
		return c
	}
	return strings.Compare(a, b) // 01 and 1
}

func countDigits(s string) int {
	n := 0
	for n < len(s) && '0' <= s[n] && s[n] <= '9' {
		n++
	}
	return n
}
