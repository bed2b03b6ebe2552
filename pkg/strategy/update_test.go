package strategy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"lockstep/pkg/collective"
	"lockstep/pkg/engine"
	"lockstep/pkg/internal/device"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/optim"
)

// toy is an executable with three parameters in two buckets, one of which is shorter than
// the number of ranks. The gradient of element i in step s on rank r is
// (1+r)·(sin(1+i+s) + w²/50) + w/10.
type toy struct {
	rank, step int
	params     map[string][]float64
	grads      [][]float64 // by bucket
	slots      map[string][]float64
	waits      int
}

// The parameters of toy, by bucket.
var toyBuckets = [][]string{{"c", "b"}, {"a"}}

func newToy(rank int) *toy {
	return &toy{
		rank:   rank,
		params: map[string][]float64{"a": {0.5}, "b": {1, -2, 3, -4, 5, -6}, "c": {0.1, 0.2, 0.3}},
		grads:  [][]float64{make([]float64, 9), make([]float64, 1)},
		slots:  map[string][]float64{},
	}
}

func (x *toy) Program() *plan.Program {
	return &plan.Program{Params: []plan.Param{{Name: "a"}, {Name: "b"}, {Name: "c"}}}
}
func (*toy) SetInput(string, []float32) error      { return nil }
func (*toy) NextBatch(engine.Source) (bool, error) { return false, nil }
func (*toy) Loss() float64                         { return 0 }
func (*toy) Output(string, []float32) error        { return nil }
func (*toy) Gradient(string) ([]float64, error)    { return nil, nil }
func (*toy) MemoryBytes() int64                    { return 0 }
func (*toy) Close() error                          { return nil }

func (x *toy) Names() []string {
	names := []string{"a", "b", "c"}
	for _, slot := range []string{"m", "v", "momentum"} {
		for _, p := range []string{"a", "b", "c"} {
			names = append(names, "optimizer."+slot+"."+p)
		}
	}
	return names
}

func (x *toy) Get(name string) ([]float64, error) {
	if v, ok := x.params[name]; ok {
		return slices.Clone(v), nil
	}
	if v, ok := x.slots[name]; ok {
		return slices.Clone(v), nil
	}
	return make([]float64, len(x.params[name[strings.LastIndex(name, ".")+1:]])), nil
}

func (x *toy) Set(name string, v []float64) error {
	if p, ok := x.params[name]; ok {
		copy(p, v)
		return nil
	}
	if slices.ContainsFunc(v, func(f float64) bool { return f != 0 }) {
		x.slots[name] = slices.Clone(v)
	}
	return nil
}

func (x *toy) Capabilities() engine.Capabilities {
	return engine.Capabilities{HostMemory: &engine.HostMemory{Buckets: x.BucketMemory, Unpack: x.Unpack, Pack: x.Pack}}
}

func (x *toy) BucketMemory() []engine.BucketMemory {
	var all []engine.BucketMemory
	for i, names := range toyBuckets {
		m := engine.BucketMemory{Gradients: device.Buffer{F64: x.grads[i]}}
		offset := 0
		for _, name := range names {
			m.Parameters = append(m.Parameters, engine.ParameterMemory{Name: name, Weights: device.Buffer{F64: x.params[name]}, Offset: offset, Vector: name == "a"})
			offset += len(x.params[name])
		}
		all = append(all, m)
	}
	return all
}

func (*toy) Unpack(_ string, stored device.Buffer) ([]float64, error) {
	return slices.Clone(stored.F64), nil
}

func (*toy) Pack(_ string, v []float64, stored device.Buffer) error {
	copy(stored.F64, v)
	return nil
}

// gradient returns the gradient of element i of a parameter with the value w.
func gradient(rank, step, i int, w float64) float64 {
	return float64(1+rank)*(math.Sin(float64(1+i+step))+w*w/50) + w/10
}

