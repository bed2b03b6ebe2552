package kernels

import (
	"encoding/binary"
	"math"
)

// The Control block: ControlBytes of device memory, aligned to 16 bytes. The
// first ControlHostBytes belong to the host, which copies them there before a
// step; the rest belongs to the kernels, and the host sets it once.
const (
	ControlBytes     = 64
	ControlHostBytes = 32
)

// Control is what changes from step to step.
type Control struct {
	// Written by the host (bytes 0 to 31).
	LearningRate float32
	Step         int32 // of this update, from 1, skipped ones counted too
	Seed         int64 // of the augmentation
	Epoch        int64 // of the augmentation

	// Written by the kernels (bytes 32 to 63).
	LossScale  float32 // gradients carry this factor; 1 in bfloat16 and float32
	FoundInf   int32   // not 0: a gradient of this step is not finite, and the update is left out
	GoodSteps  int32   // since the scale last changed
	Skipped    int32   // updates left out so far
	Correct1   float32 // 1 − β₁ᵗ of Adam, t being Step − Skipped
	CorrectRt2 float32 // √(1 − β₂ᵗ)
	Clip       float32 // the factor that clipping multiplies gradients by; 1 without
}

// Bytes is the block as it lies in memory.
func (c Control) Bytes() []byte {
	b := make([]byte, 0, ControlBytes)
	le := binary.LittleEndian
	b = le.AppendUint32(b, math.Float32bits(c.LearningRate))
	b = le.AppendUint32(b, uint32(c.Step))
	b = le.AppendUint64(b, uint64(c.Seed))
	b = le.AppendUint64(b, uint64(c.Epoch))
	b = append(b, make([]byte, 8)...)
	b = le.AppendUint32(b, math.Float32bits(c.LossScale))
	b = le.AppendUint32(b, uint32(c.FoundInf))
	b = le.AppendUint32(b, uint32(c.GoodSteps))
	b = le.AppendUint32(b, uint32(c.Skipped))
	b = le.AppendUint32(b, math.Float32bits(c.Correct1))
	b = le.AppendUint32(b, math.Float32bits(c.CorrectRt2))
	b = le.AppendUint32(b, math.Float32bits(c.Clip))
	return append(b, make([]byte, 4)...)
}

// ReadControl is the Control of a block of ControlBytes.
func ReadControl(b []byte) Control {
	le := binary.LittleEndian
	f := func(at int) float32 { return math.Float32frombits(le.Uint32(b[at:])) }
	i := func(at int) int32 { return int32(le.Uint32(b[at:])) }
	return Control{
		LearningRate: f(0), Step: i(4), Seed: int64(le.Uint64(b[8:])), Epoch: int64(le.Uint64(b[16:])),
		LossScale: f(32), FoundInf: i(36), GoodSteps: i(40), Skipped: i(44), Correct1: f(48), CorrectRt2: f(52), Clip: f(56),
	}
}

// StepBegin is step_begin, one thread: clears FoundInf, sets Clip to 1 and computes
// Adam's corrections (pass 0 and 0 for SGD). First in the optimiser's part of a step.
func StepBegin(control Pointer, beta1, beta2 float64) ([]Launch, error) {
	c := check{op: "step begin"}
	c.array("control", control, pointAlignment)
	if c.err != nil {
		return nil, c.err
	}
	var l list
	l.untyped("step_begin", one, one, 0, control, beta1, beta2)
	return l.done()
}

// GradCheck is grad_check: sets FoundInf if a gradient is infinite or NaN. Run it
// after the all-reduce, which carries such a value to every rank. 4 bytes an
// element; only fp16 needs it.
func GradCheck(g Pointer, n int, control Pointer) ([]Launch, error) {
	return gradients("grad_check", g, n, control)
}

// GradUnscale is grad_unscale: GradCheck, and divides the gradients by the loss
// scale in place, for what must see true gradients (clipping, a host's
// all-reduce). Set Update.Unscaled then. 8 bytes an element.
func GradUnscale(g Pointer, n int, control Pointer) ([]Launch, error) {
	return gradients("grad_unscale", g, n, control)
}

