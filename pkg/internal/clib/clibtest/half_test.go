package clibtest

import (
	"math"
	"testing"
)

// Every half is exact in fp32, so converting it there and back must not change it. A number
// halfway between two halves is rounded to the even one, others to the nearer one.
func TestHalvesRoundToNearestEven(t *testing.T) {
	type format struct {
		to   func(float32) uint16
		from func(uint16) float32
		inf  uint16
	}
	for name, f := range map[string]format{"fp16": {toF16, fromF16, 0x7C00}, "bf16": {toBF16, fromBF16, 0x7F80}} {
		for h := uint16(0); h < f.inf-1; h++ {
			a, b := f.from(h), f.from(h+1)
			middle := float32((float64(a) + float64(b)) / 2)
			even := h
			if h&1 == 1 {
				even = h + 1
			}
			for v, want := range map[float32]uint16{
				a: h, middle: even,
				math.Nextafter32(middle, a): h, math.Nextafter32(middle, b): h + 1,
			} {
				if got := f.to(v); got != want {
					t.Fatalf("%s: %g gives %#04x, want %#04x", name, v, got, want)
				}
				if got := f.to(-v); got != want|0x8000 {
					t.Fatalf("%s: %g gives %#04x, want %#04x", name, -v, got, want|0x8000)
				}
			}
		}
		if got := f.to(float32(math.Inf(1))); got != f.inf {
			t.Errorf("%s: infinity gives %#04x", name, got)
		}
		if got := f.from(f.to(float32(math.NaN()))); got == got {
			t.Errorf("%s: NaN gives %v", name, got)
		}
	}
	if toF16(65519) != 0x7BFF || toF16(65520) != 0x7C00 || toF16(1e9) != 0x7C00 {
		t.Error("fp16 does not overflow from 65520 on")
	}
}
