// Package compress implements the lossy exchange of gradients that strategy ddp offers: rounding to
// 16 bits.
//
// What a worker does not send of its gradient is its rest. The exchange adds the rest to the next
// gradient before it rounds, and computes the new rest (error feedback: S. P. Karimireddy et al.,
// "Error feedback fixes SignSGD and other gradient compression schemes", arXiv:1901.09847). So
// nothing is lost, only late. All ranks get the same bits.
package compress

import (
	"context"
	"errors"
	"math"

	"lockstep/pkg/collective"
	"lockstep/pkg/internal/device"
)

// Names of the compression methods.
const (
	FP16 = "fp16"
	BF16 = "bf16"
)

// MethodNames returns the names of all compression methods.
func MethodNames() []string { return []string{FP16, BF16} }

// gradientElement is the type of a gradient's elements.
type gradientElement interface{ float32 | float64 }

// AverageHalfPrecision replaces gradient by the mean of all ranks' gradients after rounding to 16
// bits. name is FP16 (IEEE 754 binary16, values beyond its range become the largest) or BF16.
// Before rounding, each rank adds rest, the rounding errors of its earlier gradients, and then
// updates rest. The result is the number of bytes of the rounded gradient.
//
// Each rank sends the shards of its rounded gradient to their owners. The owner of a shard adds
// them up in full precision (T, so fp32 for fp32 gradients), in the order of the ranks, and sends
// the mean, rounded again, to all ranks. It keeps the error of this rounding in its own rest.
func AverageHalfPrecision[T gradientElement](ctx context.Context, group collective.Group, name string, gradient, rest []T) (int, error) {
	round, value := toBF16, fromBF16
	if name == FP16 {
		round, value = toFP16, fromFP16
	}
	for i := range gradient {
		a := gradient[i] + rest[i]
		gradient[i] = T(value(round(float32(a))))
		rest[i] = a - gradient[i]
	}
	n, size, rank := len(gradient), group.Size(), group.Rank()
	words := make([]float32, packedWords(n))
	packHalves(words, gradient, round)
	lo, hi := collective.Shard(len(words), size, rank)
	received := make([][]float32, size)
	for k := 1; k < size; k++ {
		to, from := (rank+k)%size, (rank-k+size)%size
		begin, end := collective.Shard(len(words), size, to)
		received[from] = make([]float32, hi-lo)
		if err := sendAndReceive(ctx, group, words[begin:end], to, received[from], from); err != nil {
			return 0, err
		}
	}
	own := gradient[min(2*lo, n):min(2*hi, n)]
	ownRest := rest[min(2*lo, n):min(2*hi, n)]
	sum, part := make([]T, len(own)), make([]T, len(own))
	for r := range size {
		from := own
		if r != rank {
			unpackHalves(part, received[r], value)
			from = part
		}
		for i, v := range from {
			sum[i] += v
		}
	}
	for i := range sum {
		mean := sum[i] / T(size)
		own[i] = T(value(round(float32(mean))))
		ownRest[i] += T(size) * (mean - own[i]) // the mean contains 1/size of it
	}
	packHalves(words[lo:hi], own, round)
	if err := group.AllGather(ctx, device.Buffer{F32: words}); err != nil {
		return 0, err
	}
	unpackHalves(gradient, words, value)
	return HalfPrecisionBytes(n), nil
}

// HalfPrecisionBytes returns the size in bytes of n elements after rounding to 16 bits.
func HalfPrecisionBytes(n int) int { return 4 * packedWords(n) }

func packedWords(n int) int { return (n + 1) / 2 }

func sendAndReceive(ctx context.Context, group collective.Group, out []float32, to int, in []float32, from int) error {
	sent := make(chan error, 1)
	go func() {
		if len(out) == 0 {
			sent <- nil
			return
		}
		sent <- group.Send(ctx, device.Buffer{F32: out}, to)
	}()
	var err error
	if len(in) > 0 {
		err = group.Recv(ctx, device.Buffer{F32: in}, from)
	}
	return errors.Join(err, <-sent)
}

// packHalves rounds the values and stores two of them in the bits of each word.
func packHalves[T gradientElement](words []float32, values []T, round func(float32) uint16) {
	for i := range words {
		bits := uint32(round(float32(values[2*i])))
		if 2*i+1 < len(values) {
			bits |= uint32(round(float32(values[2*i+1]))) << 16
		}
		words[i] = math.Float32frombits(bits)
	}
}

// unpackHalves is the inverse of packHalves.
func unpackHalves[T gradientElement](values []T, words []float32, value func(uint16) float32) {
	for i := range values {
		bits := math.Float32bits(words[i/2])
		if i%2 == 1 {
			bits >>= 16
		}
		values[i] = T(value(uint16(bits)))
	}
}

// toBF16 rounds v to the nearest bf16, ties to even. NaN stays NaN.
func toBF16(v float32) uint16 {
	bits := math.Float32bits(v)
	if v != v {
		return uint16(bits>>16) | 0x40
	}
	if rounded := bits + 0x7fff + bits>>16&1; rounded&0x7fffffff < 0x7f800000 || math.IsInf(float64(v), 0) {
		return uint16(rounded >> 16)
	}
	return uint16(bits>>31<<15) | 0x7f7f // the largest finite value
}

func fromBF16(b uint16) float32 { return math.Float32frombits(uint32(b) << 16) }

// toFP16 rounds v to the nearest fp16, ties to even. Finite values beyond the range become the
// largest finite value, and NaN stays NaN.
func toFP16(v float32) uint16 {
	sign := uint16(math.Float32bits(v) >> 31 << 15)
	a := math.Abs(float64(v))
	switch {
	case v != v:
		return sign | 0x7e00
	case math.IsInf(a, 0):
		return sign | 0x7c00
	case a >= 65504:
		return sign | 0x7bff
	case a < 0x1p-14: // subnormal: a multiple of 2⁻²⁴
		return sign | uint16(math.RoundToEven(a*0x1p24))
	}
	fraction, exponent := math.Frexp(a)              // a = fraction·2^exponent, fraction in [1/2, 1)
	m := uint16(math.RoundToEven(fraction * 0x1p11)) // 1024 to 2048
	return sign | min(uint16(exponent+13)<<10+m, 0x7bff)
}

func fromFP16(b uint16) float32 {
	exponent, m := int(b>>10&31), float64(b&1023)
	var v float64
	switch exponent {
	case 0:
		v = math.Ldexp(m, -24)
	case 31:
		v = math.Inf(1)
		if m != 0 {
			v = math.NaN()
		}
	default:
		v = math.Ldexp(1024+m, exponent-25)
	}
	if b>>15 == 1 {
		v = -v
	}
	return float32(v)
}
