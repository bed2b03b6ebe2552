package horovod

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"lockstep/pkg/collective"
	"lockstep/pkg/collective/schedule"
	"lockstep/pkg/internal/device"
	"lockstep/pkg/runs/flight"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// together calls f for all ranks at the same time and returns their errors by rank.
func together(groups []collective.Group, f func(collective.Group) error) []error {
	errs := make([]error, len(groups))
	var wg sync.WaitGroup
	for i, g := range groups {
		wg.Go(func() { errs[i] = f(g) })
	}
	wg.Wait()
	return errs
}

// sharedMemory returns the groups of n ranks of this process with options.
func sharedMemory(t *testing.T, n int, o collective.Options) []collective.Group {
	t.Helper()
	first, err := collective.CreateSharedMemory(n, o)
	if err != nil {
		t.Fatal(err)
	}
	groups := []collective.Group{first}
	for rank := 1; rank < n; rank++ {
		g, err := collective.OpenSharedMemory(first.Path(), rank, n, o)
		if err != nil {
			t.Fatal(err)
		}
		groups = append(groups, g)
	}
	if err := first.Unlink(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, g := range groups {
			if err := g.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	return groups
}

// newController returns a Controller whose Reduce returns the sum.
func newController(g collective.Group, o Options) *Controller {
	o.Reduce = g.AllReduce
	o.CacheCapacity = max(1, o.CacheCapacity)
	return New(g, o)
}

// step announces tensors in the given order, a few per cycle, and returns the operations when
// all are reduced.
func step(ctx context.Context, c *Controller, tensors []Tensor, perCycle int) ([]CycleOperation, error) {
	var all []CycleOperation
	waiting, next := []Tensor(nil), 0
	for next < len(tensors) || len(waiting) > 0 {
		end := min(len(tensors), next+perCycle)
		waiting, next = append(waiting, tensors[next:end]...), end
		if len(waiting) == 0 {
			continue
		}
		ops, err := c.Cycle(ctx, func() ([]Tensor, bool) { return waiting, next == len(tensors) })
		all = append(all, ops...)
		if err != nil {
			return all, err
		}
		for _, o := range ops {
			waiting = slices.DeleteFunc(waiting, func(t Tensor) bool { return slices.Contains(o.Tensors, t.Number) })
		}
	}
	return all, nil
}

// random returns a rank's tensors of the given lengths with random values.
func random(rank int, f64 bool, lengths ...int) []Tensor {
	r := rand.New(rand.NewPCG(1, uint64(rank)))
	var all []Tensor
	for i, n := range lengths {
		t := Tensor{Number: i, Name: fmt.Sprintf("layer%d.weight", i)}
		if t.Buffer.F32 = make([]float32, n); f64 {
			t.Buffer = device.Buffer{F64: make([]float64, n)}
		}
		for k := range n {
			v := r.NormFloat64() * math.Exp(5*r.NormFloat64())
			if f64 {
				t.Buffer.F64[k] = v
			} else {
				t.Buffer.F32[k] = float32(v)
			}
		}
		all = append(all, t)
	}
	return all
}

// text returns the bits of the tensors' elements.
func text(tensors []Tensor) string {
	var b strings.Builder
	for _, t := range tensors {
		fmt.Fprintln(&b, t.Name, t.Buffer.F32, t.Buffer.F64)
	}
	return b.String()
}

// TestAnyOrder: each rank announces its tensors in an order of its own. All ranks get the sums,
// and reduce the tensors in the same order.
func TestAnyOrder(t *testing.T) {
	lengths := []int{5, 1, 300, 7, 64, 2}
	for _, n := range []int{2, 3, 4} {
		var mu sync.Mutex
		orders := map[string]int{}
		errs := together(collective.InProcess(n), func(g collective.Group) error {
			c := newController(g, Options{FusionBytes: 1 << 20, CacheCapacity: 4}) // less than there are tensors
			for round := range 5 {
				tensors, want := random(g.Rank(), round%2 == 0, lengths...), random(0, round%2 == 0, lengths...)
				for rank := 1; rank < n; rank++ {
					for i, other := range random(rank, round%2 == 0, lengths...) {
						add(want[i].Buffer, other.Buffer)
					}
				}
				shuffled := slices.Clone(tensors)
				rand.New(rand.NewPCG(uint64(round), uint64(g.Rank()))).Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
				ops, err := step(t.Context(), c, shuffled, 1+g.Rank())
				if err != nil {
					return err
				}
				// In-process groups add in the order of the ranks, like add.
				if text(tensors) != text(want) {
					return fmt.Errorf("round %d, rank %d: got\n%swant\n%s", round, g.Rank(), text(tensors), text(want))
				}
				var order []int
				for _, o := range ops {
					order = append(order, o.Tensors...)
				}
				mu.Lock()
				orders[fmt.Sprint(round, order)]++
				mu.Unlock()
			}
			return nil
		})
		if err := errors.Join(errs...); err != nil {
			t.Error(err)
		}
		for order, ranks := range orders {
			if ranks != n {
				t.Errorf("%d of %d ranks reduced in round and order %s", ranks, n, order)
			}
		}
	}
}

// add adds b to a.
func add(a, b device.Buffer) {
	for i := range a.F32 {
		a.F32[i] += b.F32[i]
	}
	for i := range a.F64 {
		a.F64[i] += b.F64[i]
	}
}

// TestFusionDoesNotChangeBits: whatever tensors are fused, their sums have the same bits, also
// for algorithms whose order of additions depends on the position in the buffer.
func TestFusionDoesNotChangeBits(t *testing.T) {
	lengths := []int{5, 1, 300, 7, 64, 2, 1000, 11}
	for _, algorithm := range append(schedule.Names(), collective.AlgorithmDirect) {
		for _, n := range []int{2, 3, 4} {
			perNode := 2 // of the hierarchical algorithm
			if n == 3 {
				perNode = 1
			}
			results := map[string][]int{}
			for _, fusion := range []int{0, 100, 1500, 1 << 20} {
				groups := sharedMemory(t, n, collective.Options{Algorithm: algorithm, RanksPerNode: perNode})
				errs := together(groups, func(g collective.Group) error {
					c := newController(g, Options{FusionBytes: fusion})
					tensors := random(g.Rank(), false, lengths...)
					ops, err := step(t.Context(), c, tensors, len(tensors))
					if err != nil || g.Rank() != 0 {
						return err
					}
					// The negotiation and, in float32: without fusion 8 operations. Up to 1500
					// bytes: 5, 1, 300, 7 | 64, 2 | 1000 | 11, since 64 more than 313 would be
					// 1508 bytes.
					if want := map[int]int{0: 9, 1500: 5, 1 << 20: 2}[fusion]; want != 0 && len(ops) != want {
						return fmt.Errorf("%d operations with fusion up to %d bytes, want %d", len(ops), fusion, want)
					}
					results[text(tensors)] = append(results[text(tensors)], fusion)
					return nil
				})
				if err := errors.Join(errs...); err != nil {
					t.Fatal(err)
				}
			}
			if len(results) != 1 {
				t.Errorf("%s, %d ranks: the sums depend on the fusion: %d results", algorithm, n, len(results))
			}
		}
	}
}

// TestBytes: after the first step, a rank announces 70 tensors by 70 bits, in 2 words after
// the first word of 8 bytes. Rank 0 sends an answer of the same size to each of 2 workers.
func TestBytes(t *testing.T) {
	lengths := slices.Repeat([]int{3}, 70)
	errs := together(collective.InProcess(3), func(g collective.Group) error {
		c := newController(g, Options{FusionBytes: 1 << 20, CacheCapacity: 100})
		for round := range 3 {
			tensors := random(g.Rank(), false, lengths...)
			ops, err := step(t.Context(), c, tensors, len(tensors))
			if err != nil {
				return err
			}
			want := 24
			if g.Rank() == 0 {
				want = 2 * 24
			}
			if len(ops) != 2 || round > 0 && ops[0].Bytes != want || round == 0 && ops[0].Bytes < 70*len("layer0.weight") || ops[1].Bytes != 70*3*4 {
				return fmt.Errorf("round %d, rank %d: %+v, want messages of %d bytes and 840 bytes of gradients", round, g.Rank(), ops, want)
			}
		}
		return nil
	})
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
}

// TestCycleTime: the cycles of a rank begin at least a cycle time apart.
func TestCycleTime(t *testing.T) {
	const cycle = 20 * time.Millisecond
	errs := together(collective.InProcess(2), func(g collective.Group) error {
		c := newController(g, Options{CycleTime: cycle})
		var starts []time.Time
		for _, x := range random(g.Rank(), false, 1, 1, 1) {
			ops, err := c.Cycle(t.Context(), func() ([]Tensor, bool) {
				starts = append(starts, c.last)
				return []Tensor{x}, true
			})
			if err != nil || len(ops) != 2 {
				return fmt.Errorf("%d operations, error %w, want the negotiation and an all-reduce", len(ops), err)
			}
		}
		for i := range starts[1:] {
			if between := starts[i+1].Sub(starts[i]); between < cycle {
				return fmt.Errorf("rank %d: two cycles begin %v apart, want %v", g.Rank(), between, cycle)
			}
		}
		return nil
	})
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c := newController(collective.Single(), Options{CycleTime: time.Hour})
	c.last = time.Now()
	if _, err := c.Cycle(ctx, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
}

// TestDifferentTensors: if ranks announce tensors of other sizes, or wait for tensors that
// others do not have, all of them get the same error, which says what is wrong.
func TestDifferentTensors(t *testing.T) {
	for _, c := range []struct {
		change func(rank int, tensors []Tensor) []Tensor
		want   string
	}{
		{func(rank int, x []Tensor) []Tensor {
			x[1].Buffer.F32 = x[1].Buffer.F32[:4-rank/2]
			return x
		}, "tensor layer1.weight has 3 elements of 32 bits on rank 2 and 4 elements of 32 bits on rank 0: all ranks must train the same model"},
		{func(rank int, x []Tensor) []Tensor {
			if rank > 0 {
				x[2].Name = "other.weight"
			}
			return x
		}, "rank 0 has not announced other.weight, but rank 1 and rank 2 did; rank 1 has not announced layer2.weight, but rank 0 did; rank 2 has not announced layer2.weight, but rank 0 did, and now all ranks wait"},
	} {
		dir := t.TempDir()
		errs := together(collective.InProcess(3), func(g collective.Group) error {
			g = collective.NewRecorder(g, dir)
			tensors := c.change(g.Rank(), random(g.Rank(), false, 4, 4, 4))
			_, err := step(t.Context(), newController(g, Options{FusionBytes: 1 << 20}), tensors, len(tensors))
			return err
		})
		for rank, err := range errs {
			got := fmt.Sprint(err)
			// The arrival of the messages decides which rank's tensor is the wrong one.
			other := strings.Replace(c.want, "3 elements of 32 bits on rank 2 and 4 elements of 32 bits on rank 0", "4 elements of 32 bits on rank 1 and 3 elements of 32 bits on rank 2", 1)
			if !strings.HasPrefix(got, "negotiate gradients: "+c.want) && !strings.HasPrefix(got, "negotiate gradients: "+other) {
				t.Errorf("rank %d: got error %v, want %s", rank, err, c.want)
			}
			if r, err := flight.ReadFile(dir, flight.FileName(rank)); err != nil || r.Error != got {
				t.Errorf("rank %d has recorded %q, error %v, want %q", rank, r.Error, err, got)
			}
		}
	}
}

// TestStalledRanksAreNamed: ranks that do not announce a tensor in time are named on all ranks
// that have announced it, whether they take part in the cycles or not.
func TestStalledRanksAreNamed(t *testing.T) {
	for _, cycling := range []bool{false, true} {
		groups := sharedMemory(t, 4, collective.Options{Timeout: time.Minute})
		var waits sync.WaitGroup
		waits.Add(2)
		errs := together(groups, func(g collective.Group) error {
			c := newController(g, Options{CycleTime: time.Millisecond})
			if want := 55 * time.Second; c.limit != want { // the time-out less 5 s
				return fmt.Errorf("limit %v, want %v", c.limit, want)
			}
			c.limit = time.Second
			tensors := random(g.Rank(), false, 2, 2, 2)
			if stalled := g.Rank()%2 == 1; !stalled {
				defer waits.Done()
				all := len(tensors)
				if !cycling && g.Rank() == 0 {
					all = 1 // the coordinator has computed the others after the cycle began
				}
				_, err := step(t.Context(), c, tensors, all)
				return err
			}
			if !cycling {
				waits.Wait() // a rank that never comes
				return nil
			}
			for cycle := 0; ; cycle++ { // a rank that computes forever, after its first tensor
				list := []Tensor{{Number: 9, Name: "only here", Buffer: tensors[1].Buffer}, tensors[0]}
				if cycle > 0 {
					list = list[:1]
				}
				if _, err := c.Cycle(t.Context(), func() ([]Tensor, bool) { return list, false }); err != nil {
					return err
				}
			}
		})
		for rank, err := range errs {
			if rank%2 == 1 && !cycling {
				continue
			}
			missing := "layer0.weight, layer1.weight, layer2.weight"
			if cycling {
				missing = "layer1.weight, layer2.weight"
			}
			for _, stalled := range []int{1, 3} {
				if want := fmt.Sprintf("rank %d has not announced %s, but rank 0 and rank 2 did", stalled, missing); !strings.Contains(fmt.Sprint(err), want) {
					t.Errorf("cycling %v, rank %d: got error %v, want %s", cycling, rank, err, want)
				}
			}
			if wrong := "rank 0 has not announced"; !cycling && strings.Contains(fmt.Sprint(err), wrong) {
				t.Errorf("rank %d: got error %v, but rank 0 could not announce more before the others", rank, err)
			}
			if want := "gradients have waited for 1s: rank "; !strings.Contains(fmt.Sprint(err), want) {
				t.Errorf("cycling %v, rank %d: got error %v, want %s", cycling, rank, err, want)
			}
		}
	}
}

// TestDescribe: if some ranks have sent nothing in this cycle, only they are named, also if they
// have announced every tensor that waits.
func TestDescribe(t *testing.T) {
	a := announcements{ranks: 4}
	for _, x := range []struct {
		name string
		rank int
	}{{"a", 0}, {"a", 1}, {"b", 1}, {"b", 0}, {"b", 3}} {
		if _, _, err := a.recordAnnouncement(tensorRequest{x.name, 32, 1}, x.rank, 0); err != nil {
			t.Fatal(err)
		}
	}
	for want, arrived := range map[string][]int{
		"rank 2 has not announced a, b, but rank 0, rank 1 and rank 3 did; rank 3 has not announced a, but rank 0 and rank 1 did": {1, 2, 3},
		"rank 1 has announced a, b, but takes no part in the negotiation any more":                                                {2, 3},
		"rank 3 has not announced a, but rank 0 and rank 1 did":                                                                   {1, 2},
	} {
		if got := a.describeMissingRanks(arrived); got != want {
			t.Errorf("arrived %v: got %s, want %s", arrived, got, want)
		}
	}
}

// TestResponseCache: a full cache forgets the tensor that was reduced least recently.
func TestResponseCache(t *testing.T) {
	c := newResponseCache(2)
	a, b, d := tensorRequest{"a", 32, 1}, tensorRequest{"b", 32, 2}, tensorRequest{"d", 64, 3}
	c.put(a)
	c.put(b)
	c.markUsed(0) // a
	c.put(d)      // in place of b
	for _, x := range []struct {
		r    tensorRequest
		slot int
		ok   bool
	}{{a, 0, true}, {b, 0, false}, {d, 1, true}, {tensorRequest{"a", 32, 2}, 0, false}, {tensorRequest{"d", 32, 3}, 0, false}} {
		if slot, ok := c.find(x.r); ok != x.ok || ok && slot != x.slot {
			t.Errorf("%v: slot %d, %v, want %d, %v", x.r, slot, ok, x.slot, x.ok)
		}
	}
	resized := tensorRequest{"d", 64, 9}
	c.put(resized)
	if slot, ok := c.find(resized); !ok || slot != 1 || c.slotCount() != 2 {
		t.Errorf("a tensor of another size: slot %d, %v of %d", slot, ok, c.slotCount())
	}
}
