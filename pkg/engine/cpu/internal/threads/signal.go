package threads

import (
	"sync/atomic"
	"time"
)

// signal lets one goroutine, its owner, wait until another one has called send. The owner polls
// for a short time before it sleeps, since most tasks follow each other within microseconds and
// waking a sleeping thread can take a hundred.
type signal struct {
	state atomic.Uint32
	wake  chan struct{} // receives a value if the signal is sent while the owner sleeps
	poll  time.Duration // for which the owner polls next time, 0 if it never does
}

const (
	unsent uint32 = iota
	sent
	sleeping // not sent, and the owner sleeps
)

// Limits of the time for which a goroutine polls. The time is doubled if the signal arrived
// during polling and halved if it did not, so that polling wastes little time if signals come
// late because other programs use the processor.
const (
	minPoll = 2 * time.Microsecond
	maxPoll = 64 * time.Microsecond
)

// If polls is set, the owner polls before it sleeps.
func (s *signal) init(polls bool) {
	s.wake = make(chan struct{}, 1)
	if polls {
		s.poll = maxPoll
	}
}

// send ends the owner's current or next call of wait. The owner must call wait before send is
// called again.
func (s *signal) send() {
	if s.state.Swap(sent) == sleeping {
		s.wake <- struct{}{}
	}
}

// wait waits for a call of send. Meanwhile it calls spare as long as spare returns true, which
// means that it did some work.
func (s *signal) wait(spare func() bool) {
	for start := time.Now(); ; {
		if s.state.Load() == sent {
			s.state.Store(unsent)
			if s.poll > 0 {
				s.poll = min(2*s.poll, maxPoll)
			}
			return
		}
		if spare() {
			start = time.Now()
		} else if time.Since(start) >= s.poll {
			break
		}
	}
	if s.poll > 0 {
		s.poll = max(s.poll/2, minPoll)
	}
	if s.state.CompareAndSwap(unsent, sleeping) {
		<-s.wake
	}
	s.state.Store(unsent)
}
