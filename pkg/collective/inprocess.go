package collective

import (
	"context"
	"sync"
	"time"
)

// InProcess returns the groups of n ranks within this process, one for each of n
// goroutines. They exchange data as SharedMemory does, over ordinary memory. Tests use
// them, and proofs that N workers compute what one worker does. n below 1 counts as 1.
func InProcess(n int) []Group {
	return inProcess(max(n, 1), Options{})
}

func inProcess(n int, o Options) []Group {
	o = o.withDefaults()
	memory := heapSegment(n, o.ChunkBytes)
	b := &channelNotifier{memory: memory, notified: make([]chan struct{}, n)}
	groups := make([]Group, n)
	for rank := range groups {
		b.notified[rank] = make(chan struct{})
		groups[rank] = &memoryGroup{
			name: "in-process", rank: rank, size: n,
			memory: memory, control: memory.control(rank), notifier: b, options: o,
		}
	}
	return groups
}

// Single returns the group of a world of size 1, where every operation returns at once.
func Single() Group {
	g := inProcess(1, Options{ChunkBytes: 1})[0].(*memoryGroup)
	g.name = "none"
	return g
}

// channelNotifier wakes goroutines of this process.
type channelNotifier struct {
	memory   segment
	mu       sync.Mutex
	notified []chan struct{} // one per rank: closed by notify, which puts a new one in its place
}

func (b *channelNotifier) sleep(ctx context.Context, rank int, seen uint32, d time.Duration) {
	b.mu.Lock()
	notified := b.notified[rank]
	b.mu.Unlock()
	if b.memory.control(rank).arrived.Load() != seen {
		return // notify was called before this rank got the channel
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-notified:
	case <-ctx.Done():
	case <-timer.C:
	}
}

func (b *channelNotifier) notify(rank int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.notified[rank])
	b.notified[rank] = make(chan struct{})
}
