package recordtest

import (
	"bytes"
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// EncodeMessage returns a protobuf message that consists of the given encoded
// fields.
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

// EncodeEvent encodes an Event message. seconds is its time since 1970; values
// are the encoded Value messages of its summary.
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

// EncodeTensor encodes a Value message with a tensor of rank 0. kind is its
// DataType; fields are the encoded fields with its value.
func EncodeTensor(tag string, kind uint64, fields ...[]byte) []byte {
	return EncodeMessage(EncodeBytesField(1, []byte(tag)), EncodeBytesField(9, EncodeBytesField(1, EncodeBytesField(1, []byte("scalars")))),
		EncodeBytesField(8, EncodeMessage(append([][]byte{EncodeVarintField(1, kind), EncodeBytesField(2, nil)}, fields...)...)))
}

// EncodeRecord returns data framed as a TFRecord, with its length and CRCs.
// Package runs writes CRCs of the same form, and a test there compares them
// with a file that TensorFlow wrote.
func EncodeRecord(data []byte) []byte {
	b := protowire.AppendFixed64(nil, uint64(len(data)))
	b = protowire.AppendFixed32(b, ComputeMaskedCRC(b))
	b = append(b, data...)
	return protowire.AppendFixed32(b, ComputeMaskedCRC(data))
}

// ComputeMaskedCRC computes the masked CRC32C of data bit by bit, from the
// definition with the reflected polynomial 0x82f63b78.
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

// EncodeEventFile returns an event file that consists of the version event and
// the given encoded events.
func EncodeEventFile(records ...[]byte) []byte {
	out := EncodeRecord(EncodeMessage(EncodeFixed64Field(1, 1000), EncodeBytesField(3, []byte("brain.Event:2"))))
	for _, r := range records {
		out = append(out, EncodeRecord(r)...)
	}
	return out
}

// EngineTrace is a trace as the CPU engine writes it, with rows for steps,
// threads, data, communication, and reductions that overlap with the
// computation. One step lasts 100 µs: 10 µs of data loading, 60 µs of kernels
// on two threads (during the last 20 µs of which a bucket is reduced), 20 µs of
// waiting for gradients, and 10 µs of the optimizer.
const EngineTrace = `{"displayTimeUnit":"ms","distributedInfo":{"rank":1,"world_size":2},"traceEvents":[
{"name":"process_name","ph":"M","ts":0,"pid":1,"tid":0,"args":{"name":"rank 1 (cpu (avx2))"}},
{"name":"thread_name","ph":"M","ts":0,"pid":1,"tid":1,"args":{"name":"steps"}},
{"name":"load batch","cat":"input","ph":"X","ts":0,"dur":8,"pid":1,"tid":4},
{"name":"ProfilerStep#4","cat":"step","ph":"X","ts":0,"dur":100,"pid":1,"tid":1},
{"name":"image","cat":"input","ph":"X","ts":8,"dur":2,"pid":1,"tid":4},
{"name":"conv","cat":"forward","ph":"X","ts":10,"dur":30,"pid":1,"tid":2,"args":{"layer":"a"}},
{"name":"conv","cat":"forward","ph":"X","ts":10,"dur":28,"pid":1,"tid":3,"args":{"layer":"a"}},
{"name":"conv_backward_data","cat":"backward","ph":"X","ts":40,"dur":30,"pid":1,"tid":2,"args":{"layer":"a"}},
{"name":"hand over bucket 0","cat":"exchange","ph":"X","ts":49,"dur":1,"pid":1,"tid":5},
{"name":"all-reduce of bucket 0","cat":"exchange","ph":"X","ts":50,"dur":40,"pid":1,"tid":6},
{"name":"wait for gradients","cat":"exchange","ph":"X","ts":70,"dur":20,"pid":1,"tid":5},
{"name":"adam","cat":"optimizer","ph":"X","ts":90,"dur":10,"pid":1,"tid":2}
]}`
