package workspace

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"lockstep/pkg/engine/cpu/internal/kernel"
)

// TestMerge compares means and sums of squared differences, taken in parts of several
// sizes, with two passes in float64. The mean is a hundred times the deviation, so that
// sums of squares of the values themselves would lose the result.
func TestMerge(t *testing.T) {
	set, err := kernel.ChooseKernelSet("go")
	if err != nil {
		t.Fatal(err)
	}
	s := &ChannelStatistics{Channels: 2, Pixels: []int{1, 512, 7, 100}}
	partial := kernel.NewAlignedFloats(s.PartialSumFloats())
	rng := rand.New(rand.NewPCG(1, 2))
	var all [2][kernel.Lanes][]float64
	for part, pixels := range s.Pixels {
		for channel := range s.Channels {
			x := kernel.NewAlignedFloats(pixels * kernel.Lanes)
			for i := range x {
				x[i] = float32(100 + rng.NormFloat64())
				list := &all[channel][i%kernel.Lanes]
				*list = append(*list, float64(x[i]))
			}
			set.Deviations(&x[0], pixels, &s.BeginPartSums(partial, part, channel, x)[0])
		}
	}
	for channel := range s.Channels {
		mean, m2 := s.MergePartSums(partial, channel)
		for l, list := range all[channel] {
			wantMean, wantM2 := 0.0, 0.0
			for _, v := range list {
				wantMean += v / float64(len(list))
			}
			for _, v := range list {
				wantM2 += (v - wantMean) * (v - wantMean)
			}
			// Sums of up to 512 differences of about 1 in float32 are off by about 1e-6.
			if math.Abs(mean[l]-wantMean) > 1e-6*wantMean || math.Abs(m2[l]-wantM2) > 1e-5*wantM2 {
				t.Errorf("channel %d: got mean %v and squares %v, want %v and %v", channel*kernel.Lanes+l, mean[l], m2[l], wantMean, wantM2)
			}
		}
	}
	if s.PartSumsOffset(3, 1)+kernel.DeviationSumFloats != s.PartialSumFloats() || slices.Max(partial) < 100 {
		t.Errorf("the last part ends at %d of %d floats", s.PartSumsOffset(3, 1)+kernel.DeviationSumFloats, s.PartialSumFloats())
	}
}

// TestWorkspace checks that Allocate makes the largest sizes that were reserved.
func TestWorkspace(t *testing.T) {
	set, err := kernel.ChooseKernelSet("go")
	if err != nil {
		t.Fatal(err)
	}
	w := New(set, 3)
	before := w.Bytes()
	for _, n := range []int{5, 20, 10} {
		w.ReserveScratch(n)
		w.ReserveSharedScratch(2 * n)
		w.ReserveStatistics(3 * n)
		w.ReserveNormMoments(4 * n)
	}
	workers := w.Allocate()
	if len(workers) != 3 || len(workers[2].Scratch) != 20 || workers[2].Number != 2 {
		t.Errorf("got workers %v", workers)
	}
	if len(w.Shared) != 40 || len(w.Partial) != 60 || len(w.Moments) != 80 {
		t.Errorf("got %d, %d and %d numbers, want 40, 60 and 80", len(w.Shared), len(w.Partial), len(w.Moments))
	}
	if got, want := w.Bytes()-before, int64(4*40+4*60+8*80); got != want {
		t.Errorf("Bytes grew by %d, want %d", got, want)
	}
	w.Release()
	if w.Bytes() != before {
		t.Errorf("Bytes is %d after Release, want %d", w.Bytes(), before)
	}
}
