package logread

import (
	"encoding/binary"
	"math"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"lockstep/pkg/logread/internal/recordtest"
)

// The checks must know which numbers an event file contains without the reader that they test.
// An event file is a sequence of records (tensorflow/core/lib/io/record_writer.h): the length,
// its checksum, the data, and its checksum.

// recordOverhead is the number of bytes of a record without its data.
const recordOverhead = 8 + 4 + 4

// isEventFile reports whether a file begins with a complete header of a record.
func isEventFile(b []byte) bool {
	return len(b) >= 12 && binary.LittleEndian.Uint32(b[8:]) == recordtest.ComputeMaskedCRC(b[:8])
}

// splitRecords returns the complete records at the beginning of an event file.
func splitRecords(b []byte) (records [][]byte) {
	for isEventFile(b) {
		n := binary.LittleEndian.Uint64(b)
		if n > uint64(len(b)) || int(n)+recordOverhead > len(b) {
			break
		}
		data, rest := b[12:12+n], b[12+n:]
		if binary.LittleEndian.Uint32(rest) != recordtest.ComputeMaskedCRC(data) {
			break
		}
		records = append(records, b[:int(n)+recordOverhead])
		b = rest[4:]
	}
	return records
}

// numbersInEvents returns all numbers of the complete records at the beginning of a file.
func numbersInEvents(b []byte) numbers {
	var l numbers
	for _, r := range splitRecords(b) {
		l = append(l, numbersInMessage(r[12:len(r)-4])...)
	}
	slices.Sort(l)
	return slices.Compact(l)
}

// numbersInMessage returns the numbers in the fields of a message of protocol buffers, and in
// the messages in it.
func numbersInMessage(b []byte) (l numbers) {
	for len(b) > 0 {
		_, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return l
		}
		b = b[n:]
		switch kind {
		case protowire.VarintType:
			var v uint64
			v, n = protowire.ConsumeVarint(b)
			l = append(l, float64(v))
		case protowire.Fixed32Type:
			var v uint32
			v, n = protowire.ConsumeFixed32(b)
			l = append(l, math.Abs(float64(math.Float32frombits(v))))
		case protowire.Fixed64Type:
			var v uint64
			v, n = protowire.ConsumeFixed64(b)
			l = append(l, math.Abs(math.Float64frombits(v)))
		case protowire.BytesType:
			var v []byte
			v, n = protowire.ConsumeBytes(b)
			l = append(append(l, numbersInMessage(v)...), numbersIn(v)...)
		default:
			return l
		}
		if n < 0 {
			return l
		}
		b = b[n:]
	}
	return l
}
