// Package schedule describes algorithms of all-reduce as schedules: lists of transfers of
// chunks between ranks. A group executes a schedule, a test checks that it adds up
// correctly and how many bytes it sends, and a figure can draw it.
//
//	s, err := schedule.New(schedule.Ring, schedule.Topology{Ranks: 4}, 1)
//	if err != nil {
//		return err
//	}
//	for _, t := range s.Transfers {
//		fmt.Printf("step %d: rank %d sends chunks %d to %d to rank %d\n", t.Step, t.From, t.Lo, t.Hi-1, t.To)
//	}
package schedule

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// The algorithms.
const (
	// Ring is a reduce-scatter around a ring, followed by an all-gather around it (P. Patarasuk
	// and X. Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations",
	// 2009). Each of n ranks sends 2(n−1)/n of the buffer in 2(n−1) steps.
	Ring = "ring"
	// Halving is recursive halving followed by recursive doubling (R. Thakur, R. Rabenseifner
	// and W. Gropp, "Optimization of collective communication operations in MPICH", 2005).
	// Each of n = 2^k ranks sends 2(n−1)/n of the buffer in 2k steps. Of another number of
	// ranks, those beyond the largest power of two first send their whole buffer to another
	// rank, and get the sum at the end.
	Halving = "halving"
	// Tree reduces the buffer up a binary tree to rank 0, and broadcasts the sum down. All
	// ranks together send 2(n−1) buffers, in about 2 log2(n) steps if there is one piece.
	Tree = "tree"
	// Hierarchical reduces within each node up a tree to the node's first rank. These ranks
	// add up the results in a ring, and broadcast the sum within their nodes. Between m nodes,
	// only 2(m−1) buffers are sent.
	Hierarchical = "hierarchical"
)

// Names returns the names of the algorithms.
func Names() []string { return []string{Ring, Halving, Tree, Hierarchical} }

// Topology is the number of ranks and their division into nodes.
type Topology struct {
	Ranks   int
	PerNode int // ranks per node, numbered consecutively; 0: all ranks are on one node
}

// Transfer is the sending of consecutive chunks from one rank to another.
type Transfer struct {
	Step     int // transfers of one step take place at the same time
	From, To int
	Lo, Hi   int  // the chunks [Lo, Hi)
	Add      bool // the receiver adds the chunks to its own; otherwise it overwrites its own
}

// Schedule is an algorithm for a number of ranks. In each step, a rank first sends and then
// receives, in the order of Transfers. It receives no chunk that it sends in the same step.
type Schedule struct {
	Algorithm string
	Ranks     int
	Chunks    int        // the buffer is divided into this number of chunks
	Transfers []Transfer // in the order of the steps
}

// New returns the schedule of an algorithm. pieces is the number of pieces into which the buffer is
// divided by algorithms whose ranks forward the whole buffer. A rank then forwards one piece while
// it receives the next.
func New(algorithm string, t Topology, pieces int) (*Schedule, error) {
	if t.Ranks < 1 || t.PerNode < 0 || pieces < 1 {
		return nil, fmt.Errorf("schedule all-reduce: got %d ranks, %d per node, and %d pieces, want at least 1 rank and 1 piece", t.Ranks, t.PerNode, pieces)
	}
	s := &Schedule{Algorithm: algorithm, Ranks: t.Ranks, Chunks: 1}
	switch algorithm {
	case Ring:
		s.Chunks = t.Ranks
		s.addRing(0, stridedRanks(0, t.Ranks, 1))
	case Halving:
		s.addHalving()
	case Tree:
		s.Chunks = pieces
		s.addReduceTree(0, stridedRanks(0, t.Ranks, 1), 1)
		s.addBroadcastTree(treeDepth(t.Ranks), stridedRanks(0, t.Ranks, 1), 1)
	case Hierarchical:
		s.addHierarchical(t)
	default:
		return nil, fmt.Errorf("schedule all-reduce: unknown algorithm %q: use %s", algorithm, strings.Join(Names(), ", "))
	}
	slices.SortStableFunc(s.Transfers, func(a, b Transfer) int { return a.Step - b.Step })
	return s, nil
}

// Steps returns the number of steps.
func (s *Schedule) Steps() int {
	if len(s.Transfers) == 0 {
		return 0
	}
	return s.Transfers[len(s.Transfers)-1].Step + 1
}

// Sent returns how many chunks each rank sends.
func (s *Schedule) Sent() []int {
	sent := make([]int, s.Ranks)
	for _, t := range s.Transfers {
		sent[t.From] += t.Hi - t.Lo
	}
	return sent
}

// Of returns the transfers in which rank takes part, in the order of the steps.
func (s *Schedule) Of(rank int) []Transfer {
	var own []Transfer
	for _, t := range s.Transfers {
		if t.From == rank || t.To == rank {
			own = append(own, t)
		}
	}
	return own
}

