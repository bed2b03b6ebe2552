package strategy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"lockstep/pkg/collective"
	"lockstep/pkg/engine"
	"lockstep/pkg/internal/device"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/optim"
)

// paraboloid is an executable whose loss on rank r is ½·Σ(x − aᵣ)², where aᵣ = target + offsetᵣ, with
// a matrix w of 6 × 8 and a vector b of 12 elements in one bucket. The offsets of all ranks add up to
// zero, so data parallelism without compression finds the target. They are large: what the ranks
// send does not become small.
type paraboloid struct {
	targets, x, gradient []float32
	slots                map[string][]float64
}

const paraboloidMatrix, paraboloidSize = 48, 60

func newParaboloid(rank, ranks int, scale float64) *paraboloid {
	q := &paraboloid{targets: make([]float32, paraboloidSize), x: make([]float32, paraboloidSize), gradient: make([]float32, paraboloidSize), slots: map[string][]float64{}}
	for i := range q.targets {
		mean := 0.0
		offset := func(r int) float64 { return scale * math.Sin(float64(1+i*i+7*r)) }
		for r := range ranks {
			mean += offset(r) / float64(ranks)
		}
		q.targets[i] = float32(paraboloidTarget(i) + offset(rank) - mean)
	}
	return q
}

// paraboloidTarget returns the value of parameter i with the smallest mean loss.
func paraboloidTarget(i int) float64 { return math.Cos(float64(3 * i)) }

func (*paraboloid) Program() *plan.Program {
	return &plan.Program{
		Tensors: []plan.Tensor{{Name: "w", Shape: []int{6, 4, 2}}, {Name: "b", Shape: []int{12}}},
		Params:  []plan.Param{{Name: "w", Tensor: 0}, {Name: "b", Tensor: 1}},
	}
}
func (*paraboloid) SetInput(string, []float32) error      { return nil }
func (*paraboloid) NextBatch(engine.Source) (bool, error) { return false, nil }
func (*paraboloid) Loss() float64                         { return 0 }
func (*paraboloid) Output(string, []float32) error        { return nil }
func (*paraboloid) Gradient(string) ([]float64, error)    { return nil, nil }
func (*paraboloid) MemoryBytes() int64                    { return 0 }
func (*paraboloid) Close() error                          { return nil }
func (*paraboloid) Names() []string                       { return []string{"w", "b"} }

func (x *paraboloid) memory(name string) []float32 {
	if name == "w" {
		return x.x[:paraboloidMatrix]
	}
	return x.x[paraboloidMatrix:]
}

func (x *paraboloid) Get(name string) ([]float64, error) {
	return x.Unpack(name, device.Buffer{F32: x.memory(name)})
}

func (x *paraboloid) Set(name string, v []float64) error {
	return x.Pack(name, v, device.Buffer{F32: x.memory(name)})
}

func (x *paraboloid) Capabilities() engine.Capabilities {
	return engine.Capabilities{HostMemory: &engine.HostMemory{Buckets: x.BucketMemory, Unpack: x.Unpack, Pack: x.Pack}}
}

func (x *paraboloid) BucketMemory() []engine.BucketMemory {
	return []engine.BucketMemory{{Gradients: device.Buffer{F32: x.gradient}, Parameters: []engine.ParameterMemory{
		{Name: "b", Weights: device.Buffer{F32: x.memory("b")}, Offset: paraboloidMatrix, Vector: true},
		{Name: "w", Weights: device.Buffer{F32: x.memory("w")}},
	}}}
}

func (*paraboloid) Unpack(_ string, stored device.Buffer) ([]float64, error) {
	v := make([]float64, stored.Len())
	for i, f := range stored.F32 {
		v[i] = float64(f)
	}
	return v, nil
}

func (*paraboloid) Pack(_ string, v []float64, stored device.Buffer) error {
	for i, f := range v {
		stored.F32[i] = float32(f)
	}
	return nil
}

func (x *paraboloid) Step(_ context.Context, sync engine.GradSync, u *optim.Update) (engine.Timing, error) {
	for i := range x.x {
		x.gradient[i] = x.x[i] - x.targets[i]
	}
	if sync != nil { // nil for a single worker
		if err := errors.Join(sync.ReduceBucket(0, device.Buffer{F32: x.gradient}, device.Stream{}), sync.Wait()); err != nil {
			return engine.Timing{}, err
		}
	}
	return engine.Timing{}, optim.Apply32(*u, []optim.Tensor32{{Weights: x.x, Gradient: x.gradient}})
}

