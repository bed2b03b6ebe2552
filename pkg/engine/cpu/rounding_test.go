package cpu

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"lockstep/pkg/engine"
	"lockstep/pkg/engine/cpu/internal/kernel"
)

// bf16Sets are the instruction sets that can multiply in bf16, see kernel.BF16Sets.
var bf16Sets = []string{"amx", "avx512_bf16", "go"}

// openBF16 starts an engine with precision bf16. It skips the test if this processor lacks the
// instruction set.
func openBF16(t testing.TB, set string, threads int, convolution string) engine.Engine {
	t.Helper()
	if _, err := kernel.ChooseBF16Set(set); err != nil {
		t.Skip(err)
	}
	o := engine.DefaultOptions()
	o.Threads, o.Convolution, o.Precision = threads, convolution, bf16
	e, err := NewWithInstructionSet(o, set)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// fillRounded rounds the values of an input to bf16.
func fillRounded(_ *rand.Rand, _ int, v []float32) {
	for i := range v {
		v[i] = kernel.RoundBF16(v[i])
	}
}

// roundedCases are convolutions that are computed in bf16: channels that fill no group of 32 and
// no block of eight, maps in several bands of rows, small maps with few and with many images,
// windows without a halo and with an even size, and taps that never reach the map.
func roundedCases() []convCase {
	return []convCase{
		{2, 16, 16, 16, 32, 3, 3, 1, 1},
		{3, 24, 6, 5, 40, 3, 3, 1, 1},
		{1, 33, 7, 17, 19, 3, 3, 1, 1},
		{1, 32, 71, 61, 32, 3, 3, 1, 1},
		{2, 64, 9, 8, 70, 1, 1, 1, 0},
		{40, 48, 1, 1, 17, 1, 1, 1, 0},
		{40, 33, 1, 1, 17, 3, 3, 1, 1},
		{33, 32, 4, 4, 64, 3, 3, 1, 1},
		{5, 64, 2, 2, 32, 3, 3, 1, 1},
		{32, 40, 2, 3, 24, 3, 3, 1, 1},
		{1, 20, 9, 12, 18, 2, 5, 1, 0},
		{31, 16, 3, 3, 33, 3, 3, 1, 2},
		{1, 16, 90, 50, 20, 1, 1, 1, 0},
	}
}

// TestRounding compares with the reference in float64. All inputs are numbers of bf16, so that
// rounding them changes nothing, their products are exact in float32, and only sums are rounded:
// the bound is that of the direct algorithm in fp32, see TestConvolution. Any number of threads
// gives the same bits.
func TestRounding(t *testing.T) {
	for _, c := range roundedCases() {
		for _, n := range c.nodes("direct") {
			n.fill = fillRounded
			t.Run(fmt.Sprintf("%s/%d/%s", n.op, len(n.in), c), func(t *testing.T) { n.agreesRounded(t) })
		}
	}
	ones := []int{1, 1, 1}
	for _, c := range []volumeCase{
		{1, 20, 33, []int{2, 5, 14}, []int{3, 3, 3}, ones, ones},
		{2, 40, 24, []int{9, 12, 17}, []int{3, 3, 3}, ones, ones},
		{32, 17, 20, []int{3, 2, 2}, []int{3, 3, 3}, ones, ones},
	} {
		for _, n := range c.nodes("direct") {
			n.fill = fillRounded
			t.Run(fmt.Sprintf("%s/%s", n.op, c), func(t *testing.T) { n.agreesRounded(t) })
		}
	}
}

// agreesRounded compares n with the reference for each instruction set of bf16.
func (n node) agreesRounded(t *testing.T) {
	t.Helper()
	want := n.results(t, truth(t), 1)
	for _, set := range bf16Sets {
		t.Run(set, func(t *testing.T) {
			var first [][]float64
			for _, threads := range []int{1, 2, 3} {
				got := n.results(t, openBF16(t, set, threads, n.convolution), 1)
				for i := range want {
					near(t, "output", got[i], want[i], 1e-5)
					if first != nil {
						near(t, "output with another number of threads", got[i], first[i], 0)
					}
				}
				if first == nil {
					first = got
				}
			}
		})
	}
}

// TestRoundingProperty compares random shapes with the reference, and checks that the engine
// rounds: with inputs that are not numbers of bf16, its results are those of rounded inputs.
func TestRoundingProperty(t *testing.T) {
	for _, set := range bf16Sets {
		t.Run(set, func(t *testing.T) {
			fast, slow := openBF16(t, set, 2, "direct"), truth(t)
			rapid.Check(t, func(r *rapid.T) {
				draw := func(name string, lo, hi int) int { return rapid.IntRange(lo, hi).Draw(r, name) }
				c := convCase{
					n: draw("n", 1, 40), c: draw("c", 16, 50), k: draw("k", 16, 50), r: draw("r", 1, 4), s: draw("s", 1, 4),
					stride: 1, pad: draw("pad", 0, 3),
				}
				c.h, c.w = draw("h", max(1, c.r-2*c.pad), 9), draw("w", max(1, c.s-2*c.pad), 9)
				for _, n := range c.nodes("direct") {
					if len(n.in) == 3 {
						continue // the bias is not rounded
					}
					got := n.results(t, fast, 1)
					n.fill = fillRounded
					want := n.results(t, slow, 1)
					for i := range want {
						near(t, fmt.Sprintf("%s of %s", n.op, c), got[i], want[i], 1e-5)
					}
				}
			})
		})
	}
}

// BenchmarkRounding compares the operations of convolutions in bf16 and in fp32.
func BenchmarkRounding(b *testing.B) {
	for _, c := range []convCase{
		{8, 32, 128, 128, 32, 3, 3, 1, 1},
		{8, 64, 64, 64, 64, 3, 3, 1, 1},
		{8, 128, 32, 32, 128, 3, 3, 1, 1},
		{8, 256, 16, 16, 256, 3, 3, 1, 1},
		{8, 512, 8, 8, 512, 3, 3, 1, 1},
		{32, 64, 8, 8, 64, 3, 3, 1, 1},
		{32, 128, 4, 4, 128, 3, 3, 1, 1},
		{32, 256, 2, 2, 256, 3, 3, 1, 1},
		{32, 256, 8, 8, 64, 1, 1, 1, 0},
		{32, 128, 4, 4, 512, 1, 1, 1, 0},
		{32, 1024, 2, 2, 256, 1, 1, 1, 0},
		{32, 512, 1, 1, 2048, 1, 1, 1, 0},
	} {
		flop := 2 * float64(c.n*c.k*c.h*c.w) * float64(c.c*c.r*c.s)
		for _, n := range c.nodes("auto") {
			if len(n.in) == 3 {
				continue
			}
			for _, set := range []string{"avx512", "amx", "avx512_bf16"} {
				b.Run(fmt.Sprintf("%s/%s/%s", n.op, c, set), func(b *testing.B) {
					e := open
					if set != "avx512" {
						e = func(t testing.TB, set string, threads int) engine.Engine { return openBF16(t, set, threads, "auto") }
					}
					n.measure(b, e(b, set, 1), flop, "GFLOP/s")
				})
			}
		}
	}
}
