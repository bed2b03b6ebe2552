// Package wire contains the frames that ranks send to each other, and the sockets that carry them.
package wire

import "encoding/binary"

// Frame is the header of everything that ranks send to each other on a socket, and of the
// messages of Send. It is encoded in EncodedFrameBytes bytes, little-endian. After a KindNumbers or
// KindMessage the numbers follow in the machine's byte order, which is the same on all ranks
// because they run the same build.
//
//	byte 0       FrameKind
//	byte 1       state of the rank, in a KindNote only
//	bytes 4-7    rank: the sender, or in a KindNote the rank that it describes
//	bytes 8-15   number of that rank's last operation; KindMessage: number of the message
//	bytes 16-23  signature of that operation
//	bytes 24-31  KindCall, KindMessage: number of elements; KindNumbers: bytes that follow
type Frame struct {
	Kind   FrameKind
	State  uint8
	Rank   int
	Number uint64
	What   uint64
	Length uint64
}

// FrameKind is the kind of a frame.
type FrameKind uint8

// The kinds of frames.
const (
	KindCall    FrameKind = iota + 1 // the sender has begun an operation
	KindNumbers                      // a piece of a buffer follows
	KindToken                        // a barrier's token
	KindNote                         // the state of a rank
	KindMessage                      // a message of Send follows
)

// The states of a rank that a KindNote reports.
const (
	NoteMissing uint8 = iota + 1 // the rank has not called the operation yet
	NoteClosed                   // the rank closed its group
	NoteFailed                   // the rank left the group because of an error
	NoteGone                     // the rank's connection has ended
)

// EncodedFrameBytes is the size of an encoded frame in bytes.
const EncodedFrameBytes = 32

// Encode encodes f as described at Frame.
func (f Frame) Encode() (b [EncodedFrameBytes]byte) {
	b[0], b[1] = byte(f.Kind), f.State
	binary.LittleEndian.PutUint32(b[4:], uint32(f.Rank))
	binary.LittleEndian.PutUint64(b[8:], f.Number)
	binary.LittleEndian.PutUint64(b[16:], f.What)
	binary.LittleEndian.PutUint64(b[24:], f.Length)
	return b
}

// DecodeFrame decodes the first EncodedFrameBytes bytes of b.
func DecodeFrame(b []byte) Frame {
	return Frame{
		Kind: FrameKind(b[0]), State: b[1],
		Rank:   int(binary.LittleEndian.Uint32(b[4:])),
		Number: binary.LittleEndian.Uint64(b[8:]),
		What:   binary.LittleEndian.Uint64(b[16:]),
		Length: binary.LittleEndian.Uint64(b[24:]),
	}
}
