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

	"lockstep/pkg/internal/plaintext"
	"lockstep/pkg/internal/safeopen"
)

// Read reads a run folder. Lines that cannot be used, such as one that a kill
// tore, are in Run.Problems with their number, and the rest is kept; of the
// steps, which may be many, only the form of a line is looked at, and ReadSteps
// says what is wrong inside one. A file that is a named pipe or a device, or a
// link out of the folder, is not opened and is a problem too. An error
// means that nothing can be said about the run: no run.json, or one that is
// damaged or newer than this program. A run that nobody runs any more, although
// run.json says so, has the status StatusKilled.
func Read(dir string) (Run, error) {
	run := Run{Dir: dir, File: filepath.Join(dir, epochsFile), Kind: "run folder"}
	info, err := readStatus(dir)
	if err != nil {
		return run, err
	}
	run.Info, run.WallSeconds = info, info.WallSeconds
	path := run.File
	switch f, err := safeopen.Open(dir, path); {
	case errors.Is(err, fs.ErrNotExist): // killed before the file was made
		run.Problems = append(run.Problems, Problem{File: path, Reason: "file is missing"})
	case isRefused(err):
		run.Problems = append(run.Problems, refusal(path, err))
	case err != nil:
		return run, fmt.Errorf("read run %s: %w", dir, err)
	default:
		epochs, problems, err := readEpochs(f, path)
		if err = errors.Join(err, f.Close()); err != nil {
			return run, fmt.Errorf("read run %s: %w", dir, err)
		}
		run.Epochs = epochs
		run.Problems = append(run.Problems, problems...)
		run.Problems = append(run.Problems, run.missingRows()...)
	}
	loads, problems, err := readLoads(dir)
	if err != nil {
		return run, fmt.Errorf("read run %s: %w", dir, err)
	}
	run.Loads, run.Problems = loads, append(run.Problems, problems...)
	found, err := Ranks(dir)
	if err != nil {
		return run, fmt.Errorf("read run %s: %w", dir, err)
	}
	for _, rank := range found {
		worker, problems, err := ReadWorker(dir, rank)
		if isRefused(err) {
			run.Problems = append(run.Problems, refusal(stepsFile(dir, rank), err))
			continue
		}
		if err != nil {
			return run, fmt.Errorf("read run %s: %w", dir, err)
		}
		run.Problems = append(run.Problems, problems...)
		if worker.WorldSize > 0 { // else killed before its first line was whole
			run.Workers = append(run.Workers, worker)
		}
	}
	return run, nil
}

// isRefused reports whether err is about a file that is not opened because of
// what it is, such as a named pipe.
func isRefused(err error) bool {
	var refused *safeopen.RefusedError
	return errors.As(err, &refused)
}

// refusal returns the problem with a file for which isRefused(err).
func refusal(path string, err error) Problem {
	var refused *safeopen.RefusedError
	errors.As(err, &refused)
	return Problem{File: path, Reason: "it is not read: " + refused.Reason}
}

const (
	// maxInfo bounds run.json, which is held in memory.
	maxInfo = 64 << 20
	// maxWorkers bounds the world size of a run: readers loop over the ranks.
	maxWorkers = 1 << 20
)

// readStatus reads run.json of dir. The status of a run that has not ended is
// derived from its lock.
func readStatus(dir string) (Info, error) {
	info, err := readInfo(dir)
	if err != nil || info.Status != StatusRunning {
		return info, err
	}
	_, alive, err := OwnerOf(dir)
	if alive || err != nil { // who may not query the lock believes run.json
		return info, nil
	}
	// Its owner may have ended it between the two looks: run.json comes before the release.
	if info, err = readInfo(dir); err == nil && info.Status == StatusRunning {
		info.Status = StatusKilled
	}
	return info, err
}

