// Package device holds what collective and engine both touch: a buffer of a
// device's memory, and the queue of work (stream) in which it becomes valid.
package device

// Type is the type of a buffer's elements.
type Type uint8

// The types. The zero Type is that of a buffer on the host, whose slice says it.
const (
	Host Type = iota
	F32
	F16
	BF16
	F64
)

// Size is the bytes of one element, 0 for Host.
func (t Type) Size() int {
	switch t {
	case F32:
		return 4
	case F16, BF16:
		return 2
	case F64:
		return 8
	}
	return 0
}

// String is "fp32", "fp16", "bf16", "fp64" or "host".
func (t Type) String() string {
	return [...]string{"host", "fp32", "fp16", "bf16", "fp64"}[t%5]
}

// Buffer is a contiguous run of floating-point numbers in a device's memory:
// the host's, where exactly one of F32 and F64 is set, or a GPU's, where
// Pointer, Type and Elements are. A host's are views, so that a collective
// works in place; a GPU's memory no Go code may touch.
type Buffer struct {
	F32 []float32
	F64 []float64

	Pointer  uintptr // address in the GPU's memory
	Type     Type    // of the elements at Pointer
	Elements int     // at Pointer
}

// OnHost says whether Go code may read and write b's elements.
func (b Buffer) OnHost() bool { return b.Type == Host }

// Len is the number of elements of b.
func (b Buffer) Len() int {
	switch {
	case !b.OnHost():
		return b.Elements
	case b.F64 != nil:
		return len(b.F64)
	}
	return len(b.F32)
}

// Bytes is the size of b in bytes.
func (b Buffer) Bytes() int {
	switch {
	case !b.OnHost():
		return b.Type.Size() * b.Elements
	case b.F64 != nil:
		return 8 * len(b.F64)
	}
	return 4 * len(b.F32)
}

// Slice is the part [lo, hi) of b, counted in elements.
func (b Buffer) Slice(lo, hi int) Buffer {
	switch {
	case !b.OnHost():
		if lo < 0 || hi < lo || hi > b.Elements {
			panic("device: slice of a buffer out of range")
		}
		return Buffer{Pointer: b.Pointer + uintptr(lo*b.Type.Size()), Type: b.Type, Elements: hi - lo}
	case b.F64 != nil:
		return Buffer{F64: b.F64[lo:hi]}
	}
	return Buffer{F32: b.F32[lo:hi]}
}

// Stream orders work on a device. The zero Stream is the host's: what is
// handed over with it is valid already. With a handle it is a GPU's stream
// (CUstream): what is handed over becomes valid in its order, and whatever is
// done to it must be put in that stream too.
type Stream struct{ Handle uintptr }
