package cpu

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"lockstep/pkg/engine"
	"lockstep/pkg/engine/cpu/internal/kernel"
	"lockstep/pkg/engine/reference"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/model"
	"lockstep/pkg/nn"
	"lockstep/pkg/optim"
)

// bf16Sets are the instruction sets that can multiply in bf16, see kernel.BF16Sets.
var bf16Sets = []string{"amx", "avx512_bf16", "go"}

// openBF16 starts an engine with precision bf16. It skips the test if this processor lacks the
// instruction set.
func openBF16(t testing.TB, set string, threads int, convolution string) engine.Engine {
	t.Helper()
	if _, err := kernel.ChooseBF16KernelSet(set); err != nil {
		t.Skip(err)
	}
	if testing.Short() && set == "go" {
		t.Skip("slow")
	}
	o := engine.DefaultOptions()
	o.Threads, o.Convolution, o.Precision = threads, convolution, precisionBF16
	o.InstructionSet = set
	e, err := New(o)
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

// roundedWindows are convolutions whose windows divide the map (see conv.SupportsBF16) and that are
// computed in bf16; the sizes are those of the small map.
func roundedWindows() []convCase {
	return []convCase{
		{2, 32, 6, 5, 32, 2, 2, 2, 0},
		{1, 19, 51, 47, 33, 2, 2, 2, 0},
		{40, 48, 1, 1, 17, 2, 2, 2, 0},
		{3, 16, 4, 3, 40, 3, 3, 3, 0},
	}
}

// roundedNodes returns the nodes of roundedCases and of roundedWindows.
func roundedNodes() map[convCase][]node {
	all := map[convCase][]node{}
	for _, c := range roundedCases() {
		all[c] = c.nodes("direct")
	}
	for _, c := range roundedWindows() {
		large := c
		large.h, large.w = c.h*c.stride, c.w*c.stride
		all[large] = append(large.nodes("direct"), c.transposedNodes("direct")...)
	}
	return all
}

// TestRounding compares with the reference in float64. All inputs are numbers of bf16, so that
// rounding them changes nothing, their products are exact in float32, and only sums are rounded:
// the bound is that of the direct algorithm in fp32, see TestConvolution. Any number of threads
// gives the same bits.
func TestRounding(t *testing.T) {
	for c, nodes := range roundedNodes() {
		for _, n := range nodes {
			n.fill = fillRounded
			t.Run(fmt.Sprintf("%s/%d/%s", n.op, len(n.in), c), func(t *testing.T) { n.agreesRounded(t) })
		}
	}
	ones := []int{1, 1, 1}
	for _, c := range []volumeCase{
		{1, 20, 33, []int{2, 5, 14}, []int{3, 3, 3}, ones, ones},
		{1, 40, 24, []int{9, 12, 17}, []int{3, 3, 3}, ones, ones},
		{32, 17, 20, []int{3, 2, 2}, []int{3, 3, 3}, ones, ones},
		{1, 20, 33, []int{4, 6, 10}, []int{2, 2, 2}, []int{2, 2, 2}, []int{0, 0, 0}},
		{2, 16, 24, []int{3, 4, 6}, []int{1, 2, 2}, []int{1, 2, 2}, []int{0, 0, 0}},
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
			for _, threads := range []int{1, 3} {
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
// rounds: it returns the same results for inputs that bf16 cannot represent and for the same
// inputs rounded before. Plain Go computes fewer shapes, because it is slow.
func TestRoundingProperty(t *testing.T) {
	shapes := rapid.Custom(func(r *rapid.T) convCase {
		draw := func(name string, lo, hi int) int { return rapid.IntRange(lo, hi).Draw(r, name) }
		c := convCase{
			n: draw("n", 1, 34), c: draw("c", 16, 40), k: draw("k", 16, 40), r: draw("r", 1, 4), s: draw("s", 1, 4),
			stride: 1, pad: draw("pad", 0, 3),
		}
		c.h, c.w = draw("h", max(1, c.r-2*c.pad), 6), draw("w", max(1, c.s-2*c.pad), 6)
		return c
	})
	for _, set := range bf16Sets {
		t.Run(set, func(t *testing.T) {
			fast, slow := openBF16(t, set, 2, "direct"), truth(t)
			number := 100
			if set == "go" {
				number = 25
			}
			for seed := range number {
				c := shapes.Example(seed)
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
			}
		})
	}
}

// BenchmarkRounding compares the operations of convolutions in bf16 and in fp32.
func BenchmarkRounding(b *testing.B) {
	for _, c := range []convCase{
		{8, 32, 128, 128, 32, 3, 3, 1, 1},
		{8, 16, 128, 128, 16, 3, 3, 1, 1},
		{4, 16, 64, 64, 16, 3, 3, 1, 1},
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

// TestRoundingLikeReference compares single convolutions with the reference engine's bf16, for
// inputs that are not numbers of bf16. Both round inputs and weights to nearest even. The
// reference also rounds an output or a gradient of an input when it stores it, by at most 2⁻⁸ of
// the value (half of the distance of numbers with eight significant bits), which this engine
// does not; gradients of weights stay in fp32 in both. To this comes the direct algorithm's
// bound for sums in fp32, see TestConvolution. Denormal numbers, which only the reference
// multiplies, are too small to matter: less than 2⁻¹²⁶ of a factor.
func TestRoundingLikeReference(t *testing.T) {
	o := engine.DefaultOptions()
	o.Device, o.Precision = "reference", precisionBF16
	reference, err := reference.New(o)
	if err != nil {
		t.Fatal(err)
	}
	for c, nodes := range roundedNodes() {
		for _, n := range nodes {
			want := n.results(t, reference, 1)
			for _, set := range bf16Sets {
				t.Run(fmt.Sprintf("%s/%s/%d/%s", set, n.op, len(n.in), c), func(t *testing.T) {
					got := n.results(t, openBF16(t, set, 2, "direct"), 1)
					sums := 1e-5 * largest(want[0])
					for i, w := range want[0] {
						bound := sums
						if n.op != plan.OpConvBackwardWeights && n.op != plan.OpConvTransposeBackwardWeights {
							bound += math.Abs(got[0][i]) / (1 << 8)
						}
						if d := math.Abs(got[0][i] - w); !(d <= bound) {
							t.Fatalf("[%d] is %v, the reference has %v: %.3g apart, want at most %.3g", i, got[0][i], w, d, bound)
						}
					}
				})
			}
		}
	}
}

// TestRoundingOfNetworks compares the gradients of whole networks with those in float64. This
// engine rounds some of the tensors that the reference's bf16 rounds, and no others, so that its
// distance from float64 is that of the reference's bf16 or less; since both are one draw of many
// roundings, 1.5 times is allowed. By the triangle inequality the two are then at most 2.5 times
// that distance apart. Distances are Euclidean, over all gradients together; single elements
// differ more, because roundings change which ReLUs are active.
func TestRoundingOfNetworks(t *testing.T) {
	resnet, err := model.ResNetV2(model.ResNetConfig{Blocks: []int{2, 2}, Base: 16, Classes: 7, InChannels: 3, Height: 32, Width: 24, Stem: model.StemCIFAR})
	if err != nil {
		t.Fatal(err)
	}
	unet, err := model.UNet2D(model.UNet2DConfig{Base: 16, Depth: 2, InChannels: 1, OutChannels: 1, Height: 20, Width: 28, Norm: "batch"})
	if err != nil {
		t.Fatal(err)
	}
	for _, net := range []model.Network{resnet, unet} {
		g, p := loweredNetwork(t, net, 4, nn.Train, plan.Options{Fuse: true})
		gradients := func(e engine.Engine) (all []float64) {
			x := loaded(t, e, p, g)
			for _, q := range p.Params {
				v, err := x.Gradient(q.Name)
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, v...)
			}
			return all
		}
		distance := func(a, b []float64) float64 {
			sum, size := 0.0, 0.0
			for i := range a {
				sum += (a[i] - b[i]) * (a[i] - b[i])
				size += b[i] * b[i]
			}
			return math.Sqrt(sum / size)
		}
		o := engine.DefaultOptions()
		o.Device, o.Precision = "reference", precisionBF16
		low, err := reference.New(o)
		if err != nil {
			t.Fatal(err)
		}
		exact, emulated := gradients(truth(t)), gradients(low)
		want := distance(emulated, exact)
		for _, set := range bf16Sets {
			t.Run(net.Name()+"/"+set, func(t *testing.T) {
				e := openBF16(t, set, 2, "direct")
				got := gradients(e)
				fromExact, fromReference := distance(got, exact), distance(got, emulated)
				t.Logf("from float64: %.4f, the reference's bf16 %.4f; from the reference's bf16: %.4f", fromExact, want, fromReference)
				if !(fromExact <= 1.5*want) || !(fromReference <= 2.5*want) {
					t.Errorf("distance from float64 %.4f, from the reference's bf16 %.4f; the reference's bf16 has %.4f", fromExact, fromReference, want)
				}
				if fromExact < want/100 {
					t.Errorf("distance from float64 %.2g: nothing was rounded", fromExact)
				}
			})
		}
	}
}

// TestRoundingReproducible trains some steps with each number of threads, which must give the same bits,
// and checks the notice.
func TestRoundingReproducible(t *testing.T) {
	net := model.UNet2DConfig{Base: 16, Depth: 2, InChannels: 1, OutChannels: 1, Height: 20, Width: 28, Norm: "batch"}
	g, p := lowered(t, net, 3, nn.Train, plan.Options{Fuse: true})
	for _, set := range bf16Sets {
		t.Run(set, func(t *testing.T) {
			var want map[string][]float64
			for _, threads := range []int{1, 3} {
				x, err := openBF16(t, set, threads, "auto").Load(p, nil)
				if err != nil {
					t.Fatal(err)
				}
				initialise(t, x, g)
				for step := 1; step <= 2; step++ {
					feed(t, x, uint64(step))
					u := optim.Update{Rule: "adam", LearningRate: 1e-2, Step: step, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8}
					if _, err := x.Step(context.Background(), nil, &u); err != nil {
						t.Fatal(err)
					}
				}
				got := snapshot(t, x)
				if want == nil {
					want = got
				}
				for name := range want {
					near(t, name, got[name], want[name], 0)
				}
				if notices := x.Capabilities().Notices; len(notices) != 1 || !strings.Contains(notices[0], "precision bf16:") {
					t.Errorf("notices are %q, want one about bf16", notices)
				}
			}
		})
	}
}

// TestBF16IsRefused checks the errors if the processor, or the instruction set that LOCKSTEP_CPU
// names, cannot multiply in bf16.
func TestBF16IsRefused(t *testing.T) {
	o := engine.DefaultOptions()
	o.Precision = precisionBF16
	for set, want := range map[string]string{"avx2": "does not compute in bf16", "sse": "unknown instruction set"} {
		t.Setenv(kernel.InstructionSetEnvVar, set)
		if _, err := New(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("with %s=%s: error %v, want %q", kernel.InstructionSetEnvVar, set, err, want)
		}
	}
	t.Setenv(kernel.InstructionSetEnvVar, "")
	if _, err := New(o); len(kernel.AvailableBF16KernelSets()) == 1 && (err == nil || !strings.Contains(err.Error(), "AVX512_BF16")) {
		t.Errorf("without AVX512_BF16: error %v", err)
	}
	if sets, err := listInstructionSets(precisionBF16); (err == nil) != (len(sets) > 1) {
		t.Errorf("instruction sets are %v, %v", sets, err)
	}
	o.Precision = "fp32"
	for _, set := range []string{"amx", "avx512_bf16"} {
		o.InstructionSet = set
		_, err := New(o)
		_, missing := kernel.ChooseBF16KernelSet(set)
		if want := "is for precision bf16"; err == nil || missing == nil && !strings.Contains(err.Error(), want) {
			t.Errorf("fp32 with %s: error %v, want %q", set, err, want)
		}
	}
}

// TestBF16SlowNotice checks that a run is told if bf16 is slower than fp32 on its processor, as on
// Intel's processors without AMX.
func TestBF16SlowNotice(t *testing.T) {
	_, p := lowered(t, smallUNet(), 1, nn.Train, plan.Options{Fuse: true})
	for _, slow := range []bool{false, true} {
		e := openBF16(t, "go", 1, "auto")
		e.(*Engine).kernels.BF16.Slow = slow
		x, err := e.Load(p, nil)
		if err != nil {
			t.Fatal(err)
		}
		if n := x.Capabilities().Notices; len(n) != 1 || strings.Contains(n[0], "use precision fp32") != slow {
			t.Errorf("slow %v: notices are %q", slow, n)
		}
	}
}