// missingRows returns a problem if the run is done and its config has more epochs
// than the last row: then the end of epochs.csv is missing.
func (r Run) missingRows() []Problem {
	epochs, _ := r.Info.Config["epochs"].(float64) // a foreign program's run has none
	last := 0
	if len(r.Epochs) > 0 {
		last = r.Epochs[len(r.Epochs)-1].Epoch
	}
	if r.Info.Status != StatusDone || float64(last) >= epochs {
		return nil
	}
	return []Problem{{File: r.File, Reason: fmt.Sprintf("the rows end with epoch %d, but the run is done with %.0f: rows are missing", last, epochs)}}
}

// readInfo reads run.json of dir.
func readInfo(dir string) (Info, error) {
	var info Info
	path := filepath.Join(dir, infoFile)
	text, err := safeopen.ReadFile(dir, path, maxInfo)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if _, e := os.Stat(filepath.Join(dir, epochsFile)); e == nil {
			return info, fmt.Errorf("read run %s: epochs.csv is there, but run.json is missing, so nothing says which run it is; put run.json back, or delete the folder", dir)
		}
		return info, fmt.Errorf("read run %s: it is not a run folder: %w", dir, err)
	case err != nil:
		return info, fmt.Errorf("read run %s: %w", dir, err)
	}
	if text, err = plaintext.Decode(text); err != nil {
		return info, fmt.Errorf("read %s: %w", path, err)
	}
	if kept := bytes.TrimRight(text, "\x00"); len(kept) > 0 { // a power cut may leave NUL bytes
		text = kept
	}
	// The version first: a newer schema may have changed any other field.
	var version struct {
		Schema int `json:"schema"`
	}
	err = json.Unmarshal(text, &version)
	if err == nil && version.Schema > SchemaVersion {
		return info, fmt.Errorf("read run %s: run.json has schema %d, this program reads up to %d; use a newer lockstep", dir, version.Schema, SchemaVersion)
	}
	if err == nil && version.Schema < 1 {
		return info, fmt.Errorf("read run %s: run.json has no schema version, want \"schema\": %d: it is another program's or damaged; name the folder of a run, or put run.json back from a copy", dir, SchemaVersion)
	}
	if err == nil {
		err = json.Unmarshal(text, &info)
	}
	if err != nil {
		return info, fmt.Errorf("read %s:%d: %w; it is damaged: put it back from a copy, or delete the folder and train again", path, lineOf(text, err), err)
	}
	if info.Workers < 0 || info.Workers > maxWorkers {
		return info, fmt.Errorf("read %s: workers is %d, want 0 to %d", path, info.Workers, maxWorkers)
	}
	return info, nil
}

// lineOf is the line of text in which encoding/json met err.
func lineOf(text []byte, err error) int {
	offset := int64(len(text))
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	if errors.As(err, &syntax) {
		offset = syntax.Offset
	} else if errors.As(err, &kind) {
		offset = kind.Offset
	}
	return 1 + strings.Count(string(text[:min(offset, int64(len(text)))]), "\n")
}

// Find lists the run folders (those that hold run.json) in and under root, in
// natural order: unet-n2-s1 before unet-n10-s1.
func Find(root string) ([]string, error) {
	var found []string
	var walk func(dir string) error
	walk = func(dir string) error {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == infoFile }) {
			found = append(found, dir)
			return nil // a run holds no other
		}
		for _, e := range entries {
			if e.IsDir() && !strings.HasPrefix(e.Name(), ".") {
				if err := walk(filepath.Join(dir, e.Name())); err != nil {
					return err
				}
			}
		}
		return nil
	}
	if err := walk(root); err != nil {
		return nil, fmt.Errorf("find runs: %w", err)
	}
	slices.SortFunc(found, NaturalCompare)
	return found, nil
}

// NaturalCompare orders texts as people number them: digits as numbers, so
// that log_2 comes before log_10. It returns a negative number, 0 or a
// positive one, as strings.Compare does.
func NaturalCompare(a, b string) int {
	x, y := a, b
	for x != "" && y != "" {
		m, n := digits(x), digits(y)
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

// digits counts those at the start of s.
func digits(s string) int {
	n := 0
	for n < len(s) && '0' <= s[n] && s[n] <= '9' {
		n++
	}
	return n
}
