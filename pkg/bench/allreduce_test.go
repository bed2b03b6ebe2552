package bench

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"lockstep/pkg/bench/internal/benchtest"
	"lockstep/pkg/bench/internal/comparison"
)

// smallAllReduce returns options for two workers and one small size, compared with the fake
// peer instead of gloo.
func smallAllReduce(t *testing.T) AllReduceOptions {
	return AllReduceOptions{
		Workers: []int{2}, Sizes: []int{4}, Transports: []string{"shm"}, Beside: []string{peerGloo}, Repeats: 1, Peer: fake(t),
	}
}

func TestMeasureAllReduce(t *testing.T) {
	o := smallAllReduce(t)
	o.Sizes, o.Transports = []int{4, 40_000_000}, []string{"shm", "tcp"}
	result, err := MeasureAllReduce(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if err := result.CheckResults(); err != nil {
		t.Error(err)
	}
	// The fake takes 0.5 s for each request: 500 sums of 4 bytes, and 2 of 40 MB, as many as
	// fit in the 100 MB of a repeat. With 2 ranks, both bandwidths are equal.
	want := []struct {
		side         string
		bytes, count int
		microseconds float64
	}{
		{"lockstep, shared memory", 4, 1, 0},
		{"lockstep, tcp ring", 4, 1, 0},
		{"fake, none, rank 0", 4, 1, 1000},
		{"lockstep, shared memory", 40_000_000, 10_000_000, 0},
		{"lockstep, tcp ring", 40_000_000, 10_000_000, 0},
		{"fake, none, rank 0", 40_000_000, 10_000_000, 250_000},
	}
	if len(result.Rows) != len(want) {
		t.Fatalf("%d rows, want %d", len(result.Rows), len(want))
	}
	for i, w := range want {
		r := result.Rows[i]
		if r.Side != w.side || r.Bytes != w.bytes || r.Count != w.count || r.Ranks != 2 || r.Repeats != 1 {
			t.Errorf("row %d: %+v, want %+v", i, r, w)
		}
		bandwidth := float64(w.bytes) / w.microseconds / 1e3
		if w.microseconds == 0 {
			if !(r.Microseconds > 0) || len(r.Comparisons) != 1 || r.Comparisons[0].Peer != want[2].side || !(r.Comparisons[0].Ratio > 0) {
				t.Errorf("row %d: %+v is not measured or not compared", i, r)
			}
		} else if !near(r.Microseconds, w.microseconds) || !near(r.AlgorithmGBs, bandwidth) || !near(r.BusGBs, bandwidth) || r.Comparisons != nil {
			t.Errorf("row %d: %+v, want %g µs and %g GB/s", i, r, w.microseconds, bandwidth)
		}
	}
	if got := result.Rows[3].Comparisons[0]; got.Name != "all-reduce of 40 MB, 2 workers, lockstep, shared memory" || got.Target != 2 {
		t.Errorf("comparison %+v", got)
	}
}

func near(got, want float64) bool { return fmt.Sprintf("%.9g", got) == fmt.Sprintf("%.9g", want) }

// TestMeasureAlgorithms checks that each algorithm has its row, that "direct" over shared memory is
// the default and has its target, and that it is left out over sockets.
func TestMeasureAlgorithms(t *testing.T) {
	o := smallAllReduce(t)
	o.Transports, o.Algorithms = []string{"shm", "unix"}, []string{"direct", "ring", "tree"}
	result, err := MeasureAllReduce(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"lockstep, shared memory", "lockstep, shared memory, ring", "lockstep, shared memory, tree", "lockstep, unix ring", "lockstep, unix, tree", "fake, none, rank 0"}
	for i, r := range result.Rows {
		if i >= len(want) || r.Side != want[i] || r.Wrong != 0 {
			t.Errorf("row %d: %+v, want %q", i, r, want)
		}
		if target := r.Comparisons != nil && r.Comparisons[0].Target > 0; target != (i == 0) {
			t.Errorf("row %d: %+v has a target: %v", i, r, target)
		}
	}
	if len(result.Rows) != len(want) {
		t.Errorf("%d rows, want %d", len(result.Rows), len(want))
	}
}

// TestBusBandwidth uses the example of nccl-tests' doc/PERFORMANCE.md: the factor of an
// all-reduce is 2(n−1)/n, 1.5 for 4 ranks. 3 repeats of 2 all-reduces of 8 MB, the median of
// which takes 4 ms each, are 2 GB/s.
func TestBusBandwidth(t *testing.T) {
	side := allReduceSide{&comparison.Side{About: comparison.Greeting{Name: "a"}}, "shm"}
	r := newAllReduceRow(side, 4, 8_000_000, 2, []float64{0.02, 0.008, 0.004}, 3)
	if !near(r.Microseconds, 4000) || !near(r.AlgorithmGBs, 2) || !near(r.BusGBs, 3) || r.Wrong != 3 || r.Count != 2_000_000 {
		t.Errorf("got %+v", r)
	}
}

// TestAllReduceTargets: the targets are for two workers over shared memory, and over TCP beside a
// stream.
func TestAllReduceTargets(t *testing.T) {
	for _, c := range []struct {
		transport    string
		ranks, bytes int
		peer         string
		want         float64
	}{
		{"shm", 2, 1000, peerOpenMPI, 0.9},
		{"shm", 2, 63_996, peerOpenMPI, 0.9},
		{"shm", 2, 64_000, peerOpenMPI, 1},
		{"shm", 2, 1000, peerGloo, 2},
		{"shm", 2, 100_000_000, peerGloo, 4},
		{"shm", 4, 64_000, peerOpenMPI, 0},
		{"tcp", 2, 64_000, peerGloo, 0},
		{"tcp", 2, 7_999_996, peerStream, 0},
		{"tcp", 2, 8_000_000, peerStream, 0.75},
	} {
		if got := allReduceTarget(&AllReduceRow{key: c.transport, Ranks: c.ranks, Bytes: c.bytes}, c.peer); got != c.want {
			t.Errorf("%+v: got %g", c, got)
		}
	}
}

// TestWrongSums checks that wrong elements are counted, also if only their order is wrong.
func TestWrongSums(t *testing.T) {
	const ranks = 3
	sum := func(b []float32) { // what the other two ranks add: 1 and 2 more per rank
		for i := range b {
			b[i] = ranks*b[i] + 3
		}
	}
	for _, c := range []struct {
		name   string
		reduce func(b []float32)
		want   int
	}{
		{"right", sum, 0},
		{"one element", func(b []float32) { sum(b); b[7]++ }, 1},
		{"nothing was added", func([]float32) {}, 200},
		{"shifted", func(b []float32) { sum(b); copy(b, b[1:]) }, 199}, // all but the last
	} {
		b := make([]float32, 200)
		a, err := allReduceRequest{size: 800}.answer(b, 0, ranks, nil, func() error { c.reduce(b); return nil })
		if err != nil || a.Wrong == nil || *a.Wrong != c.want {
			t.Errorf("%s: got %v, %v, want %d wrong elements", c.name, a, err, c.want)
		}
	}
}

func TestWrongPeer(t *testing.T) {
	o := smallAllReduce(t)
	t.Setenv("FAKE_WRONG", `"wrong": 5`)
	result, err := MeasureAllReduce(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	// Two processes, checked before and after.
	want := "bench allreduce: 20 wrong elements in all-reduces of 4 bytes by 2 workers of fake, none, rank 0"
	if err := result.CheckResults(); err == nil || err.Error() != want {
		t.Errorf("error %v, want %q", err, want)
	}
	t.Setenv("FAKE_WRONG", "")
	if _, err := MeasureAllReduce(t.Context(), o); err == nil || !strings.Contains(err.Error(), "the answer has no number of wrong elements") {
		t.Errorf("no check: error %v", err)
	}
}

// TestMissingPeerIsSkipped: a peer that is missing is named, unless it was asked for.
func TestMissingPeerIsSkipped(t *testing.T) {
	o := smallAllReduce(t)
	t.Setenv("FAKE_EXIT", "3")
	if _, err := MeasureAllReduce(t.Context(), o); !errors.Is(err, ErrPeerMissing) {
		t.Errorf("gloo was asked for: error %v", err)
	}
	t.Setenv("PATH", t.TempDir()) // without mpirun
	o.Transports = []string{"mpi"}
	if _, err := MeasureAllReduce(t.Context(), o); !errors.Is(err, ErrPeerMissing) {
		t.Errorf("mpi was asked for: error %v", err)
	}
	o.Transports, o.Beside, o.Peer.Python = nil, nil, "/bin/sh"
	result, err := MeasureAllReduce(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	// Over shared memory, unix sockets and TCP, and the stream.
	if len(result.Rows) != 4 || len(result.Skipped) != 3 {
		t.Fatalf("result %+v", result)
	}
	var text bytes.Buffer
	if err := result.Write(&text, false); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"skipped transport mpi: the peer of this benchmark is missing: found no mpirun of Open MPI",
		"skipped openmpi: the peer of this benchmark is missing: found no mpirun of Open MPI: install openmpi-bin with environment/peers/install",
		"skipped gloo: the peer of this benchmark is missing",
		"machine: ",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, text.String())
		}
	}
}

