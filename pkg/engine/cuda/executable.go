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
	low   device.Type // of activations
	store *store

	memory   memory
	schedule schedule
	exchange exchange
	update   updateLayout
	data     inputFeed
	profile  stepTimes
	last     lastStep

	notices []string // created by Load, see Notices
	closed  bool
}

// memory contains an executable's memory, except the store of the parameters, and the
// locations of tensors in it.
type memory struct {
	locations []location // by tensor
	bases     [noSpace]driver.Ptr

	arena, fixed, grads, scratch, workspace, control, backup, staging block

	cacheFlush block // cleared before what is timed, see timeOf; freed after tuning
	packed     block // see reservePacked; not allocated if no convolution uses it

	hostControl, result pinned
}

// schedule contains the commands of an executable's steps.
type schedule struct {
	commands [][]command    // by task
	forward  int            // number of tasks of the forward pass
	picks    map[int]chosen // the convolutions' plans, by task
	packs    []*cudnn.Pack
	replays  map[replayKey]*replay
}

// exchange contains what an executable needs to exchange gradients and statistics with
// other workers, and to accumulate the gradients of several batches.
type exchange struct {
	gradAt     map[string]region // by parameter
	buckets    []bucket
	lossAt     int       // element of grads that holds the loss
	norms      normSyncs // of synchronized batch norms
	sums       block     // gradients of an update's batches before the last; allocated for the first such update
	hostGrads  pinned    // copy of grads on the host, for exchanges there
	fork, join driver.Event
}

// updateLayout describes the layout of parameters to the optimizer's kernels.
type updateLayout struct {
	segments segments
	layers   kernels.Layers // of segments, with their memory in norms
	norms    block          // allocated for the first rule that needs norms
}

// inputFeed contains the sources of an executable's inputs.
type inputFeed struct {
	inputs []*input
	ahead  func() map[string][]float32 // see Ahead
	fed    driver.Event                // recorded after the copies of a step's inputs

	dataset                  *resident // the training set on the GPU, or nil
	images, targets, samples block     // memory of dataset
}

// stepTimes measures the parts of a step.
type stepTimes struct {
	begin, forwardEnd, backwardEnd, end driver.Event
	shares                              [3]float64 // of forward, backward and optimizer in a step, as last measured
}

// lastStep contains the results of the last step on the host.
type lastStep struct {
	loss    float64
	control kernels.Control
	scale   float64 // loss scale in the step's gradients
	clip    float64 // factor by which the update multiplied the gradients
}

// bucket is a part of the flat gradients that is reduced in one operation.
type bucket struct {
	offset, size int // elements
	ready        int // index of the task after which its gradients are final
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

// Program returns the program that was loaded.
func (x *executable) Program() *plan.Program { return x.program }

// Loss returns the loss of the last Step.
func (x *executable) Loss() float64 { return x.last.loss }

// Output copies an output of the last Step to dst, in logical order. It returns an error if
// the program has no output name or dst has another length.
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
			p := x.memory.locations[id]
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

// MemoryBytes returns the size of the executable's GPU memory in bytes, including shared
// parameters, states and slots.
func (x *executable) MemoryBytes() int64 {
	n := x.store.bytes() + x.memory.workspace.bytes + x.memory.packed.bytes
	for _, b := range x.blocks() {
		n += b.bytes
	}
	return n
}

// Close frees the executable's memory, except what it shares with others.
func (x *executable) Close() error {
	err := x.engine.thread.do(func() error { return x.close() })
	if errors.Is(err, errClosed) {
		return nil // the engine was closed first and has freed the memory
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
	for _, p := range x.schedule.replays {
		errs = append(errs, p.close(g))
	}
	for _, p := range x.schedule.packs {
		errs = append(errs, p.Close())
	}
	for _, c := range x.schedule.picks {
		errs = append(errs, c.plan.Close())
	}
	events := []driver.Event{x.profile.begin, x.profile.forwardEnd, x.profile.backwardEnd, x.profile.end, x.exchange.fork, x.exchange.join, x.data.fed}
	for _, b := range x.exchange.buckets {
		events = append(events, b.sent, b.filled)
	}
	for _, e := range events {
		if e != 0 {
			errs = append(errs, g.driver.EventDestroy(e))
		}
	}
	if x.data.dataset != nil {
		errs = append(errs, g.unpin(x.data.dataset.host))
	}
	for _, p := range []pinned{x.memory.hostControl, x.memory.result, x.exchange.hostGrads, x.exchange.norms.host} {
		errs = append(errs, g.unpin(p))
	}
	for _, in := range x.data.inputs {
		errs = append(errs, g.unpin(in.buffers[0].host), g.unpin(in.buffers[1].host))
	}
	for _, b := range append(x.blocks(), &x.memory.workspace, &x.memory.cacheFlush, &x.memory.packed) {
		errs = append(errs, g.free(*b))
		*b = block{}
	}
	if x.store != nil && x.store.users > 0 {
		errs = append(errs, x.store.release())
	}
	return errors.Join(errs...)
}
