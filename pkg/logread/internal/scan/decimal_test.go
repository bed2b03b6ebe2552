package scan

import (
	"math"
	"math/rand/v2"
	"strconv"
	"testing"
)

// TestDecimal compares ParseDecimal with strconv for numbers with every count of digits and every
// position of the point. It must parse all numbers of up to 15 digits.
func TestDecimal(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	same := func(text string, all bool) {
		t.Helper()
		v, n := ParseDecimal([]byte(text + ",1"))
		if n == 0 && !all {
			return
		}
		want, err := strconv.ParseFloat(text, 64)
		if err != nil || n != len(text) || math.Float64bits(v) != math.Float64bits(want) {
			t.Errorf("%q: got %v of %d bytes, want %v of %d (%v)", text, v, n, want, len(text), err)
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
				same(string(b), whole+fraction <= 15)
			}
		}
		for n := range 20 { // more digits than fit into 64 bits, at any place of the point
			b := strconv.AppendUint(nil, 1e18+rng.Uint64N(1e18), 10)
			b = strconv.AppendUint(b, rng.Uint64N(1e7), 10)
			same(string(b[:n])+"."+string(b[n:]), false)
		}
		// Numbers halfway between two floats, such as 2^53+1, for which the last bit
		// decides, and floats as Python and %.6f write them.
		odd := uint64(1)<<53 + 2*rng.Uint64N(1<<52) + 1
		same(strconv.FormatUint(odd, 10), false)
		same(strconv.FormatUint(odd, 10)+".0", false)
		x := math.Ldexp(rng.Float64(), rng.IntN(20)-8)
		same("-"+strconv.FormatFloat(float64(float32(x)), 'f', 12, 64), false)
		same(strconv.FormatFloat(x, 'f', 6, 64), true)
		same(strconv.FormatFloat(x, 'f', 13, 64), false)
	}
	for _, text := range []string{"0", "-0", "+.5", "5.", "9007199254740991", "9999999999999999999", "1e5", "1E-05", "-1.25e+22", "6.2000e+00", "1.5e3", "0.0010000000474974513", "-000000000000000000000012.5"} {
		same(text, true)
	}
	for _, text := range []string{"", ".", "-", "1e23", "1e-23", "1e999", "1e5_0", "0x1", "1_0", "10000000000000000000", "99999999999999999999999", "nan", "inf"} {
		if v, n := ParseDecimal([]byte(text)); n != 0 {
			t.Errorf("%q: %v of %d bytes, expected none", text, v, n)
		}
	}
}

// TestParseFloat compares ParseFloat with strconv for all texts of two characters, and for
// numbers in rare forms.
func TestParseFloat(t *testing.T) {
	texts := []string{"Infinity", "-inf", "+INF", "NaN", "0x1p-2", "0X1.8P3", "0xdeadbeefp0", "1e-5", "1_000", "0x_1p0", "1:02", "2021-11-12", "12 s", "nine", ""}
	for c := range 1 << 16 {
		texts = append(texts, string([]byte{byte(c >> 8), byte(c)}))
	}
	for _, text := range texts {
		want, err := strconv.ParseFloat(text, 64)
		got, ok := ParseFloat([]byte(text))
		if ok != (err == nil) || ok && math.Float64bits(got) != math.Float64bits(want) {
			t.Errorf("%q: %v, %v; expected %v, %v", text, got, ok, want, err)
		}
	}
}
