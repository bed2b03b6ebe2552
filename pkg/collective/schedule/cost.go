package schedule

// Link is the latency–bandwidth model of a connection (R. Hockney, "The communication
// challenge for MPP", 1994): n bytes arrive after LatencySeconds + n/BytesPerSecond.
type Link struct {
	LatencySeconds float64 // α
	BytesPerSecond float64 // β
}

// Cost is the model of one all-reduce: the sums over the steps of a schedule. A step takes
// the latency of a link, and the time for the bytes of the host that sends or receives most.
type Cost struct {
	Steps   int     // steps in which hosts send to each other
	Bytes   float64 // on the critical path: the most that a host sends or receives, summed over the steps
	Seconds float64 // predicted time, with the transfers within hosts
}

// Cost returns the model of an all-reduce of n bytes between hosts with perHost consecutive
// ranks each. Hosts send and receive at the same time, and all their ranks share one link
// between hosts. Each rank also has a link within its host. The time of additions is not
// part of the model.
func (s *Schedule) Cost(n, perHost int, between, within Link) Cost {
	type end struct {
		number   int // of the host, or the rank if the transfer is within a host
		receives bool
		inside   bool
	}
	var c Cost
	for rest := s.Transfers; len(rest) > 0; {
		step := rest[0].Step
		chunks := map[end]int{}
		for len(rest) > 0 && rest[0].Step == step {
			t := rest[0]
			rest = rest[1:]
			from, to := end{number: t.From / perHost}, end{number: t.To / perHost, receives: true}
			if from.number == to.number {
				from, to = end{t.From, false, true}, end{t.To, true, true}
			}
			chunks[from] += t.Hi - t.Lo
			chunks[to] += t.Hi - t.Lo
		}
		var acrossBytes, seconds float64
		for e, k := range chunks {
			bytes, link := float64(n)*float64(k)/float64(s.Chunks), between
			if e.inside {
				link = within
			} else {
				acrossBytes = max(acrossBytes, bytes)
			}
			seconds = max(seconds, link.LatencySeconds+bytes/link.BytesPerSecond)
		}
		if acrossBytes > 0 {
			c.Steps++
		}
		c.Bytes += acrossBytes
		c.Seconds += seconds
	}
	return c
}

// Sizes of the pieces that ranks forward whole.
const (
	forwardedBytes = 256 << 10
	maxForwarded   = 64
)

// Pieces returns the number of pieces into which groups divide a buffer of n bytes, see New.
func Pieces(n int) int { return min(max(n/forwardedBytes, 1), maxForwarded) }
