package comparison

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"
)

// TestCompared: the expected numbers were worked out by hand. The ratio is the
// median of 20/10, 30/10 and 40/40, not the ratio of the medians (30/10).
func TestCompared(t *testing.T) {
	ours, peers := []float64{20, 30, 40}, []float64{10, 10, 40}
	got := CompareRates(Record{Name: "speed"}, ours, peers)
	want := Record{Name: "speed", Value: 30, PeerValue: 10, Ratio: 2, Repeats: 3, Spread: [2]float64{1, 3}}
	if got != want {
		t.Errorf("more is better: got %+v, want %+v", got, want)
	}
	// Less is better: the median of 10/20, 10/30 and 40/40 is 1/2.
	got = CompareCosts(Record{Name: "memory"}, ours, peers)
	want = Record{Name: "memory", Value: 30, PeerValue: 10, Ratio: 0.5, Repeats: 3, Spread: [2]float64{1. / 3, 1}}
	if got != want {
		t.Errorf("less is better: got %+v, want %+v", got, want)
	}
}

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		v    []float64
		want float64
	}{{[]float64{7}, 7}, {[]float64{3, 1}, 2}, {[]float64{9, 1, 4}, 4}, {[]float64{4, 3, 2, 100}, 3.5}} {
		before := slices.Clone(c.v)
		if got := Median(c.v); got != c.want {
			t.Errorf("median of %v is %g, want %g", c.v, got, c.want)
		}
		if !slices.Equal(before, c.v) {
			t.Errorf("median changed %v to %v", before, c.v)
		}
	}
	if got := Median(nil); !math.IsNaN(got) {
		t.Errorf("median of nothing is %g, want NaN", got)
	}
}

// TestJSON: scripts read these keys; environment/benchmarks.md lists them.
func TestJSON(t *testing.T) {
	r := Record{
		Name: "training, 1 thread", Value: 8, Unit: "images/s", Peer: "PyTorch", PeerValue: 4, Ratio: 2, Target: 2.2,
		Repeats: 5, Spread: [2]float64{1.9, 2.1}, Machine: "m", Commit: "c",
	}
	var text bytes.Buffer
	if err := WriteRecords(&text, []Record{r}, true); err != nil {
		t.Fatal(err)
	}
	var got []map[string]any
	if err := json.Unmarshal(text.Bytes(), &got); err != nil {
		t.Fatalf("%v\n%s", err, text.String())
	}
	keys := []string{"commit", "machine", "name", "peer", "peer_value", "ratio", "repeats", "spread", "target", "unit", "value"}
	var have []string
	for k := range got[0] {
		have = append(have, k)
	}
	slices.Sort(have)
	if !slices.Equal(have, keys) {
		t.Errorf("keys %v, want %v", have, keys)
	}
	var back []Record
	if err := json.Unmarshal(text.Bytes(), &back); err != nil || back[0] != r {
		t.Errorf("read back %+v (%v), want %+v", back, err, r)
	}
}

func TestTable(t *testing.T) {
	var text bytes.Buffer
	err := WriteRecords(&text, []Record{
		{Name: "a", Ratio: 2.3, Target: 2.2},
		{Name: "b", Ratio: 2.1, Target: 2.2},
		{Name: "c", Ratio: 1, Machine: "m"},
	}, false)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(text.String(), "\n")
	for i, want := range []string{"≥ 2.20, reached", "≥ 2.20, missed", "none"} {
		if !strings.Contains(lines[i+1], want) {
			t.Errorf("line %q does not say %q", lines[i+1], want)
		}
	}
}

// TestMedianInterval compares the bounds of the interval with published tables for the sign test, such
// as Conover, Practical Nonparametric Statistics: 95 % needs n = 6, and the 8th value of 25.
func TestMedianInterval(t *testing.T) {
	for n, want := range map[int]*[2]float64{5: nil, 6: {1, 6}, 9: {2, 8}, 12: {3, 10}, 25: {8, 18}} {
		var v []float64
		for i := range n {
			v = append(v, float64(n-i))
		}
		got := medianConfidenceInterval(v)
		if (got == nil) != (want == nil) || got != nil && *got != *want {
			t.Errorf("%d values: interval %v, want %v", n, got, want)
		}
	}
	var text bytes.Buffer
	if err := WriteRecords(&text, []Record{{Name: "a", Interval: &[2]float64{0.5, 1.25}}}, false); err != nil {
		t.Fatal(err)
	}
	if got := text.String(); !strings.Contains(got, "0.500 … 1.250") {
		t.Errorf("table:\n%s", got)
	}
}
