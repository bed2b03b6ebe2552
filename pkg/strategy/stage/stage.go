// Package stage runs one stage of a network that is divided among workers, for strategy pipeline:
// a Runner runs the passes of micro-batches in the order of a schedule, and exchanges activations
// and gradients with the other stages.
package stage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"lockstep/pkg/engine"
	"lockstep/pkg/internal/device"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/optim"
	"lockstep/pkg/strategy/internal/shard"
)

// Executable is one worker's stage of a network, for strategy pipeline. It has all parameters and
// running statistics of the network, but only those of its own stage are current between two calls
// of Strategy.Equalize.
//
// Loss returns the sum of the losses of an optimizer step's batches after the last of them. Before
// that it returns 0, because only the last stage computes the loss.
type Executable struct {
	whole             engine.Executable // the complete network: has all parameters and running statistics
	program           *plan.Program     // of the whole network
	stages            []plan.PipelineStage
	stage             int
	forward, backward passExecutable
	// Tensors of the whole program, by ID: the inputs of each pass that are computed by other
	// programs, and the results of the forward pass that other programs read.
	forwardInputs, backwardInputs, results []int

	double bool                 // the engine computes in float64
	inputs map[string][]float32 // inputs of the network in the next batch that the backward pass reads
	free   []*microBatch
	sum    float64 // of the losses of the current optimizer step's batches; 0 except in the last stage
	loss   float64 // see Loss
}

// passExecutable is the executable of one pass, with its capabilities.
type passExecutable struct {
	engine.Executable
	can engine.Capabilities
}

func loadPass(e engine.Engine, p *plan.Program, whole engine.Executable) (passExecutable, error) {
	exe, err := e.Load(p, whole)
	if err != nil {
		return passExecutable{}, err
	}
	return passExecutable{exe, exe.Capabilities()}, nil
}

// microBatch contains the tensors that a stage keeps from the forward pass to the backward pass of
// a micro-batch.
type microBatch struct {
	tensors  map[int]device.Buffer // by ID in the whole program: received activations and own results
	messages []device.Buffer       // by stage: the activations that this stage receives from it
	inputs   map[string][]float32
}

// Load loads one stage of p, the training program of a network, for a worker of strategy pipeline.
// stage is the number of the stage, from 0, and stages the number of stages. The stage shares the
// parameters of whole, an executable of e with the complete network.
func Load(e engine.Engine, p *plan.Program, whole engine.Executable, stages, stage int) (*Executable, error) {
	all, err := plan.CutIntoStages(p, stages)
	if err != nil {
		return nil, err
	}
	own := all[stage]
	x := &Executable{whole: whole, program: p, stages: all, stage: stage, double: e.Options().Precision == "fp64", inputs: map[string][]float32{}}
	if x.forward, err = loadPass(e, own.Forward, whole); err != nil {
		return nil, fmt.Errorf("load forward pass of stage %d: %w", stage, err)
	}
	if x.backward, err = loadPass(e, own.Backward, whole); err != nil {
		return nil, errors.Join(fmt.Errorf("load backward pass of stage %d: %w", stage, err), x.forward.Close())
	}
	x.setExchangedTensors()
	return x, nil
}

// setExchangedTensors sets forwardInputs, backwardInputs and results.
func (x *Executable) setExchangedTensors() {
	own := x.stages[x.stage]
	received := slices.Concat(slices.Concat(own.Activations...), slices.Concat(own.Gradients...))
	for id := range x.program.Tensors {
		if own.Forward.FindTensor(plan.Input, plan.StageInputName(id)) >= 0 {
			x.forwardInputs = append(x.forwardInputs, id)
		}
		if own.Backward.FindTensor(plan.Input, plan.StageInputName(id)) >= 0 {
			x.backwardInputs = append(x.backwardInputs, id)
			if !slices.Contains(received, id) {
				x.results = append(x.results, id)
			}
		}
	}
	for _, later := range x.stages {
		x.results = append(x.results, later.Activations[x.stage]...)
	}
	slices.Sort(x.results)
	x.results = slices.Compact(x.results)
}

// Stages returns the number of stages, and the number of this worker's stage, from 0.
func (x *Executable) Stages() (stages, own int) { return len(x.stages), x.stage }

// SentBytes returns how many bytes all stages together send for one micro-batch: activations for
// later stages, and gradients of activations for earlier stages.
func (x *Executable) SentBytes() int {
	elements := 0
	for _, s := range x.stages {
		for _, ids := range slices.Concat(s.Activations, s.Gradients) {
			for _, id := range ids {
				elements += x.program.Tensors[id].Elements()
			}
		}
	}
	if x.double {
		return 8 * elements
	}
	return 4 * elements
}

