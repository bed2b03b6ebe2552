package scaling

import (
	"math"
	"strings"
	"testing"

	"lockstep/pkg/runs"
)

// TestClasses: a row per class has the median of the runs, of run.json or, before it has scores, of the last
// epoch. Runs without communication have no scores.
func TestClasses(t *testing.T) {
	all := append(seeds("ddp", 1, 10, 11), seeds("ddp", 2, 7)...)
	scores := func(iou float64) []runs.NamedScores {
		return []runs.NamedScores{{Name: "background", IoU: iou, Dice: iou, Pixels: 80}, {Name: "cell", IoU: math.NaN(), Dice: math.NaN()}}
	}
	all[0].Info.Test = &runs.Test{Classes: scores(0.5)}
	all[1].Info.Test = &runs.Test{Classes: scores(0.7)}
	for epoch, iou := range []float64{0.2, 0.4} {
		for _, c := range scores(iou) {
			all[2].Classes = append(all[2].Classes, runs.ClassScores{Epoch: epoch + 1, NamedScores: c})
		}
	}
	s := study(t, all)
	rows := s.Classes().Rows
	if len(rows) != 4 || rows[0].Class != "background" || rows[0].Runs != 2 || math.Abs(rows[0].IoU.Value-0.6) > 1e-15 || rows[0].Pixels != 80 || rows[2].IoU.Value != 0.4 {
		t.Errorf("rows are %+v", rows)
	}
	if !math.IsNaN(rows[1].IoU.Value) || !strings.Contains(s.Classes().String(), "a class without pixels is in no held-out mask") {
		t.Errorf("an absent class is %+v", rows[1])
	}
	if !strings.Contains(s.String(), "iou and dice are means over classes") {
		t.Errorf("the table does not say that the IoU is a mean:\n%s", s)
	}
	all[2].Info.Unreal = "the workers did not communicate"
	if rows := study(t, all).Classes().Rows; len(rows) != 2 {
		t.Errorf("a run without communication has scores: %+v", rows)
	}
}
