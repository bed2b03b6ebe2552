package collective

import (
	"cmp"
	"fmt"
	"time"
)

// DefaultTimeout is how long a rank waits for the others in one operation.
const DefaultTimeout = 2 * time.Minute

// defaultChunkBytes is small enough that the slots and the result stay in a cache. It is large
// enough that copying a chunk takes longer than the two synchronizations per chunk, even if ranks
// share a core.
const defaultChunkBytes = 1 << 20

// Options configures a group. The zero value suits most uses.
type Options struct {
	// Timeout limits every wait for another rank; 0 means DefaultTimeout.
	Timeout time.Duration
	// ChunkBytes is how many bytes of a buffer are exchanged at a time, rounded up to
	// full cache lines per rank; 0 means 1 MiB.
	ChunkBytes int
	// Algorithm is the algorithm of all-reduce: a name of package schedule, AlgorithmDirect, or
	// AlgorithmAuto. Empty means AlgorithmDirect through memory and a ring over sockets.
	Algorithm string
	// RanksPerNode is the number of consecutive ranks on each node, for the hierarchical
	// algorithm; 0 means that all ranks are on one node.
	RanksPerNode int
}

// Validate returns an error for the first invalid option.
func (o Options) Validate() error {
	switch {
	case o.Timeout < 0:
		return fmt.Errorf("validate collective options: invalid time-out %v: use a positive one, or 0 for the default of %v", o.Timeout, DefaultTimeout)
	case o.ChunkBytes < 0 || o.ChunkBytes > 1<<30:
		return fmt.Errorf("validate collective options: invalid chunk size %d bytes: use 1 to %d, or 0 for the default of %d", o.ChunkBytes, 1<<30, defaultChunkBytes)
	case o.RanksPerNode < 0:
		return fmt.Errorf("validate collective options: invalid number of ranks per node %d: use at least 1, or 0 if all ranks are on one node", o.RanksPerNode)
	}
	return CheckAlgorithm(o.Algorithm)
}

func (o Options) withDefaults() Options {
	o.Timeout = cmp.Or(o.Timeout, DefaultTimeout)
	o.ChunkBytes = cmp.Or(o.ChunkBytes, defaultChunkBytes)
	return o
}

// Timeout returns how long an operation of g waits for another rank.
func Timeout(g Group) time.Duration {
	switch g := g.(type) {
	case *Recorder:
		return Timeout(g.Group)
	case interface{ timeout() time.Duration }:
		return g.timeout()
	}
	return DefaultTimeout
}

func (g *memoryGroup) timeout() time.Duration { return g.options.Timeout }
func (r *Ring) timeout() time.Duration        { return r.options.Timeout }
func (g *MPI) timeout() time.Duration         { return g.options.Timeout }
