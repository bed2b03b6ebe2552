package device

import (
	"math"
	"testing"
)

// numbers are the finite numbers from 0 up that a type with this many bits of
// exponent and mantissa holds, by their definition in IEEE 754.
func numbers(exponent, mantissa int) []float64 {
	bias := 1<<(exponent-1) - 1
	var list []float64
	for e := range 1<<exponent - 1 {
		for m := range 1 << mantissa {
			fraction := float64(m) / float64(int(1)<<mantissa)
			if e == 0 {
				list = append(list, math.Ldexp(fraction, 1-bias))
			} else {
				list = append(list, math.Ldexp(1+fraction, e-bias))
			}
		}
	}
	return list
}

// TestRound rounds every number of either type, every midpoint between two
// neighbours, and the float32 on each side of it.
func TestRound(t *testing.T) {
	for _, c := range []struct {
		typ                ElementType
		exponent, mantissa int
		largest            float64
	}{{F16, 5, 10, 65504}, {BF16, 8, 7, 3.3895313892515355e38}} {
		list := numbers(c.exponent, c.mantissa)
		if last := list[len(list)-1]; last != c.largest {
			t.Fatalf("%s: the largest number is %v, want %v", c.typ, last, c.largest)
		}
		check := func(v float32, want float64) {
			t.Helper()
			for _, sign := range []float32{1, -1} {
				if got := c.typ.Round(sign * v); math.Float32bits(got) != math.Float32bits(sign*float32(want)) {
					t.Fatalf("%s: %v becomes %v, want %v", c.typ, sign*v, got, float64(sign)*want)
				}
			}
		}
		for i, v := range list {
			check(float32(v), v)
			step, next := v-list[max(0, i-1)], math.Inf(1)
			if i == 0 {
				step = list[1]
			}
			if i+1 < len(list) {
				next = list[i+1]
				step = next - v
			}
			middle := v + step/2
			even := v
			if i%2 == 1 { // the last bit of the mantissa
				even = next
			}
			if float64(float32(middle)) != middle { // below float32's own smallest step
				continue
			}
			check(float32(middle), even)
			check(math.Nextafter32(float32(middle), 0), v)
			check(math.Nextafter32(float32(middle), math.MaxFloat32), next)
		}
		if v := c.typ.Round(float32(math.Inf(-1))); !math.IsInf(float64(v), -1) {
			t.Errorf("%s: −∞ becomes %v", c.typ, v)
		}
		if v := c.typ.Round(float32(math.NaN())); v == v {
			t.Errorf("%s: NaN becomes %v", c.typ, v)
		}
	}
	if v := F32.Round(0.1); v != 0.1 {
		t.Errorf("fp32: 0.1 becomes %v", v)
	}
}

// TestBits converts every 16-bit pattern to a number and back, and compares the numbers
// with their definition in IEEE 754.
func TestBits(t *testing.T) {
	for _, c := range []struct {
		typ                ElementType
		exponent, mantissa int
	}{{F16, 5, 10}, {BF16, 8, 7}} {
		list := numbers(c.exponent, c.mantissa)
		for bits := range 1 << 16 {
			v := c.typ.FromBits(uint16(bits))
			if got := c.typ.Bits(v); v == v && got != uint16(bits) {
				t.Fatalf("%s: %#04x is %v, which has the bits %#04x", c.typ, bits, v, got)
			}
			size := bits & 0x7fff
			switch {
			case size < len(list):
				if math.Abs(float64(v)) != list[size] || math.Signbit(float64(v)) != (bits >= 0x8000) {
					t.Fatalf("%s: %#04x is %v, want ±%v", c.typ, bits, v, list[size])
				}
			case size == len(list):
				if !math.IsInf(float64(v), 0) {
					t.Fatalf("%s: %#04x is %v, want an infinity", c.typ, bits, v)
				}
			case v == v || c.typ.FromBits(c.typ.Bits(v)) == c.typ.FromBits(c.typ.Bits(v)):
				t.Fatalf("%s: %#04x is %v, want NaN, which stays NaN", c.typ, bits, v)
			}
		}
		low := math.Float32frombits(0x7f800001) // NaN whose payload does not fit in 16 bits
		if v := c.typ.FromBits(c.typ.Bits(low)); v == v {
			t.Errorf("%s: NaN becomes %v", c.typ, v)
		}
		for _, v := range []float32{0.1, -65519, 65520, 1e-7, -3e-8, 1e39 / 10} {
			if got := c.typ.FromBits(c.typ.Bits(v)); got != c.typ.Round(v) {
				t.Errorf("%s: bits of %v are those of %v, want %v", c.typ, v, got, c.typ.Round(v))
			}
		}
	}
}
