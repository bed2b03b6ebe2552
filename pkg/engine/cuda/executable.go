package cuda

import (
	"errors"
	"fmt"

	"lockstep/pkg/engine"
	"lockstep/pkg/engine/cuda/internal/number"
	"lockstep/pkg/engine/cuda/kernels"
	driver "lockstep/pkg/internal/clib/cuda"
	"lockstep/pkg/internal/clib/cudnn"
	"lockstep/pkg/internal/device"
	"lockstep/pkg/internal/plan"
)

type executable struct {
	engine  *Engine
	gpu     *gpu
	program *plan.Program
	loweredProgram
	low   device.ElementType // of activations
	store *tensorStore

	memory   executableMemory
	schedule commandSchedule
	exchange gradientExchangeState
	update   optimizerLayout
	data     inputFeed
	profile  stepTimes
	last     lastStepResults

	notices []string
	closed  bool
}

// executableMemory contains the memory blocks of an executable and the locations of the
// tensors in them. Parameters and states are in the store.
type executableMemory struct {
	locations []tensorLocation // by tensor
	bases     [noSpace]driver.Ptr

	arena, fixed, grads, scratch, workspace, control, backup, staging memoryBlock

	cacheFlush memoryBlock // cleared before timed commands, see minRunMilliseconds; freed after tuning
	gapless    memoryBlock // see allocateGaplessCopies; not allocated if no convolution uses it

	hostControl, result pinnedMemory
}

type commandSchedule struct {
	commands [][]command        // by task
	forward  int                // number of tasks of the forward pass
	picks    map[int]chosenPlan // the convolutions' plans, by task
	packs    []*cudnn.VariantPack
	replays  map[replayKey]*stepReplay
}

// gradientExchangeState contains the state for exchanging gradients and statistics with other
// workers, and for accumulating the gradients of several batches.
type gradientExchangeState struct {
	gradAt     map[string]region // by parameter
	buckets    []gradientBucket
	lossAt     int           // index of the element of grads that contains the loss
	norms      normSyncState // for synchronized batch norms
	sums       memoryBlock   // sums of the gradients of an update's batches; allocated when first needed
	hostGrads  pinnedMemory  // copy of grads on the host, for exchanges on the host
	fork, join driver.Event
}

// optimizerLayout describes where parameters and gradients are, for the optimizer's kernels.
type optimizerLayout struct {
	segments parameterSegments
	layers   kernels.LayerSet // of segments; their memory is norms
	norms    memoryBlock      // allocated when a rule first needs norms
}

// inputFeed contains an executable's inputs and the sources of their values.
type inputFeed struct {
	inputs []*stagedInput
	fed    driver.Event // recorded after the copies of a step's inputs

	source engine.Source   // has the batch after that of the next step; nil: none, or batches of sample indexes
	ahead  prefetchedBatch // the batch that the last step took from source

	dataset                  *residentDataset // the training set on the GPU, or nil
	images, targets, samples memoryBlock      // memory of dataset
}

// prefetchedBatch is a batch that a step has taken from a source for the step after it.
type prefetchedBatch struct {
	taken bool // whether the step has asked the source
	ok    bool // whether the source had a batch; its inputs are copied to the GPU
}

type stepTimes struct {
	begin, forwardEnd, backwardEnd, end driver.Event
	shares                              [3]float64 // last measured fractions of forward, backward and optimizer in the time of a step
}

type lastStepResults struct {
	loss    float64
	control kernels.ControlBlock
	scale   float64 // loss scale with which the step's gradients were computed
	clip    float64 // factor by which the update multiplied the gradients
}

// gradientBucket is a part of the flat gradient buffer that ranks exchange in one operation.
type gradientBucket struct {
	offset, size int          // in elements
	ready        int          // index of the task after which all its gradients are final
	sent         driver.Event // recorded after its copy to the host
	filled       driver.Event // recorded after its gradients are final
}

// do runs f on the engine's thread, unless the executable is closed or the GPU is lost.
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

func (x *executable) Program() *plan.Program { return x.program }

func (x *executable) Loss() float64 { return x.last.loss }

// Output copies an output of the last Step to dst, in logical order.
func (x *executable) Output(name string, dst []float32) error {
	err := x.do(func() error {
		for _, id := range x.program.Outputs {
			t := x.program.Tensors[id]
			if t.Name != name {
				continue
			}
			if len(dst) != t.Elements() {
				return fmt.Errorf("got a slice of %d values, want %d for shape %v", len(dst), t.Elements(), t.Shape)
			}
			p := x.memory.locations[id]
			data, err := x.gpu.readMemory(x.tensorAddress(id), int64(p.bytes()))
			if err != nil {
				return err
			}
			unpackFromLayout(p.layout, dst, number.Decode(p.typ, data))
			return nil
		}
		return errors.New("the program has no such output")
	})
	if err != nil {
		return fmt.Errorf("read output %q: %w", name, err)
	}
	return nil
}

// MemoryBytes returns the size of the executable's GPU memory, including parameters, states and
// slots that it shares with other executables.
func (x *executable) MemoryBytes() int64 {
	n := x.store.bytes() + x.memory.workspace.bytes + x.memory.gapless.bytes
	for _, b := range x.memoryBlocks() {
		n += b.bytes
	}
	return n
}

// Close frees the executable's memory, except for memory that other executables still use.
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
		errs = append(errs, g.freePinned(x.data.dataset.host))
	}
	for _, p := range []pinnedMemory{x.memory.hostControl, x.memory.result, x.exchange.hostGrads, x.exchange.norms.host} {
		errs = append(errs, g.freePinned(p))
	}
	for _, in := range x.data.inputs {
		errs = append(errs, g.freePinned(in.buffers[0].host), g.freePinned(in.buffers[1].host))
	}
	for _, b := range append(x.memoryBlocks(), &x.memory.workspace, &x.memory.cacheFlush, &x.memory.gapless) {
		errs = append(errs, g.free(*b))
		*b = memoryBlock{}
	}
	if x.store != nil && x.store.users > 0 {
		errs = append(errs, x.store.release())
	}
	return errors.Join(errs...)
}
