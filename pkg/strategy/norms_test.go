package strategy

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"lockstep/pkg/collective"
	"lockstep/pkg/collective/rendezvous"
	"lockstep/pkg/engine"
	"lockstep/pkg/engine/cpu"
	"lockstep/pkg/engine/reference"
	"lockstep/pkg/internal/device"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/nn"
)

// The shapes of normProgram: channels that do not fill the blocks of eight of
// the CPU engine, and pixels that make one more and one less than a tile.
const (
	normIn, normOut     = 3, 10
	normHigh, normWidth = 7, 5
)

// normProgram returns a program for batches of n: x → convolution → batch norm → y →
// convolution → z, and the gradients of the batch norm for the input dy.
func normProgram(n int, relu, sync bool) *plan.Program {
	p := &plan.Program{Loss: -1, Forward: 3}
	add := func(role plan.TensorRole, name string, shape ...int) int {
		p.Tensors = append(p.Tensors, plan.Tensor{Name: name, Shape: shape, Role: role, First: -1, Last: -1})
		id := len(p.Tensors) - 1
		switch role {
		case plan.Input:
			p.Inputs = append(p.Inputs, id)
		case plan.State:
			p.States = append(p.States, id)
		case plan.Output:
			p.Outputs = append(p.Outputs, id)
		}
		return id
	}
	image := func(role plan.TensorRole, name string, c int) int { return add(role, name, n, c, normHigh, normWidth) }
	x, dy := image(plan.Input, "x", normIn), image(plan.Input, "dy", normOut)
	w, v := add(plan.Input, "w", normOut, normIn, 3, 3), add(plan.Input, "v", 2, normOut, 3, 3)
	gamma, beta := add(plan.Input, "gamma", normOut), add(plan.Input, "beta", normOut)
	mean, variance := add(plan.State, "mean", normOut), add(plan.State, "variance", normOut)
	h, y := image(plan.Activation, "h", normOut), image(plan.Activation, "y", normOut)
	saved, inv := add(plan.Activation, "saved", normOut), add(plan.Activation, "inv", normOut)
	z, dh := image(plan.Output, "z", 2), image(plan.Output, "dh", normOut)
	dgamma, dbeta := add(plan.Output, "dgamma", normOut), add(plan.Output, "dbeta", normOut)
	window := plan.KernelAttr{Stride: []int{1, 1}, Pad: []int{1, 1}}
	back := []int{h, gamma, saved, inv, dy}
	if relu {
		back = append(back, y, beta)
	}
	p.Kernels = []plan.Kernel{
		{Op: plan.OpConv, Name: "first", In: []int{x, w}, Out: []int{h}, Attr: window},
		{
			Op: plan.OpBatchNorm, Name: "norm", In: []int{h, gamma, beta, mean, variance}, Out: []int{y, saved, inv},
			Attr: plan.KernelAttr{Training: true, ReLU: relu, Sync: sync, Epsilon: 1e-5, Momentum: 0.1},
		},
		{Op: plan.OpConv, Name: "second", In: []int{y, v}, Out: []int{z}, Attr: window},
		{Op: plan.OpBatchNormBackward, Name: "norm", In: back, Out: []int{dh, dgamma, dbeta}, Attr: plan.KernelAttr{ReLU: relu, Sync: sync}, Backward: true},
	}
	for at, k := range p.Kernels {
		for _, id := range slices.Concat(k.In, k.Out) {
			if p.Tensors[id].First < 0 {
				p.Tensors[id].First = at
			}
			p.Tensors[id].Last = at
		}
	}
	return p
}

// normImages is the global batch, which the workers share.
const normImages = 6

// ownNorms is a DDP that does not exchange statistics.
type ownNorms struct{ *DDP }

func (s ownNorms) Capabilities() engine.SyncCapabilities {
	return engine.SyncCapabilities{ShareStatistics: func(own []float64) ([]float64, error) { return own, nil }}
}

