package collective

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"lockstep/pkg/collective/internal/segment"
	"lockstep/pkg/internal/device"
)

// countingContext is a context whose Err calls err with the number of the call, from 1.
type countingContext struct {
	context.Context
	calls *atomic.Int32
	err   func(call int) error
}

func newCountingContext(err func(call int) error) countingContext {
	return countingContext{context.Background(), new(atomic.Int32), err}
}

func (c countingContext) Err() error { return c.err(int(c.calls.Add(1))) }

// canceledContext returns a context that has ended.
func canceledContext() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// TestSmallSurvivesLaterFailure: a rank that waits gets the sum although the other one has failed
// in its next operation, or has left, before the waiting rank sees that the other one has arrived.
func TestSmallSurvivesLaterFailure(t *testing.T) {
	for _, leave := range []bool{false, true} {
		g := InProcess(2)
		other := device.Buffer{F32: []float32{4, 8}}
		ctx := newCountingContext(func(call int) error {
			if call != 2 { // the first check is at the beginning, the second while rank 0 waits
				return nil
			}
			if err := g[1].AllReduce(context.Background(), other); err != nil {
				t.Errorf("rank 1: %v", err)
			}
			if leave {
				if err := g[1].Close(); err != nil {
					t.Error(err)
				}
			} else if err := g[1].AllReduce(canceledContext(), other); !errors.Is(err, context.Canceled) {
				t.Errorf("rank 1, canceled: %v", err)
			}
			return nil
		})
		b := device.Buffer{F32: []float32{1, 2}}
		if err := g[0].AllReduce(ctx, b); err != nil || b.F32[0] != 5 || b.F32[1] != 10 || other.F32[0] != 5 {
			t.Errorf("left %v: got %v and %v, %v", leave, b.F32, other.F32, err)
		}
		if err := g[0].AllReduce(context.Background(), b); err == nil || !strings.Contains(err.Error(), "all-reduce 2: rank 1") {
			t.Errorf("left %v: next operation: %v", leave, err)
		}
	}
}

// TestSmallFailsAfterTheOtherGaveUp: a rank that comes after the other one has stopped waiting for
// it does not complete the operation alone.
func TestSmallFailsAfterTheOtherGaveUp(t *testing.T) {
	g := InProcess(2)
	first := newCountingContext(func(call int) error {
		if call == 1 {
			return nil
		}
		return context.Canceled
	})
	b := device.Buffer{F64: []float64{1}}
	if err := g[0].AllReduce(first, b); err == nil || !strings.Contains(err.Error(), "while waiting for rank 1 (not seen in any operation)") {
		t.Errorf("rank 0: %v", err)
	}
	err := g[1].AllReduce(t.Context(), b)
	if want := "all-reduce 1: rank 0 failed (last seen in all-reduce 1); see the error message of that rank"; err == nil || err.Error() != want {
		t.Errorf("rank 1: got %v, want %s", err, want)
	}
	if b.F64[0] != 1 {
		t.Errorf("got %v after an error, want the buffer unchanged", b.F64)
	}
}

// TestSmallAgrees lets one rank stop waiting at about the time at which the other one arrives. Both
// must complete the operation, or neither.
func TestSmallAgrees(t *testing.T) {
	for i := range 1000 {
		g := InProcess(2)
		var errs [2]error
		var wg sync.WaitGroup
		called := make(chan struct{})
		impatient := newCountingContext(func(call int) error {
			if call == 1 {
				close(called)
				return nil
			}
			return context.Canceled
		})
		wg.Go(func() { errs[0] = g[0].AllReduce(impatient, device.Buffer{F32: []float32{1}}) })
		wg.Go(func() {
			<-called
			for begin := time.Now(); time.Since(begin) < time.Duration(i%100)*time.Microsecond; { // rank 0 polls for spinTime
			}
			errs[1] = g[1].AllReduce(context.Background(), device.Buffer{F32: []float32{1}})
		})
		wg.Wait()
		if (errs[0] == nil) != (errs[1] == nil) {
			t.Fatalf("repeat %d: the ranks disagree: %v; %v", i, errs[0], errs[1])
		}
	}
}

// TestSmallFollowsDecision: a rank that has stopped waiting does as the other one, if that has
// arrived meanwhile.
func TestSmallFollowsDecision(t *testing.T) {
	gaveUp := errors.New("gave up")
	for _, c := range []struct {
		name   string
		decide func(*segment.ControlBlock)
		want   error
	}{
		{"has not arrived", func(c *segment.ControlBlock) { c.Arrived.Store(0) }, gaveUp},
		{"completes", func(c *segment.ControlBlock) { c.Agreed.Store(7) }, nil},
		{"completes, and fails in its next operation", func(c *segment.ControlBlock) { c.Agreed.Store(7); c.State.Store(segment.StateFailed) }, nil},
		{"fails", func(c *segment.ControlBlock) { c.State.Store(segment.StateFailed) }, gaveUp},
		{"has completed an earlier operation, and stops waiting too", func(c *segment.ControlBlock) { c.Agreed.Store(6); c.GaveUp.Store(7) }, gaveUp},
	} {
		g := InProcess(2)[0].(*memoryGroup)
		g.number, g.syncs = 7, 1
		other := g.memory.ControlBlock(1)
		other.Arrived.Store(1)
		c.decide(other)
		if err := g.agreeOnOutcome(gaveUp); !errors.Is(err, c.want) || g.control.GaveUp.Load() != 7 || (g.control.Agreed.Load() == 7) != (c.want == nil) {
			t.Errorf("the other rank %s: error %v, gave up %d, agreed %d", c.name, err, g.control.GaveUp.Load(), g.control.Agreed.Load())
		}
	}
}

// TestSmallAreas checks buffers of all sizes around the limit for small ones, in turns with larger
// ones, and that the areas of two operations differ.
func TestSmallAreas(t *testing.T) {
	g := InProcess(2)
	var wg sync.WaitGroup
	for rank := range g {
		wg.Go(func() {
			for i := range 300 {
				b := make([]float32, []int{0, 1, 5, segment.SmallBufferBytes/4 - 1, segment.SmallBufferBytes / 4, segment.SmallBufferBytes/4 + 1}[i%6])
				for k := range b {
					b[k] = float32(i + k + rank)
				}
				if err := g[rank].AllReduce(context.Background(), device.Buffer{F32: b}); err != nil {
					t.Error(err)
					return
				}
				for k, v := range b {
					if v != float32(2*(i+k)+1) {
						t.Errorf("rank %d, operation %d: element %d is %g, want %d", rank, i, k, v, 2*(i+k)+1)
						return
					}
				}
			}
		})
	}
	wg.Wait()
}
