package figure

import (
	"math"
	"strings"
	"testing"

	"lockstep/pkg/runs"
)

// hostTimes returns times of two algorithms between two hosts. The predicted times are for a link
// with a latency of 100 µs and 100 MB/s; the measured ones are a quarter longer.
func hostTimes() *runs.AllReduceTimes {
	a := &runs.AllReduceTimes{Hosts: 2, PerHost: 2, Link: "800mbit", Between: runs.LinkSpeed{LatencySeconds: 1e-4, BytesPerSecond: 1e8}, Within: runs.LinkSpeed{LatencySeconds: 1e-5, BytesPerSecond: 1e9}}
	for _, size := range []int{1_000, 10_000, 100_000, 1_000_000} {
		for i, algorithm := range []string{"ring", "tree"} {
			steps, critical := 6-2*i, float64(size)*(1.5+float64(i))
			model := float64(steps)*1e-4 + critical/1e8
			a.Rows = append(a.Rows, runs.AllReduceTime{Algorithm: algorithm, Bytes: size, Seconds: 1.25 * model, LowSeconds: 1.1 * model, HighSeconds: 1.5 * model, Repeats: 5, Steps: steps, CriticalBytes: critical, ModelSeconds: model})
		}
	}
	return a
}

// TestAllReduceTimes checks the picture, the table and the caption.
func TestAllReduceTimes(t *testing.T) {
	f, err := Options{}.AllReduceTimes(hostTimes())
	check(t, err)
	compareImage(t, "allreduce-times", f)
	table := f.Table()
	// ring, 1 kB: 6 steps of 100 µs and 1500 bytes at 100 MB/s.
	if got := table.Col("model_seconds").Float()[0]; table.Nrow() != 8 || math.Abs(got-615e-6) > 1e-12 {
		t.Errorf("the table has %d rows, the first prediction is %g s, want 8 rows and 615 µs", table.Nrow(), got)
	}
	for _, want := range []string{"between 2 hosts, ranks per host: 2, link of each host: 800mbit", "n = 5 repeats", "100 µs", "100 MB/s", "Within a host: 10 µs and 1e+03 MB/s"} {
		if !strings.Contains(f.Caption(), want) {
			t.Errorf("the caption is %q, which lacks %q", f.Caption(), want)
		}
	}
}

// TestAllReduceTimesWithoutValues checks that times that cannot be drawn are an error, or are
// left out.
func TestAllReduceTimesWithoutValues(t *testing.T) {
	for _, times := range []*runs.AllReduceTimes{nil, {}, {Rows: []runs.AllReduceTime{{Algorithm: "ring", Bytes: 4, Seconds: math.NaN(), ModelSeconds: 1}, {Algorithm: "ring", Bytes: 4, Seconds: 1, ModelSeconds: math.Inf(1)}, {Algorithm: "ring", Seconds: 1, ModelSeconds: 1}}}} {
		if _, err := (Options{}).AllReduceTimes(times); err == nil || !strings.Contains(err.Error(), "draw figure allreduce_times: no measured times") {
			t.Errorf("error %v", err)
		}
	}
	times := hostTimes()
	times.Rows = times.Rows[:1] // one size
	f, err := Options{}.AllReduceTimes(times)
	check(t, err)
	if svg := f.SVG(); !strings.Contains(svg, "ring, model") || strings.Contains(svg, "tree, model") {
		t.Error("one row: the legend is wrong")
	}
}
