package cpu

import (
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"

	"lockstep/pkg/engine/cpu/internal/tensor"
	"lockstep/pkg/internal/plan"
)

// The greatest error of Winograd's convolutions against float64, relative to
// the greatest value: what a prototype of the same algorithm was measured to
// keep within, beside a direct convolution, on a U-Net's layers of up to 512
// channels and 128×128 pixels. doc.go repeats them.
const (
	winogradTolerance         = 2e-5
	winogradGradientTolerance = 4.2e-5
)

// tolerance is what a kernel may be off by with an algorithm; see TestConvolution
// for the direct one.
func tolerance(op plan.Op, convolution string) float64 {
	switch {
	case convolution == "direct":
		return 1e-5
	case op == plan.OpConvBackwardWeights || op == plan.OpConvTransposeBackwardWeights:
		return winogradGradientTolerance
	}
	return winogradTolerance
}

// volumeTolerance is tolerance for windows of 3×3×3, whose sums have three times
// as many products: the greatest errors seen are 3.7e-5, at 512 channels.
func volumeTolerance(convolution string) float64 {
	if convolution == "direct" {
		return 1e-5
	}
	return winogradGradientTolerance
}

// worst is the greatest distance of got from want, relative to want's greatest
// or to the deviation of sums of so many products of normal values: a single
// sum may happen to be close to 0.
func worst(got, want []float64, products int) (d float64) {
	for i := range want {
		d = max(d, math.Abs(got[i]-want[i]))
	}
	return d / max(math.Sqrt(float64(products)), largest(want))
}

// products is the number of products that a value of the kernel's output sums up.
func (c convCase) products(op plan.Op) int {
	switch op {
	case plan.OpConv:
		return c.c * min(3, c.h) * min(3, c.w)
	case plan.OpConvBackwardData:
		return c.k * min(3, c.h) * min(3, c.w)
	}
	return c.n * c.h * c.w
}

// products is the same for windows of 3×3×3.
func (c volumeCase) products(op plan.Op) int {
	taps := min(3, c.in[0]) * min(3, c.in[1]) * min(3, c.in[2])
	switch op {
	case plan.OpConv, plan.OpConvTransposeBackwardData:
		return c.c * taps
	case plan.OpConvBackwardData, plan.OpConvTranspose:
		return c.k * taps
	}
	return c.n * tensor.ElementCount(c.in)
}

// TestWinogradError measures each kernel's error against float64 over random
// shapes, and holds it to the documented bounds.
func TestWinogradError(t *testing.T) {
	for _, set := range sets {
		t.Run(set, func(t *testing.T) {
			fast, slow := openWith(t, set, 2, "winograd"), truth(t)
			most := map[plan.Op]float64{}
			rapid.Check(t, func(r *rapid.T) {
				draw := func(name string, lo, hi int) int { return rapid.IntRange(lo, hi).Draw(r, name) }
				c := convCase{n: draw("n", 1, 3), c: draw("c", 1, 48), k: draw("k", 1, 40), h: draw("h", 1, 13), w: draw("w", 1, 13), r: 3, s: 3, stride: 1, pad: 1}
				for _, n := range c.nodes("winograd") {
					got, want := n.results(t, fast, 1), n.results(t, slow, 1)
					for i := range want {
						d := worst(got[i], want[i], c.products(n.op))
						if !(d <= tolerance(n.op, "winograd")) {
							r.Fatalf("%s of %s is off by %.2g of the greatest value", n.op, c, d)
						}
						most[n.op] = max(most[n.op], d)
					}
				}
			})
			t.Log("greatest errors:", most)
		})
	}
}

// TestWinogradError3D is the same for windows of 3×3×3.
func TestWinogradError3D(t *testing.T) {
	ones, window := []int{1, 1, 1}, []int{3, 3, 3}
	for _, set := range sets {
		t.Run(set, func(t *testing.T) {
			fast, slow := openWith(t, set, 2, "winograd"), truth(t)
			most := map[plan.Op]float64{}
			rapid.Check(t, func(r *rapid.T) {
				draw := func(name string, lo, hi int) int { return rapid.IntRange(lo, hi).Draw(r, name) }
				c := volumeCase{n: draw("n", 1, 2), c: draw("c", 1, 36), k: draw("k", 1, 40), in: []int{draw("d", 1, 8), draw("h", 1, 7), draw("w", 1, 7)}, kernel: window, stride: ones, pad: ones}
				for _, n := range c.nodes("winograd")[:3] {
					got, want := n.results(t, fast, 1), n.results(t, slow, 1)
					for i := range want {
						d := worst(got[i], want[i], c.products(n.op))
						if !(d <= volumeTolerance("winograd")) {
							r.Fatalf("%s of %s is off by %.2g of the greatest value", n.op, c, d)
						}
						most[n.op] = max(most[n.op], d)
					}
				}
			})
			t.Log("greatest errors:", most)
		})
	}
}

// TestWinogradDeep3D is TestWinogradDeep for windows of 3×3×3. The last takes two
// passes over its output channels.
func TestWinogradDeep3D(t *testing.T) {
	ones, window := []int{1, 1, 1}, []int{3, 3, 3}
	for _, c := range []volumeCase{
		{1, 512, 8, []int{4, 4, 4}, window, ones, ones},
		{1, 8, 512, []int{4, 4, 4}, window, ones, ones},
		{2, 9, 8, []int{24, 30, 26}, window, ones, ones},
		{1, 200, 232, []int{3, 4, 5}, window, ones, ones},
	} {
		for _, n := range c.nodes("winograd")[:3] {
			got, want := n.results(t, openWith(t, "", 2, "winograd"), 1), n.results(t, truth(t), 1)
			for i := range want {
				near(t, fmt.Sprintf("%s of %s", n.op, c), got[i], want[i], volumeTolerance("winograd"))
				t.Logf("%s of %s: %.2g", n.op, c, worst(got[i], want[i], c.products(n.op)))
			}
		}
	}
}

// TestWinogradDeep holds deep layers and a wide one to the same bounds, where
// the sums are longest.
func TestWinogradDeep(t *testing.T) {
	for _, c := range []convCase{{2, 256, 8, 8, 64, 3, 3, 1, 1}, {1, 512, 8, 8, 24, 3, 3, 1, 1}, {1, 24, 8, 8, 512, 3, 3, 1, 1}, {2, 512, 4, 5, 520, 3, 3, 1, 1}, {2, 9, 96, 96, 8, 3, 3, 1, 1}} {
		for _, n := range c.nodes("winograd") {
			got, want := n.results(t, openWith(t, "", 2, "winograd"), 1), n.results(t, truth(t), 1)
			for i := range want {
				near(t, fmt.Sprintf("%s of %s", n.op, c), got[i], want[i], tolerance(n.op, "winograd"))
				t.Logf("%s of %s: %.2g", n.op, c, worst(got[i], want[i], c.products(n.op)))
			}
		}
	}
}