// paraboloidUpdate returns the update of a step: SGD whose learning rate falls.
func paraboloidUpdate(step int) optim.Update {
	return optim.Update{Rule: optim.RuleSGD, LearningRate: 4 / (20 + float64(step)), Step: step}
}

// trainParaboloid trains for some steps and returns rank 0's parameters. With a save above 0, new
// strategies and executables continue from the state after that step.
func trainParaboloid(t *testing.T, c Config, ranks, steps, save int, scale float64, forgets bool) []float32 {
	t.Helper()
	results := make([][]float32, ranks)
	var file map[string][]float64
	err := together(collective.InProcess(ranks), func(g collective.Group) (err error) {
		ctx := context.Background()
		var s Strategy
		var exe *paraboloid
		begin := func(saved map[string][]float64) error {
			exe = newParaboloid(g.Rank(), ranks, scale)
			if s, err = New(ctx, c, nil, g); err != nil {
				return err
			}
			if d, ok := s.(*compressedDDP); ok {
				d.forgets = forgets
			}
			return s.Start(ctx, exe, saved)
		}
		if err := begin(nil); err != nil {
			return err
		}
		for step := 1; step <= steps; step++ {
			if _, err := s.Step(ctx, exe, Step{Batch: 1, Batches: 1, Update: paraboloidUpdate(step)}); err != nil {
				return err
			}
			if step != save {
				continue
			}
			state, err := s.State(ctx, exe)
			if err != nil {
				return err
			}
			if g.Rank() == 0 {
				file = map[string][]float64{}
				maps.Copy(file, state)
				for _, name := range exe.Names() {
					if file[name], err = exe.Get(name); err != nil {
						return err
					}
				}
			} else if state != nil {
				return fmt.Errorf("rank %d returned a state", g.Rank())
			}
			if err := errors.Join(s.Close(), g.Barrier(ctx)); err != nil {
				return err
			}
			if err := begin(file); err != nil {
				return err
			}
		}
		results[g.Rank()] = exe.x
		return s.Close()
	})
	if err != nil {
		t.Fatal(err)
	}
	for r, v := range results {
		if !slices.Equal(v, results[0]) {
			t.Fatalf("%v: rank %d has other parameters than rank 0", c, r)
		}
	}
	return results[0]
}

// largestError returns the largest distance of a parameter from its target.
func largestError(x []float32) (largest float64) {
	for i, v := range x {
		largest = max(largest, math.Abs(float64(v)-paraboloidTarget(i)))
	}
	return largest
}

// compressions are the methods that the tests below train with.
var compressions = []string{"fp16", "bf16"}

// TestCompressionConverges: each method finds the target with error feedback, and remains far from it
// without. The parameters begin at most 1 away from the target.
func TestCompressionConverges(t *testing.T) {
	for _, x := range []struct {
		method string
		scale  float64 // of the offsets
		steps  int
		limit  float64 // of the largest error; at most 60 % of it were measured
	}{
		{"fp16", 1000, 500, 0.002},
		{"bf16", 1000, 500, 0.015},
	} {
		for ranks := 2; ranks <= 3; ranks++ {
			c := Config{GradientCompression: x.method}
			with := largestError(trainParaboloid(t, c, ranks, x.steps, 0, x.scale, false))
			without := largestError(trainParaboloid(t, c, ranks, x.steps, 0, x.scale, true))
			if with > x.limit || without < 5*x.limit {
				t.Errorf("%s, %d ranks: the largest error is %.2g with feedback, want at most %.2g, and %.2g without, want at least %.2g", x.method, ranks, with, x.limit, without, 5*x.limit)
			}
		}
	}
}

// TestCompressionResumes: a run that continues from a checkpoint computes the same bits.
func TestCompressionResumes(t *testing.T) {
	for _, method := range compressions {
		for ranks := 2; ranks <= 3; ranks++ {
			c := Config{GradientCompression: method}
			want := trainParaboloid(t, c, ranks, 9, 0, 10, false)
			if got := trainParaboloid(t, c, ranks, 9, 4, 10, false); !slices.Equal(got, want) {
				t.Errorf("%s, %d ranks: got %v, want %v", method, ranks, got, want)
			}
		}
	}
}

// countingGroup counts the bytes that this rank sends in a ring: 2(N−1)/N of an all-reduced buffer,
// (N−1)/N of an all-gathered one, and messages.
type countingGroup struct {
	collective.Group
	sent *atomic.Int64
}

