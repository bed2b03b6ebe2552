// Package device holds what collective and engine both touch: a buffer of a
// device's memory, and the queue of work (stream) in which it becomes valid.
//
// Here only the host exists. A CUDA buffer adds its pointer to Buffer and its
// handle to Stream without changing who calls whom.
package device

// Buffer is a contiguous run of floating-point numbers in a device's memory.
// Exactly one of F32 and F64 is set; both are views, so that a collective
// works in place.
type Buffer struct {
	F32 []float32
	F64 []float64
}

// Len is the number of elements of b.
func (b Buffer) Len() int {
	if b.F64 != nil {
		return len(b.F64)
	}
	return len(b.F32)
}

// Bytes is the size of b in bytes.
func (b Buffer) Bytes() int {
	if b.F64 != nil {
		return 8 * len(b.F64)
	}
	return 4 * len(b.F32)
}

// Slice is the part [lo, hi) of b, counted in elements.
func (b Buffer) Slice(lo, hi int) Buffer {
	if b.F64 != nil {
		return Buffer{F64: b.F64[lo:hi]}
	}
	return Buffer{F32: b.F32[lo:hi]}
}

// Stream orders work on a device. The zero Stream is the host's: what is
// handed over with it is valid already.
type Stream struct{}
