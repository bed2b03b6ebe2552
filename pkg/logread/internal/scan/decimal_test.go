package scan

import (
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
)

// TestDecimal compares Decimal with strconv for numbers with every count of
// digits and every position of the point, and checks that Decimal parses all
// numbers of up to 19 digits.
func TestDecimal(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	same := func(text string) {
		t.Helper()
		// The bytes after the number in its buffer must not matter.
		for _, behind := range []string{"", "7", "23456789.23456789123456789", ".5", "e5", ",1"} {
			if v, n := ParseDecimal([]byte(text + behind)[:len(text)]); n != len(text) || v != first(strconv.ParseFloat(text, 64)) {
				t.Errorf("%q before %q: got %v from %d bytes", text, behind, v, n)
			}
		}
		v, n := ParseDecimal(slices.Clip([]byte(text)))
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
		// Numbers halfway between two floats, such as 2^53+1, for which the last bit
		// decides, and floats as Python and %.6f write them.
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
		if v, n := ParseDecimal([]byte(text)); n != 0 {
			t.Errorf("%q: %v of %d bytes, expected none", text, v, n)
		}
	}
}

// TestReciprocals checks the table of reciprocals, and that quotients computed
// with it equal those computed by division. Some of the mantissas are next to
// the middle between two floats, where the last bit decides.
func TestReciprocals(t *testing.T) {
	for i, power := range powersOfTen {
		if got := bits.LeadingZeros64(power); powerOfTenLeadingZeros[i] != got {
			t.Errorf("10^%d has %d leading zeros, the table has %d", i, got, powerOfTenLeadingZeros[i])
		}
		if i == 0 {
			continue
		}
		if want, _ := bits.Div64(1<<63, 0, power<<bits.LeadingZeros64(power)); powerOfTenReciprocals[i] != want {
			t.Errorf("10^%d: %#x, expected %#x", i, powerOfTenReciprocals[i], want)
		}
	}
	same := func(mantissa uint64, power int) {
		t.Helper()
		if got, want := divideByPowerOfTen(mantissa, power), divide128Bits(mantissa, power); got != want {
			t.Errorf("%d / 10^%d: %v, expected %v", mantissa, power, got, want)
		}
		for m := mantissa; m > 0 && power > 0; m >>= 9 { // exact ones, too
			if got, want := divideByReciprocal(m, power), divide128Bits(m, power); got != want {
				t.Errorf("%d × 10^-%d: %v, expected %v", m, power, got, want)
			}
			if m < 1<<53 && divideByReciprocal(m, power) != float64(m)/floatPowersOfTen[power] {
				t.Errorf("%d × 10^-%d: %v, expected %v", m, power, divideByReciprocal(m, power), float64(m)/floatPowersOfTen[power])
			}
		}
	}
	rng := rand.New(rand.NewPCG(3, 4))
	for range 200_000 {
		power := rng.IntN(20)
		mantissa := rng.Uint64()>>rng.IntN(11) | 1<<53
		same(mantissa, power)
		// Mantissas next to the product of the power and the middle above a random float64.
		x := math.Ldexp(float64(mantissa), -64)
		middle := x + (math.Nextafter(x, 2)-x)/2
		product := middle * floatPowersOfTen[power]
		for product < 1<<53 {
			product *= 2
		}
		if product < 1<<63 {
			for d := range uint64(5) {
				same(uint64(product)+d-2, power)
			}
		}
	}
}

func first(v float64, _ error) float64 { return v }

// TestCounts checks that ParseShortInteger accepts one to seven digits and ParseLongInteger
// one to fifteen, whatever bytes follow.
func TestCounts(t *testing.T) {
	for _, c := range []struct {
		text string
		cut  int // bytes of text that count
		v, n int
	}{
		{"0,               ", 12, 0, 1},
		{"1234567,         ", 12, 1234567, 7},
		{"0012x            ", 12, 12, 4},
		{"1234567890       ", 3, 0, 0}, // more digits follow in the buffer
		{"-1               ", 12, 0, 0},
		{",1               ", 12, 0, 0},
		{"1,", 2, 0, 0}, // too short a buffer
	} {
		for name, count := range map[string]func([]byte) (int, int){"short": ParseShortInteger, "long": ParseLongInteger} {
			if v, n := count([]byte(c.text)[:c.cut:len(c.text)]); v != c.v || n != c.n {
				t.Errorf("%s, %q[:%d]: %d of %d digits, expected %d of %d", name, c.text, c.cut, v, n, c.v, c.n)
			}
		}
	}
	const text = "123456789012345678901234"
	for cut := range 17 {
		b := []byte(text[:cut] + ",               ")[:cut]
		want, _ := strconv.Atoi(text[:cut])
		wantShort, wantLong := want, want
		if cut > 7 {
			wantShort = 0
		}
		if cut > 15 {
			wantLong = 0
		}
		if short, _ := ParseShortInteger(b); short != wantShort {
			t.Errorf("%d digits: short %d, expected %d", cut, short, wantShort)
		}
		if long, n := ParseLongInteger(b); long != wantLong || n != cut && n != 0 {
			t.Errorf("%d digits: long %d of %d digits, expected %d", cut, long, n, wantLong)
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
