package scaling

import (
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"gonum.org/v1/gonum/stat"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/runs"
)

// TestBottleneckPublished analyzes the published trials of the SC21 tutorial on one A100 (IO,
// SYNTHETIC and FULL, with their spreads). The base run is limited by its loader, and the run
// with data on the GPU by its computation.
func TestBottleneckPublished(t *testing.T) {
	var all []runs.Run
	for i, c := range []struct {
		series                              string
		io, ioSpread, synthetic, s, full, f float64
	}{
		{"1 baseline", 89.177, 1.011, 376.537, .604, 89.971, .621},
		{"2 workers 8", 303.304, 1.468, 359.426, 3.380, 252.044, .253},
		{"3 gpu loader", 779.272, 1.352, 421.592, .008, 396.084, .058},
		{"4 amp", 786.928, 6.439, 661.640, .025, 512.194, .569},
		{"5 all", 792.513, 37.445, 707.966, .318, 538.593, .193},
	} {
		all = append(all, runs.Run{
			Dir: fmt.Sprint("run", i), Kind: "text log", Info: runs.Info{Series: c.series, Workers: 1, Status: runs.StatusDone},
			Trials: []runs.Trial{
				{Name: "IO", Rate: c.io, Spread: c.ioSpread}, {Name: "SYNTHETIC", Rate: c.synthetic, Spread: c.s}, {Name: "FULL", Rate: c.full, Spread: c.f},
			},
		})
	}
	s := study(t, all)
	b, err := s.Bottleneck()
	check(t, err)
	for i, want := range []struct {
		bound           string
		share, headroom float64 // by hand: full/min(io, synthetic), max(io, synthetic)/full
	}{
		{BoundInput, 1.009, 4.185},
		{BoundInput, 0.831, 1.426},
		{BoundCompute, 0.939, 1.967},
		{BoundCompute, 0.774, 1.536},
		{BoundCompute, 0.761, 1.471},
	} {
		r := b.Rows[i]
		if r.Bound != want.bound || math.Abs(r.Share-want.share) > 1e-3 || math.Abs(r.Headroom-want.headroom) > 1e-3 {
			t.Errorf("%+v, expected %+v", r, want)
		}
	}
	wantLine(t, []string{b.Rows[0].Sentence}, "the input is the limit: FULL reaches 100.9 % of the 89.18 samples/s", "faster computation gains nothing; without this limit, training would be at most 4.185 times as fast.")
	wantLine(t, []string{b.Rows[3].Sentence}, "the computation is the limit", "interfere with each other")
	if b.Rows[0].Overlap != 1 || math.Abs(b.Rows[0].IO.Low-(89.177-1.011)) > 1e-9 {
		t.Errorf("%+v", b.Rows[0])
	}
	if table := b.Table(); table.Err != nil || table.Nrow() != 5 || !strings.Contains(b.HTML(), "<td>input</td>") || b.String() == "" {
		t.Error(b)
	}
	if len(s.Problems) > 0 {
		t.Error(s.Problems)
	}
	if _, err := study(t, seeds("ddp", 1, 10)).Bottleneck(); err == nil || !strings.Contains(err.Error(), "no run has the trials") {
		t.Errorf("error %v", err)
	}
}

// rates returns a series of runs with a logged throughput, on nodes of 4 GPUs.
func rates(series string, byNodes map[int]float64) []runs.Run {
	var all []runs.Run
	nan := math.NaN()
	for nodes, rate := range byNodes {
		all = append(all, runs.Run{
			Dir: fmt.Sprint(series, nodes), Kind: "text log", Info: runs.Info{Series: series, Workers: 4 * nodes, Nodes: nodes, Status: runs.StatusDone, BatchPerWorker: 16},
			Epochs: []runs.Epoch{{
				Epoch: 1, Seconds: nan, SamplesPerSecond: rate, TrainLoss: nan, ValLoss: nan, IoU: nan, Dice: nan,
				ValSeconds: nan, LearningRate: nan, Accuracy: nan, ValAccuracy: nan,
			}},
		})
	}
	return all
}

