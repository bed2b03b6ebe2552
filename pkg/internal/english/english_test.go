package english

import (
	"math"
	"testing"
)

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

func TestLists(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{List(nil), ""},
		{List([]string{"1"}), "1"},
		{List([]string{"1", "2"}), "1 and 2"},
		{List([]string{"1", "2", "4"}), "1, 2 and 4"},
		{Either([]string{"csv", "json"}), "csv or json"},
		{Quote([]string{"ddp", "a\nb"}), `"ddp", "a\nb"`},
		{Number(194.188), "194.2"},
		{Number(0.0126), "0.0126"},
		{Number(0.0000126), "1.26e-05"},
		{Number(0), "0.000"},
		{Interval(11.5, 12.401), "[11.50, 12.40]"},
		{Interval(0.001, 0.002), "[0.001, 0.002]"},
		{Interval(math.NaN(), 1), "-"},
		{Percent(0.95), "95 %"},
		{Percent(0.0512), "5.1 %"},
		{PValueWithOperator(0.032), "= 0.032"},
		{PValueWithOperator(1e-9), "< 0.0001"},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
}

func TestListSome(t *testing.T) {
	words := []string{"a", "b", "c", "d", "e", "f"}
	for n, want := range map[int]string{0: "", 1: "a", 4: "a, b, c and d", 5: "a, b, c, d and 1 more", 6: "a, b, c, d and 2 more"} {
		if got := ListSome(words[:n]); got != want {
			t.Errorf("%d words: got %q, want %q", n, got, want)
		}
	}
	if words[4] != "e" {
		t.Error("the words were changed")
	}
}
