// Package number converts between the numbers of a GPU's memory (fp32, bf16 and fp16)
// and Go's, names their types for the engine's kernels, and compares results.
package number

import (
	"encoding/binary"
	"math"

	"lockstep/pkg/engine/cuda/kernels"
	"lockstep/pkg/internal/device"
)

// toBF16 rounds to the nearest bfloat16, ties to even; NaN stays NaN.
func toBF16(f float32) uint16 {
	b := math.Float32bits(f)
	if f != f {
		return uint16(b>>16) | 0x40
	}
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}

func fromBF16(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }

// toF16 rounds to the nearest IEEE 754 binary16, ties to even; what is too
// large becomes an infinity.
func toF16(f float32) uint16 {
	b := math.Float32bits(f)
	sign := uint16(b >> 16 & 0x8000)
	b &= 0x7fffffff
	switch {
	case b > 0x7f800000:
		return sign | 0x7e00
	case b >= 0x47800000: // 65536 and more
		return sign | 0x7c00
	case b < 0x38800000: // below 2^−14: subnormal, a multiple of 2^−24
		return sign | uint16(math.RoundToEven(float64(math.Float32frombits(b))*(1<<24)))
	}
	// The carry of rounding up may reach the exponent, and make 65520 an infinity.
	b += 0xfff + b>>13&1
	return sign | uint16((b-0x38000000)>>13)
}

func fromF16(h uint16) float32 {
	sign := uint32(h&0x8000) << 16
	exponent, mantissa := uint32(h>>10&0x1f), uint32(h&0x3ff)
	switch exponent {
	case 0:
		f := float32(mantissa) / (1 << 24)
		return math.Float32frombits(sign | math.Float32bits(f))
	case 0x1f:
		return math.Float32frombits(sign | 0x7f800000 | mantissa<<13)
	}
	return math.Float32frombits(sign | (exponent+112)<<23 | mantissa<<13)
}

// Decode reads elements of a type as the GPU has them: little-endian.
func Decode(typ device.Type, src []byte) []float32 {
	dst := make([]float32, len(src)/typ.Size())
	for i := range dst {
		switch typ {
		case device.F16:
			dst[i] = fromF16(binary.LittleEndian.Uint16(src[2*i:]))
		case device.BF16:
			dst[i] = fromBF16(binary.LittleEndian.Uint16(src[2*i:]))
		default:
			dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
		}
	}
	return dst
}

// Encode writes src as elements of a type.
func Encode(typ device.Type, src []float32) []byte {
	dst := make([]byte, 0, len(src)*typ.Size())
	for _, f := range src {
		switch typ {
		case device.F16:
			dst = binary.LittleEndian.AppendUint16(dst, toF16(f))
		case device.BF16:
			dst = binary.LittleEndian.AppendUint16(dst, toBF16(f))
		default:
			dst = binary.LittleEndian.AppendUint32(dst, math.Float32bits(f))
		}
	}
	return dst
}

// Low returns the element type of activations for a precision of engine.Options.
func Low(precision string) device.Type {
	switch precision {
	case "bf16":
		return device.BF16
	case "fp16":
		return device.F16
	}
	return device.F32
}

// KernelType returns t as the engine's kernels name it.
func KernelType(t device.Type) kernels.Type {
	switch t {
	case device.F16:
		return kernels.F16
	case device.BF16:
		return kernels.BF16
	}
	return kernels.F32
}

// Widen converts v to float64.
func Widen(v []float32) []float64 {
	w := make([]float64, len(v))
	for i := range v {
		w[i] = float64(v[i])
	}
	return w
}

// Cosine returns the cosine of the angle between a and b.
func Cosine(a, b []float64) float64 {
	var dot, aa, bb float64
	for i := range a {
		dot, aa, bb = dot+a[i]*b[i], aa+a[i]*a[i], bb+b[i]*b[i]
	}
	return dot / math.Sqrt(aa*bb)
}

// Differing counts the elements of a and b whose bits differ.
func Differing(a, b []float64) (n int) {
	for i := range a {
		if math.Float64bits(a[i]) != math.Float64bits(b[i]) {
			n++
		}
	}
	return n
}
