package collective

import (
	"fmt"
	"time"
)

// DefaultTimeout is how long a rank waits for the others in one operation.
const DefaultTimeout = 2 * time.Minute

// defaultChunk is a compromise: slots and result should stay in a cache, and an
// exchange should outweigh its two waits, also where ranks share a core.
const defaultChunk = 1 << 20

// Options of a group. The zero value is what most need.
type Options struct {
	// Timeout bounds every wait for another rank; 0 is DefaultTimeout.
	Timeout time.Duration
	// ChunkBytes is how much of a buffer is exchanged at a time, rounded up to
	// full cache lines a rank; 0 is 1 MiB.
	ChunkBytes int
}

// Validate reports the first option that cannot be.
func (o Options) Validate() error {
	switch {
	case o.Timeout < 0:
		return fmt.Errorf("validate collective options: time-out is %v: use a positive one, or 0 for %v", o.Timeout, DefaultTimeout)
	case o.ChunkBytes < 0 || o.ChunkBytes > 1<<30:
		return fmt.Errorf("validate collective options: chunk of %d bytes: use 1 to %d, or 0 for %d", o.ChunkBytes, 1<<30, defaultChunk)
	}
	return nil
}

func (o Options) withDefaults() Options {
	if o.Timeout == 0 {
		o.Timeout = DefaultTimeout
	}
	if o.ChunkBytes == 0 {
		o.ChunkBytes = defaultChunk
	}
	return o
}