// TestAllReduceTable: the columns are those of nccl-tests; scripts read the keys.
func TestAllReduceTable(t *testing.T) {
	a := &AllReduces{Machine: "m", Commit: "c"}
	a.addRows([]AllReduceRow{
		{Ranks: 2, Side: "lockstep, shared memory", Bytes: 1000, Count: 250, Type: "float", Microseconds: 2.5, AlgorithmGBs: 0.4, BusGBs: 0.4, Repeats: 1, key: "shm", bandwidths: []float64{0.4}},
		{Ranks: 2, Side: "lockstep, tcp ring", Bytes: 1000, Count: 250, Type: "float", key: "tcp", bandwidths: []float64{0.1}},
		{Ranks: 2, Side: "Open MPI v4.1.4", Bytes: 1000, Count: 250, Type: "float", Wrong: 7, key: peerOpenMPI, bandwidths: []float64{0.5}},
	})
	var text bytes.Buffer
	if err := a.Write(&text, false); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(text.String(), "\n")
	for i, want := range []string{
		"size count type redop ranks time algbw busbw #wrong side",
		"(B) (elements) (us) (GB/s) (GB/s)",
		"1000 250 float sum 2 2.50 0.400 0.400 0 lockstep, shared memory",
		"1000 250 float sum 2 0.00 0.000 0.000 0 lockstep, tcp ring",
		"1000 250 float sum 2 0.00 0.000 0.000 7 Open MPI v4.1.4",
	} {
		if got := strings.Join(strings.Fields(lines[i]), " "); got != want {
			t.Errorf("line %d: got %q, want %q", i, got, want)
		}
	}
	// 0.4 against 0.5 GB/s, of which 0.9 is required.
	if got := strings.Count(text.String(), "all-reduce of 1 kB"); got != 1 || !strings.Contains(text.String(), "≥ 0.90, missed") {
		t.Errorf("%d comparisons, want one that is missed:\n%s", got, text.String())
	}
	text.Reset()
	if err := a.Write(&text, true); err != nil {
		t.Fatal(err)
	}
	var back map[string]any
	if err := json.Unmarshal(text.Bytes(), &back); err != nil {
		t.Fatal(err)
	}
	row := back["rows"].([]any)[0].(map[string]any)
	for _, key := range []string{"ranks", "side", "size_bytes", "count", "type", "time_us", "algbw_gb_per_second", "busbw_gb_per_second", "wrong", "repeats", "comparisons"} {
		if _, ok := row[key]; !ok {
			t.Errorf("no key %q in %v", key, row)
		}
	}
}

