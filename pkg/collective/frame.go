package collective

import "encoding/binary"

// Over a ring's connections go frames: a header of frameBytes, little-endian,
// and behind a frame of numbers, the numbers in the machine's own order (all
// ranks run the same build).
//
//	byte 0       frameType
//	byte 1       state: why a rank is talked about
//	bytes 4-7    rank: the sender, or the rank that is talked about
//	bytes 8-15   number of its last operation
//	bytes 16-23  signature of that operation
//	bytes 24-31  elements of that operation, or bytes that follow the header
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
	frameToken                        // of a barrier
	frameNote                         // about a rank
)

// What a note says about a rank.
const (
	noteMissing uint8 = iota + 1 // has not come to the operation yet
	noteClosed                   // left in order
	noteFailed                   // left on an error
	noteGone                     // its connection has ended
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
