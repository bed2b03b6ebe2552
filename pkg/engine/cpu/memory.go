package cpu

import "unsafe"

// cacheLine is the alignment of every buffer, in bytes.
const cacheLine = 64

// alignedFloats returns n zeros at the start of a cache line.
func alignedFloats(n int) []float32 {
	const slack = cacheLine / 4
	s := make([]float32, n+slack)
	skip := 0
	for uintptr(unsafe.Pointer(&s[skip]))%cacheLine != 0 {
		skip++
	}
	return s[skip : skip+n : skip+n]
}

// roundUp is the least multiple of m that is not less than n.
func roundUp(n, m int) int { return (n + m - 1) / m * m }

// ceilDiv is n/m rounded up, for n ≥ 0.
func ceilDiv(n, m int) int { return (n + m - 1) / m }