func TestInvalidAllReduceOptions(t *testing.T) {
	good := AllReduceOptions{Workers: []int{2}, Sizes: []int{4}, Transports: []string{"shm"}, Repeats: 1}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	for _, c := range []struct {
		change func(*AllReduceOptions)
		want   string
	}{
		{func(o *AllReduceOptions) { o.Workers = []int{2, 1} }, "got [2 1] workers"},
		{func(o *AllReduceOptions) { o.Workers = nil }, "got [] workers"},
		{func(o *AllReduceOptions) { o.Repeats = 0 }, "0 repeats"},
		{func(o *AllReduceOptions) { o.Sizes = nil }, "no sizes"},
		{func(o *AllReduceOptions) { o.Sizes = []int{6} }, "invalid size 6"},
		{func(o *AllReduceOptions) { o.Transports = []string{} }, "no transport"},
		{func(o *AllReduceOptions) { o.Transports = []string{"ipx"} }, `unknown transport "ipx": use shm, unix, tcp or mpi`},
		{func(o *AllReduceOptions) { o.Algorithms = []string{"rings"} }, `unknown algorithm "rings" (did you mean ring?): use auto, direct, ring, halving, tree or hierarchical`},
		{func(o *AllReduceOptions) { o.Transports, o.Algorithms = []string{"tcp"}, []string{"direct"} }, "the algorithm direct needs shared memory"},
		{func(o *AllReduceOptions) { o.Beside = []string{"nccl"} }, `unknown peer "nccl": use openmpi, gloo or stream`},
		{func(o *AllReduceOptions) { o.Beside = []string{"stream"} }, "peer stream supports only 2 workers over TCP"},
		{func(o *AllReduceOptions) { o.Beside, o.Transports, o.Workers = []string{"stream"}, nil, []int{2, 4} }, "use 2 workers"},
	} {
		o := good
		c.change(&o)
		if err := o.Validate(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, want one with %q", err, c.want)
		}
	}
	for _, c := range []struct {
		low, high, factor int
		want              string // the sizes, or the error
	}{
		{1000, 100_000_000, 10, "[1000 10000 100000 1000000 10000000 100000000]"},
		{10, 50, 2, "[8 20 40]"}, // whole numbers of 4 bytes
		{8, 8, 2, "[8]"},
		{1000, 10, 2, "from 1000 to 10 bytes"},
		{0, 10, 2, "at least 4 bytes"},
		{8, 10, 1, "a factor of at least 2"},
		{8, 5e9, 2, "at most"},
	} {
		sizes, err := BufferSizes(c.low, c.high, c.factor)
		if got := fmt.Sprint(sizes, err); !strings.Contains(got, c.want) {
			t.Errorf("%+v: got %s", c, got)
		}
	}
}

