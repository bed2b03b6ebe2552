package usage

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"lockstep/pkg/internal/safeopen"
	"lockstep/pkg/internal/wholefile"
	"lockstep/pkg/runs"
)

func headerLine() string {
	names := []string{timeColumn, secondsColumn, hostColumn, epochColumn}
	return strings.Join(append(names, Columns()...), ",")
}

// format returns s as a row of the file with its line end.
func (s Sample) format() string {
	number := func(v float64) string {
		const digits = 6
		return strconv.FormatFloat(v, 'g', digits, 64)
	}
	epoch := ""
	if s.Epoch > 0 {
		epoch = strconv.Itoa(s.Epoch)
	}
	cells := []string{fmt.Sprintf("%.3f", float64(s.Time.UnixMilli())/1e3), number(s.Seconds), cleanHost(s.Host), epoch}
	for _, v := range s.Values() {
		if math.IsNaN(v) {
			cells = append(cells, "")
		} else {
			cells = append(cells, number(v))
		}
	}
	return strings.Join(cells, ",") + "\n"
}

// cleanHost replaces characters of a host's name that would end its cell.
func cleanHost(name string) string {
	return strings.Map(func(r rune) rune {
		if r == ',' || r == '"' || r < ' ' {
			return '_'
		}
		return r
	}, name)
}

// parseRow parses a row of the file. names are the names of its columns; unknown columns are
// ignored.
func parseRow(text string, names []string) (Sample, error) {
	s := NewSample()
	cells := strings.Split(text, ",")
	if len(cells) != len(names) {
		return s, fmt.Errorf("expected %d cells, got %d", len(names), len(cells))
	}
	known := measuredColumns()
	var at, epoch float64 // unix seconds; number
	for i, name := range names {
		var value *float64
		switch k := slices.IndexFunc(known, func(c usageColumn) bool { return c.name == name }); {
		case name == hostColumn:
			s.Host = cells[i]
		case name == timeColumn:
			value = &at
		case name == secondsColumn:
			value = &s.Seconds
		case name == epochColumn:
			value = &epoch
		case k >= 0:
			value = known[k].value(&s)
		}
		if value == nil || cells[i] == "" {
			continue
		}
		v, err := strconv.ParseFloat(cells[i], 64)
		if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
			return s, fmt.Errorf("column %s: expected a number, got %.40q", name, cells[i])
		}
		*value = v
	}
	s.Time, s.Epoch = time.UnixMilli(int64(math.Round(at*1e3))), int(epoch)
	if !(at > 0 && s.Seconds > 0) {
		return s, fmt.Errorf("columns %s and %s: expected positive numbers, got %.80q", timeColumn, secondsColumn, text)
	}
	return s, nil
}

// Writer appends samples to usage-<rank>.csv.
type Writer struct{ f *os.File }

// Create opens usage-<rank>.csv in the run folder dir, which must exist. In a resumed run, it
// removes a last row that was torn by a kill and appends.
func Create(dir string, rank int) (*Writer, error) {
	path := filepath.Join(dir, FileName(rank))
	if _, err := os.Lstat(path); err == nil { // refuse links out of the folder
		f, err := safeopen.Open(dir, path)
		if err == nil {
			err = f.Close()
		}
		if err != nil {
			return nil, fmt.Errorf("record usage: %w", err)
		}
	}
	if err := wholefile.BreakHardLinks(path); err != nil { // a snapshot with hard links stays as it is
		return nil, fmt.Errorf("record usage: %w", err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("record usage: %w", err)
	}
	if err := repairTornFile(f); err != nil {
		return nil, errors.Join(fmt.Errorf("record usage in %s: %w", path, err), f.Close())
	}
	return &Writer{f}, nil
}

// repairTornFile removes a torn last line from f, and writes the header if no line remains.
func repairTornFile(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	const longestRow = 1 << 12
	from := max(0, info.Size()-longestRow)
	tail := make([]byte, info.Size()-from)
	if _, err := f.ReadAt(tail, from); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	complete := from + int64(bytes.LastIndexByte(tail, '\n')+1)
	if err := f.Truncate(complete); err != nil || complete > 0 {
		return err
	}
	_, err = f.WriteString(headerLine() + "\n")
	return err
}

// Append appends a row to the file in one call, so that a kill tears at most the last row.
func (w *Writer) Append(s Sample) error {
	if _, err := w.f.WriteString(s.format()); err != nil {
		return fmt.Errorf("record usage: %w", err)
	}
	return nil
}

// Close closes the file.
func (w *Writer) Close() error { return w.f.Close() }

// maxUsageFileBytes limits the size of a file, which is read into memory. A run of a week has about 5 MB.
const maxUsageFileBytes = 256 << 20

// Ranks returns the ranks with a file usage-<rank>.csv in the run folder dir, in ascending order.
func Ranks(dir string) ([]int, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("read usage: %w", err)
	}
	var ranks []int
	for _, e := range entries {
		if rank, ok := rankFromFileName(e.Name()); ok {
			ranks = append(ranks, rank)
		}
	}
	slices.Sort(ranks)
	return ranks, nil
}

// Read reads the files usage-<rank>.csv of the run folder dir into one Record per rank, in order.
// Without files, it returns no records and no error. It returns a problem for each row or file that
// it cannot use, but not for a last row that is still being written.
func Read(dir string) ([]Record, []runs.Problem, error) {
	ranks, err := Ranks(dir)
	if err != nil {
		return nil, nil, err
	}
	var records []Record
	var problems []runs.Problem
	for _, rank := range ranks {
		path := filepath.Join(dir, FileName(rank))
		text, err := safeopen.ReadFile(dir, path, maxUsageFileBytes)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			problems = append(problems, runs.Problem{File: path, Reason: err.Error()})
			continue
		}
		r := Record{Rank: rank}
		var some []runs.Problem
		r.Samples, some = parseSamples(string(text), path)
		records, problems = append(records, r), append(problems, some...)
	}
	return records, problems, nil
}

// rankFromFileName returns the rank in the file name usage-<rank>.csv. ok is false for other names.
func rankFromFileName(name string) (rank int, ok bool) {
	text, _ := strings.CutPrefix(name, "usage-")
	text, _ = strings.CutSuffix(text, ".csv")
	rank, err := strconv.Atoi(text)
	return rank, err == nil && rank >= 0 && FileName(rank) == name
}

func parseSamples(text, path string) (samples []Sample, problems []runs.Problem) {
	var names []string
	number := 0
	for line := range strings.Lines(text) {
		number++
		row, complete := strings.CutSuffix(line, "\n")
		row = strings.TrimSuffix(row, "\r")
		if !complete || row == "" { // being written, or torn by a kill
			continue
		}
		if names == nil {
			if names = strings.Split(row, ","); !slices.Contains(names, timeColumn) || !slices.Contains(names, secondsColumn) {
				return nil, []runs.Problem{{File: path, Line: number, Reason: fmt.Sprintf("expected the header %s, got %.80q; no row of this file is used", headerLine(), row)}}
			}
			continue
		}
		s, err := parseRow(row, names)
		if err != nil {
			problems = append(problems, runs.Problem{File: path, Line: number, Reason: err.Error()})
			continue
		}
		samples = append(samples, s)
	}
	return samples, problems
}
