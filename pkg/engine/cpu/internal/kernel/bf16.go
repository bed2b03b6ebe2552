package kernel

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"unsafe"
)

// BF16Tile is the number of rows and the number of columns of a tile that BF16.Multiply
// computes, and the number of products that one step adds to each element.
const BF16Tile = 32

// BF16Kernels contains the inner loops for products of matrices whose elements are rounded to
// bfloat16, the upper half of a float32 (Intel, BFLOAT16 Hardware Numerics Definition, 2018).
// Elements are rounded to the nearest bfloat16 number, ties to even. Magnitudes below 2^−126,
// the least normal number, become zero. Products and sums are float32.
//
// Rounded elements are stored in one of three layouts:
//
//   - rows: the 32 channels of a pixel are adjacent, 64 bytes.
//   - columns: the pixels of a channel are adjacent.
//   - pairs: for two successive rows of 32 elements each, the elements with the same index
//     are adjacent: a0 b0 a1 b1 …, 128 bytes.
//
// The source parameters s0 to s3 are up to four channel blocks, each with one Block per pixel
// (or per row of a tile of weights).
type BF16Kernels struct {
	// Direct is true if these products are so fast that they should also replace Winograd's
	// algorithm.
	Direct bool
	// Slow is true if this processor computes fewer products per second than with the fp32
	// kernels. Results do not depend on it: an instruction set computes the same bits on every
	// processor.
	Slow bool

	// Multiply computes tiles of 32×32 floats, one below the other: c[i][j] = start + Σ over
	// t < nstep and k < 32 of a(i,t)[k] · b(t)[k][j]. The 32 elements of a(i,t) are
	// adjacent; they begin i·aRow + steps[2t] bytes after a. i is counted over all tiles. The
	// 32 rows of b(t) are in the layout of pairs; they begin steps[2t+1] bytes after b. A sum
	// starts with zero, or with the value in c if accumulate is set. nstep and tiles are at
	// least 1.
	Multiply func(c *float32, a, b *uint16, steps *int32, nstep, aRow, tiles int, accumulate bool)

	// PackRows rounds n pixels of four channel blocks to the layout rows. If norm is not nil,
	// the pixels are first normalized as by Set.Normalize, and norm contains the constants for
	// the four blocks. step is the distance between the pixels of dst, in bytes.
	PackRows func(dst *uint16, s0, s1, s2, s3, norm *float32, n, step int)
	// PackPairs rounds n pixels of four channel blocks to the layout pairs. n must be even.
	PackPairs func(dst *uint16, s0, s1, s2, s3 *float32, n int)
	// PackTransposed rounds the columns of four tiles of 8×8 floats to the layout pairs. Row j
	// of the result is column j of s0, followed by column j of s1, s2 and s3.
	PackTransposed func(dst *uint16, s0, s1, s2, s3 *float32)
	// PackColumns rounds n pixels of one channel block to the layout columns. n must be a
	// multiple of 32. row is the distance between the channels of dst, in bytes.
	PackColumns func(dst *uint16, src *float32, n, row int)
	// Unpack copies n rows from src to separate channel blocks in dst, and adds bias to each
	// row. A row consists of the given number of adjacent blocks of eight floats. srcRow and
	// dstRow are the distances between successive rows, and dstBlock is the distance between
	// successive channel blocks, all in bytes.
	Unpack func(dst, src, bias *float32, n, srcRow, dstRow, dstBlock, blocks int)
	// UnpackUncached is like Unpack, for results that do not fit into the cache and are not
	// read soon. Where it is faster, it writes to memory without filling the cache.
	UnpackUncached func(dst, src, bias *float32, n, srcRow, dstRow, dstBlock, blocks int)
}

func newPlainGoBF16Kernels() *BF16Kernels {
	return &BF16Kernels{Direct: true, Multiply: goBF16Multiply, PackRows: goBF16PackRows, PackPairs: goBF16PackPairs, PackTransposed: goBF16PackTransposed, PackColumns: goBF16PackColumns, Unpack: goBF16Unpack, UnpackUncached: goBF16Unpack}
}

// RoundBF16 rounds v to the nearest bfloat16 number, ties to even. It returns zero if the
// magnitude of v is below 2^−126, and NaN if v is NaN.
func RoundBF16(v float32) float32 { return fromBF16(toBF16(v)) }

func toBF16(v float32) uint16 {
	b := math.Float32bits(v)
	const exponent = 0xff << 23
	switch {
	case v != v:
		return uint16(b>>16) | 0x40 // quiet
	case b&exponent == 0:
		return uint16(b>>16) & 0x8000
	}
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}

func fromBF16(b uint16) float32 { return math.Float32frombits(uint32(b) << 16) }

// Uint16View returns the memory of s as 16-bit words.
func Uint16View(s []float32) []uint16 {
	return unsafe.Slice((*uint16)(unsafe.Pointer(dataPointer(s))), 2*len(s))
}

// AvailableBF16KernelSets returns the Sets with which this processor and this build can multiply in
// bfloat16, the best first and plain Go last. LOCKSTEP_CPU selects a Set by its Name.
func AvailableBF16KernelSets() []*Set {
	k := newPlainGoKernelSet()
	k.BF16 = newPlainGoBF16Kernels()
	return append(assemblyBF16KernelSets(), k)
}

// ChooseBF16KernelSet returns the Set of BF16Sets with the given name. If set is "", it returns the
// best one, but never plain Go. It returns an error if there is no such Set.
func ChooseBF16KernelSet(set string) (*Set, error) {
	have := AvailableBF16KernelSets()
	if set == "" {
		if len(have) > 1 {
			return have[0], nil
		}
		return nil, fmt.Errorf("precision bf16 needs a processor with AVX512_BF16, and the best instruction set of this one is %s: use precision fp32, or set %s=go to emulate bf16 slowly", AvailableKernelSets()[0].Name, InstructionSetEnvVar)
	}
	names := make([]string, len(have))
	for i, k := range have {
		if names[i] = k.Name; k.Name == set {
			return k, nil
		}
	}
	list := strings.Join(names, ", ")
	if !slices.Contains(InstructionSets, set) {
		return nil, fmt.Errorf("unknown instruction set %s=%q: with precision bf16 use one of %s, or unset it", InstructionSetEnvVar, set, list)
	}
	return nil, fmt.Errorf("%s=%s does not compute in bf16 on this processor: use one of %s, or unset it, or use precision fp32", InstructionSetEnvVar, set, list)
}
