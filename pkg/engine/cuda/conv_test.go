package cuda

import (
	"fmt"
	"testing"

	"lockstep/pkg/engine/cuda/internal/cudatest"
	"lockstep/pkg/internal/clib/clibtest"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/nn"
)

// convCase is a convolution; n images of c channels, k output channels.
type convCase struct {
	n, c, h, w, k, r, s, stride, pad int
}

// convCases cover first layers, heads, channels that fill no block, widths that
// fill no tile, strides, windows of every kind, and maps smaller than a tile.
func convCases() []convCase {
	return []convCase{
		{1, 1, 9, 13, 16, 3, 3, 1, 1},
		{2, 1, 8, 8, 8, 3, 3, 1, 1},
		{2, 3, 11, 7, 5, 3, 3, 1, 1},
		{1, 13, 7, 17, 19, 3, 3, 1, 1},
		{3, 24, 6, 5, 40, 3, 3, 1, 1},
		{2, 17, 5, 9, 1, 1, 1, 1, 0},
		{1, 8, 4, 4, 24, 1, 1, 1, 0},
		{2, 9, 10, 11, 12, 3, 3, 2, 1},
		{2, 5, 9, 8, 20, 1, 1, 2, 0},
		{1, 3, 21, 19, 11, 7, 7, 2, 3},
		{1, 10, 9, 12, 9, 2, 5, 1, 0},
		{1, 6, 8, 9, 7, 5, 2, 3, 2},
		{5, 20, 1, 1, 18, 3, 3, 1, 1},
		{4, 2, 3, 3, 33, 3, 3, 1, 2},
		{1, 2, 7, 7, 3, 1, 1, 4, 1},
	}
}

func (c convCase) String() string {
	return fmt.Sprintf("%dx%dx%dx%d-to-%d-window-%dx%d-stride-%d-pad-%d", c.n, c.c, c.h, c.w, c.k, c.r, c.s, c.stride, c.pad)
}

func (c convCase) attr() plan.KernelAttr {
	return plan.KernelAttr{Stride: []int{c.stride, c.stride}, Pad: []int{c.pad, c.pad}}
}

// out is the shape of the convolution's output.
func (c convCase) out() []int {
	return []int{c.n, c.k, (c.h+2*c.pad-c.r)/c.stride + 1, (c.w+2*c.pad-c.s)/c.stride + 1}
}

// nodes are the convolution's kernels.
func (c convCase) nodes() []node {
	x, w, y := []int{c.n, c.c, c.h, c.w}, []int{c.k, c.c, c.r, c.s}, c.out()
	return []node{
		{op: plan.OpConv, attr: c.attr(), in: [][]int{x, w}, out: [][]int{y}},
		{op: plan.OpConv, attr: c.attr(), in: [][]int{x, w, {c.k}}, out: [][]int{y}},
		{op: plan.OpConvBackwardData, attr: c.attr(), in: [][]int{w, y}, out: [][]int{x}},
		{op: plan.OpConvBackwardWeights, attr: c.attr(), in: [][]int{x, y}, out: [][]int{w}},
	}
}

// TestConvolution compares with the reference. In fp32 a sum of m products is off
// by about √m·2⁻²⁴ of its terms: at 9·40 terms 1e-6, ten times that is allowed.
func TestConvolution(t *testing.T) {
	on := someEngines(t)
	for _, c := range convCases() {
		for _, n := range c.nodes() {
			t.Run(fmt.Sprintf("%s/%d/%s", n.op, len(n.in), c), func(t *testing.T) { n.agrees(t, on, roundings(n)) })
		}
	}
}

// roundings is how often a result is rounded: a bias is added to one that is
// stored already.
func roundings(n node) float64 {
	if len(n.in) == 3 {
		return 2
	}
	return 1
}

