package strategy_test

import (
	"slices"
	"strings"
	"testing"

	"lockstep/pkg/engine"
	"lockstep/pkg/internal/device"
	"lockstep/pkg/strategy"
)

// noted is a GradSync that records the buckets it receives.
type noted struct {
	buckets [][]float64
	waits   int
}

func (n *noted) ReduceBucket(_ int, b device.Buffer, _ device.Stream) error {
	n.buckets = append(n.buckets, slices.Clone(b.F64))
	return nil
}
func (n *noted) Wait() error { n.waits++; return nil }
func (n *noted) Capabilities() engine.SyncCapabilities {
	return engine.SyncCapabilities{Enqueues: true}
}

// TestAccumulator: the inner GradSync receives the mean of the batches once. A single batch is
// passed on unchanged. The error for GPU memory says what to set instead.
func TestAccumulator(t *testing.T) {
	var n noted
	a := strategy.NewAccumulator(&n)
	for range 2 { // the sums of an update do not reach into the next
		a.Begin(3)
		for _, g := range []float64{1, 2, 6} {
			for bucket := range 2 {
				if err := a.ReduceBucket(bucket, device.Buffer{F64: []float64{g, -g * float64(bucket)}}, device.Stream{}); err != nil {
					t.Fatal(err)
				}
			}
			if err := a.Wait(); err != nil {
				t.Fatal(err)
			}
		}
	}
	want := [][]float64{{3, 0}, {3, -3}}
	if !slices.EqualFunc(n.buckets, slices.Concat(want, want), slices.Equal) || n.waits != 2 {
		t.Errorf("the exchange got %v, and waited %d times", n.buckets, n.waits)
	}
	if a.Capabilities().Enqueues {
		t.Error("what is added up on the host may be repeated by the engine")
	}
	a.Begin(1)
	if !a.Capabilities().Enqueues {
		t.Error("one part is not as the exchange is")
	}
	a.Begin(2)
	err := a.ReduceBucket(0, device.Buffer{Pointer: 8, Type: device.F32, Elements: 2}, device.Stream{})
	if err == nil || !strings.Contains(err.Error(), "set accumulate to 1") {
		t.Errorf("a GPU's memory: %v", err)
	}
}