func gradients(name string, g Pointer, n int, control Pointer) ([]Launch, error) {
	c := check{op: name}
	c.array("g", g, 4)
	c.array("control", control, pointAlignment)
	c.positive("n", n)
	if c.err != nil {
		return nil, c.err
	}
	grid, block := flat(n, 4)
	var l list
	l.untyped(name, grid, block, 0, g, wide(n), control)
	return l.done()
}

// ScaleUpdate is scale_update, one thread, last in a step of fp16: an update that
// was left out multiplies the loss scale by backoff (0.5), interval (2000) good
// ones in a row by growth (2). The numbers are torch.amp.GradScaler's.
func ScaleUpdate(control Pointer, growth, backoff float64, interval int) ([]Launch, error) {
	c := check{op: "scale update"}
	c.array("control", control, pointAlignment)
	c.positive("interval", interval)
	if c.err != nil {
		return nil, c.err
	}
	var l list
	l.untyped("scale_update", one, one, 0, control, growth, backoff, interval)
	return l.done()
}

var one = [3]uint32{1, 1, 1}

// Update is an optimiser step over N weights, flat float32 buffers. The launch's
// Type is that of the low-precision copy.
type Update struct {
	N       int
	W, G    Pointer
	M, V    Pointer // Adam
	Buffer  Pointer // SGD: momentum; 0: none
	Low     Pointer // copy of the weights in the launch's Type; 0: none
	Control Pointer

	Beta1, Beta2, Epsilon float64 // Adam
	Momentum              float64 // SGD
	Nesterov              bool    // SGD: looks ahead along the momentum
	WeightDecay           float64
	Decoupled             bool // Adam: the decay shrinks the weights by 1 − lr·decay, beside the step (AdamW)
	Unscaled              bool // the gradients are divided by the loss scale already (GradUnscale)
}

// Adam is adam: w −= lr/(1−β₁ᵗ)·m/(√v/√(1−β₂ᵗ)+ε) of the gradient divided by the
// loss scale and clipped (Layers.Clip), as engine/reference has it. Nothing changes when FoundInf is set.
// 28 bytes a weight (four read, three written), 30 with a copy of 16 bits.
func (a Update) Adam(t Type) ([]Launch, error) {
	c := check{op: "adam"}
	a.check(&c, t)
	c.array("m", a.M, 4)
	c.array("v", a.V, 4)
	if c.err != nil {
		return nil, c.err
	}
	grid, block := flat(a.N, vector)
	var l list
	l.typed(t, "adam", grid, block, 0, a.W, a.G, a.M, a.V, a.Low, wide(a.N), a.Control, a.Beta1, a.Beta2, a.Epsilon, a.WeightDecay, a.Decoupled, a.Unscaled)
	return l.done()
}

// SGD is sgd: buf ← momentum·buf + g; w ← w − lr·buf, with Nesterov w − lr·(g +
// momentum·buf). 12 bytes a weight, 20 with
// momentum, 2 more with a copy of 16 bits.
func (a Update) SGD(t Type) ([]Launch, error) {
	c := check{op: "sgd"}
	a.check(&c, t)
	c.require(a.Buffer%4 == 0, "momentum is not aligned to 4 bytes")
	c.require(a.Buffer != 0 || a.Momentum == 0, "momentum is %g, but has no buffer", a.Momentum)
	c.require(a.Buffer != 0 || !a.Nesterov, "nesterov's momentum has no buffer")
	if c.err != nil {
		return nil, c.err
	}
	grid, block := flat(a.N, vector)
	var l list
	l.typed(t, "sgd", grid, block, 0, a.W, a.G, a.Buffer, a.Low, wide(a.N), a.Control, a.Momentum, a.WeightDecay, a.Nesterov, a.Unscaled)
	return l.done()
}

func (a Update) check(c *check, t Type) {
	c.positive("n", a.N)
	c.array("w", a.W, 4)
	c.array("g", a.G, 4)
	c.require(a.Low%Pointer(t.Bytes()) == 0, "low-precision copy is not aligned to its elements")
	c.array("control", a.Control, pointAlignment)
}
