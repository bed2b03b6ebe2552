package cpu

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"lockstep/pkg/internal/plan"
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
		{2, 16, 16, 16, 32, 3, 3, 1, 1},
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
		{9, 8, 2, 2, 16, 3, 3, 1, 1},
		{4, 2, 3, 3, 33, 3, 3, 1, 2},
		{2, 4, 40, 33, 6, 3, 3, 1, 1},
		{1, 40, 6, 70, 17, 3, 3, 1, 1},
		{1, 5, 600, 2, 9, 3, 1, 1, 0},
		{1, 2, 7, 7, 3, 1, 1, 4, 1},
		// Here windows lie outside of the images for a large part.
		{7, 24, 2, 2, 40, 3, 3, 1, 1},
		{13, 19, 4, 4, 9, 3, 3, 1, 1},
		{6, 16, 4, 4, 16, 3, 3, 2, 1},
		{5, 9, 2, 3, 24, 3, 3, 2, 1},
		{40, 33, 1, 1, 17, 3, 3, 1, 1},
		{3, 3, 4, 5, 8, 7, 7, 2, 3},
		// These are cut in bands of rows, the last one narrower.
		{2, 3, 71, 61, 5, 3, 3, 1, 1},
		{1, 2, 131, 75, 9, 3, 3, 2, 1},
		{1, 70, 33, 31, 3, 3, 3, 1, 1},
		{1, 3, 50, 90, 20, 1, 1, 1, 0},
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
func (c convCase) nodes(convolution string) []node {
	x, w, y := []int{c.n, c.c, c.h, c.w}, []int{c.k, c.c, c.r, c.s}, c.out()
	return []node{
		{convolution: convolution, op: plan.OpConv, attr: c.attr(), in: [][]int{x, w}, out: [][]int{y}},
		{convolution: convolution, op: plan.OpConv, attr: c.attr(), in: [][]int{x, w, {c.k}}, out: [][]int{y}},
		{convolution: convolution, op: plan.OpConvBackwardData, attr: c.attr(), in: [][]int{w, y}, out: [][]int{x}},
		{convolution: convolution, op: plan.OpConvBackwardWeights, attr: c.attr(), in: [][]int{x, y}, out: [][]int{w}},
	}
}

// TestConvolution compares with the reference. A sum of m products in float32
// is off by about √m·2⁻²⁴ of its terms: at 9·40 terms 1e-6, ten times that is
// allowed to the direct algorithm, more to Winograd's (winogradTolerance).
func TestConvolution(t *testing.T) {
	for _, c := range convCases() {
		for _, convolution := range []string{"direct", "winograd"} {
			for _, n := range c.nodes(convolution) {
				t.Run(fmt.Sprintf("%s/%s/%d/%s", convolution, n.op, len(n.in), c), func(t *testing.T) { n.agrees(t, tolerance(n.op, convolution)) })
			}
		}
	}
}

// transposedNodes returns the nodes of the transposed convolution of maps of c.h×c.w.
func (c convCase) transposedNodes(convolution string) []node {
	x, w := []int{c.n, c.c, c.h, c.w}, []int{c.c, c.k, c.r, c.s}
	y := []int{c.n, c.k, (c.h-1)*c.stride - 2*c.pad + c.r, (c.w-1)*c.stride - 2*c.pad + c.s}
	return []node{
		{convolution: convolution, op: plan.OpConvTranspose, attr: c.attr(), in: [][]int{x, w}, out: [][]int{y}},
		{convolution: convolution, op: plan.OpConvTranspose, attr: c.attr(), in: [][]int{x, w, {c.k}}, out: [][]int{y}},
		{convolution: convolution, op: plan.OpConvTransposeBackwardData, attr: c.attr(), in: [][]int{w, y}, out: [][]int{x}},
		{convolution: convolution, op: plan.OpConvTransposeBackwardWeights, attr: c.attr(), in: [][]int{x, y}, out: [][]int{w}},
	}
}

// TestConvTranspose is the same for transposed convolutions; 2×2 with stride 2
// is the U-Net's.
func TestConvTranspose(t *testing.T) {
	for _, c := range []convCase{
		{1, 16, 4, 6, 8, 2, 2, 2, 0},
		{2, 24, 5, 3, 12, 2, 2, 2, 0},
		{1, 3, 4, 7, 5, 3, 3, 1, 1},
		{2, 9, 5, 4, 1, 4, 4, 2, 1},
		{1, 1, 3, 3, 9, 3, 2, 3, 0},
		{3, 17, 1, 1, 20, 2, 2, 2, 0},
		{1, 8, 3, 5, 8, 1, 1, 2, 0},
		{1, 5, 61, 50, 3, 2, 2, 2, 0},
	} {
		for _, convolution := range []string{"direct", "winograd"} {
			for _, n := range c.transposedNodes(convolution) {
				t.Run(fmt.Sprintf("%s/%s/%d/%s", convolution, n.op, len(n.in), c), func(t *testing.T) { n.agrees(t, tolerance(n.op, convolution)) })
			}
		}
	}
}

// volumeCase is a convolution of volumes: shapes without the batch.
type volumeCase struct {
	n, c, k                 int
	in, kernel, stride, pad []int
}

func (c volumeCase) String() string {
	return fmt.Sprintf("%dx%d%v-to-%d-window-%v-stride-%v-pad-%v", c.n, c.c, c.in, c.k, c.kernel, c.stride, c.pad)
}