func (x *toy) Step(_ context.Context, sync engine.GradSync, u *optim.Update) (engine.Timing, error) {
	x.step++
	for b, names := range toyBuckets {
		k := 0
		for _, name := range names {
			for i, w := range x.params[name] {
				x.grads[b][k] = gradient(x.rank, x.step, i, w)
				k++
			}
		}
		if err := sync.ReduceBucket(b, device.Buffer{F64: x.grads[b]}, device.Stream{}); err != nil {
			return engine.Timing{}, err
		}
	}
	if err := sync.Wait(); err != nil {
		return engine.Timing{}, err
	}
	x.waits++
	if u == nil {
		return engine.Timing{}, nil
	}
	var list []optim.Tensor64
	for _, m := range x.BucketMemory() {
		for _, p := range m.Parameters {
			n := p.Weights.Len()
			t := optim.Tensor64{Weights: p.Weights.F64, Gradient: m.Gradients.F64[p.Offset : p.Offset+n], Vector: p.Vector}
			for _, slot := range u.Slots() {
				name := "optimizer." + slot + "." + p.Name
				if x.slots[name] == nil {
					x.slots[name] = make([]float64, n)
				}
				t.Slots = append(t.Slots, x.slots[name])
			}
			list = append(list, t)
		}
	}
	return engine.Timing{}, optim.Apply64(*u, list)
}

// testUpdate returns the update of the given rule, with clipping and weight decay.
func testUpdate(rule string, step int) optim.Update {
	u := optim.Update{Rule: rule, LearningRate: 0.1, Step: step, Beta1: 0.9, Beta2: 0.99, Epsilon: 1e-8, WeightDecay: 0.01, Trust: 0.1, ClipNorm: 3}
	if rule == optim.RuleSGD || rule == optim.RuleLARS {
		u.Momentum = 0.9
	}
	return u
}

// toyResult contains the parameters and slots of each rank.
type toyResult struct {
	mu     sync.Mutex
	params map[int]map[string][]float64
	slots  map[int]map[string][]float64
}

// trainToys trains steps optimizer steps of two batches on each of n ranks. save: after that
// step, every strategy's state is collected, and a new strategy and executable continue from
// it.
func trainToys(t *testing.T, c Config, rule string, n, steps, save int) *toyResult {
	t.Helper()
	r := &toyResult{params: map[int]map[string][]float64{}, slots: map[int]map[string][]float64{}}
	var file map[string][]float64 // what rank 0 would write to a checkpoint
	err := together(collective.InProcess(n), func(g collective.Group) (err error) {
		ctx := context.Background()
		exe := newToy(g.Rank())
		if g.Rank() > 0 {
			exe.params["b"][0] = 99 // Start replaces it by rank 0's value
		}
		s, err := New(ctx, c, nil, g)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.Close()) }()
		if err := s.Start(ctx, exe, nil); err != nil {
			return err
		}
		for step := 1; step <= steps; step++ {
			for batch := 1; batch <= 2; batch++ {
				if _, err := s.Step(ctx, exe, Step{Batch: batch, Batches: 2, Update: testUpdate(rule, step)}); err != nil {
					return err
				}
			}
			if step != save {
				continue
			}
			state, err := s.State(ctx, exe)
			if err != nil {
				return err
			}
			if g.Rank() == 0 {
				file = maps.Clone(state)
				if file == nil {
					file = map[string][]float64{}
				}
				for _, name := range exe.Names() {
					if _, ok := file[name]; !ok {
						file[name], _ = exe.Get(name)
					}
				}
			}
			if err := errors.Join(g.Barrier(ctx), s.Close()); err != nil {
				return err
			}
			again := newToy(g.Rank())
			again.step = exe.step
			exe = again
			if s, err = New(ctx, c, nil, g); err != nil {
				return err
			}
			if err := s.Start(ctx, exe, file); err != nil {
				return err
			}
		}
		if err := s.Equalize(ctx, exe); err != nil {
			return err
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.params[g.Rank()], r.slots[g.Rank()] = exe.params, exe.slots
		return nil
	})
	if err != nil {
		t.Fatalf("%v, %s, %d ranks: %v", c, rule, n, err)
	}
	return r
}