// Backward returns the executable of the backward pass. Its memory contains the stage's parameters
// and gradients.
func (x *Executable) Backward() engine.Executable { return x.backward.Executable }

// Program returns the whole network's program.
func (x *Executable) Program() *plan.Program { return x.program }

// Capabilities returns the capabilities of the engine that also apply to a stage, and the stages.
func (x *Executable) Capabilities() engine.Capabilities {
	own := x.forward.can
	return engine.Capabilities{
		Stages: x.describeStages(), NoOutputs: !x.HasOutputs(),
		Accelerator: own.Accelerator, PeakFLOPS: own.PeakFLOPS,
		Profile: own.Profile, RecordWait: own.RecordWait, BeginPass: own.BeginPass,
	}
}

// NextBatch sets the inputs to the next batch of s.
func (x *Executable) NextBatch(s engine.Source) (bool, error) { return engine.SetInputs(x, s) }

// SetInput copies v to an input of the next batch, if this stage reads it.
func (x *Executable) SetInput(name string, v []float32) error {
	id := x.program.FindTensor(plan.Input, name)
	if id < 0 {
		return fmt.Errorf("set input %q: the program has no such input", name)
	}
	if n := x.program.Tensors[id].Elements(); len(v) != n {
		return fmt.Errorf("set input %q: got %d values, want %d for shape %v", name, len(v), n, x.program.Tensors[id].Shape)
	}
	if x.backward.Program().FindTensor(plan.Input, name) >= 0 {
		x.inputs[name] = append(x.inputs[name][:0], v...)
	}
	if x.forward.Program().FindTensor(plan.Input, name) < 0 {
		return nil
	}
	return x.forward.SetInput(name, v)
}

// Step always returns an error, because strategy pipeline runs the steps itself.
func (*Executable) Step(context.Context, engine.GradSync, *optim.Update) (engine.Timing, error) {
	return engine.Timing{}, errors.New("step: one stage of a network cannot run a step alone: use strategy pipeline")
}

// OwnLoss returns the sum of the losses of the current optimizer step's batches on the last stage,
// and 0 on other stages.
func (x *Executable) OwnLoss() float64 { return x.sum }

// SetLoss sets the result of Loss. sum is the loss after the stages have exchanged it.
func (x *Executable) SetLoss(sum float64) { x.loss = sum }

// Loss returns the loss of the last optimizer step; see Executable.
func (x *Executable) Loss() float64 { return x.loss }

// HasOutputs reports whether this worker's stage is the last one, which has the network's
// outputs.
func (x *Executable) HasOutputs() bool { return x.stage == len(x.stages)-1 }

// describeStages describes how the network is divided into stages, such as "layers 1 to 4 (48 %), 5
// to 9 (52 % of the operations)".
func (x *Executable) describeStages() string {
	var list []string
	total := x.program.StepFLOPs()
	for _, s := range x.stages {
		list = append(list, fmt.Sprintf("%d to %d (%.0f %%)", s.Layers[0]+1, s.Layers[1], 100*float64(s.FLOPs)/float64(total)))
	}
	last := strings.TrimSuffix(list[len(list)-1], ")") + " of the operations)"
	return "layers " + strings.Join(append(list[:len(list)-1], last), ", ")
}

// Output copies an output of the last forward pass to dst. Only the last stage has outputs.
func (x *Executable) Output(name string, dst []float32) error {
	if !x.HasOutputs() {
		return fmt.Errorf("read output %q: only the last of the %d stages has the network's outputs", name, len(x.stages))
	}
	return x.forward.Output(name, dst)
}

// Gradient returns the gradient of one of this stage's parameters after an optimizer step.
func (x *Executable) Gradient(param string) ([]float64, error) {
	return x.backward.Gradient(param)
}

// Names lists the persistent tensors of the whole network.
func (x *Executable) Names() []string { return x.whole.Names() }

// Get returns a persistent tensor of the whole network.
func (x *Executable) Get(name string) ([]float64, error) { return x.whole.Get(name) }

// Set sets a persistent tensor of the whole network.
func (x *Executable) Set(name string, v []float64) error { return x.whole.Set(name, v) }

// TensorsOf returns the names of the parameters and running statistics of a stage.
func (x *Executable) TensorsOf(stage int) []string {
	var names []string
	p := x.stages[stage].Forward
	for _, q := range p.Params {
		names = append(names, q.Name)
	}
	for _, id := range p.States {
		names = append(names, p.Tensors[id].Name)
	}
	return names
}

