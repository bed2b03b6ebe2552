package kernels

import (
	"encoding/binary"
	"math"
)

// Sizes of the Control block in device memory, which is aligned to 16 bytes. The host
// copies the first ControlHostBytes before each step. The kernels own the rest, which the
// host sets once.
const (
	ControlBytes     = 64
	ControlHostBytes = 32
)

// Control contains the values that change from step to step.
type Control struct {
	// Set by the host (bytes 0 to 31):
	LearningRate float32
	Step         int32 // number of this update, from 1, including skipped updates
	Seed         int64 // of the augmentation
	Epoch        int64 // of the augmentation

	// Set by the kernels (bytes 32 to 63):
	LossScale  float32 // factor of the gradients; 1 in bfloat16 and float32
	FoundInf   int32   // not 0: a gradient of this step is not finite, and the update is skipped
	GoodSteps  int32   // number of steps since the scale last changed
	Skipped    int32   // number of skipped updates so far
	Correct1   float32 // 1 − β₁ᵗ of Adam with t = Step − Skipped
	CorrectRt2 float32 // √(1 − β₂ᵗ)
	Clip       float32 // factor by which clipping multiplies gradients; 1 without clipping
}

// Bytes returns the block as it is stored in memory.
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

// ReadControl decodes a block of ControlBytes.
func ReadControl(b []byte) Control {
	le := binary.LittleEndian
	f := func(at int) float32 { return math.Float32frombits(le.Uint32(b[at:])) }
	i := func(at int) int32 { return int32(le.Uint32(b[at:])) }
	return Control{
		LearningRate: f(0), Step: i(4), Seed: int64(le.Uint64(b[8:])), Epoch: int64(le.Uint64(b[16:])),
		LossScale: f(32), FoundInf: i(36), GoodSteps: i(40), Skipped: i(44), Correct1: f(48), CorrectRt2: f(52), Clip: f(56),
	}
}

// StepBegin returns the launch of step_begin with one thread, the first kernel of the
// update. It clears FoundInf, sets Clip to 1 and computes Adam's corrections (pass 0 and 0
// for SGD).
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

// GradCheck returns the launch of grad_check, which sets FoundInf if a gradient is infinite
// or NaN. Run it after the all-reduce, which spreads such a value to all ranks. Only fp16
// needs it. It reads 4 bytes per element.
func GradCheck(g Pointer, n int, control Pointer) ([]Launch, error) {
	return gradients("grad_check", g, n, control)
}

// GradUnscale returns the launch of grad_unscale. It does the same as GradCheck and also
// divides the gradients by the loss scale in place, for operations that need true gradients
// (clipping, an all-reduce on the host). Set Update.Unscaled then. It moves 8 bytes per
// element.
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

// ScaleUpdate returns the launch of scale_update with one thread, the last kernel of a step
// in fp16. It multiplies the loss scale by backoff (0.5) after a skipped update, and by
// growth (2) after interval (2000) good ones in a row. These are the values of
// torch.amp.GradScaler.
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

// Update describes an optimizer step over N weights in flat float32 buffers. The Type of
// its launches is the type of the low-precision copy.
type Update struct {
	N       int
	W, G    Pointer
	M, V    Pointer // Adam
	Buffer  Pointer // SGD: momentum; 0: no momentum
	Low     Pointer // copy of the weights in the launch's Type; 0: no copy
	Control Pointer

	Beta1, Beta2, Epsilon float64 // Adam
	Momentum              float64 // SGD
	Nesterov              bool    // SGD: Nesterov's momentum
	WeightDecay           float64
	Decoupled             bool // Adam: weight decay multiplies the weights by 1 − lr·decay, separately from the step (AdamW)
	Unscaled              bool // the gradients have been divided by the loss scale (GradUnscale)
}

// Adam returns the launch of adam: w −= lr/(1−β₁ᵗ)·m/(√v/√(1−β₂ᵗ)+ε), with the gradient
// divided by the loss scale and clipped (Layers.Clip), the same as in engine/reference. If
// FoundInf is set, nothing changes. It moves 28 bytes per weight (four numbers read, three
// written), 30 with a 16-bit copy.
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

// SGD returns the launch of sgd: buf ← momentum·buf + g; w ← w − lr·buf, with Nesterov w −
// lr·(g + momentum·buf). It moves 12 bytes per weight, 20 with momentum, and 2 more with a
// 16-bit copy.
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
