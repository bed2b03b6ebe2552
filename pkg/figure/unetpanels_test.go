package figure

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"gonum.org/v1/plot/vg"

	"lockstep/pkg/figure/internal/element"
	"lockstep/pkg/scaling"
)

// hoursAndSeconds is a study whose training takes hours and whose test takes
// seconds, as in the U-Net study (38765 s and 29.6 s with one worker). Its runs have the IoU of
// synthetic, or none.
func hoursAndSeconds(t *testing.T, iou bool, series ...string) *scaling.Study {
	t.Helper()
	all := synthetic(t, series, []int{1, 2, 4, 8}, 1, 30).Runs
	for i := range all {
		n := float64(all[i].Info.Workers)
		for e := range all[i].Epochs {
			all[i].Epochs[e].Seconds, all[i].Epochs[e].Samples = 38765/30/n, 48
		}
		all[i].Info.Test.Seconds = 29.6 / n
		if !iou {
			all[i].Info.Test.IoU = math.NaN()
		}
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
			f, err := Options{WidthInches: size[0], HeightInches: size[1]}.TrainTestTime(hoursAndSeconds(t, false, series...))
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
	study := hoursAndSeconds(t, true, "PyTorch native", "PyTorch Horovod")
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

// TestBarsHaveIoU: the bars of the study have the IoU of each series and worker count on a right axis from 0
// to 1, in the middle of its bar. Without an IoU there is no such axis.
func TestBarsHaveIoU(t *testing.T) {
	study := synthetic(t, []string{"native", "horovod"}, []int{1, 2, 4}, 1, 4)
	for i := range study.Runs {
		if r := &study.Runs[i]; r.Info.Series == "horovod" && r.Info.Workers == 4 {
			r.Info.Test.IoU = math.NaN()
		}
	}
	study, err := scaling.FromRuns(study.Runs)
	check(t, err)
	f, err := TrainTestTime(study)
	check(t, err)
	if f.right == nil || f.right.Plot.Y.Min != 0 || f.right.Plot.Y.Max != 1 || f.right.Plot.Y.Label.Text != "IoU" || f.right.Plot.X.Max != f.plot.X.Max {
		t.Fatalf("right axis %+v", f.right)
	}
	if !strings.Contains(f.Caption(), "Circles (right axis): IoU on the test set after training") || f.legend[len(f.legend)-1].Name != "IoU (right)" {
		t.Errorf("caption %q, legend %+v", f.Caption(), f.legend)
	}
	var got []string
	for _, p := range f.right.Plotters {
		for _, v := range p.(element.Dots).XY {
			got = append(got, fmt.Sprintf("%.1f %.3f", v.X, v.Y))
		}
	}
	// Of two bars in a group of width 0.8, the middles are 0.2 to the left and right of the middle of the group.
	var want []string
	for _, series := range []struct {
		name string
		x    float64
	}{{"horovod", -0.2}, {"native", 0.2}} {
		for _, p := range study.Points {
			if group := map[int]float64{1: 0, 2: 1, 4: 2}[p.Workers]; p.Series == series.name && !math.IsNaN(p.IoU.Value) {
				want = append(want, fmt.Sprintf("%.1f %.3f", group+series.x, p.IoU.Value))
			}
		}
	}
	if !slices.Equal(got, want) || len(got) != 5 {
		t.Errorf("IoU at %v, want %v", got, want)
	}
	if cell(t, f, "iou", "native", 4) == "NaN" {
		t.Error("the table lacks the IoU")
	}
	f, err = TrainTestTime(hoursAndSeconds(t, false, "native"))
	check(t, err)
	if f.right != nil || strings.Contains(f.Caption(), "IoU") || slices.Contains(f.Table().Names(), "iou") {
		t.Errorf("an axis of IoU without an IoU: %s", f.Caption())
	}
}
