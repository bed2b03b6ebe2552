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

// Block contains eight channels of a pixel, or eight weights.
type Block = [Lanes]float32

func pointerAt(p *float32, off int) *float32 {
	return (*float32)(unsafe.Add(unsafe.Pointer(p), off))
}

func blockAt(p *float32, off int) *Block {
	return (*Block)(unsafe.Add(unsafe.Pointer(p), off))
}

// BlocksAt returns the n blocks of eight floats that begin at p.
func BlocksAt(p *float32, n int) []Block {
	return unsafe.Slice((*Block)(unsafe.Pointer(p)), n)
}
