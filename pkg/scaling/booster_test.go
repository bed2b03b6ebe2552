package scaling

import (
	"math"
	"slices"
	"strings"
	"testing"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/runs"
)

// booster contains the published times of ResNet-50 on ImageNet on JUWELS Booster, by number
// of GPUs: the real time of each job as printed by bash's time.
func booster() []runs.Run {
	var all []runs.Run
	for _, j := range []struct {
		workers, nodes  int
		minutes, second float64
	}{
		{1, 1, 342, 11.864},
		{4, 1, 89, 15.923},
		{16, 4, 24, 48.169},
		{32, 8, 13, 10.722},
		{64, 16, 6, 56.457},
		{128, 32, 4, 48.313},
	} {
		all = append(all, runs.Run{
			Dir: english.FormatCount(j.workers, "GPU"), Kind: "text log", WallSeconds: 60*j.minutes + j.second,
			Info: runs.Info{Series: "booster", Workers: j.workers, Nodes: j.nodes, Status: runs.StatusDone},
		})
	}
	return all
}

// TestBooster reproduces the published speed-ups of the complete jobs: 3.833, 13.797,
// 25.966, 49.301 and 71.214.
func TestBooster(t *testing.T) {
	s, err := FromRuns(booster())
	check(t, err)
	want := []float64{1, 3.833, 13.797, 25.966, 49.301, 71.214}
	for i, p := range s.Points {
		if math.Abs(p.Speedup.Value-want[i]) > 5e-4 {
			t.Errorf("at %d: speed-up %.4f, published %.3f", p.Workers, p.Speedup.Value, want[i])
		}
		if !math.IsNaN(p.EpochSeconds.Value) || p.WallSeconds.N != 1 {
			t.Errorf("at %d: %+v", p.Workers, p)
		}
	}
	if len(s.Problems) != 0 {
		t.Errorf("problems %v", s.Problems)
	}
	wantLine(t, s.Notes, "series booster", "only the time of the whole job", "including start-up and validation")
	f, err := s.Fit("")
	check(t, err)
	if best := f.Best(); best.Law != LawAmdahl || best.R2 < 0.998 {
		t.Error(f)
	}
	wantLine(t, []string{f.Sentence}, "Amdahl's law", "beyond 75 workers, each additional worker adds less than half the throughput of a single one")
	for _, b := range f.Best().Band([]int{1, 4, 16, 32, 64, 128}) {
		i := slices.IndexFunc(s.Points, func(p Point) bool { return p.Workers == b.Size })
		if want[i] < b.Low || want[i] > b.High {
			t.Errorf("speed-up %g at %d is outside of the band %+v", want[i], b.Size, b)
		}
	}
	// Per node of 4 GPUs, the baseline is the full node: 89m15.923s.
	s, err = s.WithRule(Rule{Per: PerNode, Baseline: BaselineOne})
	check(t, err)
	last := s.Points[len(s.Points)-1]
	if last.Size != 32 || last.Baseline != 1 || math.Abs(last.Speedup.Value-71.214/3.833) > 5e-3 || math.Abs(last.Efficiency.Value-71.214/3.833/32) > 2e-4 {
		t.Errorf("per node: %+v", last)
	}
	// The job on 1 of a node's 4 GPUs does not measure a node.
	f, err = s.Fit("")
	check(t, err)
	if amdahl := f.Law(LawAmdahl); f.Runs != 5 || math.Abs(amdahl.Speedup(1)-1) > 0.05 || amdahl.R2 < 0.998 {
		t.Error(f)
	}
	wantLine(t, []string{f.Sentence}, "5 runs are too few for a reliable choice of a law: compare the other laws, or add runs")
	if !strings.Contains(s.String(), "baseline: 1 node") {
		t.Error(s)
	}
}
