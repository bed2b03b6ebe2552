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

// controlBlock is the part of a segment that describes one rank to the other ranks: its
// state, its process and its last operations. Only the rank itself writes to it, except
// for the fields waiters and events.
type controlBlock struct {
	arrived   atomic.Uint32 // how often the rank has synchronized
	state     atomic.Uint32 // statePresent, stateClosed or stateFailed
	pid       atomic.Int64  // ID of the rank's process, see recordProcess; 0 if all ranks share a process
	startTime atomic.Uint64
	namespace atomic.Uint64
	_         [cacheLine - 32]byte
	waiters   atomic.Int32 // ranks that sleep until arrived changes
	_         [cacheLine - 4]byte
	// calls contains the rank's last two operations: operation number n is at index n%2.
	// Two are enough: a rank may be one operation ahead of the slowest rank, which still has
	// to compare the earlier call, but never two operations ahead.
	calls [2]announcedCall
	_     [cacheLine - 48]byte
	// events counts what has happened in the rank's channels: bytes that another rank has
	// written for it, or has read.
	events   atomic.Uint32
	sleepers atomic.Int32 // this rank's goroutines that sleep until events changes
}

type announcedCall struct {
	number atomic.Uint64
	what   atomic.Uint64 // see callSignature
	length atomic.Uint64 // elements
}

// States of a rank.
const (
	statePresent uint32 = iota
	stateClosed         // the rank closed its group
	stateFailed         // the rank left the group because of an error
)

// pieceBytes returns the size in bytes of a piece if a chunk of chunkBytes is divided into
// count pieces. The size is a multiple of the cache line, so that two ranks never write to
// the same line.
func pieceBytes(count, chunkBytes int) int {
	return (max(chunkBytes/count, 1) + cacheLine - 1) / cacheLine * cacheLine
}

// segmentBytes returns the size in bytes of a segment for the given number of ranks, with
// pieces of bytesPerPiece.
func segmentBytes(ranks, bytesPerPiece int) int {
	return ranks*controlStride + (ranks+1)*ranks*bytesPerPiece + 2*ranks*(ranks-1)*channelBytes(bytesPerPiece)
}

// channelBytes returns the size in bytes of a channel whose queue has room for
// bytesPerPiece bytes.
func channelBytes(bytesPerPiece int) int { return 2*cacheLine + bytesPerPiece }

func (s segment) controlBlock(rank int) *controlBlock {
	return (*controlBlock)(unsafe.Pointer(&s.memory[rank*controlStride]))
}

// slot returns the area to which rank writes data for the other ranks.
func (s segment) slot(rank int) []byte {
	n := s.size * s.pieceBytes
	begin := s.size*controlStride + rank*n
	return s.memory[begin : begin+n : begin+n]
}

// result returns the area to which each rank writes its shard of a sum.
func (s segment) result() []byte { return s.slot(s.size) }

// piece returns the part of a slot, or of the result area, that contains the piece of rank.
func (s segment) piece(area []byte, rank int) []byte {
	return area[rank*s.pieceBytes : (rank+1)*s.pieceBytes]
}

// counter returns the arrived counter of rank i or, for i from size, the events counter of
// rank i−size.
func (s segment) counter(i int) *atomic.Uint32 {
	if i >= s.size {
		return &s.controlBlock(i - s.size).events
	}
	return &s.controlBlock(i).arrived
}

// channelUse is what a channel is for. Operations and messages must not share a channel,
// because they may run at the same time.
type channelUse int

const (
	forMessages channelUse = iota
	forSchedules
)

// channel returns the channel between two different ranks.
func (s segment) channel(use channelUse, from, to int) channel {
	index := (int(use)*s.size+from)*(s.size-1) + to
	if to > from {
		index--
	}
	n := channelBytes(s.pieceBytes)
	begin := s.size*controlStride + (s.size+1)*s.size*s.pieceBytes + index*n
	return channel{(*channelCounters)(unsafe.Pointer(&s.memory[begin])), s.memory[begin+2*cacheLine : begin+n]}
}

// newHeapSegment allocates a segment for the ranks of one process.
func newHeapSegment(size, chunk int) segment {
	piece := pieceBytes(size, chunk)
	n := segmentBytes(size, piece)
	memory := allocateAligned(n + cacheLine)
	skip := int(-uintptr(unsafe.Pointer(&memory[0])) % cacheLine)
	return segment{memory: memory[skip : skip+n], size: size, pieceBytes: piece}
}
