// Package segment lays out the memory that the ranks of one machine share, creates its file,
// wakes ranks that wait for a change in it, and detects the end of their processes.
package segment

import (
	"sync/atomic"
	"unsafe"

	"lockstep/pkg/collective/internal/numbers"
)

// Segment is the memory that all ranks of a group share: memory of one process, or a file
// that each process has mapped. It contains one control block and one slot per rank, and
// one result area:
//
//	control 0 | control 1 | … | slot 0 | slot 1 | … | result | channels | small buffers
//
// Each slot and the result area contain one piece of PieceBytes bytes per rank.
type Segment struct {
	Memory     []byte // 64-byte aligned
	Size       int
	PieceBytes int
}

const (
	cacheLine     = 64
	controlStride = 4 * cacheLine // a multiple of the two lines that processors prefetch together
)

// ControlBlock is the part of a segment that describes one rank to the other ranks: its
// state, its process and its last operations. Only the rank itself writes to it, except
// for the fields Waiters and Events.
type ControlBlock struct {
	Arrived   atomic.Uint32 // how often the rank has synchronized
	State     atomic.Uint32 // StatePresent, StateClosed or StateFailed
	PID       atomic.Int64  // ID of the rank's process, see RecordProcess; 0 if all ranks share a process
	startTime atomic.Uint64
	Namespace atomic.Uint64
	GaveUp    atomic.Uint64 // number of the operation of a small buffer in which the rank stopped waiting; 0: none
	_         [cacheLine - 40]byte
	Waiters   atomic.Int32 // ranks that sleep until Arrived changes
	_         [cacheLine - 4]byte
	// Calls contains the rank's last two operations: operation number n is at index n%2.
	// Two are enough: a rank may be one operation ahead of the slowest rank, which still has
	// to compare the earlier call, but never two operations ahead.
	Calls [2]AnnouncedCall
	_     [cacheLine - 48]byte
	// Events counts the events in the rank's channels. It increases when another rank has written
	// bytes for this rank, or has read bytes from it.
	Events   atomic.Uint32
	Sleepers atomic.Int32 // this rank's goroutines that sleep until Events changes
	// Agreed is the number of the last small-buffer operation that the rank completed. It is not in
	// the first cache line, because the other rank polls that one.
	Agreed atomic.Uint64
}

// AnnouncedCall is an operation that a rank has announced.
type AnnouncedCall struct {
	Number atomic.Uint64
	What   atomic.Uint64 // the signature of the operation: its kind, element size and root
	Length atomic.Uint64 // elements
}

// LastCall returns the last operation that the rank announced.
func (c *ControlBlock) LastCall() *AnnouncedCall {
	last := &c.Calls[0]
	if c.Calls[1].Number.Load() > last.Number.Load() {
		last = &c.Calls[1]
	}
	return last
}

// The values of ControlBlock.State.
const (
	StatePresent uint32 = iota
	StateClosed         // the rank closed its group
	StateFailed         // the rank left the group because of an error
)

// PieceBytes returns the size in bytes of a piece if a chunk of chunkBytes is divided into
// count pieces. The size is a multiple of the cache line, so that two ranks never write to
// the same line.
func PieceBytes(count, chunkBytes int) int {
	return (max(chunkBytes/count, 1) + cacheLine - 1) / cacheLine * cacheLine
}

// TotalBytes returns the size in bytes of a segment for the given number of ranks, with
// pieces of bytesPerPiece.
func TotalBytes(ranks, bytesPerPiece int) int {
	return ranks*controlStride + (ranks+1)*ranks*bytesPerPiece + 2*ranks*(ranks-1)*channelBytes(bytesPerPiece) + 2*ranks*SmallBufferBytes
}

// SmallBufferBytes is the size of the area in which a rank passes a small buffer to the other rank.
// It is a multiple of the cache line.
const SmallBufferBytes = 4096

// channelBytes returns the size in bytes of a channel whose queue has room for bytesPerPiece bytes.
func channelBytes(bytesPerPiece int) int { return 2*cacheLine + bytesPerPiece }

// ControlBlock returns the control block of a rank.
func (s Segment) ControlBlock(rank int) *ControlBlock {
	return (*ControlBlock)(unsafe.Pointer(&s.Memory[rank*controlStride]))
}

// RankSlot returns the area to which rank writes data for the other ranks.
func (s Segment) RankSlot(rank int) []byte {
	n := s.Size * s.PieceBytes
	begin := s.Size*controlStride + rank*n
	return s.Memory[begin : begin+n : begin+n]
}

// ResultArea returns the area to which each rank writes its shard of a sum.
func (s Segment) ResultArea() []byte { return s.RankSlot(s.Size) }

// RankPiece returns the part of a slot, or of the result area, that contains the piece of rank.
func (s Segment) RankPiece(area []byte, rank int) []byte {
	return area[rank*s.PieceBytes : (rank+1)*s.PieceBytes]
}

// SmallBuffer returns the area for the small buffer of rank in the operation with the given number. Like
// calls, the last two operations of a rank have separate areas.
func (s Segment) SmallBuffer(rank int, number uint64) []byte {
	begin := TotalBytes(s.Size, s.PieceBytes) - (2*rank+int(number%2)+1)*SmallBufferBytes
	return s.Memory[begin : begin+SmallBufferBytes : begin+SmallBufferBytes]
}

// waitCounter returns a counter for which ranks can wait: Arrived of rank i if i is less than s.Size,
// and otherwise Events of rank i−s.Size.
func (s Segment) waitCounter(i int) *atomic.Uint32 {
	if i >= s.Size {
		return &s.ControlBlock(i - s.Size).Events
	}
	return &s.ControlBlock(i).Arrived
}

// ChannelPurpose is what a channel is for. Operations and messages must not share a channel,
// because they may run at the same time.
type ChannelPurpose int

// The uses of channels.
const (
	ForMessages ChannelPurpose = iota
	ForSchedules
)

// Channel returns the channel between two different ranks.
func (s Segment) Channel(use ChannelPurpose, from, to int) ByteChannel {
	index := (int(use)*s.Size+from)*(s.Size-1) + to
	if to > from {
		index--
	}
	n := channelBytes(s.PieceBytes)
	begin := s.Size*controlStride + (s.Size+1)*s.Size*s.PieceBytes + index*n
	return ByteChannel{(*channelCounters)(unsafe.Pointer(&s.Memory[begin])), s.Memory[begin+2*cacheLine : begin+n]}
}

// NewHeapSegment allocates a segment in the memory of one process.
func NewHeapSegment(size, chunk int) Segment {
	piece := PieceBytes(size, chunk)
	n := TotalBytes(size, piece)
	memory := numbers.AllocateAligned(n + cacheLine)
	skip := int(-uintptr(unsafe.Pointer(&memory[0])) % cacheLine)
	return Segment{Memory: memory[skip : skip+n], Size: size, PieceBytes: piece}
}
