package figure

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"lockstep/pkg/runs"
	"lockstep/pkg/runs/usage"
	"lockstep/pkg/scaling"
)

// recordedUsage is a study of one run with the given number of workers, whose usage is recorded for two
// minutes: the ranks alternate between two machines, the run was interrupted for 20 s, and change
// may change each sample.
func recordedUsage(t *testing.T, workers int, change func(*usage.Sample)) *scaling.Study {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "ddp-s1")
	check(t, os.MkdirAll(dir, 0o755))
	for rank := range workers {
		w, err := usage.Create(dir, rank)
		check(t, err)
		for second := range 120 {
			if second >= 60 && second < 80 {
				continue
			}
			s := usage.NewSample()
			wave := math.Sin(float64(second)/5 + float64(rank))
			s.Time, s.Seconds, s.Host, s.Epoch = time.Unix(1700000000+int64(second), 0), 1, []string{"node1", "node2"}[rank%2], 1+second/30
			s.CPUCores, s.MachineCPUCores = 0.8+0.1*wave, 1.8+0.1*wave
			s.MemoryBytes, s.MachineMemoryBytes = 2e9+3e8*wave, 8e9
			s.ReceivedBytesPerSecond, s.SentBytesPerSecond, s.LoopbackBytesPerSecond = 5e7+1e7*wave, 4e7-1e7*wave, 1e6
			s.ProcessorWatts, s.GPUPercent, s.GPUMemoryBytes, s.GPUWatts = 150+20*wave, 90+5*wave, 3e10, 300+50*wave
			change(&s)
			check(t, w.Append(s))
		}
		check(t, w.Close())
	}
	r := synthetic(t, []string{"ddp"}, []int{1}, 1, 4).Runs[0]
	r.Dir, r.Info.Workers = dir, workers
	study, err := scaling.FromRuns([]runs.Run{r})
	check(t, err)
	return study
}

// TestUsage: a panel for each recorded quantity, with a line per worker or machine; the caption names what
// was not recorded, and the table has every sample.
func TestUsage(t *testing.T) {
	nothing := func(*usage.Sample) {}
	f, err := Usage(recordedUsage(t, 2, nothing))
	check(t, err)
	compareImage(t, "usage", f)
	if table := f.Table(); len(f.panels) != 7 || table.Nrow() != 200 || table.Col("gpu_power_watts").Elem(0).Float() != 300 || f.Name() != "usage" {
		t.Errorf("%d panels, name %s, table %v", len(f.panels), f.Name(), f.Table())
	}
	if c := f.Caption(); strings.Contains(c, "Not recorded") || !strings.Contains(c, "Vertical lines: the first sample of a later epoch") {
		t.Errorf("caption %q", c)
	}

	f, err = Options{WidthInches: 9, NoTitle: true}.Usage(recordedUsage(t, 12, func(s *usage.Sample) {
		s.ProcessorWatts, s.GPUPercent, s.GPUMemoryBytes, s.GPUWatts = math.NaN(), math.NaN(), math.NaN(), math.NaN()
	}))
	check(t, err)
	for _, part := range []string{"Not recorded in this run: power of the processors, GPU, GPU memory, GPU power.", "8 of 12 workers are drawn"} {
		if !strings.Contains(f.Caption(), part) {
			t.Errorf("caption %q, want %q", f.Caption(), part)
		}
	}
	if len(f.panels) != 3 || f.Width.Points() != 9*72 {
		t.Errorf("%d panels, width %v", len(f.panels), f.Width)
	}
	if _, err := (Options{Run: "other"}).Usage(recordedUsage(t, 1, nothing)); err == nil || !strings.Contains(err.Error(), `"other" in its name`) {
		t.Errorf("%v", err)
	}
	if _, err := (Options{WidthInches: 1}).Usage(recordedUsage(t, 1, nothing)); err == nil {
		t.Error("an illegible page is drawn")
	}
}