// TestConvTranspose is the same for transposed convolutions; 2×2 with stride 2
// is the U-Net's.
func TestConvTranspose(t *testing.T) {
	on := someEngines(t)
	for _, c := range []convCase{
		{1, 16, 4, 6, 8, 2, 2, 2, 0},
		{2, 24, 5, 3, 12, 2, 2, 2, 0},
		{1, 3, 4, 7, 5, 3, 3, 1, 1},
		{2, 9, 5, 4, 1, 4, 4, 2, 1},
		{1, 1, 3, 3, 9, 3, 2, 3, 0},
		{3, 17, 1, 1, 20, 2, 2, 2, 0},
		{1, 8, 3, 5, 8, 1, 1, 2, 0},
	} {
		x, w := []int{c.n, c.c, c.h, c.w}, []int{c.c, c.k, c.r, c.s}
		y := []int{c.n, c.k, (c.h-1)*c.stride - 2*c.pad + c.r, (c.w-1)*c.stride - 2*c.pad + c.s}
		for _, n := range []node{
			{op: plan.OpConvTranspose, attr: c.attr(), in: [][]int{x, w}, out: [][]int{y}},
			{op: plan.OpConvTranspose, attr: c.attr(), in: [][]int{x, w, {c.k}}, out: [][]int{y}},
			{op: plan.OpConvTransposeBackwardData, attr: c.attr(), in: [][]int{w, y}, out: [][]int{x}},
			{op: plan.OpConvTransposeBackwardWeights, attr: c.attr(), in: [][]int{x, y}, out: [][]int{w}},
		} {
			t.Run(fmt.Sprintf("%s/%d/%s", n.op, len(n.in), c), func(t *testing.T) { n.agrees(t, on, roundings(n)) })
		}
	}
}

// TestOperandsWithGaps: where concatenations lie in place, convolutions read and write maps
// with gaps between their pixels. Where cuDNN refuses these, or is slow with them, copies
// without gaps are used, and the gradients stay what they are; without concat_in_place
// there are none.
func TestOperandsWithGaps(t *testing.T) {
	g, p := programOf(t, trainedUNet(), 3, nn.Train, plan.Options{Fuse: true, BucketBytes: 4096})
	want := loaded(t, truth(t), p, g)
	for _, c := range []struct {
		name        string
		gaps        clibtest.TensorGapSupport
		convolution string
		inPlace     bool
		copies      bool // some convolution uses copies
	}{
		{"refused", clibtest.GapsRefused, "heuristic", true, true},
		{"slow", clibtest.GapsSlow, "auto", true, true},
		{"fast", clibtest.GapsFast, "heuristic", true, false},
		{"none", clibtest.GapsRefused, "heuristic", false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := gpuOptions("fp32")
			o.Convolution, o.ConcatInPlace = c.convolution, c.inPlace
			x := loaded(t, openOn(t, cudatest.NewMachine(t, clibtest.Options{Gaps: c.gaps}), o), p, g)
			e, ok := x.(*executable)
			if !ok {
				t.Fatalf("loaded a %T", x)
			}
			copies, gaps := 0, 0
			for i, pick := range e.schedule.picks {
				if conv, ok := e.asConvolution(e.tasks[i]); ok && conv.gaplessBytes() > 0 {
					gaps++
				}
				if e.memory.gapless.ptr != 0 && pick.usesMemory(e.memory.gapless.ptr, e.memory.gapless.bytes) {
					copies++
				}
			}
			if (gaps > 0) != c.inPlace || (copies > 0) != c.copies || copies > gaps || (e.memory.gapless.ptr != 0) != c.copies {
				t.Errorf("%d convolutions with gaps, %d with copies, memory for these at %#x", gaps, copies, uint64(e.memory.gapless.ptr))
			}
			for _, q := range p.Params {
				a, err1 := x.Gradient(q.Name)
				b, err2 := want.Gradient(q.Name)
				if err1 != nil || err2 != nil {
					t.Fatal(err1, err2)
				}
				if largest(b) > 1e-9 {
					near(t, "gradient of "+q.Name, a, b, 1e-3)
				}
			}
		})
	}
}
