package threads

import (
	"testing"
	"time"
)

// idle has no work for a goroutine that waits.
func idle() bool { return false }

// TestSignal sends signals to and fro, at once or after the owner has given up polling, and
// checks that each call of wait returns after one call of send, not before.
func TestSignal(t *testing.T) {
	for _, polls := range []bool{false, true} {
		var ping, pong signal
		ping.init(polls)
		pong.init(polls)
		const rounds = 2000
		sends := 0 // written before ping is sent and read after it has been received
		finished := make(chan struct{})
		go func() {
			defer close(finished)
			for i := range rounds {
				ping.wait(idle)
				if sends != i+1 {
					t.Errorf("polls=%v: wait returns after %d sends, want %d", polls, sends, i+1)
				}
				if i%100 == 50 {
					time.Sleep(2 * maxPoll) // the other side sleeps
				}
				pong.send()
			}
		}()
		for i := range rounds {
			if i%100 == 0 {
				time.Sleep(2 * maxPoll)
			}
			sends++
			ping.send()
			pong.wait(idle)
		}
		<-finished
		if polls != (ping.poll >= minPoll) || polls != (pong.poll > 0) || ping.poll > maxPoll {
			t.Errorf("polls=%v: the owners poll for %v and %v, want 0 or %v to %v", polls, ping.poll, pong.poll, minPoll, maxPoll)
		}
	}
}
