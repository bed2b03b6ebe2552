package figure

import (
	"math"
	"strings"
	"testing"

	"lockstep/pkg/runs"
	"lockstep/pkg/scaling"
)

// hollow are studies that lack most of what figures draw.
func hollow(t *testing.T) map[string]*scaling.Study {
	t.Helper()
	nan := math.NaN()
	epoch := func(n int, v float64) runs.Epoch {
		return runs.Epoch{
			Epoch: n, Seconds: v, Samples: 0, SamplesPerSecond: v, TrainLoss: v, ValLoss: v, IoU: v, Dice: v,
			ValSeconds: v, LearningRate: v, Accuracy: v, ValAccuracy: v,
		}
	}
	study := func(values ...float64) *scaling.Study {
		r := runs.Run{Dir: "r", Info: runs.Info{Series: "s", Workers: 1, Status: runs.StatusDone}}
		for i, v := range values {
			r.Epochs = append(r.Epochs, epoch(i+1, v))
		}
		s, err := scaling.FromRuns([]runs.Run{r})
		check(t, err)
		return s
	}
	failed := runs.Run{Dir: "f", Info: runs.Info{Series: "s", Workers: 1, Status: runs.StatusFailed}, Epochs: []runs.Epoch{epoch(1, 1), epoch(2, 1)}}
	onlyFailed, err := scaling.FromRuns([]runs.Run{failed})
	check(t, err)
	return map[string]*scaling.Study{
		"no study": nil, "no runs": {}, "no epochs": study(), "NaN": study(nan, nan, nan), "infinite": study(1, math.Inf(1)),
		"one epoch": study(1), "one point": study(1, 0.5, 0.25), "zeros": study(0, 0, 0), "failed": onlyFailed,
	}
}

// TestNothingIsNoPicture: a figure of a study without what it draws is an
// error that says so, and one that is drawn has a mark and a row, and nothing
// in it that is not a number.
func TestNothingIsNoPicture(t *testing.T) {
	drawn := 0
	for name, study := range hollow(t) {
		for _, figure := range append(Names(), "val_loss by epoch", "train_loss by step") {
			for _, o := range []Options{{}, {LogY: true, Scale: Log2, Smooth: 0.9}} {
				f, err := o.Make(figure, study)
				if err != nil {
					if text := err.Error(); f != nil || !strings.HasPrefix(text, "draw figure "+strings.ReplaceAll(figure, " ", "_")) || len(text) < 40 {
						t.Errorf("%s of %s: %v, expected an error that names the figure and says what is missing", figure, name, err)
					}
					continue
				}
				drawn++
				svg := f.SVG()
				for _, bad := range []string{"NaN", "Inf", "draw figure"} {
					if strings.Contains(svg, bad) {
						t.Errorf("%s of %s is drawn with %q in it", figure, name, bad)
					}
				}
				if f.Table().Nrow() == 0 || f.Caption() == "" {
					t.Errorf("%s of %s is drawn without table or caption", figure, name)
				}
				if f.plot.X.Max <= f.plot.X.Min || f.plot.Y.Max <= f.plot.Y.Min {
					t.Errorf("%s of %s has an axis without length", figure, name)
				}
			}
		}
	}
	if drawn < 10 { // of one point there are an epoch time, losses, IoU and so on
		t.Errorf("%d figures were drawn: the test sees errors alone", drawn)
	}
}

func TestErrorsNameWhatToDo(t *testing.T) {
	study := synthetic(t, []string{"ddp"}, []int{1, 2}, 1, 5)
	for _, c := range []struct {
		figure, part string
		o            Options
	}{
		{"speedups", "unknown figure \"speedups\" (did you mean speedup?); use epoch_time, throughput", Options{}},
		{"overhead", "name two with lockstep scaling --show overhead=WITH:WITHOUT", Options{}},
		{"speedup", "use one of \"ddp\"", Options{Series: []string{"none"}}},
		{"speedup", "unknown scale \"log\"", Options{Scale: "log"}},
		{"loss_by_time", "want 0 to below 1", Options{Smooth: 1}},
		{"timeline", "no run has step spans", Options{}},
		{"timelines", "no run has step spans", Options{}},
		{"time_use", "no run has step spans", Options{}},
		{"usage", "usage is not recorded: no run has a file usage-<rank>.csv", Options{}},
		{"trials", "IO, SYNTHETIC and FULL", Options{}},
		{"quality", "unknown measure", Options{Measure: "taste"}},
		{"loss by epoch", "available metrics: ", Options{}},
	} {
		if _, err := c.o.Make(c.figure, study); err == nil || !strings.Contains(err.Error(), c.part) {
			t.Errorf("%s with %+v: error %v, expected one that says %q", c.figure, c.o, err, c.part)
		}
	}
}

// TestSpreadOfEpochs: a single run has bars of how its epochs scatter where
// they are asked for, in picture, table and caption, and they are not called
// an interval.
func TestSpreadOfEpochs(t *testing.T) {
	all := synthetic(t, []string{"ddp"}, []int{1, 2, 4}, 1, 30).Runs
	for _, r := range all {
		for i := range r.Epochs {
			r.Epochs[i].Seconds *= 1 + 0.1*float64(i%5)
		}
	}
	study, err := scaling.FromRuns(all)
	check(t, err)
	for _, make := range []func(Options, *scaling.Study) (*Figure, error){Options.EpochTime, Options.Throughput} {
		plain, err := make(Options{}, study)
		check(t, err)
		f, err := make(Options{Intervals: IntervalsEpochs}, study)
		check(t, err)
		if f.SVG() == plain.SVG() {
			t.Errorf("%s: the picture is the same with the spread and without", f.Name())
		}
		if want := "Bars: the middle 95 % of the epochs"; !strings.Contains(f.Caption(), want) || strings.Contains(plain.Caption(), want) {
			t.Errorf("%s: captions %q and %q", f.Name(), f.Caption(), plain.Caption())
		}
		columns := strings.Join(f.Table().Names(), " ")
		if !strings.Contains(columns, "_spread_low") || !strings.Contains(columns, "_spread_high") {
			t.Errorf("%s: the table has the columns %s", f.Name(), columns)
		}
	}
	speedup, err := Options{Intervals: IntervalsEpochs}.Speedup(study)
	check(t, err)
	if strings.Contains(speedup.Caption(), "spread") {
		t.Errorf("a speed-up has no spread of epochs: %q", speedup.Caption())
	}
}
