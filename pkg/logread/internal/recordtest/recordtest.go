// Package recordtest helps the tests of formats: it checks the properties that every
// reader must have ([ReadAndCheckFormat]), reads the fixtures of package logread as seeds
// of fuzz targets ([AddFuzzSeeds]), and builds TensorBoard event files.
package recordtest

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/runs"
)

// ReadAndCheckFormat reads text with format k and checks the properties that every reader must have:
// it terminates, its problems refer to existing lines, its epochs are consistent, and its memory
// is proportional to the text. It returns the parts and the report.
func ReadAndCheckFormat(t *testing.T, k record.Format, path string, text []byte) ([]*record.Part, *record.Report) {
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
	// A reader may allocate buffers (16 MiB) and 1000 bytes per byte of text, which short lines need.
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
		kept += EstimateRunBytes(p.Run)
	}
	if kept > 1<<16+100*len(text) {
		t.Errorf("the runs take %d bytes of memory, too many for a file of %d bytes", kept, len(text))
	}
	return parts, report
}

// checkRun checks that epochs, curves and workers are consistent with a file of the given lines.
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

// EstimateRunBytes estimates the memory that a run occupies, in bytes.
func EstimateRunBytes(run runs.Run) int {
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

// AddFuzzSeeds adds the fixture files of package logread to the seeds of a fuzz target, each
// unchanged, cut in half, and with Windows line endings.
func AddFuzzSeeds(f *testing.F, fixtures ...string) {
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
