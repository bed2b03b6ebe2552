package figure

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"lockstep/pkg/runs"
	"lockstep/pkg/scaling"
)

// The CSV file of each figure of losses contains the times at which the losses are drawn. The
// times of loss_by_time leave out validation; the times of loss_by_relative_time include it.
func TestLossTableTimes(t *testing.T) {
	r := runs.Run{Dir: "log.csv", Info: runs.Info{Study: "s", Series: "ddp", Workers: 2, Status: runs.StatusDone}}
	for i := range 3 {
		r.Epochs = append(r.Epochs, runs.Epoch{
			Epoch: i + 1, Seconds: 10, ValSeconds: float64(1 + i), TrainLoss: 1 / float64(i+1), ValLoss: math.NaN(),
			SamplesPerSecond: math.NaN(), IoU: math.NaN(), Dice: math.NaN(), LearningRate: math.NaN(), Accuracy: math.NaN(), ValAccuracy: math.NaN(),
		})
	}
	study, err := scaling.FromRuns([]runs.Run{r})
	check(t, err)
	for _, want := range []struct {
		figure, column string
		times          []float64
		unused         string
	}{
		{"loss_by_time", "elapsed_seconds", []float64{10, 20, 30}, "clock_seconds"},
		{"loss_by_relative_time", "clock_seconds", []float64{11, 23, 36}, "elapsed_seconds"}, // 10+1, +10+2, +10+3
		{"loss_by_epoch", "elapsed_seconds", []float64{10, 20, 30}, "clock_seconds"},
	} {
		f, err := Options{}.Make(want.figure, study)
		check(t, err)
		table := f.Table()
		if !slices.Contains(table.Names(), want.column) || slices.Contains(table.Names(), want.unused) {
			t.Fatalf("%s: columns %v, want %s and not %s", want.figure, table.Names(), want.column, want.unused)
		}
		if got := table.Col(want.column).Float(); !slices.Equal(got, want.times) {
			t.Errorf("%s: %s %v, want %v", want.figure, want.column, got, want.times)
		}
		file := filepath.Join(t.TempDir(), "f.csv")
		check(t, f.Save(file))
		b, err := os.ReadFile(file)
		check(t, err)
		if first, _, _ := strings.Cut(string(b), "\n"); !strings.Contains(first, want.column) {
			t.Errorf("%s: header %q of the CSV file has no column %s", want.figure, first, want.column)
		}
	}
}
