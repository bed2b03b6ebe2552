package schedule

import (
	"math"
	"testing"
)

// TestCost compares the model with the formulas of R. Thakur, R. Rabenseifner and W. Gropp,
// 2005, for n = 4 ranks and a buffer of B bytes, without the time of additions: a ring takes
// 2(n−1)α + 2(n−1)/n·B/β, recursive halving 2 log2(n)·α and the same bytes. A tree of 4 ranks
// has two levels; rank 0 receives from two children at once, so 2B + B go up, and the same go
// down.
func TestCost(t *testing.T) {
	between, within := Link{LatencySeconds: 0.5, BytesPerSecond: 1000}, Link{LatencySeconds: 0.125, BytesPerSecond: 4000}
	for _, tt := range []struct {
		algorithm string
		ranks     int
		perHost   int
		want      Cost
	}{
		{Ring, 4, 1, Cost{6, 12000, 6*0.5 + 12}},
		{Halving, 4, 1, Cost{4, 12000, 4*0.5 + 12}},
		{Tree, 4, 1, Cost{4, 6 * 8000, 4*0.5 + 48}},
		{Ring, 1, 1, Cost{}},
		// Two hosts of two ranks. Hierarchical: B within each host, a ring of two hosts that
		// sends B/2 twice, and B within each host.
		{Hierarchical, 4, 2, Cost{2, 8000, 2*0.5 + 8 + 2*(0.125+2)}},
		// In a ring of ranks, one of two neighbors is on the other host: B/4 in 6 steps.
		{Ring, 4, 2, Cost{6, 12000, 6*0.5 + 12}},
		// Halving: the first and the last exchange are between hosts, where two ranks share a link.
		{Halving, 4, 2, Cost{2, 2 * 8000, 2*0.5 + 16 + 2*(0.125+0.5)}},
	} {
		s, err := New(tt.algorithm, Topology{Ranks: tt.ranks, PerNode: tt.perHost}, 1)
		if err != nil {
			t.Fatal(err)
		}
		got := s.Cost(8000, tt.perHost, between, within)
		if got.Steps != tt.want.Steps || got.Bytes != tt.want.Bytes || math.Abs(got.Seconds-tt.want.Seconds) > 1e-9 {
			t.Errorf("%s, %d ranks, %d per host: got %+v, want %+v", tt.algorithm, tt.ranks, tt.perHost, got, tt.want)
		}
	}
}
