package strategy

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"lockstep/pkg/collective"
	"lockstep/pkg/engine"
	"lockstep/pkg/internal/device"
	"lockstep/pkg/optim"
)

// pacedToy is a toy whose step waits for a function.
type pacedToy struct {
	*toy
	wait func(step int)
}

func (x *pacedToy) Step(ctx context.Context, sync engine.GradSync, u *optim.Update) (engine.Timing, error) {
	x.wait(x.step + 1)
	return x.toy.Step(ctx, sync, u)
}

// progress counts the steps of each rank, so that a slow rank can wait for the others without
// a clock.
type progress struct {
	mu           sync.Mutex
	changed      sync.Cond
	begun, steps []int // by rank: gradients that it has begun to compute, and complete steps
}

func newProgress(ranks int) *progress {
	p := &progress{begun: make([]int, ranks), steps: make([]int, ranks)}
	p.changed.L = &p.mu
	return p
}

// add adds 1 to a rank's count.
func (p *progress) add(counts []int, rank int) {
	p.mu.Lock()
	counts[rank]++
	p.changed.Broadcast()
	p.mu.Unlock()
}

// waitFor waits until a rank's count is at least n.
func (p *progress) waitFor(counts []int, rank, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for counts[rank] < n {
		p.changed.Wait()
	}
}

// asyncResult contains what the ranks of trainAsync have measured.
type asyncResult struct {
	mu        sync.Mutex
	exes      []*toy
	staleness [][]int // by rank and step
	slots     map[string][]float64
}

// trainAsync trains steps steps on n ranks. wait is called by rank before the gradients of
// each step.
func trainAsync(t *testing.T, c Config, n, steps int, update func(step int) optim.Update, wait func(p *progress, rank, step int)) *asyncResult {
	t.Helper()
	r := &asyncResult{exes: make([]*toy, n), staleness: make([][]int, n)}
	p := newProgress(n)
	err := together(collective.InProcess(n), func(g collective.Group) (err error) {
		rank, ctx := g.Rank(), t.Context()
		x := newToy(rank)
		if rank > 0 {
			x.params["b"][0] = 99 // Start replaces it by rank 0's value
		}
		exe := &pacedToy{x, func(step int) {
			p.add(p.begun, rank)
			if wait != nil {
				wait(p, rank, step)
			}
		}}
		s, err := New(ctx, c, nil, g)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.Close()) }()
		switch a := s.(type) { // workers ask many times
		case *asyncServer:
			a.core.Heartbeat = time.Millisecond
		case *asyncPeer:
			a.core.Heartbeat = time.Millisecond
		}
		if err := s.Start(ctx, exe, nil); err != nil {
			return err
		}
		for step := 1; step <= steps; step++ {
			if _, err := s.Step(ctx, exe, Step{Batch: 1, Batches: 1, Update: update(step)}); err != nil {
				return err
			}
			stats := s.Stats()
			p.add(p.steps, rank)
			r.mu.Lock()
			r.staleness[rank] = append(r.staleness[rank], stats.Staleness)
			r.mu.Unlock()
		}
		if err := s.Equalize(ctx, exe); err != nil {
			return err
		}
		slots, err := s.State(ctx, exe)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.exes[rank] = x
		if rank == 0 {
			r.slots = slots
		}
		return err
	})
	if err != nil {
		t.Fatalf("%v, %d ranks: %v", c, n, err)
	}
	for rank, x := range r.exes {
		if d := farthest(r.exes[0].params, x.params); d != 0 {
			t.Errorf("%v, %d ranks: after the epoch rank %d differs from rank 0 by %g", c, n, rank, d)
		}
	}
	return r
}

// plainSGD returns an update by the gradient alone.
func plainSGD(step int) optim.Update {
	return optim.Update{Rule: optim.RuleSGD, LearningRate: 0.01, Step: step}
}

