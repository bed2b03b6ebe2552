package collective

import "lockstep/pkg/internal/device"

// Sent returns the number of bytes that this rank has sent through group so far. The headers of
// frames count over sockets and in messages. A piece in shared memory counts once for each rank
// that reads it. MPI does not report what it sends, so its operations count as in a ring; see
// MPI.countSentBytes. ok is false if the group does not count.
func Sent(group Group) (n uint64, ok bool) {
	if r, recorded := group.(*Recorder); recorded {
		group = r.Group
	}
	c, ok := group.(interface{ sentBytes() uint64 })
	if !ok {
		return 0, false
	}
	return c.sentBytes(), true
}

func (g *nodeGroup) sentBytes() uint64 {
	inside, _ := Sent(g.inner)
	between, _ := Sent(g.rail)
	return inside + between
}

// countSentBytes counts the bytes that this rank would send in a ring in a collective operation on b: in
// a reduce-scatter the shards of the other ranks, in an all-gather its own shard to each of them,
// and in an all-reduce both. The root of a broadcast sends b to each of the other ranks.
func (g *MPI) countSentBytes(k opKind, b device.Buffer, root int) {
	own := b.Slice(Shard(b.Len(), g.size, g.rank)).Bytes()
	scattered, gathered := b.Bytes()-own, (g.size-1)*own
	n := 0
	switch k {
	case kindAllReduce:
		n = scattered + gathered
	case kindReduceScatter:
		n = scattered
	case kindAllGather:
		n = gathered
	case kindBroadcast:
		if g.rank == root {
			n = (g.size - 1) * b.Bytes()
		}
	}
	g.sent.Add(uint64(n))
}

func (g *MPI) sentBytes() uint64 { return g.sent.Load() }

func (g *memoryGroup) countSentBytes(p []byte, ranks int) { g.sent.Add(uint64(len(p) * ranks)) }

func (g *memoryGroup) sentBytes() uint64 { return g.sent.Load() }

func (r *Ring) sentBytes() uint64 {
	n := r.out.WrittenBytes()
	for _, links := range [][]*peerLink{r.links, r.scheduled} {
		for _, l := range links {
			if l != nil {
				n += l.out.WrittenBytes()
			}
		}
	}
	return n
}