// normStep runs normProgram on n images, starting with image lo, and returns its outputs and
// running statistics by name.
func normStep(e engine.Engine, sync engine.GradSync, lo, n int, relu, synchronised bool) (map[string][]float64, error) {
	p := normProgram(n, relu, synchronised)
	exe, err := e.Load(p, nil)
	if err != nil {
		return nil, err
	}
	for seed, id := range p.Inputs {
		t := p.Tensors[id]
		size := t.Elements()
		if t.Shape[0] == n && len(t.Shape) == 4 && t.Shape[2] == normHigh {
			size = size / n * normImages
		}
		random := rand.New(rand.NewPCG(1, uint64(seed)))
		v := make([]float32, size)
		for i := range v {
			v[i] = float32(1 + random.NormFloat64())
		}
		if each := size / normImages; size > t.Elements() {
			v = v[lo*each:][:t.Elements()]
		}
		if err := exe.SetInput(t.Name, v); err != nil {
			return nil, err
		}
	}
	for range 2 { // what the first leaves in memory shows in the second
		if _, err := exe.Step(context.Background(), sync, nil); err != nil {
			return nil, err
		}
	}
	out := map[string][]float64{}
	for _, id := range p.Outputs {
		t := p.Tensors[id]
		v := make([]float32, t.Elements())
		if err := exe.Output(t.Name, v); err != nil {
			return nil, err
		}
		for _, f := range v {
			out[t.Name] = append(out[t.Name], float64(f))
		}
	}
	for _, id := range p.States {
		if out[p.Tensors[id].Name], err = exe.Get(p.Tensors[id].Name); err != nil {
			return nil, err
		}
	}
	return out, exe.Close()
}

// openNorm opens an engine for the tests of synchronised batch norms.
func openNorm(o engine.Options) (engine.Engine, error) {
	if o.Device == "reference" {
		return reference.New(o)
	}
	return cpu.New(o)
}

// apart returns the largest difference of two lists, relative to the largest value.
func apart(a, b []float64) float64 {
	var d, size float64
	for i := range a {
		d, size = max(d, math.Abs(a[i]-b[i])), max(size, math.Abs(a[i]))
	}
	if len(a) != len(b) {
		return math.Inf(1)
	}
	return d / size
}

// TestSynchronisedNorm: three workers with 3, 1 and 2 images compute the same as one worker with
// all 6, and have the same running statistics bit by bit. Without exchanged statistics they do
// not.
func TestSynchronisedNorm(t *testing.T) {
	shards := []int{3, 1, 2}
	for _, tt := range []struct {
		name      string
		tolerance float64 // outputs are read as float32
		change    func(o *engine.Options)
	}{
		{"float64", 1e-7, func(o *engine.Options) { o.Device, o.Precision = "reference", "fp64" }},
		{"float32", 1e-6, func(o *engine.Options) { o.Device = "reference" }},
		{"cpu", 1e-5, func(*engine.Options) {}},
		{"cpu, 2 threads", 1e-5, func(o *engine.Options) { o.Threads = 2 }},
		{"cpu, Winograd", 1e-5, func(o *engine.Options) { o.Convolution = "winograd" }},
		{"cpu, nothing fused", 1e-5, func(o *engine.Options) { o.Fuse = false }},
	} {
		for _, relu := range []bool{false, true} {
			for _, shared := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s-relu=%v-shared=%v", tt.name, relu, shared), func(t *testing.T) {
					o := engine.DefaultOptions()
					tt.change(&o)
					e, err := openNorm(o)
					if err != nil {
						t.Fatal(err)
					}
					whole, err := normStep(e, nil, 0, normImages, relu, false)
					if err != nil {
						t.Fatal(err)
					}
					got := make([]map[string][]float64, len(shards))
					err = together(collective.InProcess(len(shards)), func(g collective.Group) (err error) {
						e, err := openNorm(o)
						if err != nil {
							return err
						}
						d := NewDDP(context.Background(), g)
						var exchange engine.GradSync = d
						if !shared {
							exchange = ownNorms{d}
						}
						lo := 0
						for _, n := range shards[:g.Rank()] {
							lo += n
						}
						got[g.Rank()], err = normStep(e, exchange, lo, shards[g.Rank()], relu, true)
						return errors.Join(err, d.Close(), e.Close())
					})
					if err := errors.Join(err, e.Close()); err != nil {
						t.Fatal(err)
					}
					joined := map[string][]float64{"dgamma": make([]float64, normOut), "dbeta": make([]float64, normOut)}
					for rank, m := range got {
						for _, name := range []string{"z", "dh"} {
							joined[name] = append(joined[name], m[name]...)
						}
						for _, name := range []string{"dgamma", "dbeta"} { // sums over a worker's own
							for i, v := range m[name] {
								joined[name][i] += v
							}
						}
						for _, name := range []string{"mean", "variance"} {
							joined[name] = m[name]
							if shared && !slices.Equal(m[name], got[0][name]) {
								t.Errorf("running %s of rank %d is %v, of rank 0 %v", name, rank, m[name], got[0][name])
							}
						}
					}
					for name, want := range whole {
						d := apart(want, joined[name])
						if o.Precision == "fp64" && (name == "mean" || name == "variance") {
							d *= 1e5 // these are read as they are
						}
						if shared && !(d <= tt.tolerance) {
							t.Errorf("%s differs by %.3g of its size, limit %g", name, d, tt.tolerance)
						}
						if !shared && name != "dbeta" && !(d > 1e-3) { // without a ReLU dbeta is a sum of dy alone
							t.Errorf("%s differs by %.3g: that statistics are each worker's own is not noticed", name, d)
						}
					}
				})
			}
		}
	}
}