// TestWeakScalingPublished reproduces the conclusions of a published weak-scaling study on
// nodes of 4 GPUs, with batches of 64 and 128 (read from a plot, ±1 %): 78 % and 89 %
// efficiency at 32 nodes with real data, and 25 % and 12 % of the speed lost to communication.
func TestWeakScalingPublished(t *testing.T) {
	s := study(t,
		rates("real 64", map[int]float64{1: 2061, 2: 3845, 4: 6700, 8: 13190, 16: 26230, 32: 51620}),
		rates("real 128", map[int]float64{1: 2202, 2: 4231, 4: 7950, 8: 15769, 16: 31368, 32: 62949}),
		rates("synthetic 64", map[int]float64{1: 2701, 2: 4850, 4: 9092, 8: 17770, 16: 35000, 32: 67800}),
		rates("synthetic 64 alone", map[int]float64{1: 2860, 2: 5755, 4: 11510, 8: 22780, 16: 45360, 32: 90760}),
		rates("synthetic 128", map[int]float64{1: 2973, 2: 5900, 4: 11200, 8: 21830, 16: 43485, 32: 86400}),
		rates("synthetic 128 alone", map[int]float64{1: 3075, 2: 6130, 4: 12290, 8: 24597, 16: 49151, 32: 98214}))
	s, err := s.WithRule(Rule{DropFirst: 1, Per: PerNode})
	check(t, err)
	for series, want := range map[string]float64{"real 64": .78, "real 128": .89} {
		i, err := s.findPointIndex(series, 128)
		check(t, err)
		p := s.Points[i]
		if math.Abs(p.Efficiency.Value-want) > 0.005 || p.Size != 32 || p.Baseline != 1 || p.Scaling != ScalingWeak {
			t.Errorf("%s: efficiency %.3f at %d nodes (%s), published %.2f", series, p.Efficiency.Value, p.Size, p.Scaling, want)
		}
	}
	for series, want := range map[string]float64{"synthetic 64": .25, "synthetic 128": .12} {
		o, err := s.Overhead(series, series+" alone")
		check(t, err)
		last := o.Rows[len(o.Rows)-1]
		if math.Abs(last.Overhead.Value-want) > 0.005 || last.Size != 32 || len(o.Rows) != 6 {
			t.Errorf("%s: overhead %.3f at %d nodes, published %.2f", series, last.Overhead.Value, last.Size, want)
		}
		wantLine(t, []string{o.Sentence}, "communication costs "+english.FormatPercent(math.Round(1000*last.Overhead.Value)/1000), "at 32 nodes", "at 1 node.")
		if o.Table().Err != nil || !strings.Contains(o.HTML(), "overhead") {
			t.Error(o)
		}
	}
	if _, err := s.Overhead("real 64", "none"); err == nil {
		t.Error("an overhead over nothing")
	}
}

// TestBottleneckScatter checks that no bottleneck is named if the trials vary too much to
// distinguish IO from SYNTHETIC.
func TestBottleneckScatter(t *testing.T) {
	sentence := func(io, synthetic, full []float64) BottleneckRow {
		trial := func(name string, rates []float64) runs.Trial {
			return runs.Trial{Name: name, Rate: stat.Mean(rates, nil), Spread: stat.PopStdDev(rates, nil), Rates: rates}
		}
		r := runs.Run{Dir: "run", Kind: "text log", Info: runs.Info{Series: "ddp", Workers: 1, Status: runs.StatusDone}}
		r.Trials = []runs.Trial{trial("IO", io), trial("SYNTHETIC", synthetic), trial("FULL", full)}
		b, err := study(t, []runs.Run{r}).Bottleneck()
		check(t, err)
		return b.Rows[0]
	}
	fast := []float64{900, 1000, 1100}
	for _, c := range []struct {
		io, synthetic, full []float64
		bound, want         string
	}{
		{fast, []float64{102, 86, 67}, []float64{64, 88, 65}, BoundCompute, "FULL reaches 85.1 % of the 85.00 samples/s that the computation alone allows; a faster loader gains nothing; the rest is within the variation of the trials; without"},
		{fast, []float64{102, 86, 92}, []float64{64, 68, 65}, BoundCompute, "interfere with each other"},
		{[]float64{100, 80, 90}, []float64{102, 86, 67}, []float64{64, 88, 65}, BoundUnclear, "the input alone (90.00) and the computation alone (85.00 samples/s) differ by no more than the variation of their trials"},
		{[]float64{50, 60, 66}, []float64{102, 86, 67}, []float64{49, 58, 60}, BoundInput, "the input is the limit: FULL reaches 94.9 % of"},
	} {
		if r := sentence(c.io, c.synthetic, c.full); r.Bound != c.bound || !strings.Contains(r.Sentence, c.want) {
			t.Errorf("%s: %s", r.Bound, r.Sentence)
		}
	}
}

