package segment

import (
	"context"
	"sync"
	"time"
)

// Notifier wakes ranks that wait for a counter of the segment to change. Segment.counter
// numbers the counters.
type Notifier interface {
	// Sleep returns when the counter differs from seen, when Notify is called for it, or
	// after d. It may also return when ctx ends.
	Sleep(ctx context.Context, counter int, seen uint32, d time.Duration)
	// Notify wakes the ranks that wait for the counter.
	Notify(counter int)
}

// goroutineNotifier is a Notifier for ranks that are goroutines of this process.
type goroutineNotifier struct {
	memory   Segment
	mu       sync.Mutex
	notified []chan struct{} // one channel per counter; Notify closes it and replaces it by a new one
}

// NewGoroutineNotifier returns the notifier of the ranks that share s in this process.
func NewGoroutineNotifier(s Segment) Notifier {
	b := &goroutineNotifier{memory: s, notified: make([]chan struct{}, 2*s.Size)}
	for counter := range b.notified {
		b.notified[counter] = make(chan struct{})
	}
	return b
}

func (b *goroutineNotifier) Sleep(ctx context.Context, counter int, seen uint32, d time.Duration) {
	b.mu.Lock()
	notified := b.notified[counter]
	b.mu.Unlock()
	if b.memory.waitCounter(counter).Load() != seen {
		return // Notify was called before this rank got the channel
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-notified:
	case <-ctx.Done():
	case <-timer.C:
	}
}

func (b *goroutineNotifier) Notify(counter int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.notified[counter])
	b.notified[counter] = make(chan struct{})
}
