// Package values converts numbers as stored in files to float32.
package values

import (
	"encoding/binary"
	"math"
)

// NumberType is the type of stored values: IEEE 754 floats of 2, 4 or 8 bytes, or integers of 1, 2,
// 4 or 8 bytes.
type NumberType struct {
	Size   int  // size of a value in bytes
	Big    bool // values are big-endian
	Float  bool // values are floats, not integers
	Signed bool // integers are signed
}

// IsSupported reports whether Convert supports t.
func (t NumberType) IsSupported() bool {
	return t.Size == 2 || t.Size == 4 || t.Size == 8 || (t.Size == 1 && !t.Float)
}

// DecodeFloat32 converts the first len(dst) values in b to float32.
func (t NumberType) DecodeFloat32(dst []float32, b []byte) {
	var order binary.ByteOrder = binary.LittleEndian
	if t.Big {
		order = binary.BigEndian
	}
	switch {
	case t.Float && t.Size == 4 && !t.Big:
		for i := range dst {
			dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
		}
	case t.Float && t.Size == 4:
		for i := range dst {
			dst[i] = math.Float32frombits(order.Uint32(b[4*i:]))
		}
	case t.Float && t.Size == 8:
		for i := range dst {
			dst[i] = float32(math.Float64frombits(order.Uint64(b[8*i:])))
		}
	case t.Float:
		for i := range dst {
			dst[i] = decodeFloat16(order.Uint16(b[2*i:]))
		}
	default:
		for i := range dst {
			dst[i] = t.decodeInteger(b[t.Size*i:], order)
		}
	}
}

func (t NumberType) decodeInteger(b []byte, order binary.ByteOrder) float32 {
	var v uint64
	switch t.Size {
	case 1:
		v = uint64(b[0])
	case 2:
		v = uint64(order.Uint16(b))
	case 4:
		v = uint64(order.Uint32(b))
	default:
		v = order.Uint64(b)
	}
	if !t.Signed {
		return float32(v)
	}
	shift := 64 - 8*t.Size
	return float32(int64(v<<shift) >> shift)
}

func decodeFloat16(h uint16) float32 {
	sign, exponent, fraction := uint32(h>>15)<<31, uint32(h>>10&0x1f), uint32(h&0x3ff)
	switch exponent {
	case 0: // zero or subnormal: fraction·2⁻²⁴
		v := float32(fraction) * 0x1p-24
		return math.Float32frombits(math.Float32bits(v) | sign)
	case 0x1f:
		return math.Float32frombits(sign | 0x7f800000 | fraction<<13)
	}
	return math.Float32frombits(sign | (exponent+112)<<23 | fraction<<13)
}