// TestTimeUseTrace splits a trace of two steps of 10 s by hand. In the first,
// computing 0 to 4 and 6 to 8, communication 3 to 7 (1 s hidden, then 2 s
// exposed, then 1 s hidden), loading 7.5 to 9 (1 s exposed), idle 1 s. The
// second contains only computation, 5 s.
func TestTimeUseTrace(t *testing.T) {
	var spans []runs.Span
	add := func(rank int, kind, name string, from, to float64) {
		spans = append(spans, runs.Span{Rank: rank, Kind: kind, Name: name, Start: from, Seconds: to - from})
	}
	for rank := range 2 {
		add(rank, runs.SpanOther, "ProfilerStep#2", 10, 20)
		add(rank, runs.SpanOther, "ProfilerStep#1", 0, 10)
		add(rank, runs.SpanCompute, "a", 0, 4)
		add(rank, runs.SpanCompute, "b", 1, 2) // another stream
		add(rank, runs.SpanCompute, "c", 6, 8)
		add(rank, runs.SpanCommunication, "d", 3, 7)
		add(rank, runs.SpanData, "e", 7.5, 9)
		add(rank, runs.SpanCompute, "f", 12, 17)
	}
	s := study(t, []runs.Run{{Dir: "trace", Kind: "trace", Spans: spans, Info: runs.Info{Series: "ddp", Workers: 2, Status: runs.StatusDone}}})
	u := s.TimeUse()
	if len(u.Rows) != 1 {
		t.Fatalf("%d rows:\n%s", len(u.Rows), u)
	}
	r := u.Rows[0]
	near(t, "step", r.Step.Value, 10)
	near(t, "compute", r.Compute.Value, (6+5)/2.0)
	near(t, "exposed", r.Exposed.Value, 2/2.0)
	near(t, "hidden", r.Hidden.Value, 2/2.0)
	near(t, "data", r.Data.Value, 1/2.0)
	near(t, "idle", r.Idle.Value, (1+5)/2.0)
	if r.Ranks != 2 || r.Steps != 2 || r.Source != "trace" || len(s.Problems) > 0 {
		t.Errorf("%+v, problems %v", r, s.Problems)
	}
	wantLine(t, []string{u.String()}, "55 % of a step is compute, 5 % waiting for data, 10 % exposed communication, 30 % idle; 50 % of the communication is hidden")
}

func TestTimeUseSteps(t *testing.T) {
	u := breakdownStudy(t).TimeUse()
	if len(u.Rows) != 3 || len(u.Problems) > 0 {
		t.Fatalf("%s", u)
	}
	// As in TestBreakdown: with overlap, 0.1 s of the 0.25 s of the all-reduce is exposed.
	r := u.Rows[1]
	near(t, "step", r.Step.Value, 1)
	near(t, "compute", r.Compute.Value, 0.2+0.25+0.1)
	near(t, "exposed", r.Exposed.Value, 0.1)
	near(t, "hidden", r.Hidden.Value, (0.2+0.1)/2)
	near(t, "idle", r.Idle.Value, 0.25)
	if table := u.Table(); table.Err != nil || table.Nrow() != 3 || !strings.Contains(u.HTML(), "exposed_<wbr>ms") {
		t.Error(u)
	}
}

// TestStragglersTrace analyzes 12 marked steps of 1 s on 3 ranks with separate clocks. Rank 2
// arrives at the first collective 50 ms after the others, and all ranks leave it together: the
// others spend 60 ms in it, rank 2 spends 10 ms.
func TestStragglersTrace(t *testing.T) {
	traced := func(ranks, workers int, name string) *Stragglers {
		var spans []runs.Span
		for rank := range ranks {
			for step := range 12 {
				from := float64(step) + 7.3*float64(rank)
				late := 0.0
				if rank == 2 {
					late = 0.05
				}
				spans = append(spans,
					runs.Span{Rank: rank, Kind: runs.SpanOther, Name: name, Start: from, Seconds: 1},
					runs.Span{Rank: rank, Kind: runs.SpanCommunication, Name: "second", Start: from + 0.8, Seconds: 0.02 + 0.1*float64(rank)},
					runs.Span{Rank: rank, Kind: runs.SpanCommunication, Name: "first", Start: from + 0.3 + late, Seconds: 0.06 - late},
				)
			}
		}
		return study(t, []runs.Run{{
			Dir: "trace", Kind: "trace", Spans: spans,
			Info: runs.Info{Series: "ddp", Workers: workers, Status: runs.StatusDone},
		}}).Stragglers()
	}
	g := traced(3, 3, "ProfilerStep#1")
	if len(g.Rows) != 3 || len(g.Problems) > 0 {
		t.Fatalf("%s", g)
	}
	late := g.Rows[2]
	near(t, "late", late.LateSeconds, 0.05)
	near(t, "cost", late.CostSeconds, 0.05)
	near(t, "share", late.CostShare, 0.05)
	if late.Source != "trace" || late.Steps != 12 || late.Last != 12 || !late.Straggler || g.Rows[0].Straggler || g.Rows[1].Straggler {
		t.Errorf("%s", g)
	}
	wantLine(t, []string{g.Sentence}, "rank 2 of trace arrives last at the collective in 100 % of 12 steps (expected by chance: 33.3 %)", "50.00 ms per step (5 % of a step)")

	for _, c := range []struct {
		g    *Stragglers
		want string
	}{
		{traced(2, 3, "ProfilerStep#1"), "2 of 3 ranks"},
		{traced(3, 3, "unmarked"), "call the profiler's step()"},
	} {
		if len(c.g.Rows) != 0 || len(c.g.Problems) != 1 || !strings.Contains(c.g.Problems[0].Reason, c.want) {
			t.Errorf("%d rows, problems %v, expected %q", len(c.g.Rows), c.g.Problems, c.want)
		}
	}
}

