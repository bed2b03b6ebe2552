package events

import (
	"encoding/binary"
	"errors"
	"math"
)

// The messages of an event file are decoded in place: an Event with one scalar
// has some fifty bytes, so allocating a message object for each would dominate
// the time. Field numbers are from tensorflow/core/util/event.proto,
// framework/summary.proto, framework/tensor.proto, framework/tensor_shape.proto
// and framework/types.proto.
const (
	wireVarint  = 0
	wireFixed64 = 1
	wireBytes   = 2
	wireFixed32 = 5

	eventWallTime   = 1 // Event: double, seconds since 1970
	eventStep       = 2 // int64
	eventSummary    = 5 // Summary
	eventSessionLog = 7 // SessionLog

	summaryValue = 1 // Summary: repeated Value

	valueTag    = 1 // Value: string
	valueSimple = 2 // float
	valueTensor = 8 // TensorProto

	sessionStatus = 1 // SessionLog: enum
	sessionStart  = 1 // SessionLog.START

	tensorType    = 1  // TensorProto: DataType
	tensorShape   = 2  // TensorShapeProto
	tensorContent = 4  // bytes, little-endian
	tensorFloat   = 5  // repeated float, packed
	tensorDouble  = 6  // repeated double, packed
	tensorInt     = 7  // repeated int32, packed; also of the shorter integers
	tensorInt64   = 10 // repeated int64, packed
	tensorBool    = 11 // repeated bool, packed
	tensorHalf    = 13 // repeated int32, packed: 16 bits of half or bfloat16
	tensorUint32  = 16 // repeated uint32, packed
	tensorUint64  = 17 // repeated uint64, packed

	shapeDim     = 2 // TensorShapeProto: repeated Dim
	shapeUnknown = 3 // bool: the rank is not known
	dimSize      = 1 // Dim: int64

	typeFloat, typeDouble, typeInt32, typeUint8, typeInt16, typeInt8 = 1, 2, 3, 4, 5, 6
	typeInt64, typeBool, typeBfloat16, typeUint16                    = 9, 10, 14, 17
	typeHalf, typeUint32, typeUint64                                 = 19, 22, 23
)

var errMalformed = errors.New("malformed or incomplete protobuf message")

type fieldIterator struct {
	b    []byte
	num  uint64
	wire uint64
	u    uint64 // value of a varint field, or the bits of a fixed32 or fixed64 field
	data []byte // content of a bytes field
	bad  bool   // the message is malformed
}

// next advances to the next field. It returns false after the last field or if the message is
// malformed; f.bad is set in the latter case.
func (f *fieldIterator) next() bool {
	if len(f.b) == 0 {
		return false
	}
	key, n := parseVarint(f.b)
	f.b = f.b[n:]
	f.num, f.wire = key>>3, key&7
	switch {
	case n == 0 || f.num == 0:
	case f.wire == wireVarint:
		if f.u, n = parseVarint(f.b); n > 0 {
			f.b = f.b[n:]
			return true
		}
	case f.wire == wireFixed64 && len(f.b) >= 8:
		f.u, f.b = binary.LittleEndian.Uint64(f.b), f.b[8:]
		return true
	case f.wire == wireFixed32 && len(f.b) >= 4:
		f.u, f.b = uint64(binary.LittleEndian.Uint32(f.b)), f.b[4:]
		return true
	case f.wire == wireBytes:
		if size, n := parseVarint(f.b); n > 0 && size <= uint64(len(f.b)-n) {
			f.data, f.b = f.b[n:n+int(size)], f.b[n+int(size):]
			return true
		}
	}
	f.bad = true
	return false
}

// parseVarint returns the varint at the beginning of b and its length n. n is 0 if b does not begin
// with a complete varint.
func parseVarint(b []byte) (v uint64, n int) {
	if len(b) > 0 && b[0] < 0x80 {
		return uint64(b[0]), 1
	}
	if v, n = binary.Uvarint(b); n < 0 {
		n = 0
	}
	return v, n
}

// readEvent reads an Event message. Every known writer stores the summary after
// the time and the step, but this order is not guaranteed, so the summary is
// parsed last.
func (r *Parser) readEvent(b []byte) error {
	f := fieldIterator{b: b}
	var step int64
	var at float64
	// No known writer puts several summaries into one event. If there are several, the last one is
	// used.
	var summary, session []byte
	for f.next() {
		switch {
		case f.num == eventWallTime && f.wire == wireFixed64:
			at = math.Float64frombits(f.u)
		case f.num == eventStep && f.wire == wireVarint:
			step = int64(f.u)
		case f.num == eventSummary && f.wire == wireBytes:
			summary = f.data
		case f.num == eventSessionLog && f.wire == wireBytes:
			session = f.data
		}
	}
	if f.bad {
		return errMalformed
	}
	if math.IsNaN(r.began) {
		r.began = at
	}
	for s := (fieldIterator{b: session}); s.next(); {
		if s.num == sessionStatus && s.wire == wireVarint && s.u == sessionStart {
			r.removePointsFrom(step)
		}
	}
	s := fieldIterator{b: summary}
	for s.next() {
		if s.num == summaryValue && s.wire == wireBytes {
			if err := r.readSummaryValue(s.data, step, at); err != nil {
				return err
			}
		}
	}
	if s.bad {
		return errMalformed
	}
	return nil
}

// readSummaryValue parses a Value message of a summary. If the value is a scalar, readSummaryValue adds it to the
// curve of its tag.
func (r *Parser) readSummaryValue(b []byte, step int64, at float64) error {
	f := fieldIterator{b: b}
	var tag []byte
	v, scalar := 0.0, false
	for f.next() {
		switch {
		case f.num == valueTag && f.wire == wireBytes:
			tag = f.data
		case f.num == valueSimple && f.wire == wireFixed32:
			v, scalar = float64(math.Float32frombits(uint32(f.u))), true
		case f.num == valueTensor && f.wire == wireBytes:
			v, scalar = parseTensorScalar(f.data)
		}
	}
	if f.bad {
		return errMalformed
	}
	if scalar {
		r.addScalar(tag, step, at, v)
	}
	return nil
}

