package values

import (
	"encoding/binary"
	"math"
	"testing"
)

// TestHalf: every binary16 against its definition (IEEE 754, 3.4).
func TestHalf(t *testing.T) {
	for h := range 1 << 16 {
		sign, exponent, fraction := 1.0, h>>10&0x1f, float64(h&0x3ff)
		if h>>15 != 0 {
			sign = -1
		}
		want := sign * (1 + fraction/1024) * math.Pow(2, float64(exponent-15))
		switch {
		case exponent == 0:
			want = sign * fraction / 1024 * math.Pow(2, -14)
		case exponent == 31 && fraction == 0:
			want = math.Inf(int(sign))
		case exponent == 31:
			want = math.NaN()
		}
		got := make([]float32, 1)
		for _, big := range []bool{false, true} {
			b := binary.LittleEndian.AppendUint16(nil, uint16(h))
			if big {
				b = binary.BigEndian.AppendUint16(nil, uint16(h))
			}
			NumberType{Size: 2, Float: true, Big: big}.DecodeFloat32(got, b)
			if v := float64(got[0]); v != want && !(math.IsNaN(v) && math.IsNaN(want)) || math.Signbit(v) != math.Signbit(want) && !math.IsNaN(want) {
				t.Fatalf("%#04x is %g, want %g", h, v, want)
			}
		}
	}
}

func TestConvert(t *testing.T) {
	for _, c := range []struct {
		of   NumberType
		b    []byte
		want float32
	}{
		{NumberType{Size: 1}, []byte{200}, 200},
		{NumberType{Size: 1, Signed: true}, []byte{200}, -56},
		{NumberType{Size: 2, Signed: true}, []byte{0xfe, 0xff}, -2},
		{NumberType{Size: 2, Big: true}, []byte{1, 2}, 258},
		{NumberType{Size: 4, Big: true, Signed: true}, []byte{0xff, 0xff, 0xff, 0xfd}, -3},
		{NumberType{Size: 4}, []byte{0xff, 0xff, 0xff, 0xff}, 1 << 32},
		{NumberType{Size: 8, Signed: true}, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, -1},
		{NumberType{Size: 4, Float: true}, binary.LittleEndian.AppendUint32(nil, math.Float32bits(1.5)), 1.5},
		{NumberType{Size: 4, Float: true, Big: true}, binary.BigEndian.AppendUint32(nil, math.Float32bits(-2.5)), -2.5},
		{NumberType{Size: 8, Float: true}, binary.LittleEndian.AppendUint64(nil, math.Float64bits(0.1)), 0.1},
	} {
		got := make([]float32, 1)
		if c.of.DecodeFloat32(got, c.b); got[0] != c.want || !c.of.IsSupported() {
			t.Errorf("%+v of % x is %g, want %g", c.of, c.b, got[0], c.want)
		}
	}
	if (NumberType{Size: 1, Float: true}).IsSupported() || (NumberType{Size: 3}).IsSupported() {
		t.Error("floats of 1 byte or numbers of 3 are known")
	}
}