// TestStragglers lets rank 1 of 4 arrive 30 ms late in every second step. In the other steps,
// one rank after the other is 1 ms late.
func TestStragglers(t *testing.T) {
	dir := t.TempDir()
	writeSteps(t, filepath.Join(dir, "late"), 4, 1, runs.Info{}, func(rank, step int) runs.Step {
		at := 0.1
		switch {
		case step%2 == 0 && rank == 1:
			at += 0.03
		case step%2 == 1 && rank == step/2%4:
			at += 0.001
		}
		return runs.Step{Forward: 0.2, UntilCollective: at}
	})
	s, err := Read(dir)
	check(t, err)
	g := s.Stragglers()
	if len(g.Rows) != 4 || len(g.Problems) > 0 {
		t.Fatalf("%s", g)
	}
	late := g.Rows[1]
	// Of the 20 counted steps, rank 1 is last in 10, and in 2 or 3 of the other 10.
	if late.Steps != 20 || late.Last < 12 || late.Last > 13 || !late.Straggler || late.Expected != 0.25 {
		t.Errorf("%+v", late)
	}
	if want := (10*0.03 + float64(late.Last-10)*0.001) / 20; math.Abs(late.CostSeconds-want) > 1e-9 || math.Abs(late.CostShare-want/0.2) > 1e-9 {
		t.Errorf("cost %g s (%g of a step), expected %g", late.CostSeconds, late.CostShare, want)
	}
	for _, rank := range []int{0, 2, 3} {
		if g.Rows[rank].Straggler || g.Rows[rank].LateSeconds > 0 {
			t.Errorf("%+v", g.Rows[rank])
		}
	}
	wantLine(t, []string{g.Sentence}, "rank 1 of", "arrives last at the collective in 6", "of 20 steps (expected by chance: 25 %)")
	if g.Table().Err != nil || !strings.Contains(g.HTML(), "cost_<wbr>ms") {
		t.Error(g)
	}
	if none := study(t, seeds("ddp", 2, 10)).Stragglers(); !strings.Contains(none.Sentence, "no run with several workers") {
		t.Error(none)
	}
}

// TestStragglersTraceWithoutCollective checks that a step is ignored if a rank has no
// collective in it: the rank's collective in the next step is not used instead.
func TestStragglersTraceWithoutCollective(t *testing.T) {
	var spans []runs.Span
	for rank := range 2 {
		for step := range 6 {
			from := float64(step)
			spans = append(spans, runs.Span{Rank: rank, Kind: runs.SpanOther, Name: "ProfilerStep#1", Start: from, Seconds: 1})
			if rank == 1 && step%2 == 0 { // and in each step that follows it comes first by far
				continue
			}
			spans = append(spans, runs.Span{Rank: rank, Kind: runs.SpanCommunication, Name: "nccl", Start: from + 0.2, Seconds: 0.1 + 0.3*float64(rank)})
		}
	}
	g := study(t, []runs.Run{{Dir: "trace", Kind: "trace", Spans: spans, Info: runs.Info{Series: "ddp", Workers: 2, Status: runs.StatusDone}}}).Stragglers()
	if len(g.Rows) != 2 || g.Rows[0].Steps != 3 || g.Rows[0].Last != 3 || g.Rows[1].Last != 0 {
		t.Fatalf("%s", g)
	}
	near(t, "late", g.Rows[0].LateSeconds, 0.3)
}

// TestTimeUseRepeats checks that the intervals are the same each time: the ranks are summed in
// a fixed order, and the sums are the seed of the random draws.
func TestTimeUseRepeats(t *testing.T) {
	var spans []runs.Span
	for rank := range 7 {
		for step := range 9 {
			from := float64(step) * 1.1
			spans = append(spans,
				runs.Span{Rank: rank, Kind: runs.SpanOther, Name: "ProfilerStep#1", Start: from, Seconds: 1.1},
				runs.Span{Rank: rank, Kind: runs.SpanCompute, Name: "a", Start: from, Seconds: 0.1/3 + float64(rank*step%5)/7})
		}
	}
	s := study(t, []runs.Run{{Dir: "trace", Kind: "trace", Spans: spans, Info: runs.Info{Series: "ddp", Workers: 7, Status: runs.StatusDone}}})
	first := s.TimeUse().Rows[0]
	for range 40 {
		if again := s.TimeUse().Rows[0]; again != first {
			t.Fatalf("%+v, and then %+v", first, again)
		}
	}
}
