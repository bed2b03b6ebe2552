package recordtest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/runs"
)

// CheckFormat reads text with format k and checks the properties that every
// reader must have: it terminates, its problems refer to existing lines, its
// epochs are consistent, and its result takes no more memory than is
// proportional to the length of the text. It returns the parts and the report.
func CheckFormat(t *testing.T, k record.Format, path string, text []byte) ([]*record.Part, *record.Report) {
	t.Helper()
	report := &record.Report{Path: path, Kind: k.Name}
	in := &record.Input{Path: path, Reader: bytes.NewReader(text), Size: int64(len(text)), Report: report}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	parts, err := k.Read(context.Background(), in)
	runtime.ReadMemStats(&after)
	if err != nil && len(parts) > 0 {
		t.Errorf("got both runs and the error %v", err)
	}
	// A reader may allocate its buffers (16 MiB) and up to 1000 bytes per byte
	// of text, which short lines need.
	if got := after.TotalAlloc - before.TotalAlloc; got > 16<<20+1000*uint64(len(text)) {
		t.Errorf("reading %d bytes allocated %d bytes", len(text), got)
	}
	lines := bytes.Count(text, []byte("\n")) + 1
	for _, p := range report.Unused {
		if p.Line < 0 || p.Line > lines || p.File != path || p.Reason == "" {
			t.Errorf("problem %v is beyond the end of the file, which has %d lines", p, lines)
		}
	}
	if len(report.Unused) > record.MaxUnused || len(report.Ignored) > record.MaxIgnored {
		t.Errorf("got %d problems and %d reasons for ignored lines, want at most %d and %d", len(report.Unused), len(report.Ignored), record.MaxUnused, record.MaxIgnored)
	}
	if report.LinesUsed < 0 || report.Lines > int64(lines) || report.LinesUsed > report.Lines {
		t.Errorf("report: got %d used lines of %d, but the file has %d lines", report.LinesUsed, report.Lines, lines)
	}
	kept := 0
	for _, p := range parts {
		p.Report = report
		p.Run.File, p.Run.Dir = path, path
		checkRun(t, p.Run, lines)
		kept += EstimateBytes(p.Run)
	}
	if kept > 1<<16+100*len(text) {
		t.Errorf("the runs take %d bytes of memory, too many for a file of %d bytes", kept, len(text))
	}
	return parts, report
}

// checkRun checks that the epochs, curves and worker count of a run are
// consistent. lines is the number of lines of the file.
func checkRun(t *testing.T, run runs.Run, lines int) {
	t.Helper()
	seen := map[int]bool{}
	for _, e := range run.Epochs {
		switch {
		case e.Epoch < 0 || e.Samples < 0:
			t.Errorf("epoch %+v: got a negative number", e)
		case e.Line > lines:
			t.Errorf("epoch %+v: the line is outside of the file, which has %d lines", e, lines)
		case seen[e.Epoch]:
			t.Errorf("duplicate epoch %+v", e)
		}
		seen[e.Epoch] = true
	}
	for _, c := range run.Curves {
		if len(c.Steps) != len(c.Values) || c.Times != nil && len(c.Times) != len(c.Steps) {
			t.Errorf("curve %s: got %d steps, %d values and %d times, want equal numbers", c.Name, len(c.Steps), len(c.Values), len(c.Times))
		}
	}
	if run.Info.Workers < 0 || run.Info.Workers > record.MaxWorkers {
		t.Errorf("got %d workers, want 0 to MaxWorkers", run.Info.Workers)
	}
}

// EstimateBytes returns an estimate of the memory that a run occupies, in
// bytes.
func EstimateBytes(run runs.Run) int {
	const epoch, span, trial, allReduce = 15 * 8, 10 * 8, 9 * 8, 3 * 8 // bytes of each struct
	n := len(run.Epochs)*epoch + len(run.Spans)*span + len(run.Trials)*trial + len(run.AllReduces)*allReduce
	for _, c := range run.Curves {
		n += 64 + len(c.Name) + 8*(cap(c.Steps)+cap(c.Values)+cap(c.Times))
	}
	for k := range run.Info.Config {
		n += 48 + len(k)
	}
	return n + len(run.Info.Error)
}

