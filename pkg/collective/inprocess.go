package collective

import (
	"context"
	"sync"
	"time"
)

// InProcess is a group of n ranks in this process, one for a goroutine each:
// the same exchange as SharedMemory over ordinary memory. It is for tests, and
// for seeing on one machine that N workers compute what one does. An n below 1
// counts as 1.
func InProcess(n int) []Group {
	return inProcess(max(n, 1), Options{})
}

func inProcess(n int, o Options) []Group {
	o = o.withDefaults()
	memory := heapSegment(n, o.ChunkBytes)
	b := &channelBell{memory: memory, rung: make([]chan struct{}, n)}
	groups := make([]Group, n)
	for rank := range groups {
		b.rung[rank] = make(chan struct{})
		groups[rank] = &memoryGroup{
			name: "in-process", rank: rank, size: n,
			memory: memory, control: memory.control(rank), bell: b, options: o,
		}
	}
	return groups
}

// Single is the group of a world of one: every operation is done at once.
func Single() Group {
	g := inProcess(1, Options{ChunkBytes: 1})[0].(*memoryGroup)
	g.name = "none"
	return g
}

// channelBell wakes goroutines of this process.
type channelBell struct {
	memory segment
	mu     sync.Mutex
	rung   []chan struct{} // closed when the rank's bell is rung, then replaced
}

func (b *channelBell) sleep(ctx context.Context, rank int, seen uint32, d time.Duration) {
	b.mu.Lock()
	rung := b.rung[rank]
	b.mu.Unlock()
	if b.memory.control(rank).arrived.Load() != seen {
		return // it was rung before this rank listened
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-rung:
	case <-ctx.Done():
	case <-timer.C:
	}
}

func (b *channelBell) ring(rank int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.rung[rank])
	b.rung[rank] = make(chan struct{})
}
