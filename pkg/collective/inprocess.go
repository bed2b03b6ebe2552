package collective

import (
	"context"
	"sync"
	"time"
)

// InProcess returns one group per rank for n ranks that are goroutines of this process. The
// ranks exchange data as with SharedMemory, but through ordinary memory. Tests use these
// groups, and so does the check that n workers compute the same as one. If n is below 1,
// InProcess returns the group of a single rank.
func InProcess(n int) []Group {
	return newInProcessGroups(max(n, 1), Options{})
}

func newInProcessGroups(n int, o Options) []Group {
	o = o.withDefaults()
	memory := newHeapSegment(n, o.ChunkBytes)
	b := &channelNotifier{memory: memory, notified: make([]chan struct{}, 2*n)}
	for counter := range b.notified {
		b.notified[counter] = make(chan struct{})
	}
	groups := make([]Group, n)
	for rank := range groups {
		groups[rank] = &memoryGroup{
			name: "in-process", rank: rank, size: n,
			memory: memory, control: memory.controlBlock(rank), notifier: b, options: o,
			algorithm: newAlgorithm(o, AlgorithmDirect, rank, n),
		}
	}
	return groups
}

// Single returns a group of one rank, whose operations return at once.
func Single() Group {
	g := newInProcessGroups(1, Options{ChunkBytes: 1})[0].(*memoryGroup)
	g.name = "none"
	return g
}

// channelNotifier is a notifier for ranks that are goroutines of this process.
type channelNotifier struct {
	memory   segment
	mu       sync.Mutex
	notified []chan struct{} // one channel per counter; notify closes it and replaces it by a new one
}

func (b *channelNotifier) sleep(ctx context.Context, counter int, seen uint32, d time.Duration) {
	b.mu.Lock()
	notified := b.notified[counter]
	b.mu.Unlock()
	if b.memory.counter(counter).Load() != seen {
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

func (b *channelNotifier) notify(counter int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.notified[counter])
	b.notified[counter] = make(chan struct{})
}
