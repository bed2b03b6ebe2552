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

// BF16 contains the inner loops for products of matrices whose elements are rounded to
// bfloat16, the upper half of a float32 (Intel, BFLOAT16 Hardware Numerics Definition,
// 2018). The elements are rounded to the nearest bfloat16 number, ties to even. Magnitudes
// below 2^−126, the least normal number, become zero. Products and sums are float32.
//
// Three layouts hold rounded elements:
//
//   - rows: the 32 channels of a pixel are adjacent, 64 bytes.
//   - columns: the pixels of a channel are adjacent.
//   - pairs: for two successive rows, each of 32 elements, the elements with the same index
//     are adjacent: a0 b0 a1 b1 …, 128 bytes.
//
// Sources are up to four channel blocks of eight, each with one Block per pixel (or per row
// of a tile of weights).
type BF16 struct {
	// Direct is set if the products are so fast that convolutions that could use Winograd's
	// algorithm are faster without it.
	Direct bool
	// Slow is set if this processor computes fewer products per second than with the kernels
	// for fp32. It changes no result: the same instruction set has the same bits everywhere.
	Slow bool

	// Multiply computes tiles of 32×32 floats, one below the other: c[i][j] = start + Σ over
	// t < nstep and k < 32 of a(i,t)[k] · b(t)[k][j]. The 32 elements of a(i,t) are
	// adjacent; they begin i·aRow + steps[2t] bytes after a. i is counted over all tiles. The
	// 32 rows of b(t) are in the layout of pairs; they begin steps[2t+1] bytes after b. A sum
	// starts with zero, or with the value in c if accumulate is set. nstep and tiles are at
	// least 1.
	Multiply func(c *float32, a, b *uint16, steps *int32, nstep, aRow, tiles int, accumulate bool)

	// PackRows rounds n pixels of four channel blocks to the layout of rows. norm is nil, or
	// the constants for the four blocks with which the pixels are normalized before, as by
	// Set.Normalize. step is the distance in bytes from a pixel of dst to the next.
	PackRows func(dst *uint16, s0, s1, s2, s3, norm *float32, n, step int)
	// PackPairs rounds n pixels of four channel blocks to the layout of pairs; n is even.
	PackPairs func(dst *uint16, s0, s1, s2, s3 *float32, n int)
	// PackTransposed rounds the columns of four tiles of 8×8 floats to the layout of pairs. Row
	// j of the result is column j of s0, followed by column j of s1, of s2 and of s3.
	PackTransposed func(dst *uint16, s0, s1, s2, s3 *float32)
	// PackColumns rounds n pixels of one channel block to the layout of columns; n is a
	// multiple of 32. row is the distance in bytes from a channel of dst to the next.
	PackColumns func(dst *uint16, src *float32, n, row int)
	// Unpack copies n rows of the given number of blocks of eight floats, which are adjacent
	// in src, to separate channel blocks, and adds bias to each row. srcRow and dstRow are
	// the distances in bytes of successive rows, and dstBlock is the distance of successive
	// channel blocks.
	Unpack func(dst, src, bias *float32, n, srcRow, dstRow, dstBlock, blocks int)
	// UnpackUncached is Unpack for results that do not fit into the cache and are not read
	// soon. It writes them past the cache where that is faster.
	UnpackUncached func(dst, src, bias *float32, n, srcRow, dstRow, dstBlock, blocks int)
}

func newPlainGoBF16() *BF16 {
	return &BF16{Direct: true, Multiply: goBF16Multiply, PackRows: goBF16PackRows, PackPairs: goBF16PackPairs, PackTransposed: goBF16PackTransposed, PackColumns: goBF16PackColumns, Unpack: goBF16Unpack, UnpackUncached: goBF16Unpack}
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

// BF16Sets returns the Sets with which this processor and this build can multiply in
// bfloat16, the best first and plain Go last. LOCKSTEP_CPU selects a Set by its Name.
func BF16Sets() []*Set {
	k := newPlainGoSet()
	k.BF16 = newPlainGoBF16()
	return append(assemblyBF16Sets(), k)
}

// ChooseBF16Set returns the Set of BF16Sets with the given name. If set is "", it returns the
// best one, but never plain Go. It returns an error if there is no such Set.
func ChooseBF16Set(set string) (*Set, error) {
	have := BF16Sets()
	if set == "" {
		if len(have) > 1 {
			return have[0], nil
		}
		return nil, fmt.Errorf("precision bf16 needs a processor with AVX512_BF16, and the best instruction set of this one is %s: use precision fp32, or set %s=go to emulate bf16 slowly", AvailableSets()[0].Name, InstructionSetEnvVar)
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
