// Package device contains the types that both collectives and engines use: a buffer in a
// device's memory, and the stream (queue of work) in which its contents become valid.
package device

// ElementType is the type of a buffer's elements.
type ElementType uint8

// The element types. A buffer in host memory has the type Host. Its elements are float32 if
// Buffer.F32 is set, and float64 if Buffer.F64 is set.
const (
	Host ElementType = iota
	F32
	F16
	BF16
	F64
)

// Size returns the size of one element in bytes; 0 for Host.
func (t ElementType) Size() int {
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

// String returns "fp32", "fp16", "bf16", "fp64" or "host".
func (t ElementType) String() string {
	return [...]string{"host", "fp32", "fp16", "bf16", "fp64"}[t%5]
}

// Buffer is a contiguous array of floating-point numbers in host memory or in GPU memory. In host
// memory, exactly one of F32 and F64 is set, and collectives change its elements in place. In GPU
// memory, which Go code must not access, Pointer, Type and Elements are set.
type Buffer struct {
	F32 []float32
	F64 []float64

	Pointer  uintptr     // address in GPU memory
	Type     ElementType // type of the elements at Pointer
	Elements int         // number of elements at Pointer
}

// OnHost reports whether b is in host memory, where Go code may access its elements.
func (b Buffer) OnHost() bool { return b.Type == Host }

// Len returns the number of elements of b.
func (b Buffer) Len() int {
	switch {
	case !b.OnHost():
		return b.Elements
	case b.F64 != nil:
		return len(b.F64)
	}
	return len(b.F32)
}

// Bytes returns the size of b in bytes.
func (b Buffer) Bytes() int {
	switch {
	case !b.OnHost():
		return b.Type.Size() * b.Elements
	case b.F64 != nil:
		return 8 * len(b.F64)
	}
	return 4 * len(b.F32)
}

// Slice returns the elements [lo, hi) of b, without copying them.
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

// Stream orders work on a device. The zero Stream is the host: buffers that are passed with it
// are already valid. Any other Stream is a CUstream of a GPU. A buffer that is passed with it
// becomes valid in stream order, and all further work on the buffer must be enqueued in the same
// stream.
type Stream struct{ Handle uintptr }
