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
		if got := FormatCount(c.n, c.noun); got != c.want {
			t.Errorf("%d %s: %q, want %q", c.n, c.noun, got, c.want)
		}
	}
}

func TestLists(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{JoinAnd(nil), ""},
		{JoinAnd([]string{"1"}), "1"},
		{JoinAnd([]string{"1", "2"}), "1 and 2"},
		{JoinAnd([]string{"1", "2", "4"}), "1, 2 and 4"},
		{JoinOr([]string{"csv", "json"}), "csv or json"},
		{QuoteNames([]string{"ddp", "a\nb"}), `"ddp", "a\nb"`},
		{FormatNumber(194.188), "194.2"},
		{FormatNumber(0.0126), "0.0126"},
		{FormatNumber(0.0000126), "1.26e-05"},
		{FormatNumber(0), "0.000"},
		{FormatInterval(11.5, 12.401), "[11.50, 12.40]"},
		{FormatInterval(0.001, 0.002), "[0.001, 0.002]"},
		{FormatInterval(math.NaN(), 1), "-"},
		{FormatPercent(0.95), "95 %"},
		{FormatPercent(0.0512), "5.1 %"},
		{FormatPValueWithOperator(0.032), "= 0.032"},
		{FormatPValueWithOperator(1e-9), "< 0.0001"},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
}

func TestListSome(t *testing.T) {
	words := []string{"a", "b", "c", "d", "e", "f"}
	for n, want := range map[int]string{0: "", 1: "a", 4: "a, b, c and d", 5: "a, b, c, d and 1 more", 6: "a, b, c, d and 2 more"} {
		if got := JoinFirstFew(words[:n]); got != want {
			t.Errorf("%d words: got %q, want %q", n, got, want)
		}
	}
	if words[4] != "e" {
		t.Error("the words were changed")
	}
}
