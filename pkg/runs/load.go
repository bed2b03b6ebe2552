package runs

import (
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

// loadFile has a row per epoch; see Load.
const loadFile = "load.csv"

const loadHeader = "epoch,seconds,cores,own_cpu_seconds,other_cpu_seconds,steal_cpu_seconds"

// Load is how busy the machine of rank 0 was while an epoch was trained. It is a
// row of load.csv, which is absent where the system does not tell.
type Load struct {
	Epoch        int     // from 1
	Seconds      float64 // of time that was looked at: of training, without validation
	Cores        int     // of the machine
	OwnSeconds   float64 // CPU time of the run's own processes
	OtherSeconds float64 // CPU time of all other processes; it may be negative by rounding
	StealSeconds float64 // CPU time that the hypervisor gave to other virtual machines
}

// The load at which a run counts as disturbed.
const (
	disturbingCores = 0.1  // used by other processes, on average
	disturbingSteal = 0.02 // of all CPU time
	// Over less time than this the kernel's ticks of 10 ms make too much of a
	// difference for a verdict.
	shortestLoad = 0.5
)

// LoadSummary is the load of several epochs of a run.
type LoadSummary struct {
	Epochs        int     `json:"epochs"`
	OtherCores    float64 `json:"other_cores"`    // that other processes used, on average
	StealFraction float64 `json:"steal_fraction"` // of all CPU time
	// Disturbed reports whether other processes used more than 10 % of one core,
	// or the hypervisor took more than 2 % of all CPU time.
	Disturbed bool `json:"disturbed"`
}

// String says what disturbed the run, or that nothing did.
func (s LoadSummary) String() string {
	text := fmt.Sprintf("other processes used %.2f cores", s.OtherCores)
	if s.StealFraction > disturbingSteal {
		text += fmt.Sprintf(", and the hypervisor took %.1f %% of the CPU time", 100*s.StealFraction)
	}
	return text
}

// SummarizeLoad sums up the loads of the epochs that count. ok is false if too
// little of their time is known for a verdict.
func SummarizeLoad(loads []Load, counts func(epoch int) bool) (s LoadSummary, ok bool) {
	var seconds, all, other, steal float64
	for _, l := range loads {
		if !counts(l.Epoch) {
			continue
		}
		s.Epochs++
		seconds += l.Seconds
		all += l.Seconds * float64(l.Cores)
		other += l.OtherSeconds
		steal += l.StealSeconds
	}
	if !(seconds >= shortestLoad) || all == 0 {
		return LoadSummary{}, false
	}
	s.OtherCores, s.StealFraction = max(0, other/seconds), max(0, steal/all)
	s.Disturbed = s.OtherCores > disturbingCores || s.StealFraction > disturbingSteal
	return s, true
}

// summary is the load of the epochs that count by default: of a program that is
// not ours all, else all but the first, which also pays for start-up.
func (i Info) summary(loads []Load) *LoadSummary {
	s, ok := SummarizeLoad(loads, func(epoch int) bool { return epoch > 1 || len(i.Command) > 0 })
	if !ok {
		return nil
	}
	return &s
}

// Load appends a row to load.csv. It does not wait for the disk: a row that a
// crash loses is one that is not known.
func (w *Writer) Load(l Load) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.lock.Check(); err != nil {
		return err
	}
	path := w.path(loadFile)
	if _, err := os.Stat(path); w.loads && errors.Is(err, fs.ErrNotExist) {
		return &LostError{path}
	}
	if err := mend(path, loadHeader); err != nil {
		return fmt.Errorf("write load of epoch %d: %w", l.Epoch, err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return fmt.Errorf("write load of epoch %d: %w", l.Epoch, err)
	}
	row := fmt.Sprintf("%d,%.6g,%d,%.6g,%.6g,%.6g\n", l.Epoch, l.Seconds, l.Cores, l.OwnSeconds, l.OtherSeconds, l.StealSeconds)
	_, err = f.WriteString(row)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write load of epoch %d: %w", l.Epoch, err)
	}
	w.loads = true
	return nil
}

// readLoads reads load.csv of dir, nothing where there is none. Of an epoch that
// was trained again the later row counts.
func readLoads(dir string) ([]Load, []Problem, error) {
	path := filepath.Join(dir, loadFile)
	f, err := safeopen.Open(dir, path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if isRefused(err) {
		return nil, []Problem{refusal(path, err)}, nil
	}
	if err != nil {
		return nil, nil, err
	}
	var loads []Load
	lines := newLineReader(f, path)
	for lines.next() {
		if lines.line == 1 {
			if lines.text != loadHeader {
				lines.problem("expected the header %s, got %.80q; no row of this file is used", loadHeader, lines.text)
				break
			}
			continue
		}
		l, err := parseLoad(lines.text)
		if err != nil {
			lines.problem("%v", err)
			continue
		}
		loads = slices.DeleteFunc(loads, func(before Load) bool { return before.Epoch == l.Epoch })
		loads = append(loads, l)
	}
	return loads, lines.problems, errors.Join(lines.err, f.Close())
}

func parseLoad(text string) (l Load, err error) {
	cells := strings.Split(text, ",")
	if want := strings.Count(loadHeader, ",") + 1; len(cells) != want {
		return l, fmt.Errorf("expected %d cells, got %d", want, len(cells))
	}
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
