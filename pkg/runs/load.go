package runs

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"lockstep/pkg/internal/safeopen"
)

const loadFileName = "load.csv"

const loadFileHeader = "epoch,seconds,cores,own_cpu_seconds,other_cpu_seconds,steal_cpu_seconds"

// Load contains the CPU times of rank 0's machine during one epoch, a row of load.csv. Systems
// that do not report CPU times have no such file.
type Load struct {
	Epoch        int     // from 1
	Seconds      float64 // of the interval: training without validation
	Cores        int     // of the machine
	OwnSeconds   float64 // CPU time of the run's own processes
	OtherSeconds float64 // CPU time of all other processes; rounding may make it negative
	StealSeconds float64 // CPU time that the hypervisor gave to other virtual machines
}

// Limits of the load by other processes and the hypervisor. A run is disturbed if its load exceeds
// maxUndisturbedCores or maxUndisturbedStealFraction.
const (
	maxUndisturbedCores         = 0.1  // average number of cores used by other processes
	maxUndisturbedStealFraction = 0.02 // fraction of all CPU time that the hypervisor took
	// minLoadSeconds is the shortest time that is judged: the kernel's resolution is 10 ms.
	minLoadSeconds = 0.5
)

// LoadSummary is the average load over several epochs of a run.
type LoadSummary struct {
	Epochs        int     `json:"epochs"`
	OtherCores    float64 `json:"other_cores"`    // average number of cores used by other processes
	StealFraction float64 `json:"steal_fraction"` // fraction of all CPU time that the hypervisor took
	// Disturbed reports whether other processes used more than 10 % of one core, or the hypervisor
	// took more than 2 % of all CPU time.
	Disturbed bool `json:"disturbed"`
}

// String describes the load by other processes and, if it disturbed the run, by the hypervisor.
func (s LoadSummary) String() string {
	text := fmt.Sprintf("other processes used %.2f cores", s.OtherCores)
	if s.StealFraction > maxUndisturbedStealFraction {
		text += fmt.Sprintf(", and the hypervisor took %.1f %% of the CPU time", 100*s.StealFraction)
	}
	return text
}

// SummarizeLoad returns the average of the loads in the epochs that isCounted accepts. ok is false
// if their measured time is too short to judge.
func SummarizeLoad(loads []Load, isCounted func(epoch int) bool) (s LoadSummary, ok bool) {
	var seconds, all, other, steal float64
	for _, l := range loads {
		if !isCounted(l.Epoch) {
			continue
		}
		s.Epochs++
		seconds += l.Seconds
		all += l.Seconds * float64(l.Cores)
		other += l.OtherSeconds
		steal += l.StealSeconds
	}
	if !(seconds >= minLoadSeconds) || all == 0 {
		return LoadSummary{}, false
	}
	s.OtherCores, s.StealFraction = max(0, other/seconds), max(0, steal/all)
	s.Disturbed = s.OtherCores > maxUndisturbedCores || s.StealFraction > maxUndisturbedStealFraction
	return s, true
}

// summarizeLoad returns the average load of the run, or nil if unknown. It leaves out the first
// epoch, which includes start-up, except for other programs' runs, which have only one epoch.
func (i Info) summarizeLoad(loads []Load) *LoadSummary {
	s, ok := SummarizeLoad(loads, func(epoch int) bool { return epoch > 1 || len(i.Command) > 0 })
	if !ok {
		return nil
	}
	return &s
}

// AppendLoad appends a row to load.csv. It does not sync the file to disk: if a crash loses the
// row, only the load of that epoch is unknown.
func (w *Writer) AppendLoad(l Load) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	row := fmt.Sprintf("%d,%.6g,%d,%.6g,%.6g,%.6g\n", l.Epoch, l.Seconds, l.Cores, l.OwnSeconds, l.OtherSeconds, l.StealSeconds)
	if err := w.appendRows(loadFileName, loadFileHeader, []byte(row), false); err != nil {
		return fmt.Errorf("write load of epoch %d: %w", l.Epoch, err)
	}
	return nil
}

// appendRows appends rows to the CSV file name, which it creates with a header if necessary. If
// sync is true, it waits until they are on disk. The error is a *LostError if the file was deleted
// after earlier rows.
func (w *Writer) appendRows(name, header string, rows []byte, sync bool) error {
	if err := w.lock.Check(); err != nil {
		return err
	}
	path := w.path(name)
	if _, err := os.Stat(path); w.appended[name] && errors.Is(err, fs.ErrNotExist) {
		return &LostError{path}
	}
	if err := repairFile(path, header); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	_, err = f.Write(rows)
	if err == nil && sync {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	w.appended[name] = true
	return nil
}

// readLoads reads load.csv in dir, which need not exist. If an epoch has several rows, the last one
// counts.
func readLoads(dir string) (loads []Load, problems []Problem, err error) {
	problems, err = readCSVRows(dir, loadFileName, loadFileHeader, func(cells []string) error {
		l, err := parseLoad(cells)
		if err != nil {
			return err
		}
		loads = slices.DeleteFunc(loads, func(before Load) bool { return before.Epoch == l.Epoch })
		loads = append(loads, l)
		return nil
	})
	return loads, problems, err
}

// readCSVRows calls use for the cells of each row of the CSV file name in dir. An error of use is a
// problem, as are a torn row, another number of cells and another header, after which no row is
// used. A missing file has no rows.
func readCSVRows(dir, name, header string, use func(cells []string) error) ([]Problem, error) {
	path := filepath.Join(dir, name)
	f, err := safeopen.Open(dir, path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if isRefusedFile(err) {
		return []Problem{newRefusedProblem(path, err)}, nil
	}
	if err != nil {
		return nil, err
	}
	lines := newLineReader(f, path)
	for lines.next() {
		if lines.line == 1 {
			if lines.text != header {
				lines.addProblem("expected the header %s, got %.80q; no row of this file is used", header, lines.text)
				break
			}
			continue
		}
		cells, err := splitRow(lines.text, strings.Count(header, ",")+1)
		if err == nil {
			err = use(cells)
		}
		if err != nil {
			lines.addProblem("%v", err)
		}
	}
	return lines.problems, errors.Join(lines.err, f.Close())
}

func splitRow(text string, want int) (cells []string, err error) {
	if cells = strings.Split(text, ","); strings.Contains(text, `"`) { // such as the name of an image with a comma
		if cells, err = csv.NewReader(strings.NewReader(text)).Read(); err != nil {
			return nil, err
		}
	}
	if len(cells) != want {
		return nil, fmt.Errorf("expected %d cells, got %d", want, len(cells))
	}
	return cells, nil
}

func parseLoad(cells []string) (l Load, err error) {
	number := func(i int) float64 {
		v, e := strconv.ParseFloat(cells[i], 64)
		if e != nil && err == nil {
			err = fmt.Errorf("expected a number, got %.40q", cells[i])
		}
		return v
	}
	l = Load{
		Epoch: int(number(0)), Seconds: number(1), Cores: int(number(2)),
		OwnSeconds: number(3), OtherSeconds: number(4), StealSeconds: number(5),
	}
	return l, err
}