// nodes are the kernels of the convolution, and of the transposed one with the
// same attributes.
func (c volumeCase) nodes(convolution string) []node {
	attr := plan.KernelAttr{Stride: c.stride, Pad: c.pad}
	shape := func(n, c int, s []int) []int { return append([]int{n, c}, s...) }
	var small, large []int
	for i, l := range c.in {
		small = append(small, (l+2*c.pad[i]-c.kernel[i])/c.stride[i]+1)
		large = append(large, (l-1)*c.stride[i]-2*c.pad[i]+c.kernel[i])
	}
	x, w, y := shape(c.n, c.c, c.in), shape(c.k, c.c, c.kernel), shape(c.n, c.k, small)
	u, v := shape(c.c, c.k, c.kernel), shape(c.n, c.k, large)
	list := []node{
		{op: plan.OpConv, attr: attr, in: [][]int{x, w, {c.k}}, out: [][]int{y}},
		{op: plan.OpConvBackwardData, attr: attr, in: [][]int{w, y}, out: [][]int{x}},
		{op: plan.OpConvBackwardWeights, attr: attr, in: [][]int{x, y}, out: [][]int{w}},
		{op: plan.OpConvTranspose, attr: attr, in: [][]int{x, u, {c.k}}, out: [][]int{v}},
		{op: plan.OpConvTransposeBackwardData, attr: attr, in: [][]int{u, v}, out: [][]int{x}},
		{op: plan.OpConvTransposeBackwardWeights, attr: attr, in: [][]int{x, v}, out: [][]int{u}},
	}
	for i := range list {
		list[i].convolution = convolution
	}
	return list
}

// TestConvolution3D has the windows of the volumes' U-Net (4 with stride 2 and a
// pad of 1), axes that differ, blocks of some slices or rows, volumes smaller
// than the window, of one and two slices, and of more than Winograd's algorithm
// takes at once.
func TestConvolution3D(t *testing.T) {
	for _, c := range []volumeCase{
		{2, 4, 16, []int{8, 8, 8}, []int{4, 4, 4}, []int{2, 2, 2}, []int{1, 1, 1}},
		{1, 9, 20, []int{4, 6, 2}, []int{4, 4, 4}, []int{2, 2, 2}, []int{1, 1, 1}},
		{3, 24, 5, []int{2, 2, 2}, []int{4, 4, 4}, []int{2, 2, 2}, []int{1, 1, 1}},
		{1, 10, 9, []int{5, 4, 7}, []int{3, 3, 3}, []int{1, 1, 1}, []int{1, 1, 1}},
		{2, 3, 7, []int{6, 9, 8}, []int{1, 2, 3}, []int{1, 2, 3}, []int{0, 1, 2}},
		{5, 17, 8, []int{1, 1, 1}, []int{3, 3, 3}, []int{1, 1, 1}, []int{1, 1, 1}},
		{1, 8, 3, []int{19, 18, 17}, []int{3, 3, 3}, []int{1, 1, 1}, []int{1, 1, 1}},
		{1, 34, 3, []int{12, 14, 15}, []int{2, 2, 2}, []int{2, 2, 2}, []int{0, 0, 0}},
		{1, 5, 8, []int{3, 40, 30}, []int{3, 3, 3}, []int{1, 1, 1}, []int{1, 1, 1}},
		{3, 17, 20, []int{1, 9, 6}, []int{3, 3, 3}, []int{1, 1, 1}, []int{1, 1, 1}},
		{1, 20, 33, []int{2, 5, 14}, []int{3, 3, 3}, []int{1, 1, 1}, []int{1, 1, 1}},
		{1, 40, 24, []int{9, 12, 17}, []int{3, 3, 3}, []int{1, 1, 1}, []int{1, 1, 1}},
		{1, 12, 10, []int{40, 8, 22}, []int{3, 3, 3}, []int{1, 1, 1}, []int{1, 1, 1}},
		{2, 10, 18, []int{5, 9, 7}, []int{1, 3, 3}, []int{1, 1, 1}, []int{0, 1, 1}},
	} {
		for _, convolution := range []string{"direct", "winograd"} {
			for _, n := range c.nodes(convolution) {
				t.Run(fmt.Sprintf("%s/%s/%s", convolution, n.op, c), func(t *testing.T) {
					if testing.Short() && c.n*c.c*c.k*c.in[0]*c.in[1]*c.in[2] > 100_000 {
						t.Skip("slow")
					}
					n.agrees(t, volumeTolerance(convolution))
				})
			}
		}
	}
}

// TestConvolutionProperty tries shapes that nobody thought of.
func TestConvolutionProperty(t *testing.T) {
	fast, slow := openWith(t, "", 2, "direct"), truth(t)
	rapid.Check(t, func(r *rapid.T) {
		draw := func(name string, lo, hi int) int { return rapid.IntRange(lo, hi).Draw(r, name) }
		c := convCase{
			n: draw("n", 1, 9), c: draw("c", 1, 20), k: draw("k", 1, 20), r: draw("r", 1, 4), s: draw("s", 1, 4),
			stride: draw("stride", 1, 3), pad: draw("pad", 0, 3),
		}
		c.h, c.w = draw("h", max(1, c.r-2*c.pad), 15), draw("w", max(1, c.s-2*c.pad), 15)
		for _, n := range c.nodes("direct") {
			got, want := n.results(t, fast, 1), n.results(t, slow, 1)
			for i := range want {
				near(t, fmt.Sprintf("%s of %s", n.op, c), got[i], want[i], 1e-5)
			}
		}
	})
}
