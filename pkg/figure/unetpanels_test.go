package figure

import (
	"math"
	"strings"
	"testing"

	"gonum.org/v1/plot/vg"

	"lockstep/pkg/figure/internal/element"
	"lockstep/pkg/scaling"
)

// hoursAndSeconds is a study whose training takes hours and whose test takes
// seconds, as that of the U-Net study (38765 s and 29.6 s with one worker).
func hoursAndSeconds(t *testing.T, series ...string) *scaling.Study {
	t.Helper()
	all := synthetic(t, series, []int{1, 2, 4, 8}, 1, 30).Runs
	for i := range all {
		n := float64(all[i].Info.Workers)
		for e := range all[i].Epochs {
			all[i].Epochs[e].Seconds, all[i].Epochs[e].Samples = 38765/30/n, 48
		}
		all[i].Info.Test.Seconds = 29.6 / n
	}
	study, err := scaling.FromRuns(all)
	check(t, err)
	return study
}

// TestTestTimeIsSeen: bars of seconds are seen beside bars of hours, and axis
// and caption say how.
func TestTestTimeIsSeen(t *testing.T) {
	for _, series := range [][]string{{"native"}, {"native", "horovod", "ring", "mirrored"}} {
		for _, size := range [][2]float64{{0, 0}, {3.5, 2.4}, {7, 3}} {
			f, err := Options{WidthInches: size[0], HeightInches: size[1]}.TrainTestTime(hoursAndSeconds(t, series...))
			check(t, err)
			if !strings.Contains(f.Caption(), "logarithmic axis") || !strings.Contains(f.Plot().Y.Label.Text, "logarithmic") {
				t.Errorf("axis %q and caption %q do not say that the axis is logarithmic", f.Plot().Y.Label.Text, f.Caption())
			}
			whole := vg.Rectangle{Max: vg.Point{X: f.Width, Y: f.Height}}
			a := f.layOut(whole)
			data := element.ScaleRectangle(a.data, a.zoom)
			white, colored := 0, 0
			for _, m := range recorded(f, whole).all {
				if !strings.HasPrefix(m.form, "fill") || !within(m.at, grownBy(data, 0.1)) {
					continue
				}
				if size := m.at.Size(); size.X < 1.5 || size.Y < 4 {
					t.Errorf("%d series at %v: a bar of %.1f by %.1f points", len(series), size, size.X, size.Y)
				}
				if m.color.R == 255 && m.color.G == 255 && m.color.B == 255 {
					white++
				} else {
					colored++
				}
			}
			if want := 4 * len(series); white != want || colored != want {
				t.Errorf("%d bars of training and %d of the test, want %d of each", colored, white, want)
			}
		}
	}
	f, err := TrainTestTime(synthetic(t, []string{"ddp"}, []int{1, 2}, 1, 10)) // 20 s and 1 s
	check(t, err)
	if strings.Contains(f.Caption(), "logarithmic") || f.Plot().Y.Min != 0 {
		t.Errorf("the axis is logarithmic without need: %s", f.Caption())
	}
}

// TestUNetPanels: the five panels of the study as one page, with the IoU on an
// axis of its own.
func TestUNetPanels(t *testing.T) {
	study := hoursAndSeconds(t, "PyTorch native", "PyTorch Horovod")
	var panels []*Figure
	for _, name := range []string{"speedup_iou", "epoch_time", "loss_by_epoch", "loss_by_time", "train_test_time"} {
		f, err := Make(name, study)
		check(t, err)
		panels = append(panels, f)
	}
	if r := panels[0].right; r == nil || r.Plot.Y.Min != 0 || r.Plot.Y.Max != 1 || math.IsNaN(r.Plot.X.Max) {
		t.Error("the IoU has no axis from 0 to 1")
	}
	page, err := Panels("U-Net", panels...)
	check(t, err)
	compareImage(t, "unet-panels", page)
}
