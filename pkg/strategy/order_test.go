package strategy

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"lockstep/pkg/collective"
	"lockstep/pkg/internal/device"
)

// slowGroup records the sizes of its all-reduces, and whether two ran at the same time.
type slowGroup struct {
	collective.Group // nil: nothing else may be asked of it
	inside           atomic.Int32
	together         atomic.Bool
	sizes            []int
}

func (*slowGroup) Size() int { return 2 }

func (g *slowGroup) AllReduce(_ context.Context, b device.Buffer) error {
	if g.inside.Add(1) > 1 {
		g.together.Store(true)
	}
	time.Sleep(2 * time.Millisecond) // long enough for Wait to come while this goes on
	if !g.together.Load() {
		g.sizes = append(g.sizes, b.Len())
	}
	g.inside.Add(-1)
	return nil
}

// TestOneBucketAtATime: all ranks reduce the buckets one at a time in the same order, whether the
// goroutine or Wait does it.
func TestOneBucketAtATime(t *testing.T) {
	g := &slowGroup{}
	d := NewDDP(t.Context(), g)
	defer func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}()
	var want []int
	for step := range 10 {
		for i := range 4 {
			if err := d.ReduceBucket(i, device.Buffer{F32: make([]float32, 1+i)}, device.Stream{}); err != nil {
				t.Fatal(err)
			}
			want = append(want, 1+i)
			if i == 0 && step%2 == 0 {
				time.Sleep(time.Millisecond) // the goroutine has the first one; else Wait may
			}
		}
		if err := d.Wait(); err != nil {
			t.Fatal(err)
		}
	}
	if g.together.Load() {
		t.Fatal("two buckets were in the collective at once")
	}
	if !slices.Equal(g.sizes, want) {
		t.Errorf("reduced buckets of %v elements, handed over were %v", g.sizes, want)
	}
}
