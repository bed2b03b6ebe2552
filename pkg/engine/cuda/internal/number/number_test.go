package number

import (
	"math"
	"testing"

	"lockstep/pkg/internal/device"
)

// TestHalf: every 16-bit number survives the way there and back, and roundings
// are to nearest even. The values of binary16 are those of IEEE 754-2008,
// table 3.5: greatest 65504, least normal 2^−14, least 2^−24.
func TestHalf(t *testing.T) {
	for h := range 1 << 16 {
		h := uint16(h)
		if f := fromBF16(h); f == f && toBF16(f) != h {
			t.Fatalf("bf16 %#04x is %v and comes back as %#04x", h, f, toBF16(f))
		}
		if f := fromF16(h); f == f && toF16(f) != h {
			t.Fatalf("fp16 %#04x is %v and comes back as %#04x", h, f, toF16(f))
		}
	}
	inf := float32(math.Inf(1))
	for _, c := range []struct{ in, want float32 }{
		{65504, 65504},
		{65519, 65504},
		{65520, inf},
		{1e6, inf},
		{-70000, -inf},
		{inf, inf},
		{0x1p-24, 0x1p-24},
		{0x1p-25, 0},
		{0x1.8p-25, 0x1p-24},
		{0x1p-14, 0x1p-14},
		{-0x1.8p-24, -0x1p-23},
		{1 + 0x1p-11, 1},
		{1 + 0x1.8p-11, 1 + 0x1p-10},
		{1 + 3*0x1p-11, 1 + 0x1p-9},
	} {
		if got := fromF16(toF16(c.in)); got != c.want {
			t.Errorf("fp16 of %v is %v, not %v", c.in, got, c.want)
		}
	}
	for _, c := range []struct{ in, want float32 }{
		{1 + 0x1p-8, 1}, {1 + 0x1.8p-8, 1 + 0x1p-7}, {1 + 3*0x1p-8, 1 + 0x1p-6}, {math.MaxFloat32, inf}, {-inf, -inf},
	} {
		if got := fromBF16(toBF16(c.in)); got != c.want {
			t.Errorf("bf16 of %v is %v, not %v", c.in, got, c.want)
		}
	}
	nan := float32(math.NaN())
	if f := fromBF16(toBF16(nan)); f == f {
		t.Error("NaN is a number in bf16")
	}
	if f := fromF16(toF16(nan)); f == f {
		t.Error("NaN is a number in fp16")
	}
	for _, typ := range []device.Type{device.F32, device.F16, device.BF16} {
		v := []float32{0, -1.5, 3, 0x1p-10}
		for i, f := range Decode(typ, Encode(typ, v)) {
			if f != v[i] {
				t.Errorf("%s: %v comes back as %v", typ, v[i], f)
			}
		}
	}
}
