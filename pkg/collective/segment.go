package collective

import (
	"sync/atomic"
	"unsafe"
)

// segment is the memory that all ranks of a group share: memory of one process, or a file
// that each process has mapped. It contains one control block and one slot per rank, and
// one result area:
//
//	control 0 | control 1 | … | slot 0 | slot 1 | … | result
//
// Each slot and the result area contain one piece of pieceBytes bytes per rank.
type segment struct {
	memory     []byte // 64-byte aligned
	size       int
	pieceBytes int
}

const (
	cacheLine     = 64
	controlStride = 4 * cacheLine // a multiple of the two lines that processors prefetch together
)

// control is one rank's control block, which the other ranks read. Only its owner writes
// it, except for waiters.
type control struct {
	arrived   atomic.Uint32 // how often the rank has synchronized
	state     atomic.Uint32 // statePresent, stateClosed or stateFailed
	pid       atomic.Int64  // of the rank's process, see sign; 0 if all ranks share a process
	startTime atomic.Uint64
	namespace atomic.Uint64
	_         [cacheLine - 32]byte
	waiters   atomic.Int32 // ranks that sleep until arrived changes
	_         [cacheLine - 4]byte
	// calls contains the rank's last two operations, at index number%2. A rank may be
	// one operation ahead of the slowest rank, never two, and the slowest rank must
	// still find the call that it compares.
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
	stateClosed         // it closed its group
	stateFailed         // it left the group because of an error
)

// pieceBytes returns the bytes in one of size pieces of a chunk, in full cache lines, so
// that two ranks never write to the same line.
func pieceBytes(size, chunk int) int {
	return (max(chunk/size, 1) + cacheLine - 1) / cacheLine * cacheLine
}

func segmentBytes(size, piece int) int {
	return size*controlStride + (size+1)*size*piece
}

func (s segment) control(rank int) *control {
	return (*control)(unsafe.Pointer(&s.memory[rank*controlStride]))
}

// slot returns the area that rank writes for the other ranks to read.
func (s segment) slot(rank int) []byte {
	n := s.size * s.pieceBytes
	begin := s.size*controlStride + rank*n
	return s.memory[begin : begin+n : begin+n]
}

// result returns the area to which each rank writes its shard of a sum.
func (s segment) result() []byte { return s.slot(s.size) }

func (s segment) piece(area []byte, rank int) []byte {
	return area[rank*s.pieceBytes : (rank+1)*s.pieceBytes]
}

// heapSegment allocates a segment for the ranks of one process. It consists of 64-bit
// words, so that the atomic fields are aligned.
func heapSegment(size, chunk int) segment {
	piece := pieceBytes(size, chunk)
	n := segmentBytes(size, piece)
	words := make([]uint64, (n+cacheLine)/8+1)
	memory := unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), 8*len(words))
	skip := int(-uintptr(unsafe.Pointer(&memory[0])) % cacheLine)
	return segment{memory: memory[skip : skip+n], size: size, pieceBytes: piece}
}
