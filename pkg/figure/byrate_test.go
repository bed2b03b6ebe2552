package figure

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"lockstep/pkg/runs"
	"lockstep/pkg/scaling"
)

// TestQualityByRate: a curve a batch, a row and a mark a rate, and a dotted line
// below the best rate of a batch that has one of its own.
func TestQualityByRate(t *testing.T) {
	var all []runs.Run
	for _, batch := range []int{4, 16} {
		for _, rate := range []float64{0.001, 0.002, 0.004} {
			for seed := range int64(2) {
				off := math.Log2(rate / 0.002)
				iou := 0.8 - 0.1*off*off + 0.01*float64(seed)
				if batch == 16 { // its best is the highest
					iou = 0.7 + 0.01*off
				}
				all = append(all, runs.Run{
					Dir:    fmt.Sprint(batch, rate, seed),
					Info:   runs.Info{Series: "s", Workers: 1, Seed: seed + 1, Status: runs.StatusDone, GlobalBatch: batch},
					Epochs: []runs.Epoch{{Epoch: 1, Seconds: 1, Samples: 8, TrainLoss: 1, IoU: iou, Dice: math.NaN(), LearningRate: rate}},
				})
			}
		}
	}
	study, err := scaling.FromRuns(all)
	check(t, err)
	f, err := QualityByRate(study)
	check(t, err)
	if n := f.Table().Nrow(); n != 6 {
		t.Errorf("%d rows", n)
	}
	if strings.Join(f.Table().Names(), " ") != "global_batch learning_rate runs diverged iou iou_low iou_high" {
		t.Errorf("columns %v", f.Table().Names())
	}
	svg := f.SVG()
	for _, want := range []string{"batch 4", "batch 16", "learning rate", "IoU"} {
		if !strings.Contains(svg, want) {
			t.Errorf("the picture lacks %q", want)
		}
	}
	if n := strings.Count(svg, "stroke-dasharray:1.5,3"); n != 1 {
		t.Errorf("%d dotted lines, want that of batch 4 alone", n)
	}
	if !strings.Contains(f.Caption(), "n = 2 runs per point.") {
		t.Error(f.Caption())
	}
	if _, err := (Options{Measure: "dice"}).QualityByRate(study); err == nil || !strings.Contains(err.Error(), "draw figure quality_by_rate: find scaling rule: no run has a value of dice") {
		t.Error(err)
	}
}