// TestAsyncServerStaleness: gradients are old if two ranks compute them at the same time, and
// never older than allowed.
func TestAsyncServerStaleness(t *testing.T) {
	const steps = 20
	for _, c := range []struct{ limit, servers, ranks int }{{1, 1, 2}, {3, 1, 2}, {4, 2, 3}, {100, 2, 2}, {2, 1, 4}, {1, 3, 3}} {
		config := Config{Name: NameParamServer, MaxStaleness: c.limit, Servers: c.servers}
		// With a smaller limit, the other ranks could keep the last rank from reading.
		allRead := c.limit >= c.ranks-1
		r := trainAsync(t, config, c.ranks, steps, plainSGD, func(p *progress, rank, step int) {
			if allRead && step == 1 { // neither sends its gradient before the other has read
				p.waitFor(p.begun, 0, 1)
				p.waitFor(p.begun, c.ranks-1, 1)
			}
		})
		most := 0
		for rank := range c.ranks {
			if len(r.staleness[rank]) != steps {
				t.Errorf("%+v: rank %d recorded %d steps, want %d", c, rank, len(r.staleness[rank]), steps)
			}
			for _, s := range r.staleness[rank] {
				most = max(most, s)
				if s < 0 || s > c.limit {
					t.Errorf("%+v: rank %d has staleness %d", c, rank, s)
				}
			}
		}
		if allRead && most == 0 {
			t.Errorf("%+v: no gradient was old", c)
		}
	}
}

// TestAsyncServerAlone: with one worker, an asynchronous server computes what the worker computes
// with any other strategy, for every rule and with accumulated batches.
func TestAsyncServerAlone(t *testing.T) {
	for _, rule := range optim.Rules() {
		want := oneToy(t, rule, 1, 5)
		got := trainToys(t, Config{Name: NameParamServer, MaxStaleness: 2}, rule, 1, 5, 0)
		if d := farthest(want, got.params[0]); !(d < 1e-12) {
			t.Errorf("%s: the parameters differ by %g", rule, d)
		}
	}
}

// TestAsyncServerSlots: the state for a checkpoint has the slots of all servers.
func TestAsyncServerSlots(t *testing.T) {
	r := trainAsync(t, Config{Name: NameParamServer, MaxStaleness: 4, Servers: 2}, 3, 6, func(step int) optim.Update {
		return optim.Update{Rule: optim.RuleAdam, LearningRate: 0.01, Step: step, Beta1: 0.9, Beta2: 0.99, Epsilon: 1e-8}
	}, nil)
	for _, name := range []string{"optimizer.m.a", "optimizer.m.b", "optimizer.v.c"} {
		if len(r.slots[name]) != len(newToy(0).params[name[len(name)-1:]]) || r.slots[name][0] == 0 {
			t.Errorf("slot %s is %v", name, r.slots[name])
		}
	}
}

// quadratic is an executable that minimizes the mean of |w - target|² over the targets of all
// ranks, whose minimum is the mean of the targets.
type quadratic struct {
	*toy
	noise *rand.Rand
}

func (x *quadratic) Step(_ context.Context, sync engine.GradSync, _ *optim.Update) (engine.Timing, error) {
	x.step++
	for b, names := range toyBuckets {
		k := 0
		for _, name := range names {
			for i, w := range x.params[name] {
				x.grads[b][k] = w - quadraticTarget(i, x.rank) + 0.1*x.noise.NormFloat64()
				k++
			}
		}
		if err := sync.ReduceBucket(b, device.Buffer{F64: x.grads[b]}, device.Stream{}); err != nil {
			return engine.Timing{}, err
		}
	}
	return engine.Timing{}, sync.Wait()
}

// quadraticTarget returns the target of element i of a parameter on a rank.
func quadraticTarget(i, rank int) float64 { return math.Sin(float64(i)) + float64(rank) }

// quadraticLoss returns the distance of the parameters from the minimum for n ranks.
func quadraticLoss(params map[string][]float64, n int) float64 {
	sum := 0.0
	for _, v := range params {
		for i, w := range v {
			d := w - quadraticTarget(i, 0) - float64(n-1)/2
			sum += d * d
		}
	}
	return sum
}