func (s *Schedule) addTransfer(t Transfer) { s.Transfers = append(s.Transfers, t) }

func stridedRanks(first, count, stride int) []int {
	ranks := make([]int, count)
	for i := range ranks {
		ranks[i] = first + i*stride
	}
	return ranks
}

// addRing adds an all-reduce in a ring of the given ranks, which starts at step. The chunks are
// divided among the ranks. Shard i starts at member i+1 and travels around the ring to member i,
// where the sum is complete. Member i then sends the sum around.
func (s *Schedule) addRing(step int, ranks []int) {
	n := len(ranks)
	for k := range 2 * (n - 1) {
		for i, from := range ranks {
			shard := (i - 1 - k + 2*n) % n
			s.addTransfer(Transfer{
				Step: step + k, From: from, To: ranks[(i+1)%n],
				Lo: s.Chunks * shard / n, Hi: s.Chunks * (shard + 1) / n, Add: k < n-1,
			})
		}
	}
}

func (s *Schedule) addHalving() {
	power, levels := 1, 0
	for 2*power <= s.Ranks {
		power, levels = 2*power, levels+1
	}
	s.Chunks = power
	for r := power; r < s.Ranks; r++ {
		s.addTransfer(Transfer{Step: 0, From: r, To: r - power, Hi: power, Add: true})
	}
	for r := range power {
		lo, hi := 0, power
		for level := range levels {
			// The partner's number differs in one bit. Of the chunks that both have, the rank
			// with the bit keeps the upper half and sends the lower one.
			bit := power >> (level + 1)
			mid := (lo + hi) / 2
			keep, send := [2]int{lo, mid}, [2]int{mid, hi}
			if r&bit != 0 {
				keep, send = send, keep
			}
			s.addTransfer(Transfer{Step: 1 + level, From: r, To: r ^ bit, Lo: send[0], Hi: send[1], Add: true})
			s.addTransfer(Transfer{Step: 2*levels - level, From: r, To: r ^ bit, Lo: keep[0], Hi: keep[1]})
			lo, hi = keep[0], keep[1]
		}
	}
	for r := power; r < s.Ranks; r++ {
		s.addTransfer(Transfer{Step: 2*levels + 1, From: r - power, To: r, Hi: power})
	}
}

// treeNodeDepth returns the depth of member i of a binary tree, whose children are 2i+1 and 2i+2.
func treeNodeDepth(i int) int {
	depth := 0
	for ; i > 0; i = (i - 1) / 2 {
		depth++
	}
	return depth
}

func treeDepth(n int) int { return treeNodeDepth(n - 1) }

// addReduceTree adds transfers that reduce all chunks up a binary tree to ranks[0]. Each transfer
// has the given number of chunks, and a rank forwards one while it receives the next. The children
// of a rank take turns, so that the order of the additions is fixed.
func (s *Schedule) addReduceTree(step int, ranks []int, chunks int) {
	deepest := treeDepth(len(ranks))
	for lo := 0; lo < s.Chunks; lo += chunks {
		for i := 1; i < len(ranks); i++ {
			s.addTransfer(Transfer{
				Step: step + lo/chunks + deepest - treeNodeDepth(i), From: ranks[i], To: ranks[(i-1)/2],
				Lo: lo, Hi: min(lo+chunks, s.Chunks), Add: true,
			})
		}
	}
}

func (s *Schedule) addBroadcastTree(step int, ranks []int, chunks int) {
	for lo := 0; lo < s.Chunks; lo += chunks {
		for i := 1; i < len(ranks); i++ {
			s.addTransfer(Transfer{
				Step: step + lo/chunks + treeNodeDepth(i) - 1, From: ranks[(i-1)/2], To: ranks[i],
				Lo: lo, Hi: min(lo+chunks, s.Chunks),
			})
		}
	}
}

// addHierarchical reduces within each node, adds the ring of the nodes' first ranks, and
// broadcasts within each node.
func (s *Schedule) addHierarchical(t Topology) {
	perNode := cmp.Or(t.PerNode, t.Ranks)
	perNode = min(perNode, t.Ranks)
	nodes := (t.Ranks + perNode - 1) / perNode
	s.Chunks = nodes
	within := treeDepth(perNode)
	for node := range nodes {
		first := node * perNode
		members := stridedRanks(first, min(perNode, t.Ranks-first), 1)
		s.addReduceTree(within-treeDepth(len(members)), members, nodes)
		s.addBroadcastTree(within+2*(nodes-1), members, nodes)
	}
	s.addRing(within, stridedRanks(0, nodes, perNode))
}

// Limits for dividing a buffer into pieces, see Pieces: the size of a piece in bytes, and the
// number of pieces.
const (
	forwardedBytes = 256 << 10
	maxForwarded   = 64
)

// Pieces returns the number of pieces into which groups divide a buffer of n bytes, see New.
func Pieces(n int) int { return min(max(n/forwardedBytes, 1), maxForwarded) }
