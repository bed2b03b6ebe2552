package figure

import (
	"slices"
	"strings"
	"testing"

	"lockstep/pkg/figure/internal/element"
	"lockstep/pkg/runs"
	"lockstep/pkg/scaling"
)

// TestDisturbedPointsHaveARing: other processes used half a core during the runs
// of two workers. Figures of times ring that point and explain the ring; a figure
// of quality, which load does not change, does not.
func TestDisturbedPointsHaveARing(t *testing.T) {
	all := slices.Clone(synthetic(t, []string{"ddp"}, []int{1, 2, 4}, 3, 4).Runs)
	for i := range all {
		other := 0.0
		if all[i].Info.Workers == 2 {
			other = 0.5
		}
		for _, e := range all[i].Epochs {
			all[i].Loads = append(all[i].Loads, runs.Load{Epoch: e.Epoch, Seconds: 2, Cores: 4, OtherSeconds: 2 * other})
		}
	}
	study, err := scaling.FromRuns(all)
	check(t, err)
	quiet := synthetic(t, []string{"ddp"}, []int{1, 2, 4}, 3, 4)
	const explained = "disturbed by other load"
	for _, c := range []struct {
		name  string
		draw  func(*scaling.Study) (*Figure, error)
		rings bool
	}{
		{"speedup", Speedup, true},
		{"epoch_time", EpochTime, true},
		{"throughput", Throughput, true},
		{"efficiency", Efficiency, true},
		{"speedup_iou", SpeedupIoU, true},
		{"iou", IoU, false},
	} {
		f, err := c.draw(study)
		check(t, err)
		if got := strings.Contains(f.SVG(), explained); got != c.rings {
			t.Errorf("%s: a ring is explained: %v, want %v", c.name, got, c.rings)
		}
		if !strings.Contains(f.Caption(), "3 of 9 runs disturbed") {
			t.Errorf("%s: the caption lacks the runs: %s", c.name, f.Caption())
		}
		rings := 0
		for _, e := range f.legend {
			for _, icon := range e.Icons {
				if k, ok := icon.(element.LegendKey); ok && e.Name == explained && k.Glyph.Shape == (element.RingGlyph{}) {
					rings++
				}
			}
		}
		if c.rings && rings != 1 {
			t.Errorf("%s: %d rings in the legend, want 1", c.name, rings)
		}
		// Arcs of the ring's radius: around the point of two workers and in the legend, two halves each.
		if c.name == "speedup" {
			if n := strings.Count(f.SVG(), "A7,7 "); n != 4 {
				t.Errorf("%s: %d arcs of a ring, want 4", c.name, n)
			}
		}
		f, err = c.draw(quiet)
		check(t, err)
		if strings.Contains(f.SVG(), explained) {
			t.Errorf("%s: a ring without load", c.name)
		}
	}
}