// trainQuadratic trains quadratic on the given number of ranks, and returns rank 0's parameters.
func trainQuadratic(t *testing.T, c Config, ranks, steps int) map[string][]float64 {
	t.Helper()
	var params map[string][]float64
	err := together(collective.InProcess(ranks), func(g collective.Group) (err error) {
		exe := &quadratic{newToy(g.Rank()), rand.New(rand.NewPCG(1, uint64(g.Rank())))}
		s, err := New(t.Context(), c, nil, g)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.Close()) }()
		if err := s.Start(t.Context(), exe, nil); err != nil {
			return err
		}
		for step := 1; step <= steps; step++ {
			if _, err := s.Step(t.Context(), exe, Step{Batch: 1, Batches: 1, Update: optim.Update{Rule: optim.RuleSGD, LearningRate: 0.02, Step: step}}); err != nil {
				return err
			}
		}
		if err := s.Equalize(t.Context(), exe); err != nil {
			return err
		}
		if g.Rank() == 0 {
			params = exe.params
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return params
}

// TestAsyncServerConverges: with old gradients the result differs from that of a synchronous
// server, but the loss falls. With a learning rate of 0.02 and 100 steps of 2 ranks, the
// distance falls by exp(-0.02·200·2) ≈ 1/3000 without noise; the test requires a tenth.
func TestAsyncServerConverges(t *testing.T) {
	const steps, ranks = 100, 2
	first := quadraticLoss(newToy(0).params, ranks)
	synchronous := trainQuadratic(t, Config{Name: NameParamServer}, ranks, steps)
	for _, c := range []Config{{Name: NameParamServer, MaxStaleness: 3}, {Name: NameParamServer, MaxStaleness: 8, Servers: 2}} {
		got := trainQuadratic(t, c, ranks, steps)
		if loss := quadraticLoss(got, ranks); !(loss < first/10) {
			t.Errorf("%v: the loss fell from %g to %g only", c, first, loss)
		}
		if d := farthest(synchronous, got); d < 1e-6 {
			t.Errorf("%v: the parameters differ by only %g from those of a synchronous server", c, d)
		}
	}
}

// TestAsynchronousStrategiesNameADeadRank: if a rank leaves, the others' steps return an error that names
// it, or refers to the error of a rank that noticed first.
func TestAsynchronousStrategiesNameADeadRank(t *testing.T) {
	for _, c := range []Config{
		{Name: NameParamServer, MaxStaleness: 3}, {Name: NameParamServer, MaxStaleness: 3, Servers: 3}, {Name: NameAsyncPeer},
	} {
		var named atomic.Bool
		err := together(collective.InProcess(3), func(g collective.Group) (err error) {
			s, err := New(t.Context(), c, nil, g)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, s.Close(), g.Close()) }()
			exe := newToy(g.Rank())
			if err := s.Start(t.Context(), exe, nil); err != nil {
				return err
			}
			for step := 1; ; step++ {
				if g.Rank() == 1 && step == 3 {
					return nil // Close and leave
				}
				if _, err = s.Step(t.Context(), exe, Step{Batch: 1, Batches: 1, Update: plainSGD(step)}); err == nil && step == 100 {
					err = s.Equalize(t.Context(), exe)
				}
				if err != nil {
					break
				}
			}
			switch {
			case strings.Contains(err.Error(), "rank 1 has left"), strings.Contains(err.Error(), "rank 1 failed"):
				named.Store(true)
			case !strings.Contains(err.Error(), "see the error message of that rank"):
				return fmt.Errorf("%v, rank %d: got error %w", c, g.Rank(), err)
			}
			if _, again := s.Step(t.Context(), exe, Step{Batch: 1, Batches: 1, Update: plainSGD(1)}); again == nil {
				return fmt.Errorf("%v, rank %d: a step after an error succeeded", c, g.Rank())
			}
			return nil
		})
		if err != nil || !named.Load() {
			t.Errorf("%v: rank 1 was named: %v, error %v", c, named.Load(), err)
		}
	}
}
