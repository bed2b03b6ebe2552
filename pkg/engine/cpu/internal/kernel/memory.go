package kernel

import "unsafe"

// CacheLine is the alignment of every buffer, in bytes.
const CacheLine = 64

// AlignedFloats returns a slice of n zeros that begins at a cache line.
func AlignedFloats(n int) []float32 {
	const slack = CacheLine / 4
	s := make([]float32, n+slack)
	skip := 0
	for uintptr(unsafe.Pointer(&s[skip]))%CacheLine != 0 {
		skip++
	}
	return s[skip : skip+n : skip+n]
}

// Lanes is the number of channels in a block, and of float32 values in a vector
// register of AVX2.
const Lanes = 8

// Block holds eight channels of a pixel, or eight weights.
type Block = [Lanes]float32

// at returns the address off bytes after p.
func at(p *float32, off int) *float32 {
	return (*float32)(unsafe.Add(unsafe.Pointer(p), off))
}

// blockAt returns the block off bytes after p.
func blockAt(p *float32, off int) *Block {
	return (*Block)(unsafe.Add(unsafe.Pointer(p), off))
}

// BlocksAt returns the n blocks of eight floats that begin at p.
func BlocksAt(p *float32, n int) []Block {
	return unsafe.Slice((*Block)(unsafe.Pointer(p)), n)
}
