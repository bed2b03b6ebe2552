package strategy

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"lockstep/pkg/collective"
	"lockstep/pkg/engine"
	"lockstep/pkg/internal/clib/clibtest"
	"lockstep/pkg/internal/clib/cuda"
	"lockstep/pkg/internal/clib/nccl"
	"lockstep/pkg/internal/device"
)

// gpu is a rank's simulated GPU, with a thread that holds its context.
type gpu struct {
	machine *clibtest.Machine
	driver  *cuda.Driver
	library *nccl.Library
	missing error // in place of library
	uuid    byte
	stream  cuda.Stream
	calls   chan func()
}

// newGPU starts simulated GPU number i of a network.
func newGPU(t *testing.T, network *clibtest.NCCLNetwork, i int) *gpu {
	t.Helper()
	m := clibtest.New(clibtest.Options{Network: network, Devices: i + 1})
	libraries, err := m.OpenStack()
	if err != nil {
		t.Fatal(err)
	}
	g := &gpu{machine: m, driver: libraries.Driver, library: libraries.NCCL, uuid: byte(i) + 1, calls: make(chan func())}
	go func() {
		runtime.LockOSThread()
		for f := range g.calls {
			f()
		}
	}()
	t.Cleanup(func() { close(g.calls) })
	err = g.Do(func() error {
		c, err := g.driver.PrimaryCtxRetain(0)
		if err != nil {
			return err
		}
		if err := g.driver.CtxSetCurrent(c); err != nil {
			return err
		}
		g.stream, err = g.driver.StreamCreate(cuda.StreamNonBlocking, 0)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// accelerator returns g as an engine has it.
func (g *gpu) accelerator() *engine.Accelerator {
	return &engine.Accelerator{
		UUID: [16]byte{15: g.uuid}, Do: g.Do, RunOnNewThread: g.RunOnNewThread,
		NCCL: func() (*nccl.Library, error) { return g.library, g.missing },
	}
}

func (g *gpu) Do(f func() error) error {
	ended := make(chan error)
	g.calls <- func() { ended <- f() }
	return <-ended
}

func (g *gpu) RunOnNewThread(f func() error) error {
	ended := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the context
		if err := g.driver.CtxSetCurrent(1); err != nil {
			ended <- err
			return
		}
		ended <- f()
	}()
	return <-ended
}

// gpus returns a simulated GPU for each of n ranks.
func gpus(t *testing.T, n int) []*gpu {
	t.Helper()
	network := clibtest.NewNCCLNetwork()
	t.Cleanup(network.Close)
	all := make([]*gpu, n)
	for i := range all {
		all[i] = newGPU(t, network, i)
	}
	return all
}

// exchanged copies v to the GPU's memory, calls hand to enqueue an exchange of it, and returns
// the resulting values.
func (g *gpu) exchanged(v []byte, hand func(p uintptr, s device.Stream) error) (out []byte, err error) {
	err = g.Do(func() error {
		p, err := g.driver.MemAlloc(int64(len(v)))
		if err != nil {
			return err
		}
		memory, err := g.machine.Bytes(p, int64(len(v)))
		if err != nil {
			return err
		}
		copy(memory, v)
		if err := hand(uintptr(p), device.Stream{Handle: uintptr(g.stream)}); err != nil {
			return err
		}
		if err := g.driver.StreamSynchronize(g.stream); err != nil {
			return err
		}
		out = slices.Clone(memory)
		return nil
	})
	return out, err
}

// TestNCCL: buckets become the mean over three ranks, and statistics the sum, in the order in
// which they are enqueued. Stats counts the enqueued operations.
func TestNCCL(t *testing.T) {
	all := gpus(t, 3)
	err := together(collective.InProcess(3), func(group collective.Group) error {
		rank, g := group.Rank(), all[group.Rank()]
		n, err := NewNCCL(t.Context(), g.accelerator(), group, NCCLOptions{})
		if err != nil {
			return err
		}
		if !n.Capabilities().Enqueues || n.Name() != "nccl" || n.Wait() != nil {
			return fmt.Errorf("enqueues %v, name %q, wait %w", n.Capabilities().Enqueues, n.Name(), n.Wait())
		}
		bucket := binary.LittleEndian.AppendUint32(nil, math.Float32bits(float32(10*rank)))
		mean, err := g.exchanged(bucket, func(p uintptr, s device.Stream) error {
			return n.ReduceBucket(0, device.Buffer{Pointer: p, Type: device.F32, Elements: 1}, s)
		})
		if err != nil {
			return err
		}
		if v := math.Float32frombits(binary.LittleEndian.Uint32(mean)); v != 10 { // of 0, 10 and 20
			return fmt.Errorf("rank %d: the mean is %v", rank, v)
		}
		statistics := binary.LittleEndian.AppendUint64(nil, math.Float64bits(1))
		statistics = binary.LittleEndian.AppendUint64(statistics, math.Float64bits(float64(rank)+0x1p-40)) // which float32 would lose
		sum, err := g.exchanged(statistics, func(p uintptr, s device.Stream) error {
			return n.SumStatistics(device.Buffer{Pointer: p, Type: device.F64, Elements: 2}, s)
		})
		if err != nil {
			return err
		}
		count, v := math.Float64frombits(binary.LittleEndian.Uint64(sum)), math.Float64frombits(binary.LittleEndian.Uint64(sum[8:]))
		if count != 3 || v != 3+3*0x1p-40 {
			return fmt.Errorf("rank %d: the sums are %v and %v", rank, count, v)
		}
		if s := n.Stats(); s.Buckets != 1 || s.Shared != 1 || s.Bytes != 4+16 || s.First.IsZero() {
			return fmt.Errorf("stats are %+v", s)
		}
		if s := n.Stats(); s != (Stats{}) {
			return fmt.Errorf("then stats are %+v", s)
		}
		for want, refused := range map[string]func() error{
			"reduce bucket 4 by NCCL: got host memory, want GPU memory": func() error { return n.ReduceBucket(4, device.Buffer{F32: make([]float32, 1)}, device.Stream{}) },
			"got values of type fp32, want fp64":                        func() error { return n.SumStatistics(device.Buffer{Pointer: 1, Type: device.F32}, device.Stream{}) },
			"ncclAllReduce": func() error {
				return n.SumStatistics(device.Buffer{Pointer: 1, Type: device.F64, Elements: 1}, device.Stream{})
			},
			"reduce bucket 1 by NCCL: ncclAllReduce": func() error {
				return n.ReduceBucket(1, device.Buffer{Pointer: 1, Type: device.F32, Elements: 1}, device.Stream{})
			},
		} {
			if err := g.Do(refused); err == nil || !strings.Contains(err.Error(), want) {
				return fmt.Errorf("want %q: %w", want, err)
			}
		}
		if err := errors.Join(n.Close(), n.Close()); err != nil {
			return err
		}
		for _, refused := range []func() error{
			func() error {
				return n.ReduceBucket(0, device.Buffer{Pointer: 1, Type: device.F32, Elements: 1}, device.Stream{})
			},
			func() error {
				return n.SumStatistics(device.Buffer{Pointer: 1, Type: device.F64, Elements: 1}, device.Stream{})
			},
		} {
			if err := refused(); err == nil || !strings.Contains(err.Error(), "the strategy is closed") {
				return fmt.Errorf("after Close: %w", err)
			}
		}
		if calls := strings.Join(g.machine.Calls(), "\n"); strings.Count(calls, "ncclCommDestroy") != 1 {
			return errors.New("the communicator was not destroyed once")
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// TestNew: all ranks use NCCL if every rank has a separate GPU and the library, else the group
// on the host.
func TestNew(t *testing.T) {
	broken := errors.New("libnccl.so.2 is of another world")
	for _, c := range []struct {
		name   string
		ranks  int
		change func(all []*gpu)
		want   string // what carries the gradients; empty: an error
	}{
		{"a GPU each", 3, func([]*gpu) {}, "nccl"},
		{"alone", 1, func([]*gpu) {}, "in-process"},
		{"one GPU", 3, func(all []*gpu) { all[2].uuid = all[0].uuid }, "in-process"},
		{"one without the library", 2, func(all []*gpu) { all[1].library, all[1].missing = nil, broken }, "in-process"},
		{"no id", 2, func(all []*gpu) {
			all[0].library.GetUniqueID = func() (nccl.UniqueID, error) { return nccl.UniqueID{}, broken }
		}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			all := gpus(t, c.ranks)
			c.change(all)
			var mu sync.Mutex
			var said []string
			err := together(collective.InProcess(c.ranks), func(group collective.Group) error {
				x, err := New(t.Context(), Config{}, all[group.Rank()].accelerator(), group)
				if err != nil {
					mu.Lock()
					defer mu.Unlock()
					said = append(said, err.Error())
					return nil
				}
				if x.Name() != c.want {
					err = fmt.Errorf("rank %d exchanges by %q", group.Rank(), x.Name())
				}
				return errors.Join(err, x.Close())
			})
			if err != nil {
				t.Error(err)
			}
			if (len(said) > 0) != (c.want == "") {
				t.Errorf("errors are %q", said)
			}
			slices.Sort(said)
			if c.want == "" && (len(said) != 2 || !strings.Contains(said[0], "create communicator id: failed on 1 of the other ranks") || !strings.Contains(said[1], "create communicator id: "+broken.Error())) {
				t.Errorf("errors are %q", said)
			}
		})
	}
	// Without a GPU, DDP is used.
	x, err := New(t.Context(), Config{}, nil, collective.Single())
	if err != nil {
		t.Fatal(err)
	}
	if d, ok := x.(*DDP); !ok || x.Name() != "none" || !d.Capabilities().Enqueues {
		t.Errorf("%T %v", x, x)
	}
	if err := x.Close(); err != nil {
		t.Error(err)
	}
}

// TestNewNCCLErrors: the error contains the reason why NCCL cannot be used, and the ranks.
func TestNewNCCLErrors(t *testing.T) {
	left := errors.New("not installed")
	for _, c := range []struct {
		name   string
		change func(all []*gpu)
		is     error
		want   []string // by rank
	}{
		{"no library", func(all []*gpu) { all[1].missing = left }, ErrNoNCCL, []string{"failed on 1 of the other ranks", "not installed"}},
		{"one GPU", func(all []*gpu) { all[1].uuid = all[0].uuid }, ErrSharedGPU, []string{"ranks 0 and 1", "ranks 0 and 1"}},
		{"no communicator", func(all []*gpu) {
			for _, g := range all {
				g.library.CommInit = func(int, int, nccl.UniqueID) (nccl.Comm, error) { return 0, left }
			}
		}, left, []string{"exchange gradients by NCCL: not installed", "not installed"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			all := gpus(t, 2)
			c.change(all)
			err := together(collective.InProcess(2), func(group collective.Group) error {
				_, err := NewNCCL(t.Context(), all[group.Rank()].accelerator(), group, NCCLOptions{})
				if !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.want[group.Rank()]) {
					return fmt.Errorf("rank %d says %w", group.Rank(), err)
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	// A rank has left before the others call NewNCCL.
	groups := collective.InProcess(2)
	if err := groups[1].Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := NewNCCL(t.Context(), gpus(t, 1)[0].accelerator(), groups[0], NCCLOptions{}); err == nil || !strings.Contains(err.Error(), "rank 1 has left the group") {
		t.Errorf("a rank has left: %v", err)
	}
}

// TestNCCLWatch: a step that ends in time has no error. A step that waits for a missing rank, or
// whose communicator has an error, ends with an error that names the rank. Later calls return
// the same error.
func TestNCCLWatch(t *testing.T) {
	stuck := errors.New("the network is down")
	for _, c := range []struct {
		name   string
		away   int // a rank that does not come; −1: none
		change func(l *nccl.Library)
		want   []string // nil: nothing is wrong
		close  string   // what Close returns; empty: no error
	}{
		{"in time", -1, func(*nccl.Library) {}, nil, ""},
		{"a missing rank", 1, func(*nccl.Library) {}, []string{"a step took longer than the time-out of 100ms", "rank 1"}, ""},
		{"an error", -1, func(l *nccl.Library) { l.AsyncError = func(nccl.Comm) error { return stuck } }, []string{"exchange gradients by NCCL: the network is down"}, ""},
		{"an error, and no end", -1, func(l *nccl.Library) {
			abort := l.CommAbort
			l.AsyncError = func(nccl.Comm) error { return stuck }
			l.CommAbort = func(c nccl.Comm) error { return errors.Join(abort(c), errors.New("abort: no")) }
		}, []string{"the network is down"}, "abort: no"},
	} {
		t.Run(c.name, func(t *testing.T) {
			all := gpus(t, 3)
			for _, g := range all {
				c.change(g.library)
			}
			options := NCCLOptions{Timeout: 100 * time.Millisecond, Poll: 5 * time.Millisecond, SearchTimeout: 500 * time.Millisecond}
			if c.want == nil {
				options.Timeout = 0 // what most take
			}
			err := together(collective.InProcess(3), func(group collective.Group) error {
				g := all[group.Rank()]
				n, err := NewNCCL(t.Context(), g.accelerator(), group, NCCLOptions{})
				if err != nil {
					return err
				}
				n.options = options.withDefaults() // which the making of the communicator may exceed
				if group.Rank() == c.away {
					return n.Close()
				}
				stop := n.Watch(t.Context())
				_, err = g.exchanged(make([]byte, 8), func(p uintptr, s device.Stream) error {
					if c.want != nil && c.away < 0 { // the rank is at other things meanwhile
						time.Sleep(100 * time.Millisecond)
						return nil
					}
					return n.SumStatistics(device.Buffer{Pointer: p, Type: device.F64, Elements: 1}, s)
				})
				watched := stop()
				if c.away < 0 && err != nil { // a first exchange without one rank fails as it is aborted
					return err
				}
				for _, w := range c.want {
					if watched == nil || strings.Count(watched.Error(), w) != 1 {
						return fmt.Errorf("rank %d does not say %q once: %w", group.Rank(), w, watched)
					}
				}
				if c.want == nil {
					return errors.Join(watched, n.Close())
				}
				if !errors.Is(n.Wait(), watched) {
					return fmt.Errorf("then Wait says %w", n.Wait())
				}
				if err := n.ReduceBucket(0, device.Buffer{Pointer: 1, Type: device.F32}, device.Stream{}); !errors.Is(err, watched) {
					return fmt.Errorf("then ReduceBucket says %w", err)
				}
				if err := n.Close(); c.close != "" && (err == nil || !strings.Contains(err.Error(), c.close)) || c.close == "" && err != nil {
					return fmt.Errorf("Close returns %w, want %q", err, c.close)
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// TestNCCLAbortWithGraphs: if a captured exchange waits for a missing rank, the watchdog ends the
// step, although NCCL's abort waits until the graph is destroyed, which happens after the
// step.
func TestNCCLAbortWithGraphs(t *testing.T) {
	all := gpus(t, 2)
	options := NCCLOptions{Timeout: 100 * time.Millisecond, Poll: 5 * time.Millisecond, SearchTimeout: 30 * time.Second}
	err := together(collective.InProcess(2), func(group collective.Group) error {
		g := all[group.Rank()]
		n, err := NewNCCL(t.Context(), g.accelerator(), group, NCCLOptions{})
		if err != nil {
			return err
		}
		n.options = options // which the making of the communicator may exceed
		sum := func(p uintptr, s device.Stream) error {
			return n.SumStatistics(device.Buffer{Pointer: p, Type: device.F64, Elements: 1}, s)
		}
		if _, err := g.exchanged(make([]byte, 8), sum); err != nil {
			return err
		}
		if group.Rank() == 1 {
			return errors.Join(group.Close(), n.Close())
		}
		var exec cuda.GraphExec
		stop := n.Watch(t.Context())
		_, err = g.exchanged(make([]byte, 8), func(p uintptr, s device.Stream) error {
			if err := g.driver.StreamBeginCapture(g.stream, cuda.CaptureThreadLocal); err != nil {
				return err
			}
			if err := sum(p, s); err != nil {
				return err
			}
			graph, err := g.driver.StreamEndCapture(g.stream)
			if err != nil {
				return err
			}
			if exec, err = g.driver.GraphInstantiate(graph); err != nil {
				return err
			}
			return errors.Join(g.driver.GraphDestroy(graph), g.driver.GraphLaunch(exec, g.stream))
		})
		if err != nil {
			return err
		}
		if watched := stop(); watched == nil || !strings.Contains(watched.Error(), "rank 1") {
			return fmt.Errorf("the watchdog says %w", watched)
		}
		return errors.Join(g.Do(func() error { return g.driver.GraphExecDestroy(exec) }), n.Close())
	})
	if err != nil {
		t.Error(err)
	}
}

// TestNewNCCLTimeout: after the time-out, the error names the rank that did not join the
// communicator.
func TestNewNCCLTimeout(t *testing.T) {
	all := gpus(t, 2)
	left := errors.New("killed")
	all[1].library.CommInit = func(int, int, nccl.UniqueID) (nccl.Comm, error) { return 0, left }
	options := NCCLOptions{Timeout: 50 * time.Millisecond, SearchTimeout: 10 * time.Second}
	err := together(collective.InProcess(2), func(group collective.Group) error {
		_, err := NewNCCL(t.Context(), all[group.Rank()].accelerator(), group, options)
		if group.Rank() == 1 {
			if !errors.Is(err, left) {
				return fmt.Errorf("rank 1 says %w", err)
			}
			return group.Close()
		}
		if err == nil || !strings.Contains(err.Error(), "create communicator: not all ranks joined within 50ms") || !strings.Contains(err.Error(), "rank 1") {
			return fmt.Errorf("rank 0 says %w", err)
		}
		return all[0].Do(func() error { return nil }) // the engine's thread is free
	})
	if err != nil {
		t.Error(err)
	}
}

// TestNewNCCLTooLate: a communicator that is created after the time-out is aborted.
func TestNewNCCLTooLate(t *testing.T) {
	g := gpus(t, 1)[0]
	join, late := g.library.CommInit, make(chan struct{})
	g.library.CommInit = func(ranks, rank int, id nccl.UniqueID) (nccl.Comm, error) {
		<-late
		return join(ranks, rank, id)
	}
	_, err := NewNCCL(t.Context(), g.accelerator(), collective.Single(), NCCLOptions{Timeout: 50 * time.Millisecond})
	close(late)
	if err == nil || !strings.Contains(err.Error(), "not all ranks joined within 50ms") {
		t.Fatal(err)
	}
	for begin := time.Now(); !strings.Contains(strings.Join(g.machine.Calls(), "\n"), "ncclCommAbort"); time.Sleep(time.Millisecond) {
		if time.Since(begin) > 10*time.Second {
			t.Fatal("the communicator was not aborted")
		}
	}
}

// TestNCCLCloseIsBounded: if a graph that captured an exchange is never destroyed, Close returns
// an error instead of waiting forever.
func TestNCCLCloseIsBounded(t *testing.T) {
	g := gpus(t, 1)[0]
	destroy, free := g.library.CommDestroy, make(chan struct{})
	g.library.CommDestroy = func(c nccl.Comm) error {
		<-free
		return destroy(c)
	}
	defer close(free)
	n, err := NewNCCL(t.Context(), g.accelerator(), collective.Single(), NCCLOptions{SearchTimeout: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- n.Close() }()
	select {
	case err := <-ended:
		if err == nil || !strings.Contains(err.Error(), "the communicator was not destroyed within 20ms") {
			t.Error(err)
		}
	case <-time.After(15 * time.Second):
		t.Error("Close waits for the communicator")
	}
	if err := n.Close(); err != nil {
		t.Error(err)
	}
}

// TestNewNCCLCanceled: an interrupt ends the wait for other ranks.
func TestNewNCCLCanceled(t *testing.T) {
	g := gpus(t, 1)[0]
	ctx, cancel := context.WithCancel(t.Context())
	join := g.library.CommInit
	g.library.CommInit = func(_, rank int, id nccl.UniqueID) (nccl.Comm, error) {
		cancel()
		return join(2, rank, id) // the other never comes
	}
	if _, err := NewNCCL(ctx, g.accelerator(), collective.Single(), NCCLOptions{}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestNCCLWatchEnds: the watchdog ends when the context of the step ends.
func TestNCCLWatchEnds(t *testing.T) {
	n, err := NewNCCL(t.Context(), gpus(t, 1)[0].accelerator(), collective.Single(), NCCLOptions{Poll: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	n.options.Timeout = time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := n.Watch(ctx)(); err != nil {
		t.Error(err)
	}
	if err := n.Close(); err != nil {
		t.Error(err)
	}
}

// TestAccumulatorOfADevice: an engine that adds up gradients itself asks for the number of the
// batch, and for the GradSync that exchanges the sum.
func TestAccumulatorOfADevice(t *testing.T) {
	d := NewDDP(t.Context(), collective.Single())
	a := NewAccumulator(d)
	a.Begin(2)
	for want := 1; want <= 2; want++ {
		c := a.Capabilities()
		if c.Accumulation.Step != want || c.Accumulation.Steps != 2 || c.Accumulation.Mean != engine.GradSync(d) {
			t.Errorf("step %+v, want %d of 2 by DDP", c.Accumulation, want)
		}
		if c.Reduced != nil {
			t.Error("reductions are reported before the end")
		}
		c.Accumulation.Done()
	}
	d.reduced = []engine.Reduction{{Bucket: 3}}
	if r := a.Capabilities().Reduced(); len(r) != 1 || r[0].Bucket != 3 {
		t.Errorf("reduced %v", r)
	}
	if all, err := a.Capabilities().ShareStatistics([]float64{1, 2}); err != nil || !slices.Equal(all, []float64{1, 2}) {
		t.Errorf("statistics %v, %v", all, err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

// failingTensors is an executable whose Get or Set of a tensor fails.
type failingTensors struct {
	engine.Executable
	get, set string
}

func (e failingTensors) Get(name string) ([]float64, error) {
	if name == e.get {
		return nil, errors.New("no memory")
	}
	return []float64{1}, nil
}

func (e failingTensors) Set(name string, _ []float64) error {
	if name == e.set {
		return errors.New("read only")
	}
	return nil
}

// TestBroadcastTensorsErrors: the error names the tensor.
func TestBroadcastTensorsErrors(t *testing.T) {
	for want, e := range map[string]failingTensors{"broadcast b: no memory": {get: "b"}, "broadcast a: read only": {set: "a"}} {
		groups := collective.InProcess(2)
		said := make([]error, 2)
		err := together(groups, func(g collective.Group) error {
			said[g.Rank()] = BroadcastTensors(t.Context(), e, g, []string{"a", "b"})
			return g.Close()
		})
		if err != nil {
			t.Error(err)
		}
		if said[1] == nil || said[1].Error() != want {
			t.Errorf("want %q: %v", want, said[1])
		}
	}
	groups := collective.InProcess(2)
	if err := groups[1].Close(); err != nil {
		t.Fatal(err)
	}
	if err := BroadcastTensors(t.Context(), failingTensors{}, groups[0], []string{"a"}); err == nil || !strings.Contains(err.Error(), "broadcast a: ") {
		t.Error(err)
	}
}
