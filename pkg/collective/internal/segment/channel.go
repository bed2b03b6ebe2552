package segment

import "sync/atomic"

// ByteChannel is a queue of bytes from one rank to another in a segment. Byte i of everything
// that was ever written is at data[i%len(data)].
type ByteChannel struct {
	*channelCounters
	data []byte
}

// channelCounters counts the bytes of a channel. Each counter is on its own cache line,
// because one rank writes it.
type channelCounters struct {
	written atomic.Uint64 // by the sender
	_       [cacheLine - 8]byte
	read    atomic.Uint64 // by the receiver
	_       [cacheLine - 8]byte
}

// maxChannelCopy limits how many bytes are copied between two updates of a counter, so that
// the other rank can begin with the first bytes.
const maxChannelCopy = 64 << 10

// Write copies bytes from p to the queue, as many as have room and at most maxChannelCopy, and
// returns their number.
func (c ByteChannel) Write(p []byte) int {
	written := c.written.Load()
	free := len(c.data) - int(written-c.read.Load())
	begin := int(written % uint64(len(c.data)))
	n := min(len(p), free, len(c.data)-begin, maxChannelCopy)
	copy(c.data[begin:begin+n], p)
	c.written.Store(written + uint64(n))
	return n
}

// Receive copies bytes from the queue to p, as many as there are and at most maxChannelCopy,
// and returns their number.
func (c ByteChannel) Receive(p []byte) int {
	read := c.read.Load()
	begin := int(read % uint64(len(c.data)))
	n := min(len(p), int(c.written.Load()-read), len(c.data)-begin, maxChannelCopy)
	copy(p[:n], c.data[begin:])
	c.read.Store(read + uint64(n))
	return n
}
