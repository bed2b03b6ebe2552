package cuda

import (
	"errors"
	"fmt"
	"slices"

	"lockstep/pkg/engine/cuda/internal/number"
	"lockstep/pkg/engine/cuda/kernels"
	driver "lockstep/pkg/internal/clib/cuda"
	"lockstep/pkg/internal/clib/cudnn"
	"lockstep/pkg/internal/device"
	"lockstep/pkg/internal/plan"
)

// executable is a loaded program with its memory.
type executable struct {
	engine  *Engine
	gpu     *gpu
	program *plan.Program
	lowered
	low    device.Type
	store  *store
	places []place // by tensor
	bases  [noSpace]driver.Ptr

	arena, fixed, grads, scratch, workspace, control, backup, staging block
	hold                                                              block // see timeOf; none but while tuning
	packed                                                            block // see reservePacked; none where no convolution uses it

	held                               *resident // the training set, where it lies on the GPU
	heldImage, heldTarget, heldSamples block

	gradAt  map[string]region // by parameter
	buckets []bucket
	lossAt  int // element of grads that holds the loss
	runs    segments
	layers  kernels.Layers // of runs, in norms
	norms   block          // none before a rule takes some
	meet    meetings       // of workers, in synchronised batch norms
	sums    block          // of the gradients of an update's batches before the last; none before there are several
	mirror  pinned         // grads on the host, for exchanges there

	inputs  []*input
	ahead   func() map[string][]float32
	steps   [][]command    // by task
	forward int            // tasks of the forward pass
	picks   map[int]chosen // by task: the convolutions' algorithms
	packs   []*cudnn.Pack
	plays   map[playKey]*play

	notices []string // of Load, see Notices

	begin, middle, third, end driver.Event // between the parts of a step
	fork, join, fed           driver.Event
	hostControl, result       pinned

	loss   float64
	after  kernels.Control // as the last step left it
	scale  float64         // of the loss in the last step's gradients
	clip   float64         // what the last step's update multiplied them by
	shares [3]float64      // of forward, backward and optimiser in a step, as last measured
	closed bool
}

// bucket is a part of the flat gradients that is reduced at once.
type bucket struct {
	offset, size int // elements
	ready        int // the task after which it is final
	sent         driver.Event
	filled       driver.Event
}

// do runs f on the engine's thread, unless the executable is closed.
func (x *executable) do(f func() error) error {
	return x.engine.thread.do(func() error {
		if x.closed {
			return errClosed
		}
		if x.gpu.lost != nil {
			return x.gpu.lost
		}
		return f()
	})
}

// Program is the program that was loaded.
func (x *executable) Program() *plan.Program { return x.program }

// Loss is the loss of the last Step.
func (x *executable) Loss() float64 { return x.loss }

// Output copies an output of the last Step to dst, in logical order.
func (x *executable) Output(name string, dst []float32) error {
	err := x.do(func() error {
		for _, id := range x.program.Outputs {
			t := x.program.Tensors[id]
			if t.Name != name {
				continue
			}
			if len(dst) != t.Elements() {
				return fmt.Errorf("room for %d values, shape %v has %d", len(dst), t.Shape, t.Elements())
			}
			p := x.places[id]
			data, err := x.gpu.read(x.address(id), int64(p.bytes()))
			if err != nil {
				return err
			}
			unpack(p.layout, dst, number.Decode(p.typ, data))
			return nil
		}
		return errors.New("the program has no such output")
	})
	if err != nil {
		return fmt.Errorf("read output %q: %w", name, err)
	}
	return nil
}

// Notices implements engine.Noticer.
func (x *executable) Notices() []string { return slices.Clone(x.notices) }

// MemoryBytes is what the executable holds on the GPU, the parameters, states
// and slots that it may share included.
func (x *executable) MemoryBytes() int64 {
	n := x.store.bytes() + x.workspace.bytes + x.packed.bytes
	for _, b := range x.blocks() {
		n += b.bytes
	}
	return n
}

// Close gives the executable's memory back; what it shares with others stays.
func (x *executable) Close() error {
	err := x.engine.thread.do(func() error { return x.close() })
	if errors.Is(err, errClosed) {
		return nil // the engine has gone before, and its memory with it
	}
	return err
}

func (x *executable) close() error {
	if x.closed {
		return nil
	}
	x.closed = true
	g := x.gpu
	if g.lost != nil {
		return nil
	}
	errs := []error{g.synchronize()}
	for _, p := range x.plays {
		errs = append(errs, p.close(g))
	}
	for _, p := range x.packs {
		errs = append(errs, p.Close())
	}
	for _, c := range x.picks {
		errs = append(errs, c.plan.Close())
	}
	events := []driver.Event{x.begin, x.middle, x.third, x.end, x.fork, x.join, x.fed}
	for _, b := range x.buckets {
		events = append(events, b.sent, b.filled)
	}
	for _, e := range events {
		if e != 0 {
			errs = append(errs, g.driver.EventDestroy(e))
		}
	}
	if x.held != nil {
		errs = append(errs, g.unpin(x.held.host))
	}
	for _, p := range []pinned{x.hostControl, x.result, x.mirror, x.meet.host} {
		errs = append(errs, g.unpin(p))
	}
	for _, in := range x.inputs {
		errs = append(errs, g.unpin(in.ways[0].host), g.unpin(in.ways[1].host))
	}
	for _, b := range append(x.blocks(), &x.workspace, &x.hold, &x.packed) {
		errs = append(errs, g.free(*b))
		*b = block{}
	}
	if x.store != nil && x.store.users > 0 {
		errs = append(errs, x.store.release())
	}
	return errors.Join(errs...)
}
