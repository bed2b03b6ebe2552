package weights

import (
	"encoding/binary"
	"math"
)

// valueDecoder describes how to decode a value of a safetensors data type. One of f32 and
// f64 is set: f32 if float32 represents every value exactly, otherwise f64. exact is false
// for integers that float64 may not represent exactly (beyond ±2⁵³).
type valueDecoder struct {
	width int64 // bytes per value
	f32   func(b []byte) float32
	f64   func(b []byte) (v float64, exact bool)
}

// valueDecoders returns the decoders of the data types that Read supports, by the name of the
// type.
func valueDecoders() map[string]valueDecoder {
	le := binary.LittleEndian
	signed := func(width int64, read func(b []byte) int64) valueDecoder {
		return valueDecoder{width: width, f64: func(b []byte) (float64, bool) {
			n := read(b)
			v := float64(n)
			return v, math.Abs(v) <= 1<<53 && int64(v) == n
		}}
	}
	unsigned := func(width int64, read func(b []byte) uint64) valueDecoder {
		return valueDecoder{width: width, f64: func(b []byte) (float64, bool) {
			n := read(b)
			return float64(n), n <= 1<<53
		}}
	}
	return map[string]valueDecoder{
		"F64":  {width: 8, f64: func(b []byte) (float64, bool) { return math.Float64frombits(le.Uint64(b)), true }},
		"F32":  {width: 4, f32: func(b []byte) float32 { return math.Float32frombits(le.Uint32(b)) }},
		"F16":  {width: 2, f32: func(b []byte) float32 { return decodeFloat16(le.Uint16(b)) }},
		"BF16": {width: 2, f32: func(b []byte) float32 { return math.Float32frombits(uint32(le.Uint16(b)) << 16) }},
		"I64":  signed(8, func(b []byte) int64 { return int64(le.Uint64(b)) }),
		"I32":  signed(4, func(b []byte) int64 { return int64(int32(le.Uint32(b))) }),
		"I16":  signed(2, func(b []byte) int64 { return int64(int16(le.Uint16(b))) }),
		"I8":   signed(1, func(b []byte) int64 { return int64(int8(b[0])) }),
		"U64":  unsigned(8, le.Uint64),
		"U32":  unsigned(4, func(b []byte) uint64 { return uint64(le.Uint32(b)) }),
		"U16":  unsigned(2, func(b []byte) uint64 { return uint64(le.Uint16(b)) }),
		"U8":   unsigned(1, func(b []byte) uint64 { return uint64(b[0]) }),
		"BOOL": unsigned(1, func(b []byte) uint64 { return uint64(b[0]) }),
	}
}

// decodeFloat16 decodes a number in IEEE 754's binary16 format: 1 sign bit, 5 exponent bits
// with a bias of 15, 10 mantissa bits.
func decodeFloat16(b uint16) float32 {
	sign, exponent, mantissa := uint32(b>>15)<<31, int(b>>10)&31, uint32(b)&1023
	switch exponent {
	case 0: // zero and subnormal numbers
		v := float32(mantissa) * 0x1p-24
		return math.Float32frombits(math.Float32bits(v) | sign)
	case 31: // infinity and NaN
		return math.Float32frombits(sign | 0xff<<23 | mantissa<<13)
	}
	return math.Float32frombits(sign | uint32(exponent-15+127)<<23 | mantissa<<13)
}
