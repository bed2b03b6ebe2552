package onnx

import (
	"encoding/binary"
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// protoMessage is an encoded protocol buffer message. The numbers of its fields are those of
// https://github.com/onnx/onnx/blob/v1.12.0/onnx/onnx.proto.
type protoMessage []byte

func (m *protoMessage) addIntField(field protowire.Number, v int) {
	*m = protowire.AppendVarint(protowire.AppendTag(*m, field, protowire.VarintType), uint64(v))
}

func (m *protoMessage) addTextField(field protowire.Number, s string) {
	*m = protowire.AppendString(protowire.AppendTag(*m, field, protowire.BytesType), s)
}

func (m *protoMessage) addMessageField(field protowire.Number, sub protoMessage) {
	*m = protowire.AppendBytes(protowire.AppendTag(*m, field, protowire.BytesType), sub)
}

// Values of AttributeProto.type and TensorProto.data_type.
const (
	attributeFloat, attributeInt, attributeText, attributeInts = 1, 2, 3, 7
	dataFloat, dataInt64                                       = 1, 7
)

// newAttribute encodes an AttributeProto. v is an int, a float64, a string or a []int.
func newAttribute(name string, v any) protoMessage {
	var m protoMessage
	m.addTextField(1, name)
	switch v := v.(type) {
	case int:
		m.addIntField(3, v)
		m.addIntField(20, attributeInt)
	case float64:
		m = protowire.AppendFixed32(protowire.AppendTag(m, 2, protowire.Fixed32Type), math.Float32bits(float32(v)))
		m.addIntField(20, attributeFloat)
	case string:
		m.addTextField(4, v)
		m.addIntField(20, attributeText)
	case []int:
		for _, n := range v {
			m.addIntField(8, n)
		}
		m.addIntField(20, attributeInts)
	}
	return m
}

func newTensor(name string, shape []int, values []float32) protoMessage {
	raw := make([]byte, 0, 4*len(values))
	for _, v := range values {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(v))
	}
	return encodeTensor(name, shape, dataFloat, raw)
}

// newIntTensor encodes a TensorProto with one dimension.
func newIntTensor(name string, values []int) protoMessage {
	var raw []byte
	for _, v := range values {
		raw = binary.LittleEndian.AppendUint64(raw, uint64(v))
	}
	return encodeTensor(name, []int{len(values)}, dataInt64, raw)
}

func encodeTensor(name string, shape []int, dataType int, raw []byte) protoMessage {
	var m protoMessage
	for _, n := range shape {
		m.addIntField(1, n)
	}
	m.addIntField(2, dataType)
	m.addTextField(8, name)
	m.addMessageField(9, raw)
	return m
}

// newValueInfo encodes a ValueInfoProto: a float32 tensor whose dimensions are numbers (int) or names
// (string).
func newValueInfo(name string, dims []any) protoMessage {
	var shape, tensor, kind, m protoMessage
	for _, d := range dims {
		var dim protoMessage
		switch d := d.(type) {
		case int:
			dim.addIntField(1, d)
		case string:
			dim.addTextField(2, d)
		}
		shape.addMessageField(1, dim)
	}
	tensor.addIntField(1, dataFloat)
	tensor.addMessageField(2, shape)
	kind.addMessageField(1, tensor)
	m.addTextField(1, name)
	m.addMessageField(2, kind)
	return m
}
