package english

import "testing"

func TestCount(t *testing.T) {
	for _, c := range []struct {
		n    int
		noun string
		want string
	}{
		{1, "worker", "1 worker"},
		{0, "worker", "0 workers"},
		{-1, "thread", "-1 threads"},
		{14, "worker count", "14 worker counts"},
		{2, "batch", "2 batches"},
		{1, "class", "1 class"},
		{3, "class", "3 classes"},
		{2, "series", "2 series"},
		{1000, "epoch", "1000 epochs"},
	} {
		if got := Count(c.n, c.noun); got != c.want {
			t.Errorf("%d %s: %q, want %q", c.n, c.noun, got, c.want)
		}
	}
}
