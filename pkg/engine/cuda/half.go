package cuda

import (
	"encoding/binary"
	"math"

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

// decode reads elements of a type as the GPU has them: little-endian.
func decode(typ device.Type, src []byte) []float32 {
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

// encode writes src as elements of a type.
func encode(typ device.Type, src []float32) []byte {
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
