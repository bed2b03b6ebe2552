package device

import "math"

// Round is the number nearest to v that an element of type t can hold, the one
// with an even last bit where two are as near: IEEE 754's roundTiesToEven. What
// is beyond the largest becomes an infinity, and NaN stays NaN. F32 and Host
// hold every v.
func (t Type) Round(v float32) float32 {
	switch t {
	case BF16:
		return roundBF16(v)
	case F16:
		return roundF16(v)
	}
	return v
}

// roundBF16 keeps the upper 16 bits of v: the exponent of float32, and 7 bits of
// its mantissa. The carry of rounding up may reach the exponent, and make the
// largest an infinity.
func roundBF16(v float32) float32 {
	if v != v {
		return v
	}
	b := math.Float32bits(v)
	return math.Float32frombits((b + 0x7fff + b>>16&1) &^ 0xffff)
}

// Bounds of IEEE 754 binary16: 10 bits of mantissa behind an implied one, and
// exponents from −14 to 15.
const (
	smallestNormalF16 = 1. / (1 << 14)
	smallestF16       = 1. / (1 << 24) // the step of what is below the smallest normal number
	infiniteF16       = 65520          // half-way between the largest, 65504, and 65536: the tie goes to infinity
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