// CheckpointNames returns the names of the parameters and running statistics of a stage, and the
// names of its parameters' optimizer slots. slots lists the slots.
func (x *Executable) CheckpointNames(stage int, slots []string) []string {
	names := x.TensorsOf(stage)
	for _, slot := range slots {
		for _, q := range x.stages[stage].Forward.Params {
			names = append(names, shard.OptimizerSlotPrefix+slot+"."+q.Name)
		}
	}
	return names
}

// Elements returns the number of elements of a persistent tensor.
func (x *Executable) Elements(name string) int {
	if rest, ok := strings.CutPrefix(name, shard.OptimizerSlotPrefix); ok {
		_, name, _ = strings.Cut(rest, ".")
	}
	for _, t := range x.program.Tensors {
		if t.Name == name && (t.Role == plan.Parameter || t.Role == plan.State) {
			return t.Elements()
		}
	}
	return 0
}

// MemoryBytes returns the size of the memory of both passes, including the parameters that they
// share.
func (x *Executable) MemoryBytes() int64 {
	return x.forward.MemoryBytes() + x.backward.MemoryBytes()
}

// Close closes the executables of both passes.
func (x *Executable) Close() error { return errors.Join(x.forward.Close(), x.backward.Close()) }

func (x *Executable) newBuffer(n int) device.Buffer {
	if x.double {
		return device.Buffer{F64: make([]float64, n)}
	}
	return device.Buffer{F32: make([]float32, n)}
}

// newMessage allocates one buffer for all given tensors, and returns it with the part for each
// tensor.
func (x *Executable) newMessage(ids []int) (message device.Buffer, parts []device.Buffer) {
	n := 0
	for _, id := range ids {
		n += x.program.Tensors[id].Elements()
	}
	message, n = x.newBuffer(n), 0
	for _, id := range ids {
		size := x.program.Tensors[id].Elements()
		parts, n = append(parts, message.Slice(n, n+size)), n+size
	}
	return message, parts
}

// takeMicroBatch returns memory for a micro-batch. releaseMicroBatch makes it available again.
func (x *Executable) takeMicroBatch() *microBatch {
	if n := len(x.free); n > 0 {
		b := x.free[n-1]
		x.free = x.free[:n-1]
		return b
	}
	b := &microBatch{tensors: map[int]device.Buffer{}, inputs: map[string][]float32{}}
	for _, ids := range x.stages[x.stage].Activations {
		message, parts := x.newMessage(ids)
		b.messages = append(b.messages, message)
		for i, id := range ids {
			b.tensors[id] = parts[i]
		}
	}
	for _, id := range x.results {
		b.tensors[id] = x.newBuffer(x.program.Tensors[id].Elements())
	}
	return b
}

func (x *Executable) releaseMicroBatch(b *microBatch) { x.free = append(x.free, b) }

// runForward runs the forward pass of b, after the activations of earlier stages have been
// received.
func (x *Executable) runForward(ctx context.Context, b *microBatch) error {
	for name, v := range x.inputs {
		b.inputs[name] = append(b.inputs[name][:0], v...)
	}
	if err := x.setInputs(x.forward, x.forwardInputs, b.tensors, nil); err != nil {
		return err
	}
	if _, err := x.forward.Step(ctx, nil, nil); err != nil {
		return err
	}
	for _, id := range x.results {
		if err := readOutput(x.forward, x.program.StageOutputName(id), b.tensors[id]); err != nil {
			return err
		}
	}
	return nil
}

// runBackward runs the backward pass of b. gradients contains the gradients from later stages, by
// tensor ID. It passes the gradients of the parameters to sync.
func (x *Executable) runBackward(ctx context.Context, b *microBatch, gradients map[int]device.Buffer, sync engine.GradSync) error {
	for name, v := range b.inputs {
		if err := x.backward.SetInput(name, v); err != nil {
			return err
		}
	}
	if err := x.setInputs(x.backward, x.backwardInputs, b.tensors, gradients); err != nil {
		return err
	}
	_, err := x.backward.Step(ctx, sync, nil)
	return err
}

// setInputs sets the inputs of p with the given IDs. It takes the values from tensors or, if they
// are not there, from more.
func (*Executable) setInputs(p passExecutable, ids []int, tensors, more map[int]device.Buffer) error {
	for _, id := range ids {
		v, ok := tensors[id]
		if !ok {
			v = more[id]
		}
		var err error
		if p.can.SetInputBuffer != nil {
			err = p.can.SetInputBuffer(plan.StageInputName(id), v)
		} else {
			err = p.SetInput(plan.StageInputName(id), v.F32)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func readOutput(p passExecutable, name string, dst device.Buffer) error {
	if p.can.OutputBuffer != nil {
		return p.can.OutputBuffer(name, dst)
	}
	return p.Output(name, dst.F32)
}