// AddSeeds adds each of the fixture files of package logread to the seed corpus
// of a fuzz target in three forms: unchanged, cut in half, and with Windows
// line endings.
func AddSeeds(f *testing.F, fixtures ...string) {
	f.Helper()
	for _, name := range fixtures {
		text, err := os.ReadFile(filepath.Join("..", "..", "testdata", "tree", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
		f.Add(text[:len(text)/2])
		f.Add(bytes.ReplaceAll(text, []byte("\n"), []byte("\r\n")))
	}
}

// NewSmallReader returns a reader of r whose Read returns at most n bytes.
func NewSmallReader(r io.Reader, n int) io.Reader { return &smallReader{r, n} }

// smallReader implements NewSmallReader.
type smallReader struct {
	r io.Reader
	n int
}

func (s *smallReader) Read(p []byte) (int, error) { return s.r.Read(p[:min(len(p), s.n)]) }

// FormatParts formats parts, their report and two counters of the caller as
// text, so that the results of two readings can be compared.
func FormatParts(parts []*record.Part, report *record.Report, counts [2]int64) string {
	var b strings.Builder
	var line []byte
	for _, p := range parts {
		for _, e := range p.Run.Epochs { // package fmt would take most of the time
			line = line[:0]
			for _, n := range []int{e.Epoch, e.Line, e.Samples, e.PaddingSamples} {
				line = append(strconv.AppendInt(line, int64(n), 10), ' ')
			}
			for _, v := range []float64{e.Seconds, e.SamplesPerSecond, e.TrainLoss, e.ValLoss, e.IoU, e.Dice, e.ValSeconds, e.LearningRate, e.Accuracy, e.ValAccuracy} {
				if v == v {
					line = strconv.AppendUint(line, math.Float64bits(v), 16)
				}
				line = append(line, ' ')
			}
			b.Write(append(line, '\n'))
		}
		run := p.Run
		run.Epochs = nil
		if run.Info.Test != nil {
			fmt.Fprintln(&b, *run.Info.Test)
			run.Info.Test = nil
		}
		fmt.Fprintln(&b, run)
	}
	r := *report
	r.Bytes = 0 // differs if the file is read in chunks
	fmt.Fprintln(&b, r, counts)
	return b.String()
}

// DescribeDifference describes the first difference between two texts that
// FormatParts returned.
func DescribeDifference(got, want string) string {
	a, b := strings.Fields(got), strings.Fields(want)
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return fmt.Sprintf("word %d of %d is %.80q, expected %.80q; %.300q", i, len(a), a[i], b[i], strings.Join(b[max(0, i-20):i], " "))
		}
	}
	return fmt.Sprintf("%d words, expected %d", len(a), len(b))
}

// Mutate makes up to 19 random changes to text: it inserts one of the given
// parts, deletes or replaces a byte, or duplicates a section. It may also
// convert the line endings to those of Windows.
func Mutate(rng *rand.Rand, text []byte, parts []string) []byte {
	for range rng.IntN(20) * rng.IntN(2) {
		at := rng.IntN(len(text))
		switch rng.IntN(5) {
		case 0:
			text = slices.Insert(text, at, []byte(parts[rng.IntN(len(parts))])...)
		case 1:
			text = slices.Delete(text, at, at+1)
		case 2:
			text = slices.Insert(text, at+bytes.IndexByte(text[at:], '\n')+1, []byte(parts[rng.IntN(len(parts))]+"\n")...)
		case 3:
			to := min(len(text), at+rng.IntN(300))
			text = slices.Insert(text, to, slices.Clone(text[at:to])...)
		default:
			text[at] = byte(rng.IntN(256))
		}
	}
	if rng.IntN(10) == 0 {
		text = bytes.ReplaceAll(text, []byte("\n"), []byte("\r\n"))
	}
	return text
}
