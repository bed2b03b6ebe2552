package kernel

import (
	"math/rand/v2"
	"testing"
)

// TestWinograd compares Winograd's transforms.
func TestWinograd(t *testing.T) { forEachAssembly(t, checkWinograd) }

// gap is the number of unused floats after each point, as in package conv.
const gap = 16

func checkWinograd(t *testing.T, fast, slow *Set) {
	rng := rand.New(rand.NewPCG(4, 4))
	tmp := NewAlignedFloats(Points * fast.Vector)
	run := func(name string, size int, f func(k *WinogradTransforms, from, to *float32)) {
		t.Helper()
		from, _ := randomValues(rng, 10000)
		a, allA := randomValues(rng, size)
		b, allB := copyGuarded(a)
		copy(allB, allA)
		f(&fast.Winograd, &from[0], &a[0])
		f(&slow.Winograd, &from[0], &b[0])
		checkSame(t, name, allA, allB, 2e-6)
	}
	for _, count := range []int{1, 3} {
		const width, plane, ld = 9 * Lanes, 9 * 9 * Lanes, 3*Lanes + gap
		run("input", Points*ld, func(k *WinogradTransforms, x, v *float32) {
			k.Input(x, v, &tmp[0], 4*width, 4*plane, 4*ld, 4*Lanes, count)
		})
		run("normalized input", Points*ld, func(k *WinogradTransforms, x, v *float32) {
			k.NormInput(x, v, &tmp[0], pointerAtByteOffset(x, 8000), 4*width, 4*plane, 4*ld, 4*Lanes, count)
		})
		run("gradient", Points*ld, func(k *WinogradTransforms, x, v *float32) {
			k.Gradient(x, v, &tmp[0], 4*width, 4*plane, 4*ld, 4*Lanes, count)
		})
		for _, step := range []int{0, 4 * Lanes} {
			run("output", 3*plane, func(k *WinogradTransforms, m, y *float32) {
				k.Output(m, y, pointerAtByteOffset(m, 12000), &tmp[0], 4*ld, 4*width, 4*plane, step, count)
			})
		}
	}
	const ld = Lanes*Lanes + gap
	if fast.Winograd.WeightPair != nil {
		const ld, next, row = 4*Lanes*Lanes + gap, 10 * Lanes * Lanes, 4 * Lanes
		run("weight pair", Points*ld, func(k *WinogradTransforms, w, u *float32) { k.WeightPair(w, u, &tmp[0], 4*next, 4*ld, 4*row) })
		run("weight gradient pair", 2*next, func(k *WinogradTransforms, d, dw *float32) { k.WeightGradientPair(d, dw, &tmp[0], 4*next, 4*ld, 4*row) })
	}
	run("weights", Points*ld, func(k *WinogradTransforms, w, u *float32) { k.Weights(w, u, &tmp[0], 4*ld) })
	run("weight gradient", 9*Lanes*Lanes, func(k *WinogradTransforms, d, dw *float32) { k.WeightGradient(d, dw, &tmp[0], 4*ld) })
}
