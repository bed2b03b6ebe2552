package logread

import (
	"math"
	"math/rand/v2"
	"strconv"
	"testing"
)

// TestDecimal: numbers as programs write them, with every count of digits and
// place of the point, are those of strconv, and none of up to 19 digits is
// left to it.
func TestDecimal(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	same := func(text string) {
		t.Helper()
		v, n := decimal([]byte(text))
		want, err := strconv.ParseFloat(text, 64)
		if err != nil || n != len(text) || math.Float64bits(v) != math.Float64bits(want) {
			t.Errorf("%q: %v of %d bytes, expected %v (%v)", text, v, n, want, err)
		}
	}
	for range 200 {
		for whole := range 20 {
			for fraction := range 20 - whole {
				if whole+fraction == 0 {
					continue
				}
				var b []byte
				for i := range whole + fraction {
					if i == whole {
						b = append(b, '.')
					}
					b = append(b, byte('0'+rng.IntN(10)))
				}
				same(string(b))
			}
		}
		// Halfway between two floats, where the last bit decides: 2^53+1 and
		// its like, and what Python and %.6f write of floats.
		odd := uint64(1)<<53 + 2*rng.Uint64N(1<<52) + 1
		same(strconv.FormatUint(odd, 10))
		same(strconv.FormatUint(odd, 10) + ".0")
		x := math.Ldexp(rng.Float64(), rng.IntN(20)-8)
		same("-" + strconv.FormatFloat(float64(float32(x)), 'f', 12, 64))
		same(strconv.FormatFloat(x, 'f', 6, 64))
		same(strconv.FormatFloat(x, 'f', 13, 64))
	}
	for _, text := range []string{"0", "-0", "+.5", "5.", "9999999999999999999", ".0000000000000000001", "9007199254740993", "9007199254740992.5"} {
		same(text)
	}
	for _, text := range []string{"", ".", "-", "1e5", "1E-05", "0x1", "1_0", "10000000000000000000", "nan", "inf"} {
		if v, n := decimal([]byte(text)); n != 0 {
			t.Errorf("%q: %v of %d bytes, expected none", text, v, n)
		}
	}
}
