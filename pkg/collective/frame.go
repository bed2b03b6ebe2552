package collective

import "encoding/binary"

// frame is the header of everything that ranks send to each other on a socket, and of the
// messages of Send. It is encoded in frameBytes bytes, little-endian. After a frameNumbers or
// frameMessage the numbers follow in the machine's byte order, which is the same on all ranks because they run the same build.
//
//	byte 0       frameType
//	byte 1       state of the rank, in a frameNote only
//	bytes 4-7    rank: the sender, or in a frameNote the rank that it describes
//	bytes 8-15   number of that rank's last operation; frameMessage: number of the message
//	bytes 16-23  signature of that operation
//	bytes 24-31  frameCall, frameMessage: number of elements; frameNumbers: bytes that follow
type frame struct {
	kind   frameType
	state  uint8
	rank   int
	number uint64
	what   uint64
	length uint64
}

type frameType uint8

const (
	frameCall    frameType = iota + 1 // the sender has begun an operation
	frameNumbers                      // a piece of a buffer follows
	frameToken                        // a barrier's token
	frameNote                         // the state of a rank
	frameMessage                      // a message of Send follows
)

// The states of a rank that a frameNote reports.
const (
	noteMissing uint8 = iota + 1 // the rank has not called the operation yet
	noteClosed                   // the rank closed its group
	noteFailed                   // the rank left the group because of an error
	noteGone                     // the rank's connection has ended
)

const frameBytes = 32

func (f frame) encode() (b [frameBytes]byte) {
	b[0], b[1] = byte(f.kind), f.state
	binary.LittleEndian.PutUint32(b[4:], uint32(f.rank))
	binary.LittleEndian.PutUint64(b[8:], f.number)
	binary.LittleEndian.PutUint64(b[16:], f.what)
	binary.LittleEndian.PutUint64(b[24:], f.length)
	return b
}

func decodeFrame(b []byte) frame {
	return frame{
		kind: frameType(b[0]), state: b[1],
		rank:   int(binary.LittleEndian.Uint32(b[4:])),
		number: binary.LittleEndian.Uint64(b[8:]),
		what:   binary.LittleEndian.Uint64(b[16:]),
		length: binary.LittleEndian.Uint64(b[24:]),
	}
}

// payloadBytes returns the number of bytes that follow the frame.
func (f frame) payloadBytes() uint64 {
	switch f.kind {
	case frameNumbers:
		return f.length
	case frameMessage:
		return f.length * elementBytes(f.what)
	}
	return 0
}
