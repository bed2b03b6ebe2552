package strategy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"lockstep/pkg/collective"
	"lockstep/pkg/engine"
	"lockstep/pkg/internal/device"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/optim"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// together calls f for all ranks at the same time and returns their joined errors.
func together(groups []collective.Group, f func(collective.Group) error) error {
	errs := make([]error, len(groups))
	var wg sync.WaitGroup
	for i, g := range groups {
		wg.Go(func() { errs[i] = f(g) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// gradients returns three buckets: bucket b of rank r has b+1 values 10·r + b.
func gradients(rank int, f64 bool) []device.Buffer {
	var bs []device.Buffer
	for b := range 3 {
		v := slices.Repeat([]float64{float64(10*rank + b)}, b+1)
		if f64 {
			bs = append(bs, device.Buffer{F64: v})
			continue
		}
		f := make([]float32, len(v))
		for i := range v {
			f[i] = float32(v[i])
		}
		bs = append(bs, device.Buffer{F32: f})
	}
	return bs
}

func at(b device.Buffer, i int) float64 {
	if b.F64 != nil {
		return b.F64[i]
	}
	return float64(b.F32[i])
}

func TestDDPMakesTheMean(t *testing.T) {
	for _, tt := range []struct {
		world int
		want  func(b int) float64 // of bucket b: the mean of 10·r + b over ranks r
	}{
		{1, func(b int) float64 { return float64(b) }},
		{2, func(b int) float64 { return 5 + float64(b) }},
		{3, func(b int) float64 { return 10 + float64(b) }},
	} {
		for _, f64 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d-float64=%v", tt.world, f64), func(t *testing.T) {
				err := together(collective.InProcess(tt.world), func(g collective.Group) error {
					d := NewDDP(context.Background(), g)
					for step := range 3 {
						begin := time.Now()
						bs := gradients(g.Rank(), f64)
						for i, b := range bs {
							if err := d.ReduceBucket(i, b, device.Stream{}); err != nil {
								return err
							}
						}
						if err := d.Wait(); err != nil {
							return err
						}
						for i, b := range bs {
							for j := range b.Len() {
								if got, want := at(b, j), tt.want(i); got != want {
									return fmt.Errorf("step %d, rank %d, bucket %d: got %v, want %v", step, g.Rank(), i, got, want)
								}
							}
						}
						if err := checkStats(d.Stats(), tt.world, begin, bs); err != nil {
							return err
						}
					}
					return d.Close()
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
	}
}

func checkStats(s Stats, world int, begin time.Time, bs []device.Buffer) error {
	bytes := 0
	for _, b := range bs {
		bytes += b.Bytes()
	}
	switch {
	case world == 1 && s != Stats{}:
		return fmt.Errorf("a world of one has stats %+v", s)
	case world > 1 && (s.Buckets != 3 || s.Bytes != bytes || s.AllReduce <= 0 || s.First.Before(begin)):
		return fmt.Errorf("stats are %+v, want 3 buckets of %d bytes after %v", s, bytes, begin)
	}
	return nil
}

// TestBucketDoesNotWait: Bucket returns although the other rank has not called it yet.
func TestBucketDoesNotWait(t *testing.T) {
	groups := collective.InProcess(2)
	first := NewDDP(context.Background(), groups[0])
	a := device.Buffer{F32: []float32{1}}
	for i := range 3 {
		if err := first.ReduceBucket(i, a, device.Stream{}); err != nil { // it would hang here
			t.Fatal(err)
		}
	}
	second := NewDDP(context.Background(), groups[1])
	b := device.Buffer{F32: []float32{3}}
	for i := range 3 {
		if err := second.ReduceBucket(i, b, device.Stream{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(first.Wait(), second.Wait(), first.Close(), second.Close()); err != nil {
		t.Fatal(err)
	}
	// (1+3)/2 = 2, and the mean of two equal numbers is that number.
	if a.F32[0] != 2 || b.F32[0] != 2 {
		t.Errorf("got %v and %v, want 2", a.F32, b.F32)
	}
}

func TestErrorStaysAndCloseEndsWhatWaits(t *testing.T) {
	groups := collective.InProcess(2)
	d := NewDDP(context.Background(), groups[0])
	if err := d.ReduceBucket(0, device.Buffer{F32: []float32{1}}, device.Stream{}); err != nil {
		t.Fatal(err)
	}
	if err := groups[1].Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := d.Wait(); err == nil || !strings.Contains(err.Error(), "reduce gradient bucket 0: all-reduce 1: rank 1 has left") {
			t.Fatalf("got %v", err)
		}
	}
	if err := d.ReduceBucket(1, device.Buffer{}, device.Stream{}); err == nil {
		t.Error("a bucket after an error was taken")
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}

	groups = collective.InProcess(2)
	d = NewDDP(context.Background(), groups[0])
	if err := d.ReduceBucket(0, device.Buffer{F32: []float32{1}}, device.Stream{}); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if err := d.Wait(); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if err := d.ReduceBucket(1, device.Buffer{}, device.Stream{}); err == nil {
		t.Error("a bucket after Close was taken")
	}
}

// tensors is an engine.Executable that has only persistent tensors.
type tensors map[string][]float64

func (tensors) Program() *plan.Program                { return nil }
func (tensors) Capabilities() engine.Capabilities     { return engine.Capabilities{} }
func (tensors) SetInput(string, []float32) error      { return nil }
func (tensors) NextBatch(engine.Source) (bool, error) { return false, nil }
func (tensors) Loss() float64                         { return 0 }
func (tensors) Output(string, []float32) error        { return nil }
func (tensors) Gradient(string) ([]float64, error)    { return nil, nil }
func (tensors) MemoryBytes() int64                    { return 0 }
func (tensors) Close() error                          { return nil }
func (tensors) Step(context.Context, engine.GradSync, *optim.Update) (engine.Timing, error) {
	return engine.Timing{}, nil
}

func (t tensors) Names() []string {
	var names []string
	for n := range t {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

func (t tensors) Get(name string) ([]float64, error) {
	if v, ok := t[name]; ok {
		return slices.Clone(v), nil
	}
	return nil, fmt.Errorf("no tensor %q", name)
}

func (t tensors) Set(name string, v []float64) error {
	t[name] = slices.Clone(v)
	return nil
}

func TestBroadcastStateMakesReplicasEqual(t *testing.T) {
	ctx := context.Background()
	exes := []tensors{
		{"w": {1, 2}, "bn.running_mean": {0.1}, "optimizer.m.w": {1e-300, 4}},
		{"w": {9, 9}, "bn.running_mean": {9}, "optimizer.m.w": {9, 9}},
		{"w": {8, 8}, "bn.running_mean": {8}, "optimizer.m.w": {8, 8}},
	}
	groups := collective.InProcess(3)
	if err := together(groups, func(g collective.Group) error { return BroadcastState(ctx, exes[g.Rank()], g) }); err != nil {
		t.Fatal(err)
	}
	for r, exe := range exes {
		for _, name := range exes[0].Names() {
			if !slices.Equal(exe[name], exes[0][name]) {
				t.Errorf("rank %d, %s: got %v, want %v", r, name, exe[name], exes[0][name])
			}
		}
	}
	err := BroadcastTensors(ctx, exes[0], groups[0], []string{"nobody"})
	if err == nil || !strings.Contains(err.Error(), `broadcast nobody: no tensor "nobody"`) {
		t.Errorf("got %v", err)
	}
}

func TestAllReduceFloat64s(t *testing.T) {
	err := together(collective.InProcess(2), func(g collective.Group) error {
		v := []float64{float64(g.Rank()), 1}
		if err := AllReduceFloat64s(context.Background(), g, v); err != nil {
			return err
		}
		if !slices.Equal(v, []float64{1, 2}) { // 0+1, 1+1
			return fmt.Errorf("got %v", v)
		}
		return AllReduceFloat64s(context.Background(), g, nil)
	})
	if err != nil {
		t.Error(err)
	}
}
