package replay

import (
	"math"
	"testing"

	"lockstep/pkg/runs"
)

func TestFindLack(t *testing.T) {
	nan := math.NaN()
	for _, c := range []struct {
		name   string
		epochs []runs.Epoch
		want   string
	}{
		{"no epoch", nil, "no seconds of epochs"},
		{"no time", []runs.Epoch{{Epoch: 1, Seconds: nan}, {Epoch: 2, Seconds: nan}}, "no seconds of epochs"},
		{"one epoch", []runs.Epoch{{Epoch: 5, Seconds: 3}}, "the seconds of one epoch per run"},
		{"a gap", []runs.Epoch{{Epoch: 1, Seconds: 3}, {Epoch: 2, Seconds: 3}, {Epoch: 4, Seconds: 3}}, "the seconds of 2 of 3 epochs of a run"},
		{"time missing", []runs.Epoch{{Epoch: 1, Seconds: 3}, {Epoch: 2, Seconds: 3}, {Epoch: 3, Seconds: nan}}, "the seconds of 2 of 3 epochs of a run"},
		{"from epoch 2", []runs.Epoch{{Epoch: 2, Seconds: 3}, {Epoch: 3, Seconds: 3}}, ""},
	} {
		if got := describeMissing(c.epochs); got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}