// TestSynchronisedNormAlone: on a single worker, synchronization does not change the bits.
func TestSynchronisedNormAlone(t *testing.T) {
	for _, device := range []string{"reference", "cpu"} {
		o := engine.DefaultOptions()
		o.Device = device
		e, err := openNorm(o)
		if err != nil {
			t.Fatal(err)
		}
		d := NewDDP(context.Background(), collective.Single())
		want, err1 := normStep(e, d, 0, normImages, true, false)
		got, err2 := normStep(e, d, 0, normImages, true, true)
		if err := errors.Join(err1, err2, d.Close(), e.Close()); err != nil {
			t.Fatal(err)
		}
		for name := range want {
			if !slices.Equal(want[name], got[name]) {
				t.Errorf("%s: %s is %v, not %v", device, name, got[name], want[name])
			}
		}
	}
}

// TestStatisticsTakeTheirTurn: with every transport, and whichever goroutine reduces the buckets,
// all ranks call the same operations in the same order and get the statistics of all ranks.
func TestStatisticsTakeTheirTurn(t *testing.T) {
	const world, steps, parts = 3, 40, 4
	for _, transport := range []string{"in-process", "shm", "unix", "tcp"} {
		t.Run(transport, func(t *testing.T) {
			err := together(groupsOver(t, transport, world), func(g collective.Group) (err error) {
				d := NewDDP(context.Background(), g)
				defer func() { err = errors.Join(err, d.Close(), g.Close()) }()
				random := rand.New(rand.NewPCG(uint64(g.Rank()), 1))
				for step := range steps {
					var buckets []device.Buffer
					for part := range parts {
						if random.IntN(4) == 0 {
							time.Sleep(time.Duration(random.IntN(200)) * time.Microsecond)
						}
						own := slices.Repeat([]float64{float64(100*step + 10*part + g.Rank())}, 1+part)
						all, err := d.ShareStatistics(own)
						if err != nil {
							return err
						}
						for i, v := range all {
							if want := float64(100*step + 10*part + i/(1+part)); len(all) != world*(1+part) || v != want {
								return fmt.Errorf("step %d, part %d: rank %d got %v", step, part, g.Rank(), all)
							}
						}
						b := device.Buffer{F32: slices.Repeat([]float32{float32(part + g.Rank())}, 1+1000*part)}
						buckets = append(buckets, b)
						if err := d.ReduceBucket(part, b, device.Stream{}); err != nil {
							return err
						}
					}
					if err := d.Wait(); err != nil {
						return err
					}
					for part, b := range buckets {
						if want := float32(part + 1); b.F32[0] != want || b.F32[len(b.F32)-1] != want { // the mean of 0, 1 and 2 is 1
							return fmt.Errorf("step %d: bucket %d is %v, want %v", step, part, b.F32[0], want)
						}
					}
					s := d.Stats()
					if s.Shared != parts || s.Buckets != parts || s.Bytes != 8*(1+2+3+4)+4*(parts+1000*(1+2+3)) || s.First.IsZero() {
						return fmt.Errorf("stats are %+v", s)
					}
					var order []int
					for _, r := range d.Reduced() {
						order = append(order, r.Bucket)
					}
					if !slices.Equal(order, []int{-1, 0, -1, 1, -1, 2, -1, 3}) {
						return fmt.Errorf("reduced in the order %v", order)
					}
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// groupsOver returns the groups of world ranks in this process, connected by a transport that
// is made for processes.
func groupsOver(t testing.TB, transport string, world int) []collective.Group {
	t.Helper()
	if transport == "in-process" {
		return collective.InProcess(world)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address, ok := l.Addr().(*net.TCPAddr)
	if !ok {
		t.Fatal(l.Addr())
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	groups, errs := make([]collective.Group, world), make([]error, world)
	var wg sync.WaitGroup
	for rank := range world {
		wg.Go(func() {
			env := rendezvous.Env{Rank: rank, World: world, LocalRank: rank, LocalWorld: world, MasterAddr: "127.0.0.1", MasterPort: address.Port, Token: "norms", Collective: transport}
			groups[rank], errs[rank] = rendezvous.Join(t.Context(), env, rendezvous.Options{})
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	return groups
}

// TestStatisticsErrors: if a rank has left, the error of the others contains the layer and the
// rank, and later calls return it too.
func TestStatisticsErrors(t *testing.T) {
	for _, device := range []string{"reference", "cpu"} {
		groups := collective.InProcess(2)
		if err := groups[1].Close(); err != nil {
			t.Fatal(err)
		}
		d := NewDDP(context.Background(), groups[0])
		o := engine.DefaultOptions()
		o.Device = device
		e, err := openNorm(o)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			_, err := normStep(e, d, 0, 2, false, true)
			if err == nil || !strings.Contains(err.Error(), "batch norm norm: exchange statistics: all-gather 1: rank 1 has left the group") {
				t.Errorf("%s: error %v", device, err)
			}
		}
		acc := NewAccumulator(deaf{})
		if _, err := normStep(e, acc, 0, 2, false, true); err == nil || !strings.Contains(err.Error(), "strategy.deaf exchanges only gradients: use sync_batchnorm=false") {
			t.Errorf("%s: error %v", device, err)
		}
		if err := errors.Join(d.Close(), e.Close()); err != nil {
			t.Fatal(err)
		}
		if _, err := d.ShareStatistics([]float64{1}); err == nil || !strings.Contains(err.Error(), "closed") {
			t.Errorf("after Close: error %v", err)
		}
	}
}

// failing is a GradSync that fails after its first bucket, as if a rank were gone.
type failing struct {
	bucket bool
}

var errGone = errors.New("peer is gone")

func (f *failing) ReduceBucket(int, device.Buffer, device.Stream) error {
	f.bucket = true
	return nil
}

func (f *failing) Wait() error { return errGone }

func (f *failing) Capabilities() engine.SyncCapabilities {
	return engine.SyncCapabilities{ShareStatistics: f.shareStatistics}
}

func (f *failing) shareStatistics(own []float64) ([]float64, error) {
	if f.bucket {
		return nil, errGone
	}
	return own, nil
}

// TestStatisticsErrorInBackward: if the exchange fails while a bucket is being reduced, the step
// returns that error once.
func TestStatisticsErrorInBackward(t *testing.T) {
	g := nn.NewGraph(nn.Train)
	x := g.Input("image", 2, 1, 8, 8)
	for i := range 3 {
		name := fmt.Sprint("block", i)
		x = g.ReLU(g.BatchNorm(name+".norm", g.Conv2D(name+".conv", x, 4, 3, 1, 1, false)))
	}
	g.SetLoss(g.BCEWithLogits(g.Conv2D("head", x, 1, 1, 1, 0, true), g.Input("target", 2, 1, 8, 8)))
	p, err := plan.Lower(g, plan.Options{Fuse: true, BucketBytes: 16, SyncBatchNorm: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, device := range []string{"reference", "cpu"} {
		o := engine.DefaultOptions()
		o.Device = device
		e, err := openNorm(o)
		if err != nil {
			t.Fatal(err)
		}
		exe, err := e.Load(p, nil)
		if err != nil {
			t.Fatal(err)
		}
		for name, v := range g.InitialValues(1) {
			if err := exe.Set(name, v); err != nil {
				t.Fatal(err)
			}
		}
		_, err = exe.Step(context.Background(), &failing{}, nil)
		if err == nil || !strings.HasPrefix(err.Error(), "step: ") || !strings.HasSuffix(err.Error(), "batch norm block2.norm: exchange statistics: peer is gone") {
			t.Errorf("%s: error %v", device, err)
		}
		if err := errors.Join(exe.Close(), e.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

// deaf is a GradSync that exchanges nothing.
type deaf struct{}

func (deaf) ReduceBucket(int, device.Buffer, device.Stream) error { return nil }
func (deaf) Wait() error                                          { return nil }
func (deaf) Capabilities() engine.SyncCapabilities                { return engine.SyncCapabilities{} }

// TestCloseEndsAWaitForStatistics calls Close in another goroutine while ShareStatistics waits
// for a missing rank.
func TestCloseEndsAWaitForStatistics(t *testing.T) {
	d := NewDDP(context.Background(), collective.InProcess(2)[0])
	ended := make(chan error)
	go func() {
		_, err := d.ShareStatistics([]float64{1})
		ended <- err
	}()
	time.Sleep(5 * time.Millisecond) // it may be in the exchange by then, or come too late: Close ends both
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil {
		t.Error("a wait for statistics ended without an error")
	}
}

// TestStatisticsInATrace: a trace shows the wait for statistics as communication, not as part of
// the batch norm.
func TestStatisticsInATrace(t *testing.T) {
	file := filepath.Join(t.TempDir(), "trace.json")
	err := together(collective.InProcess(2), func(g collective.Group) (err error) {
		e, err := cpu.New(engine.DefaultOptions())
		if err != nil {
			return err
		}
		d := NewDDP(context.Background(), g)
		defer func() { err = errors.Join(err, d.Close(), e.Close()) }()
		watched, ok := e.(*cpu.Engine)
		if !ok {
			return errors.New("no CPU engine")
		}
		if g.Rank() == 0 {
			if err := watched.Profile(engine.Profile{First: 2, Steps: 1, Trace: file, World: 2}); err != nil {
				return err
			}
		} else {
			time.Sleep(20 * time.Millisecond) // which rank 0 waits
		}
		_, err = normStep(e, d, 3*g.Rank(), 3, true, true)
		calls := map[string]int{}
		for _, k := range watched.KernelTimes() {
			calls[k.Part+" "+k.Kernel] += k.Calls
		}
		if g.Rank() == 0 && calls["exchange wait for statistics"] != 2 {
			err = errors.Join(err, fmt.Errorf("want 2 waits for statistics: %v", calls))
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// BenchmarkShareStatistics measures the exchange of one batch norm with 256 channels between two
// ranks of this process.
func BenchmarkShareStatistics(b *testing.B) {
	for _, transport := range []string{"in-process", "shm", "unix", "tcp"} {
		b.Run(transport, func(b *testing.B) {
			err := together(groupsOver(b, transport, 2), func(g collective.Group) (err error) {
				d := NewDDP(context.Background(), g)
				own := make([]float64, 1+2*256)
				for range b.N {
					if _, err := d.ShareStatistics(own); err != nil {
						return err
					}
				}
				return errors.Join(d.Close(), g.Close())
			})
			if err != nil {
				b.Fatal(err)
			}
		})
	}
}
