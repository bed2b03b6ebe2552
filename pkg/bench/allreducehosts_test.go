package bench

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"lockstep/pkg/bench/internal/benchtest"
	"lockstep/pkg/collective/hosts"
	"lockstep/pkg/runs"
)

// TestMeasureHosts checks the rows of all algorithms on two hosts with two ranks each. A host's
// link of 100 Mbit/s is a lower bound of the times, however slow the machine is.
func TestMeasureHosts(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	benchtest.UseTestBinaryAsWorker(t)
	o := HostOptions{Hosts: 2, PerHost: 2, Link: hosts.Link{Rate: "100mbit"}, Sizes: []int{4, 400_000}, Repeats: 1}
	got, err := MeasureHosts(t.Context(), o)
	if errors.Is(err, hosts.ErrNotPermitted) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	const most = 12.5e6 // 100 Mbit/s in bytes per second
	if b := got.Between; !(b.LatencySeconds > 0 && b.BytesPerSecond > 0 && b.BytesPerSecond <= most) {
		t.Errorf("between hosts: %+v", b)
	}
	if w := got.Within; !(w.LatencySeconds > 0 && w.BytesPerSecond > 0) {
		t.Errorf("within hosts: %+v", w)
	}
	algorithms := []string{"ring", "halving", "tree", "hierarchical"}
	if len(got.Rows) != 2*len(algorithms) {
		t.Fatalf("%d rows, want 8", len(got.Rows))
	}
	for i, r := range got.Rows {
		if r.Algorithm != algorithms[i%4] || r.Bytes != o.Sizes[i/4] || r.Wrong != 0 || r.Repeats != 1 || !(r.ModelSeconds > 0) || r.LowSeconds > r.Seconds || r.Seconds > r.HighSeconds {
			t.Errorf("row %d: %+v", i, r)
		}
		if i >= 4 && r.Seconds < 400_000/most/2 { // each rank gets at least half of the sum from the other host
			t.Errorf("%s: %g s, which is faster than the link", r.Algorithm, r.Seconds)
		}
	}
	var text bytes.Buffer
	if err := WriteHosts(&text, got, false); err != nil || !strings.Contains(text.String(), "2 hosts, ranks per host: 2, link of each host: 100mbit") || !strings.Contains(text.String(), "within a host: latency") {
		t.Errorf("%v, table:\n%s", err, text.String())
	}
}

// TestWriteHosts checks the table and JSON, and that wrong sums are an error.
func TestWriteHosts(t *testing.T) {
	a := &runs.AllReduceTimes{Machine: "m", Commit: "c", Hosts: 2, PerHost: 1, Link: "1gbit", Between: runs.LinkSpeed{LatencySeconds: 1e-4, BytesPerSecond: 1e8}, Rows: []runs.AllReduceTime{
		{Algorithm: "ring", Bytes: 1000, Seconds: 0.003, LowSeconds: 0.002, HighSeconds: 0.004, Repeats: 3, Steps: 2, CriticalBytes: 1000, ModelSeconds: 0.0015, Wrong: 7},
	}}
	var text bytes.Buffer
	err := WriteHosts(&text, a, false)
	if err == nil || !strings.Contains(err.Error(), "7 wrong elements in all-reduces of 1 kB by ring between hosts") {
		t.Errorf("error %v", err)
	}
	row := strings.Join(strings.Fields(strings.Split(text.String(), "\n")[2]), " ")
	if want := "1000 2 1000 1.500 3.000 2.000 … 4.000 2.00 7 ring"; row != want {
		t.Errorf("got row %q, want %q", row, want)
	}
	a.Rows[0].Wrong = 0
	text.Reset()
	var back runs.AllReduceTimes
	if err := WriteHosts(&text, a, true); err != nil || json.Unmarshal(text.Bytes(), &back) != nil || back.Rows[0] != a.Rows[0] {
		t.Errorf("%v, JSON:\n%s", err, text.String())
	}
}

func TestInvalidHostOptions(t *testing.T) {
	for want, change := range map[string]func(*HostOptions){
		"got 1 hosts with 1 ranks":         func(o *HostOptions) { o.Hosts = 1 },
		"2 hosts with 0 ranks":             func(o *HostOptions) { o.PerHost = 0 },
		`invalid rate "slow"`:              func(o *HostOptions) { o.Link.Rate = "slow" },
		"invalid delay -1ms":               func(o *HostOptions) { o.Link.Delay = -time.Millisecond },
		`unknown algorithm "direct": use`:  func(o *HostOptions) { o.Algorithms = []string{"direct"} },
		"invalid size 3":                   func(o *HostOptions) { o.Sizes = []int{3} },
		"want at least 2 workers and 1 re": func(o *HostOptions) { o.Repeats = 0 },
	} {
		o := HostOptions{Hosts: 2, PerHost: 1, Sizes: HostSizes(), Repeats: 1}
		change(&o)
		if _, err := MeasureHosts(t.Context(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}
