package kernel

import (
	"math"
	"unsafe"
)

func goBCE(z, t, out *float32, n int) {
	var sum [Lanes]float64
	targets := unsafe.Slice(t, n)
	for i, f := range unsafe.Slice(z, n) {
		v := float64(f)
		sum[i%Lanes] += max(v, 0) - v*float64(targets[i]) + math.Log1p(math.Exp(-math.Abs(v)))
	}
	for j, v := range sum {
		blockAtByteOffset(out, 0)[j] = float32(v)
	}
}

func goExp(x, y *float32, n int) {
	to := unsafe.Slice(y, n)
	for i, v := range unsafe.Slice(x, n) {
		to[i] = float32(math.Exp(max(-math.Abs(float64(v)), -87)))
	}
}

func goBCEGrad(z, t, dz, scale *float32, n int) {
	targets, to := unsafe.Slice(t, n), unsafe.Slice(dz, n)
	for i, v := range unsafe.Slice(z, n) {
		to[i] = float32(float64(*scale) * (1/(1+math.Exp(-float64(v))) - float64(targets[i])))
	}
}