func (g countingGroup) AllReduce(ctx context.Context, b device.Buffer) error {
	g.sent.Add(int64(2 * (g.Size() - 1) * b.Bytes() / g.Size()))
	return g.Group.AllReduce(ctx, b)
}

func (g countingGroup) AllGather(ctx context.Context, b device.Buffer) error {
	g.sent.Add(int64((g.Size() - 1) * b.Bytes() / g.Size()))
	return g.Group.AllGather(ctx, b)
}

func (g countingGroup) Send(ctx context.Context, b device.Buffer, to int) error {
	g.sent.Add(int64(b.Bytes()))
	return g.Group.Send(ctx, b, to)
}

// TestCompressionBytes compares the bytes that are sent with the formulas of Kind.Bytes, and the
// statistics with what a worker contributes. P is 60·4 bytes.
func TestCompressionBytes(t *testing.T) {
	const p = 4 * paraboloidSize
	for method, want := range map[string]struct{ sent, contributed func(n int) int }{
		"none": {func(n int) int { return 2 * (n - 1) * p / n }, func(int) int { return p }},
		"fp16": {func(n int) int { return (n - 1) * p / n }, func(int) int { return p / 2 }},
		"bf16": {func(n int) int { return (n - 1) * p / n }, func(int) int { return p / 2 }},
	} {
		for n := 2; n <= 3; n++ {
			sent := make([]atomic.Int64, n)
			err := together(collective.InProcess(n), func(g collective.Group) error {
				exe := newParaboloid(g.Rank(), n, 1)
				s, err := New(context.Background(), Config{GradientCompression: method}, nil, countingGroup{g, &sent[g.Rank()]})
				if err != nil {
					return err
				}
				if err := s.Start(context.Background(), exe, nil); err != nil {
					return err
				}
				if _, err := s.Step(context.Background(), exe, Step{Batch: 1, Batches: 1, Update: paraboloidUpdate(1)}); err != nil {
					return err
				}
				if got := s.Stats(); got.Bytes != want.contributed(n) || got.Buckets != 1 {
					t.Errorf("%s, %d ranks: statistics %+v, want %d bytes of 1 bucket", method, n, got, want.contributed(n))
				}
				if e, ok := s.(SentEstimator); ok != (method != "none") {
					t.Errorf("%s: the strategy is a SentEstimator: %v", method, ok)
				} else if got := float64(want.sent(n)); ok && !(e.SentBytes(1) >= got && e.SentBytes(1) < got+2) { // want.sent rounds two numbers down
					t.Errorf("%s, %d ranks: the formula gives %g bytes, want %d", method, n, e.SentBytes(1), want.sent(n))
				}
				return s.Close()
			})
			if err != nil {
				t.Fatal(err)
			}
			for r := range sent {
				if got := int(sent[r].Load()); got != want.sent(n) {
					t.Errorf("%s: rank %d of %d sent %d bytes, want %d", method, r, n, got, want.sent(n))
				}
			}
		}
	}
}

// TestCompressionOfOneWorker: one worker exchanges nothing, so it computes what ddp does.
func TestCompressionOfOneWorker(t *testing.T) {
	want := trainParaboloid(t, Config{}, 1, 5, 0, 10, false)
	for _, method := range compressions {
		if got := trainParaboloid(t, Config{GradientCompression: method}, 1, 5, 3, 10, false); !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", method, got, want)
		}
	}
}

// TestCompressionOfMissingRank: a rank that is gone ends the exchange of the others.
func TestCompressionOfMissingRank(t *testing.T) {
	for _, method := range compressions {
		groups := collective.InProcess(3)
		err := together(groups, func(g collective.Group) error {
			s, err := New(context.Background(), Config{GradientCompression: method}, nil, g)
			if err != nil {
				return err
			}
			exe := newParaboloid(g.Rank(), 3, 1)
			if err := s.Start(context.Background(), exe, nil); err != nil {
				return err
			}
			if g.Rank() == 2 {
				return errors.Join(g.Close(), s.Close())
			}
			_, err = s.Step(context.Background(), exe, Step{Batch: 1, Batches: 1, Update: paraboloidUpdate(1)})
			if err == nil || !strings.Contains(err.Error(), "reduce gradient bucket 0: ") {
				return fmt.Errorf("%s: rank %d got error %w, want one of bucket 0", method, g.Rank(), err)
			}
			return s.Close()
		})
		if err != nil {
			t.Error(err)
		}
	}
}