// parseTensorScalar returns the value of a tensor with exactly one element. ok is false for
// other tensors and for tensors of strings.
func parseTensorScalar(b []byte) (v float64, ok bool) {
	f := fieldIterator{b: b}
	kind := uint64(0)
	var content []byte
	values := 0
	hasContent := false
	for f.next() {
		switch {
		case f.num == tensorType && f.wire == wireVarint:
			kind = f.u
		case f.num == tensorShape && f.wire == wireBytes:
			if !hasOneElement(f.data) {
				return 0, false
			}
		case f.num == tensorContent && f.wire == wireBytes:
			content, hasContent = f.data, len(f.data) > 0
		case f.num >= tensorFloat && f.num <= tensorUint64:
			one, n := f.decodeNumbers(kind)
			v, values = one, values+n
		}
	}
	switch {
	case f.bad || kind == 0:
		return 0, false
	case hasContent:
		return parseRawScalar(kind, content)
	case values == 0:
		return 0, dataTypeSize(kind) > 0 // writers omit zero, which is the default
	}
	return v, values == 1
}

// hasOneElement reports whether a tensor of the given shape has exactly one element, as for the
// shapes () and (1, 1).
func hasOneElement(shape []byte) bool {
	f := fieldIterator{b: shape}
	for f.next() {
		switch {
		case f.num == shapeUnknown && f.wire == wireVarint && f.u != 0:
			return false
		case f.num == shapeDim && f.wire == wireBytes:
			size := uint64(0)
			d := fieldIterator{b: f.data}
			for d.next() {
				if d.num == dimSize && d.wire == wireVarint {
					size = d.u
				}
			}
			if size != 1 || d.bad {
				return false
			}
		}
	}
	return !f.bad
}

// dataTypeSize returns the size in bytes of a number of the DataType kind, or 0 if it is not numeric.
func dataTypeSize(kind uint64) int {
	switch kind {
	case typeDouble, typeInt64, typeUint64:
		return 8
	case typeFloat, typeInt32, typeUint32:
		return 4
	case typeHalf, typeBfloat16, typeInt16, typeUint16:
		return 2
	case typeInt8, typeUint8, typeBool:
		return 1
	}
	return 0
}

// decodeNumbers decodes the numbers in a field of a tensor, packed or not. kind
// is the tensor's DataType. It returns the last number, and the number of
// elements (0 if the field has none). In a varint field it stops after two
// elements, because the caller only needs to know whether there is exactly one.
func (f *fieldIterator) decodeNumbers(kind uint64) (v float64, n int) {
	switch f.num {
	case tensorFloat, tensorDouble, tensorInt, tensorInt64, tensorBool, tensorHalf, tensorUint32, tensorUint64:
	default: // of texts, for example
		return 0, 0
	}
	isFloat, isDouble := f.num == tensorFloat, f.num == tensorDouble
	switch {
	case isFloat && f.wire == wireFixed32, isDouble && f.wire == wireFixed64, !isFloat && !isDouble && f.wire == wireVarint:
		return decodeNumber(kind, f.u), 1
	case f.wire != wireBytes:
		return 0, 0
	case isFloat || isDouble:
		v, _ = parseRawScalar(kind, f.data)
		return v, len(f.data) / max(dataTypeSize(kind), 1)
	}
	for b := f.data; n < 2 && len(b) > 0; n++ { // with two or more the tensor is not a scalar
		u, size := parseVarint(b)
		if size == 0 {
			return 0, 0
		}
		v, b = decodeNumber(kind, u), b[size:]
	}
	return v, n
}

// parseRawScalar returns the number in the raw bytes of a tensor. ok is false unless b contains
// exactly one number of the DataType kind.
func parseRawScalar(kind uint64, b []byte) (v float64, ok bool) {
	if len(b) == 0 || len(b) != dataTypeSize(kind) {
		return 0, false
	}
	var bits [8]byte
	copy(bits[:], b)
	return decodeNumber(kind, binary.LittleEndian.Uint64(bits[:])), true
}

// decodeNumber converts the lowest bits of u, which encode a number of the DataType kind, to
// float64.
func decodeNumber(kind, u uint64) float64 {
	switch kind {
	case typeFloat:
		return float64(math.Float32frombits(uint32(u)))
	case typeDouble:
		return math.Float64frombits(u)
	case typeHalf:
		return float16ToFloat64(uint16(u))
	case typeBfloat16:
		return float64(math.Float32frombits(uint32(u) << 16)) // the upper half of a float32
	case typeInt8:
		return float64(int8(u))
	case typeInt16:
		return float64(int16(u))
	case typeInt32:
		return float64(int32(u))
	case typeInt64:
		return float64(int64(u))
	}
	return float64(u)
}

// float16ToFloat64 converts an IEEE 754 binary16: one sign bit, 5 exponent bits
// (bias 15), 10 fraction bits.
func float16ToFloat64(u uint16) float64 {
	fraction, exponent := float64(u&0x3ff), int(u>>10&0x1f)
	var v float64
	switch exponent {
	case 0:
		v = math.Ldexp(fraction, -24)
	case 0x1f:
		if v = math.Inf(1); fraction != 0 {
			v = math.NaN()
		}
	default:
		v = math.Ldexp(1024+fraction, exponent-25)
	}
	if u&0x8000 != 0 {
		v = -v
	}
	return v
}
