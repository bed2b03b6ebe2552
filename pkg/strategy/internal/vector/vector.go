// Package vector has the arithmetic of gradients and parameters in the memory of the host.
package vector

import "lockstep/pkg/internal/device"

// NewLike returns a buffer of n zeros that has the same precision as like.
func NewLike(like device.Buffer, n int) device.Buffer {
	if like.F64 != nil {
		return device.Buffer{F64: make([]float64, n)}
	}
	return device.Buffer{F32: make([]float32, n)}
}

// Copy copies from into to. Both must have the same precision and length.
func Copy(to, from device.Buffer) {
	copy(to.F32, from.F32)
	copy(to.F64, from.F64)
}

// Add adds from to to, element by element. Both must have the same precision and length.
func Add(to, from device.Buffer) {
	addTo(to.F32, from.F32)
	addTo(to.F64, from.F64)
}

func addTo[T float32 | float64](to, from []T) {
	for i, v := range from {
		to[i] += v
	}
}

// Divide divides all values of b by n. If n is a power of two, it multiplies by 1/n instead, which
// gives the same bits and is faster.
func Divide(b device.Buffer, n int) {
	if n&(n-1) == 0 {
		f := 1 / float64(n)
		for i := range b.F64 {
			b.F64[i] *= f
		}
		g := float32(f)
		for i := range b.F32 {
			b.F32[i] *= g
		}
		return
	}
	f := float64(n)
	for i := range b.F64 {
		b.F64[i] /= f
	}
	g := float32(n)
	for i := range b.F32 {
		b.F32[i] /= g
	}
}
