package device

import "math"

// Round returns the number nearest to v that type t can represent, with ties to even as in
// IEEE 754 (roundTiesToEven). A value beyond the largest number becomes an infinity, and
// NaN stays NaN. F32 and Host represent every v.
func (t ElementType) Round(v float32) float32 {
	switch t {
	case BF16:
		return roundBF16(v)
	case F16:
		return roundF16(v)
	}
	return v
}

// roundBF16 rounds v to its upper 16 bits: float32's exponent and 7 bits of its mantissa.
// Rounding up may carry into the exponent; the largest numbers become infinity.
func roundBF16(v float32) float32 {
	if v != v {
		return v
	}
	b := math.Float32bits(v)
	return math.Float32frombits((b + 0x7fff + b>>16&1) &^ 0xffff)
}

// Limits of IEEE 754 binary16, which has 10 bits of mantissa after an implied one and
// exponents from −14 to 15.
const (
	smallestNormalF16 = 1. / (1 << 14)
	smallestF16       = 1. / (1 << 24) // distance between two subnormal numbers
	infiniteF16       = 65520          // halfway between the largest number, 65504, and 65536; rounds to infinity
)

func roundF16(v float32) float32 {
	size := math.Abs(float64(v))
	switch {
	case v != v:
		return v
	case size >= infiniteF16:
		return float32(math.Copysign(math.Inf(1), float64(v)))
	case size < smallestNormalF16:
		return float32(math.Copysign(math.RoundToEven(size/smallestF16)*smallestF16, float64(v)))
	}
	b := math.Float32bits(v)
	return math.Float32frombits((b + 0xfff + b>>13&1) &^ 0x1fff)
}

// Bits returns the 16-bit representation of t.Round(v). t must be F16 or BF16.
func (t ElementType) Bits(v float32) uint16 {
	b := math.Float32bits(t.Round(v))
	sign := uint16(b >> 16 & 0x8000)
	size := math.Abs(float64(math.Float32frombits(b)))
	switch {
	case t == BF16 && v != v:
		return uint16(b>>16) | 0x40 // stays NaN even if the upper bits of its payload are zero
	case t == BF16:
		return uint16(b >> 16)
	case v != v:
		return sign | 0x7e00
	case math.IsInf(size, 0):
		return sign | 0x7c00
	case size < smallestNormalF16:
		return sign | uint16(size/smallestF16)
	}
	return sign | uint16((b&0x7fffffff-(127-15)<<23)>>13)
}

// FromBits returns the number with the given 16-bit representation. t must be F16 or BF16.
func (t ElementType) FromBits(bits uint16) float32 {
	if t == BF16 {
		return math.Float32frombits(uint32(bits) << 16)
	}
	sign, exponent, mantissa := uint32(bits&0x8000)<<16, uint32(bits>>10&0x1f), uint32(bits&0x3ff)
	switch exponent {
	case 0:
		return math.Float32frombits(sign | math.Float32bits(float32(mantissa)*smallestF16))
	case 0x1f:
		return math.Float32frombits(sign | 0x7f800000 | mantissa<<13)
	}
	return math.Float32frombits(sign | (exponent+127-15)<<23 | mantissa<<13)
}
