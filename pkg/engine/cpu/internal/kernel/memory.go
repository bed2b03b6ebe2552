package kernel

import "unsafe"

// CacheLineBytes is the alignment of every buffer, in bytes: the size of a cache line.
const CacheLineBytes = 64

// NewAlignedFloats returns a slice of n zeros whose address is aligned to a cache line.
func NewAlignedFloats(n int) []float32 {
	const slack = CacheLineBytes / 4
	s := make([]float32, n+slack)
	skip := 0
	for uintptr(unsafe.Pointer(&s[skip]))%CacheLineBytes != 0 {
		skip++
	}
	return s[skip : skip+n : skip+n]
}

// Lanes is the number of channels in a block. It is also the number of float32 values in a
// vector register of AVX2, or in two registers of NEON.
const Lanes = 8

// FloatBlock contains eight channels of a pixel, or eight weights.
type FloatBlock = [Lanes]float32

func pointerAtByteOffset(p *float32, off int) *float32 {
	return (*float32)(unsafe.Add(unsafe.Pointer(p), off))
}

func blockAtByteOffset(p *float32, off int) *FloatBlock {
	return (*FloatBlock)(unsafe.Add(unsafe.Pointer(p), off))
}

// FloatBlocksAt returns the n blocks of eight floats that begin at p.
func FloatBlocksAt(p *float32, n int) []FloatBlock {
	return unsafe.Slice((*FloatBlock)(unsafe.Pointer(p)), n)
}
