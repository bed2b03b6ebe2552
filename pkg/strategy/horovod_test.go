package strategy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"lockstep/pkg/collective"
	"lockstep/pkg/engine"
	"lockstep/pkg/internal/device"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/optim"
)

// TestHorovodMakesTheMean: at 1 to 4 ranks, every bucket becomes the mean of 10·r + b over the
// ranks r, also if each rank queues its buckets in another order.
func TestHorovodMakesTheMean(t *testing.T) {
	for n := 1; n <= 4; n++ {
		for _, f64 := range []bool{false, true} {
			err := together(collective.InProcess(n), func(g collective.Group) (err error) {
				s, err := New(t.Context(), Config{Name: NameHorovod, CycleTime: 0.01}, nil, g)
				if err != nil {
					return err
				}
				h := s.(*horovodStrategy)
				defer func() { err = errors.Join(err, h.Close()) }()
				for step := range 3 {
					bs := gradients(g.Rank(), f64)
					size := 0
					for i := range bs {
						b := (i + g.Rank() + step) % len(bs)
						size += bs[b].Bytes()
						if err := h.ReduceBucket(b, bs[b], device.Stream{}); err != nil {
							return err
						}
					}
					if err := h.Wait(); err != nil {
						return err
					}
					for b := range bs {
						for j := range bs[b].Len() {
							if got, want := at(bs[b], j), 5*float64(n-1)+float64(b); got != want {
								return fmt.Errorf("step %d, rank %d, bucket %d: got %v, want %v", step, g.Rank(), b, got, want)
							}
						}
					}
					if err := checkHorovodStats(h, n, g.Rank(), step, size); err != nil {
						return fmt.Errorf("step %d, rank %d of %d: %w", step, g.Rank(), n, err)
					}
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		}
	}
}

// checkHorovodStats compares the statistics of a step of three buckets, which have size bytes
// together, with the formula of the strategy's bytes.
func checkHorovodStats(h *horovodStrategy, n, rank, step, size int) error {
	s := h.Stats()
	if n == 1 {
		if s != (Stats{}) {
			return fmt.Errorf("a world of one has stats %+v", s)
		}
		return nil
	}
	reduced := h.Reduced()
	if s.Buckets != 3 || len(reduced) != 3 || s.AllReduce <= 0 {
		return fmt.Errorf("got %+v and %d reductions, want 3 buckets", s, len(reduced))
	}
	// The negotiation sends messages of 16 bytes: 8, and 8 for the bits of 3 tensors. In the
	// first step there are also names and sizes. A tensor in the fusion buffer is padded by
	// at most n−1 elements of 8 bytes.
	receivers := 1
	if rank == 0 {
		receivers = n - 1
	}
	least := size
	most := size + 3*8*(n-1) + 1000*16*receivers // no test takes 1000 cycles of at least 10 µs in vain
	if step == 0 {
		most += 3 * 100 * receivers
	} else {
		least += 16 * receivers
	}
	if s.Bytes < least || s.Bytes > most {
		return fmt.Errorf("sent %d bytes, want %d to %d", s.Bytes, least, most)
	}
	return nil
}

// TestHorovodEqualsDDPBitForBit: two numbers have one sum, so with two workers fusion and the
// order of the exchanges cannot change a bit.
func TestHorovodEqualsDDPBitForBit(t *testing.T) {
	ddp := trainToys(t, Config{}, optim.RuleAdam, 2, 5, 0)
	for _, c := range []Config{{Name: NameHorovod}, {Name: NameHorovod, CycleTime: 3, FusionThreshold: 1e-6, CacheCapacity: 1}} {
		got := trainToys(t, c, optim.RuleAdam, 2, 5, 3)
		for rank := range 2 {
			if d := farthest(ddp.params[rank], got.params[rank]); d != 0 {
				t.Errorf("%v: the parameters of rank %d differ from those of ddp by %g", c, rank, d)
			}
		}
	}
}

// TestHorovodNamesTensors: the tensors have the names of their parameters.
func TestHorovodNamesTensors(t *testing.T) {
	p := &plan.Program{
		Params:  []plan.Param{{Name: "conv.weight"}, {Name: "conv.bias"}, {Name: "fc.weight"}},
		Buckets: []plan.GradientBucket{{Params: []int{2}}, {Params: []int{0, 1}}},
	}
	if got, want := bucketParameterNames(p), []string{"fc.weight", "conv.weight+conv.bias"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := (Config{Name: NameHorovod}).BucketBytes(1 << 20); got != 1 {
		t.Errorf("buckets of %d bytes, want 1: one tensor each", got)
	}
	if got := (Config{}).BucketBytes(1 << 20); got != 1<<20 {
		t.Errorf("ddp: buckets of %d bytes, want 1 MiB", got)
	}
	// If one rank lacks a tensor, the error has its name.
	err := together(collective.InProcess(2), func(g collective.Group) (err error) {
		s, err := New(t.Context(), Config{Name: NameHorovod}, nil, g)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.Close()) }()
		exe := &partial{toy: newToy(g.Rank()), skip: g.Rank() == 1, p: p}
		if err := s.Start(t.Context(), exe, nil); err != nil {
			return err
		}
		_, err = s.Step(t.Context(), exe, Step{Batch: 1, Batches: 1, Update: testUpdate(optim.RuleSGD, 1)})
		want := "rank 0 has not announced bucket 9, but rank 1 did; rank 1 has not announced fc.weight, but rank 0 did, and now all ranks wait"
		if err == nil || !strings.Contains(err.Error(), want) {
			return fmt.Errorf("rank %d: got error %w, want %s", g.Rank(), err, want)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// partial is a toy with parameter names in its program. If skip is true, it queues another
// bucket in place of bucket 0.
type partial struct {
	*toy
	skip bool
	p    *plan.Program
}

func (x *partial) Program() *plan.Program { return x.p }

func (x *partial) Step(ctx context.Context, sync engine.GradSync, u *optim.Update) (engine.Timing, error) {
	if x.skip {
		sync = renamed{sync}
	}
	return x.toy.Step(ctx, sync, u)
}

// renamed queues bucket 0 as bucket 9.
type renamed struct{ engine.GradSync }

func (r renamed) ReduceBucket(i int, b device.Buffer, s device.Stream) error {
	if i == 0 {
		i = 9
	}
	return r.GradSync.ReduceBucket(i, b, s)
}

// TestHorovodOptions: invalid values are refused, with valid ones.
func TestHorovodOptions(t *testing.T) {
	for text, want := range map[string]string{
		"horovod:cycle_time=5:fusion_threshold=64:cache_capacity=10:timeline=true": "",
		"horovod:cycle_time=-1":        "strategy.cycle_time is -1: use milliseconds, more than 0, or 0 for 1",
		"horovod:cycle_time=.nan":      "strategy.cycle_time is NaN: use milliseconds",
		"horovod:fusion_threshold=-64": "strategy.fusion_threshold is -64: use MiB, more than 0, or 0 for 128",
		"horovod:cache_capacity=-1":    "strategy.cache_capacity is -1: use a number of tensors, at least 1, or 0 for 1024",
		"horovod:steps=2":              "strategy.steps does not apply to strategy horovod: leave it out (this strategy has cycle_time, fusion_threshold, cache_capacity, timeline)",
		"ddp:cycle_time=1":             "strategy.cycle_time does not apply to strategy ddp",
	} {
		c, err := Parse(text)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %+v, error %v, want %q", text, c, err, want)
		}
	}
	if got, want := (Config{Name: NameHorovod}).Settings(), map[string]any{
		"strategy": "horovod", "strategy.cycle_time": 1.0, "strategy.fusion_threshold": 128.0, "strategy.cache_capacity": 1024.0, "strategy.timeline": false,
	}; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("settings %v, want %v", got, want)
	}
}