// oneToy trains one executable by the mean gradient of n ranks.
func oneToy(t *testing.T, rule string, n, steps int) map[string][]float64 {
	t.Helper()
	exe := newToy(0)
	mean := meanSync{exe, n}
	acc := NewAccumulator(mean)
	for step := 1; step <= steps; step++ {
		acc.Begin(2)
		u := testUpdate(rule, step)
		if _, err := exe.Step(t.Context(), acc, nil); err != nil {
			t.Fatal(err)
		}
		if _, err := exe.Step(t.Context(), acc, &u); err != nil {
			t.Fatal(err)
		}
	}
	return exe.params
}

// meanSync multiplies the rank's part of the gradients by the mean of 1+r over n ranks.
type meanSync struct {
	exe *toy
	n   int
}

func (m meanSync) ReduceBucket(b int, buffer device.Buffer, _ device.Stream) error {
	k := 0
	for _, name := range toyBuckets[b] {
		for i, w := range m.exe.params[name] {
			// The mean over the step's two batches, whose parameters are equal.
			sines := (math.Sin(float64(1+i+m.exe.step)) + math.Sin(float64(i+m.exe.step))) / 2
			buffer.F64[k] = float64(m.n+1)/2*(sines+w*w/50) + w/10
			k++
		}
	}
	return nil
}
func (meanSync) Wait() error                           { return nil }
func (meanSync) Capabilities() engine.SyncCapabilities { return engine.SyncCapabilities{} }

// farthest returns the largest distance of an element of a from that of b.
func farthest(a, b map[string][]float64) float64 {
	d := 0.0
	for name := range a {
		for i := range a[name] {
			d = max(d, math.Abs(a[name][i]-b[name][i]))
		}
	}
	return d
}

// exactConfigs returns a config of each strategy that is exact and trains replicas of a toy:
// package train tests the pipeline, which needs a network.
func exactConfigs() []Config {
	var all []Config
	for _, k := range Kinds() {
		if c := (Config{Name: k.Name}); k.Exact && !c.Staged() {
			all = append(all, c)
		}
	}
	return append(all, Config{Name: NameParamServer, Servers: 2}, Config{BroadcastBuffers: true})
}

// TestExactStrategies: N workers compute what one worker computes with the mean gradient,
// with every rule, clipping and accumulation. Every rank has the same bits, and only the
// strategies that replicate the optimizer have its slots in the executable.
func TestExactStrategies(t *testing.T) {
	const steps = 5
	for _, c := range exactConfigs() {
		for _, rule := range optim.Rules() {
			for _, n := range []int{1, 2, 3, 5} {
				if c.serverCount() > n {
					continue
				}
				want := oneToy(t, rule, n, steps)
				got := trainToys(t, c, rule, n, steps, 0)
				for rank := range n {
					// Float64 sums in another order: a few units in the last place of values below 10.
					if d := farthest(want, got.params[rank]); !(d < 1e-12) {
						t.Errorf("%v, %s, %d ranks: parameters of rank %d differ by %g", c, rule, n, rank, d)
					}
					if d := farthest(got.params[0], got.params[rank]); d != 0 {
						t.Errorf("%v, %s, %d ranks: rank %d differs from rank 0 by %g", c, rule, n, rank, d)
					}
					if replicated := c.Name != NameZeRO1 && c.Name != NameParamServer; (len(got.slots[rank]) > 0) != replicated {
						t.Errorf("%v, %s, %d ranks: rank %d has slots %v", c, rule, n, rank, got.slots[rank])
					}
				}
			}
		}
	}
}