// TestStream measures a stream. It is compared with the all-reduces over TCP only.
func TestStream(t *testing.T) {
	o := smallAllReduce(t)
	o.Sizes, o.Transports, o.Beside = []int{1_000_000, 4}, []string{"shm", "tcp"}, []string{peerStream}
	result, err := MeasureAllReduce(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if err := result.CheckResults(); err != nil {
		t.Error(err)
	}
	if len(result.Rows) != 6 {
		t.Fatalf("%d rows, want 6", len(result.Rows))
	}
	for i, r := range result.Rows {
		if !(r.Microseconds > 0) || len(r.Comparisons) != []int{0, 1, 0}[i%3] {
			t.Errorf("row %d: %+v", i, r)
		}
	}
	if c := result.Rows[1].Comparisons[0]; c.Peer != "TCP stream, both ways" || !(c.Ratio > 0) {
		t.Errorf("comparison %+v", c)
	}
}

// TestOpenMPI measures with the real mpirun, in ranks of this test binary: Lockstep's transport and
// Open MPI itself.
func TestOpenMPI(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	if _, err := comparison.OpenMPICommand(t.Context(), 2); errors.Is(err, ErrPeerMissing) {
		t.Skip("openmpi-bin: Open MPI is not installed: run environment/peers/install")
	}
	benchtest.UseTestBinaryAsWorker(t)
	result, err := MeasureAllReduce(t.Context(), AllReduceOptions{
		Workers: []int{2, 3}, Sizes: []int{4, 100_000}, Transports: []string{"unix", "mpi"}, Beside: []string{peerOpenMPI}, Repeats: 2,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := result.CheckResults(); err != nil {
		t.Error(err)
	}
	for i, r := range result.Rows {
		side := []string{"lockstep, unix ring", "lockstep, Open MPI v", "Open MPI v"}[i%3]
		if !(r.Microseconds > 0) || !strings.HasPrefix(r.Side, side) || r.Ranks != 2+i/6 {
			t.Errorf("row %d: %+v", i, r)
		}
	}
	if len(result.Rows) != 12 {
		t.Errorf("%d rows, want 12", len(result.Rows))
	}
}
