package textlog

import (
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/recordtest"
	"lockstep/pkg/runs"
)

// TestLongLine checks that a line of 100 MB is cut, counted, reported and not
// kept in memory, and that the lines before and after it are read.
func TestLongLine(t *testing.T) {
	const long = 100 << 20
	before, behind := "Epoch 1/2\n2/2 - 9s - loss: 1.5\n", "\nEpoch 2/2\n2/2 - 8s - loss: 1.25\n"
	r := io.MultiReader(strings.NewReader(before), io.LimitReader(endless{}, long), strings.NewReader(behind))
	report := &record.Report{Path: "job_2gpu.out"}
	var start, end runtime.MemStats
	runtime.ReadMemStats(&start)
	parts, err := Format().Read(t.Context(), &record.Input{Path: report.Path, Reader: r, Report: report})
	runtime.ReadMemStats(&end)
	if err != nil {
		t.Fatal(err)
	}
	if got := end.TotalAlloc - start.TotalAlloc; got > 16<<20 {
		t.Errorf("%d bytes allocated", got)
	}
	if len(parts) != 1 || len(parts[0].Run.Epochs) != 2 || parts[0].Run.Epochs[1].TrainLoss != 1.25 || parts[0].Run.Epochs[1].Line != 5 {
		t.Fatalf("parts %+v", parts)
	}
	if d := cmp.Diff([]runs.Problem{{File: report.Path, Line: 3, Reason: "line is longer than 1048576 bytes"}}, report.Unused); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

// TestMemory checks that only the values of a long log are kept in memory, and
// of a curve only as many points as a figure shows.
func TestMemory(t *testing.T) {
	const steps = 1 << 20 // about 90 MB
	report := &record.Report{Path: "llama_8gpu.log"}
	r := &stepLines{last: steps}
	parts, err := Format().Read(t.Context(), &record.Input{Path: report.Path, Reader: r, Report: report})
	if err != nil {
		t.Fatal(err)
	}
	if len(parts) != 1 || report.LinesUsed != steps {
		t.Fatalf("%d parts, %d lines used", len(parts), report.LinesUsed)
	}
	if kept := recordtest.EstimateRunBytes(parts[0].Run); kept > 16<<20 {
		t.Errorf("%d bytes kept of %d", kept, r.bytes)
	}
	loss := parts[0].Run.Curves[0]
	// Of 2^20 points every fourth is kept, since the maximum is 2^18.
	if len(loss.Steps) != steps/4 || loss.Steps[1]-loss.Steps[0] != 4 || !strings.Contains(fmt.Sprint(report.Assumed), "loss has 1048576 points; every 4th is kept") {
		t.Errorf("%d points, %v", len(loss.Steps), report.Assumed)
	}
}

// stepLines generates lines of torchtitan while they are read.
type stepLines struct {
	next, last int
	rest       []byte
	bytes      int64
}

func (s *stepLines) Read(p []byte) (int, error) {
	for len(s.rest) < len(p) && s.next < s.last {
		s.next++
		s.rest = fmt.Appendf(s.rest, "[rank0]:2024-08-14 09:12:41,500 - root - INFO - step: %d  loss:  8.1309  tps: 7,123\n", s.next)
	}
	n := copy(p, s.rest)
	s.rest = s.rest[:copy(s.rest, s.rest[n:])]
	s.bytes += int64(n)
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}
