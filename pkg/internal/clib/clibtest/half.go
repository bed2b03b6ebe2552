package clibtest

import "math"

// toBF16 rounds to the nearest bfloat16, ties to even. A NaN stays NaN.
func toBF16(f float32) uint16 {
	b := math.Float32bits(f)
	if f != f {
		return uint16(b>>16) | 0x40
	}
	return uint16((b + 0x7FFF + b>>16&1) >> 16)
}

func fromBF16(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }

// toF16 rounds to the nearest IEEE half, ties to even.
func toF16(f float32) uint16 {
	b := math.Float32bits(f)
	sign := uint16(b >> 16 & 0x8000)
	a := math.Abs(float64(f))
	switch {
	case f != f:
		return sign | 0x7E00
	case a >= 65520: // halfway between the largest half and the next value
		return sign | 0x7C00
	case a < 1.0/(1<<14): // subnormal: a multiple of 2⁻²⁴
		return sign | uint16(math.RoundToEven(a*(1<<24)))
	}
	// 13 bits of the fraction are dropped. A carry correctly increments the exponent.
	rounded := b&0x7FFFFFFF + 0xFFF + b>>13&1
	return sign | uint16((rounded-(127-15)<<23)>>13)
}

func fromF16(h uint16) float32 {
	sign, exponent, fraction := uint32(h&0x8000)<<16, uint32(h>>10&0x1F), uint32(h&0x3FF)
	switch exponent {
	case 31: // infinity or NaN
		return math.Float32frombits(sign | 0xFF<<23 | fraction<<13)
	case 0: // subnormal: a multiple of 2⁻²⁴
		v := float32(fraction) / (1 << 24)
		return math.Float32frombits(sign | math.Float32bits(v))
	}
	return math.Float32frombits(sign | (exponent+127-15)<<23 | fraction<<13)
}