// TestStateContinuesBitForBit: what State returns is enough to continue with the same bits,
// and collecting it changes nothing.
func TestStateContinuesBitForBit(t *testing.T) {
	configs := append(exactConfigs(),
		Config{Name: NameLocalSGD, Steps: 3}, Config{Name: NameLocalSGD, Steps: 3, AverageOptimizer: true}, Config{NoCommunication: true})
	for _, c := range configs {
		for _, rule := range []string{optim.RuleSGD, optim.RuleAdam} {
			for _, n := range []int{1, 2, 3} {
				if c.serverCount() > n {
					continue
				}
				want := trainToys(t, c, rule, n, 7, 0)
				for _, save := range []int{3, 4} { // after an average of local SGD, and between two
					got := trainToys(t, c, rule, n, 7, save)
					for rank := range n {
						if d := farthest(want.params[rank], got.params[rank]); d != 0 {
							t.Errorf("%v, %s, %d ranks, saved after step %d: rank %d differs by %g", c, rule, n, save, rank, d)
						}
					}
				}
			}
		}
	}
}

// TestLocalSGD: with K = 1 and SGD, local SGD is DDP, because the mean of linear updates is
// the update by the mean. With K > 1 the ranks differ between two averages, and are equal
// after each.
func TestLocalSGD(t *testing.T) {
	ctx := t.Context()
	update := func(step int) optim.Update {
		return optim.Update{Rule: optim.RuleSGD, LearningRate: 0.1, Momentum: 0.9, WeightDecay: 0.01, Step: step}
	}
	train := func(c Config, n, steps int) (params []map[string][]float64, differed [][]bool) {
		params, differed = make([]map[string][]float64, n), make([][]bool, n)
		exes := make([]*toy, n)
		var mu sync.Mutex
		err := together(collective.InProcess(n), func(g collective.Group) (err error) {
			s, err := New(ctx, c, nil, g)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, s.Close()) }()
			exe := newToy(g.Rank())
			mu.Lock()
			exes[g.Rank()] = exe
			mu.Unlock()
			if err := s.Start(ctx, exe, nil); err != nil {
				return err
			}
			for step := 1; step <= steps; step++ {
				if _, err := s.Step(ctx, exe, Step{Batch: 1, Batches: 1, Update: update(step)}); err != nil {
					return err
				}
				if err := g.Barrier(ctx); err != nil {
					return err
				}
				differed[g.Rank()] = append(differed[g.Rank()], farthest(exes[0].params, exe.params) != 0)
				if err := g.Barrier(ctx); err != nil {
					return err
				}
			}
			params[g.Rank()] = exe.params
			// The last step has averaged the parameters: the mean of equal values may be rounded.
			s.Stats()
			if err := s.Equalize(ctx, exe); err != nil {
				return err
			}
			if n := s.Stats().Bytes; n != 0 {
				return fmt.Errorf("%v: equal parameters were averaged again: %d bytes", c, n)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return params, differed
	}
	ddp, _ := train(Config{}, 3, 6)
	one, _ := train(Config{Name: NameLocalSGD, Steps: 1}, 3, 6)
	if d := farthest(ddp[0], one[2]); !(d < 1e-12) {
		t.Errorf("K = 1: the parameters differ from those of ddp by %g", d)
	}
	three, differed := train(Config{Name: NameLocalSGD, Steps: 3}, 3, 6)
	if d := farthest(ddp[0], three[0]); !(d > 1e-6) {
		t.Errorf("K = 3: the parameters differ from those of ddp by only %g", d)
	}
	if want := []bool{true, true, false, true, true, false}; !slices.Equal(differed[1], want) || !slices.Equal(differed[2], want) {
		t.Errorf("K = 3: the ranks differed after steps %v and %v, want %v", differed[1], differed[2], want)
	}
	_, differed = train(Config{NoCommunication: true}, 2, 4)
	if want := []bool{true, true, true, true}; !slices.Equal(differed[1], want) {
		t.Errorf("without communication: the ranks differed after steps %v, want %v", differed[1], want)
	}
}

// TestOptimizerMemory: zero1 has 1/N of the slots on each rank, and a parameter server all on
// its ranks. Adam has two slots of 10 float64 values.
func TestOptimizerMemory(t *testing.T) {
	for _, c := range []struct {
		c    Config
		n    int
		want []int64 // by rank
	}{
		{Config{Name: NameZeRO1}, 1, []int64{160}},
		{Config{Name: NameZeRO1}, 2, []int64{2 * 8 * (4 + 0), 2 * 8 * (5 + 1)}}, // ⌊9/2⌋ and the rest; 1 value: rank 1
		{Config{Name: NameParamServer}, 3, []int64{160, 0, 0}},
		{Config{Name: NameParamServer, Servers: 2}, 3, []int64{64, 96, 0}},
	} {
		err := together(collective.InProcess(c.n), func(g collective.Group) (err error) {
			s, err := New(t.Context(), c.c, nil, g)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, s.Close()) }()
			if err := s.Start(t.Context(), newToy(g.Rank()), nil); err != nil {
				return err
			}
			own, all := s.(OptimizerSharder).OptimizerBytes(testUpdate(optim.RuleAdam, 1))
			if own != c.want[g.Rank()] || all != 160 {
				return fmt.Errorf("%v, rank %d: %d of %d bytes, want %d of 160", c.c, g.Rank(), own, all, c.want[g.Rank()])
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// TestDeadRankIsNamed: if a rank leaves, the others' step returns an error that names it, and
// so does every further step.
func TestDeadRankIsNamed(t *testing.T) {
	for _, c := range append(exactConfigs(), Config{Name: NameLocalSGD, Steps: 1}) {
		groups := collective.InProcess(3)
		err := together(groups, func(g collective.Group) (err error) {
			s, err := New(t.Context(), c, nil, g)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, s.Close()) }()
			exe := newToy(g.Rank())
			if err := s.Start(t.Context(), exe, nil); err != nil {
				return err
			}
			one := Step{Batch: 1, Batches: 1, Update: testUpdate(optim.RuleSGD, 1)}
			if _, err := s.Step(t.Context(), exe, one); err != nil {
				return err
			}
			if g.Rank() == 1 {
				return g.Close()
			}
			for range 2 {
				// With a parameter server or a coordinator, rank 2 waits for rank 0, which names rank 1.
				_, err := s.Step(t.Context(), exe, one)
				central := c.Name == NameParamServer || c.Name == NameHorovod
				if err == nil || !strings.Contains(err.Error(), "rank 1") && !(central && g.Rank() == 2 && strings.Contains(err.Error(), "rank 0")) {
					return fmt.Errorf("%v, rank %d: got error %w", c, g.Rank(), err)
				}
			}
			return g.Close() // ranks that wait for this one end too
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// TestWorkersOfStrategies: a number of workers that a strategy cannot use is refused.
func TestWorkersOfStrategies(t *testing.T) {
	for _, c := range []struct {
		c    Config
		want string
	}{
		{Config{Name: NameParamServer, Servers: 3}, "strategy paramserver: got 3 servers for 1 worker, but each server runs in the process of a worker: use at most 1"},
	} {
		if _, err := New(t.Context(), c.c, nil, collective.Single()); err == nil || err.Error() != c.want {
			t.Errorf("got error %v, want %s", err, c.want)
		}
	}
}

// TestBroadcastBuffers copies rank 0's running statistics before each batch.
func TestBroadcastBuffers(t *testing.T) {
	err := together(collective.InProcess(2), func(g collective.Group) (err error) {
		exe := &stateful{tensors: tensors{"norm.mean": {float64(g.Rank())}}}
		s, err := New(t.Context(), Config{BroadcastBuffers: true}, nil, g)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.Close()) }()
		for range 2 {
			if _, err := s.Step(t.Context(), exe, Step{Batch: 1, Batches: 1}); err != nil {
				return err
			}
			if v := exe.tensors["norm.mean"][0]; v != 0 {
				return fmt.Errorf("rank %d has the running mean %v, want rank 0's", g.Rank(), v)
			}
			exe.tensors["norm.mean"][0] = float64(g.Rank())
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// stateful is an executable with one running statistic.
type stateful struct{ tensors }

func (*stateful) Program() *plan.Program {
	return &plan.Program{Tensors: []plan.Tensor{{Name: "norm.mean", Shape: []int{1}}}, States: []int{0}}
}
