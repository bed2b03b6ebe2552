package kernel

import (
	"math"
	"unsafe"
)

func goAdam(w, g, m, v, c *float32, n int) {
	k := blockAtByteOffset(c, 0)
	weights, grads := unsafe.Slice(w, n), unsafe.Slice(g, n)
	first, second := unsafe.Slice(m, n), unsafe.Slice(v, n)
	for i := range weights {
		d := grads[i] + k[0]*weights[i]
		a := k[1]*first[i] + k[2]*d
		b := k[3]*second[i] + k[4]*(d*d)
		first[i], second[i] = a, b
		weights[i] -= k[7] * a / (float32(math.Sqrt(float64(b)))*k[5] + k[6])
	}
}

func goMomentum(w, g, buf, c *float32, n int) {
	k := blockAtByteOffset(c, 0) // the caller's constants fill a block
	weights, grads, sums := unsafe.Slice(w, n), unsafe.Slice(g, n), unsafe.Slice(buf, n)
	for i := range weights {
		a := k[1]*sums[i] + (grads[i] + k[0]*weights[i])
		sums[i] = a
		weights[i] -= k[2] * a
	}
}

func goSGD(w, g, c *float32, n int) {
	k := blockAtByteOffset(c, 0)
	weights, grads := unsafe.Slice(w, n), unsafe.Slice(g, n)
	for i := range weights {
		weights[i] -= k[2] * (grads[i] + k[0]*weights[i])
	}
}
