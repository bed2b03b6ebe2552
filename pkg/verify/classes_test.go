package verify

import (
	"slices"
	"testing"

	"lockstep/pkg/metric"
	"lockstep/pkg/runs"
	"lockstep/pkg/train"
)

// TestCheckClasses: each class in the masks is compared, and no row may be missing.
func TestCheckClasses(t *testing.T) {
	s := train.Scores{Classes: &metric.Confusion{Classes: 3, Counts: []int64{3, 1, 0, 1, 1, 0, 0, 0, 0}}}
	rows := []runs.ClassScores{
		{Epoch: 1, NamedScores: runs.NamedScores{Name: "background", IoU: 0.1}},
		{Epoch: 2, NamedScores: runs.NamedScores{Name: "background", IoU: 3. / 5}},
		{Epoch: 2, NamedScores: runs.NamedScores{Name: "cell", IoU: 0.3}}, // 1/3 is right
		{Epoch: 2, NamedScores: runs.NamedScores{Name: "nucleus"}},
	}
	check := func(rows []runs.ClassScores) (failed []string) {
		v := &verifier{run: runs.Run{Classes: rows}}
		v.checkClassScores(s, 2, 1e-9)
		for _, c := range v.checks {
			if !c.OK {
				failed = append(failed, c.Name)
			}
		}
		return failed
	}
	if failed := check(rows); !slices.Equal(failed, []string{"IoU of cell"}) {
		t.Errorf("a wrong IoU: %q fail", failed)
	}
	if failed := check(rows[:3]); !slices.Equal(failed, []string{"classes"}) {
		t.Errorf("a missing row: %q fail", failed)
	}
}
