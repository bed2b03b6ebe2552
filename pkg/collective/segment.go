package collective

import (
	"sync/atomic"
	"unsafe"
)

// A segment is memory that all ranks of a group see: that of one process, or a
// file that each process has mapped. It holds a control block a rank, a slot a
// rank and one result area:
//
//	control 0 | control 1 | … | slot 0 | slot 1 | … | result
//
// A slot and the result are cut in one piece a rank, of pieceBytes each.
type segment struct {
	memory     []byte // 64-byte aligned
	size       int
	pieceBytes int
}

const (
	cacheLine     = 64
	controlStride = 4 * cacheLine // two processors' prefetch units apart
)

// control is what a rank tells the others. Only its owner writes it, except
// for waiters.
type control struct {
	arrived   atomic.Uint32 // meetings that the rank has reached
	state     atomic.Uint32 // present, closed or failed
	pid       atomic.Int64  // of its process, 0 in one process; see sign
	begun     atomic.Uint64
	namespace atomic.Uint64
	_         [cacheLine - 32]byte
	waiters   atomic.Int32 // ranks that sleep until arrived changes
	_         [cacheLine - 4]byte
	// The operation that the rank is in: its number and what it is. Two of
	// them in turn, since a rank may be one operation ahead of the slowest
	// (never two), and what the slowest compares must still stand there.
	calls [2]call
}

type call struct {
	number atomic.Uint64
	what   atomic.Uint64 // see signature
	length atomic.Uint64 // elements
}

// States of a rank.
const (
	statePresent uint32 = iota
	stateClosed         // left in order
	stateFailed         // left on an error
)

// pieces are whole cache lines, so that two ranks never write the same one.
func pieceBytes(size, chunk int) int {
	return (max(chunk/size, 1) + cacheLine - 1) / cacheLine * cacheLine
}

func segmentBytes(size, piece int) int {
	return size*controlStride + (size+1)*size*piece
}

func (s segment) control(rank int) *control {
	return (*control)(unsafe.Pointer(&s.memory[rank*controlStride]))
}

// slot is where rank puts what the others are to read.
func (s segment) slot(rank int) []byte {
	n := s.size * s.pieceBytes
	begin := s.size*controlStride + rank*n
	return s.memory[begin : begin+n : begin+n]
}

// result is where each rank puts its part of a sum.
func (s segment) result() []byte { return s.slot(s.size) }

func (s segment) piece(area []byte, rank int) []byte {
	return area[rank*s.pieceBytes : (rank+1)*s.pieceBytes]
}

// heapSegment is a segment of one process. It is made of words, so that its
// atomic fields are aligned.
func heapSegment(size, chunk int) segment {
	piece := pieceBytes(size, chunk)
	n := segmentBytes(size, piece)
	words := make([]uint64, (n+cacheLine)/8+1)
	memory := unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), 8*len(words))
	skip := int(-uintptr(unsafe.Pointer(&memory[0])) % cacheLine)
	return segment{memory: memory[skip : skip+n], size: size, pieceBytes: piece}
}
