package collective

// sentCounter is a Group that counts the bytes that it sends.
type sentCounter interface{ sentBytes() uint64 }

// Sent returns the number of bytes that this rank has sent to other ranks through group so far:
// the numbers, and over sockets and in messages also the headers of frames. Through memory, a
// piece that several ranks read counts once for each of them. ok is false if the group does not
// count, such as MPI, whose library exchanges the numbers.
func Sent(group Group) (n uint64, ok bool) {
	if r, recorded := group.(*Recorder); recorded {
		group = r.Group
	}
	c, ok := group.(sentCounter)
	if !ok {
		return 0, false
	}
	return c.sentBytes(), true
}

// countSent counts p, which this rank passes to the given number of ranks.
func (g *memoryGroup) countSent(p []byte, ranks int) { g.sent.Add(uint64(len(p) * ranks)) }

func (g *memoryGroup) sentBytes() uint64 { return g.sent.Load() }

func (r *Ring) sentBytes() uint64 {
	n := r.out.Bytes()
	for _, links := range [][]*link{r.links, r.scheduled} {
		for _, l := range links {
			if l != nil {
				n += l.out.Bytes()
			}
		}
	}
	return n
}
