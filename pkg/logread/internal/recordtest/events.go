package recordtest

import (
	"bytes"
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// EncodeMessage concatenates encoded fields into a protobuf message.
func EncodeMessage(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

// EncodeBytesField encodes a field of type bytes, string or message.
func EncodeBytesField(num protowire.Number, b []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, num, protowire.BytesType), b)
}

// EncodeVarintField encodes a varint field.
func EncodeVarintField(num protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(nil, num, protowire.VarintType), v)
}

// EncodeFixed64Field encodes a double field.
func EncodeFixed64Field(num protowire.Number, v float64) []byte {
	return protowire.AppendFixed64(protowire.AppendTag(nil, num, protowire.Fixed64Type), math.Float64bits(v))
}

// EncodeFixed32Field encodes a float field.
func EncodeFixed32Field(num protowire.Number, v float32) []byte {
	return protowire.AppendFixed32(protowire.AppendTag(nil, num, protowire.Fixed32Type), math.Float32bits(v))
}

// EncodeEvent encodes an Event message. seconds is the time since 1970; values are encoded Value messages.
func EncodeEvent(seconds float64, step int, values ...[]byte) []byte {
	var summary []byte
	for _, v := range values {
		summary = append(summary, EncodeBytesField(1, v)...)
	}
	return EncodeMessage(EncodeFixed64Field(1, seconds), EncodeVarintField(2, uint64(step)), EncodeBytesField(5, summary))
}

// EncodeScalar encodes a Value message with a float.
func EncodeScalar(tag string, v float32) []byte {
	return EncodeMessage(EncodeBytesField(1, []byte(tag)), EncodeFixed32Field(2, v))
}

// EncodeTensor encodes a Value message with a tensor of rank 0. kind is its DataType; fields
// are the encoded fields with its value.
func EncodeTensor(tag string, kind uint64, fields ...[]byte) []byte {
	return EncodeMessage(EncodeBytesField(1, []byte(tag)), EncodeBytesField(9, EncodeBytesField(1, EncodeBytesField(1, []byte("scalars")))),
		EncodeBytesField(8, EncodeMessage(append([][]byte{EncodeVarintField(1, kind), EncodeBytesField(2, nil)}, fields...)...)))
}

// EncodeRecord frames data as a TFRecord, with its length and CRCs. A test in package runs
// compares the same CRCs with a file that TensorFlow wrote.
func EncodeRecord(data []byte) []byte {
	b := protowire.AppendFixed64(nil, uint64(len(data)))
	b = protowire.AppendFixed32(b, ComputeMaskedCRC(b))
	b = append(b, data...)
	return protowire.AppendFixed32(b, ComputeMaskedCRC(data))
}

// ComputeMaskedCRC computes the masked CRC32C of data bit by bit, from the definition with the
// reflected polynomial 0x82f63b78.
func ComputeMaskedCRC(data []byte) uint32 {
	crc := ^uint32(0)
	for _, b := range data {
		crc ^= uint32(b)
		for range 8 {
			crc = crc>>1 ^ 0x82f63b78&-(crc&1)
		}
	}
	crc = ^crc
	return (crc>>15 | crc<<17) + 0xa282ead8
}

// EncodeEventFile returns an event file of the version event and encoded events.
func EncodeEventFile(records ...[]byte) []byte {
	out := EncodeRecord(EncodeMessage(EncodeFixed64Field(1, 1000), EncodeBytesField(3, []byte("brain.Event:2"))))
	for _, r := range records {
		out = append(out, EncodeRecord(r)...)
	}
	return out
}
