package kernels

import (
	"encoding/binary"
	"math"
)

// Sizes of a ControlBlock in device memory, in bytes. The block is aligned to 16 bytes.
// The host copies the first ControlHostBytes before each step. The rest belongs to the
// kernels; the host only initializes it.
const (
	ControlBytes     = 64
	ControlHostBytes = 32
)

// ControlBlock contains the values that change from step to step. They are in device memory,
// because captured graphs cannot contain them.
type ControlBlock struct {
	// Set by the host (bytes 0 to 31):
	LearningRate float32
	Step         int32 // number of this update, from 1, including skipped updates
	Seed         int64 // seed of the augmentation
	Epoch        int64 // epoch, which the augmentation depends on

	// Set by the kernels (bytes 32 to 63):
	LossScale  float32 // factor of the gradients; 1 in bfloat16 and float32
	FoundInf   int32   // 1 if a gradient of this step is not finite: then the update is skipped
	GoodSteps  int32   // number of steps since the scale last changed
	Skipped    int32   // number of skipped updates so far
	Correct1   float32 // 1 − β₁ᵗ of Adam with t = Step − Skipped
	CorrectRt2 float32 // √(1 − β₂ᵗ)
	Clip       float32 // factor by which clipping multiplies gradients; 1 without clipping
}

// Bytes encodes the block as in device memory.
func (c ControlBlock) Bytes() []byte {
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

// DecodeControl decodes a ControlBlock from b, which has ControlBytes bytes.
func DecodeControl(b []byte) ControlBlock {
	le := binary.LittleEndian
	f := func(at int) float32 { return math.Float32frombits(le.Uint32(b[at:])) }
	i := func(at int) int32 { return int32(le.Uint32(b[at:])) }
	return ControlBlock{
		LearningRate: f(0), Step: i(4), Seed: int64(le.Uint64(b[8:])), Epoch: int64(le.Uint64(b[16:])),
		LossScale: f(32), FoundInf: i(36), GoodSteps: i(40), Skipped: i(44), Correct1: f(48), CorrectRt2: f(52), Clip: f(56),
	}
}

// BeginStep returns the launch of step_begin, the first kernel of the update, with one
// thread. It clears FoundInf, sets Clip to 1, and computes Adam's bias corrections. For
// SGD, both betas are 0.
func BeginStep(control Pointer, beta1, beta2 float64) ([]Launch, error) {
	c := argChecker{op: "step begin"}
	c.requireArray("control", control, pointAlignment)
	if c.err != nil {
		return nil, c.err
	}
	var l launchList
	l.addUntypedLaunch("step_begin", unitDim, unitDim, 0, control, beta1, beta2)
	return l.result()
}

// CheckGradients returns the launch of grad_check, which sets FoundInf if any of n
// gradients is infinite or NaN. It must run after the all-reduce, which spreads infinities
// and NaN to all ranks. Memory traffic: 4 bytes per element.
func CheckGradients(g Pointer, n int, control Pointer) ([]Launch, error) {
	return launchOverGradients("grad_check", g, n, control)
}

// UnscaleGradients returns the launch of grad_unscale, which does the same as
// CheckGradients and also divides the gradients by the loss scale, in place.
// Update.Unscaled must be set then. Memory traffic: 8 bytes per element.
func UnscaleGradients(g Pointer, n int, control Pointer) ([]Launch, error) {
	return launchOverGradients("grad_unscale", g, n, control)
}

func launchOverGradients(name string, g Pointer, n int, control Pointer) ([]Launch, error) {
	c := argChecker{op: name}
	c.requireArray("g", g, 4)
	c.requireArray("control", control, pointAlignment)
	c.requirePositive("n", n)
	if c.err != nil {
		return nil, c.err
	}
	grid, block := flatGrid(n, 4)
	var l launchList
	l.addUntypedLaunch(name, grid, block, 0, g, int64Arg(n), control)
	return l.result()
}

// UpdateLossScale returns the launch of scale_update, the last kernel of an fp16 step, with
// one thread. It multiplies the loss scale by backoff after a skipped update, and by growth
// after interval successful updates in a row. torch.amp.GradScaler uses 0.5, 2 and 2000.
func UpdateLossScale(control Pointer, growth, backoff float64, interval int) ([]Launch, error) {
	c := argChecker{op: "scale update"}
	c.requireArray("control", control, pointAlignment)
	c.requirePositive("interval", interval)
	if c.err != nil {
		return nil, c.err
	}
	var l launchList
	l.addUntypedLaunch("scale_update", unitDim, unitDim, 0, control, growth, backoff, interval)
	return l.result()
}

var unitDim = [3]uint32{1, 1, 1}

// Update describes an optimizer step over N weights in flat float32 buffers. The launch's
// type is the type of the low-precision copy.
type Update struct {
	N       int
	W, G    Pointer
	M, V    Pointer // Adam
	Buffer  Pointer // SGD: momentum; 0: no momentum
	Low     Pointer // copy of the weights in the launch's element type; 0: no copy
	Control Pointer

	Beta1, Beta2, Epsilon float64 // Adam
	Momentum              float64 // SGD
	Nesterov              bool    // SGD: Nesterov's momentum
	WeightDecay           float64
	Decoupled             bool // Adam: weight decay multiplies the weights by 1 − lr·decay before the step (AdamW)
	Unscaled              bool // the gradients have been divided by the loss scale (UnscaleGradients)
}

// Adam returns the launch of adam: w −= lr/(1−β₁ᵗ)·m/(√v/√(1−β₂ᵗ)+ε). The gradient is first
// divided by the loss scale and clipped (LayerSet.Clip). If FoundInf is set, nothing
// changes. Memory traffic: 28 bytes per weight (four numbers read, three written), 30 with
// a 16-bit copy.
func (a Update) Adam(t ElementType) ([]Launch, error) {
	c := argChecker{op: "adam"}
	a.checkArgs(&c, t)
	c.requireArray("m", a.M, 4)
	c.requireArray("v", a.V, 4)
	if c.err != nil {
		return nil, c.err
	}
	grid, block := flatGrid(a.N, vector)
	var l launchList
	l.addTypedLaunch(t, "adam", grid, block, 0, a.W, a.G, a.M, a.V, a.Low, int64Arg(a.N), a.Control, a.Beta1, a.Beta2, a.Epsilon, a.WeightDecay, a.Decoupled, a.Unscaled)
	return l.result()
}

// SGD returns the launch of sgd: buf ← momentum·buf + g, then w ← w − lr·buf, or with
// Nesterov w ← w − lr·(g + momentum·buf). Memory traffic: 12 bytes per weight, 20 with
// momentum, and 2 more with a 16-bit copy.
func (a Update) SGD(t ElementType) ([]Launch, error) {
	c := argChecker{op: "sgd"}
	a.checkArgs(&c, t)
	c.require(a.Buffer%4 == 0, "momentum is not aligned to 4 bytes")
	c.require(a.Buffer != 0 || a.Momentum == 0, "momentum is %g, but its buffer is absent", a.Momentum)
	c.require(a.Buffer != 0 || !a.Nesterov, "Nesterov's momentum is set, but its buffer is absent")
	if c.err != nil {
		return nil, c.err
	}
	grid, block := flatGrid(a.N, vector)
	var l launchList
	l.addTypedLaunch(t, "sgd", grid, block, 0, a.W, a.G, a.Buffer, a.Low, int64Arg(a.N), a.Control, a.Momentum, a.WeightDecay, a.Nesterov, a.Unscaled)
	return l.result()
}

func (a Update) checkArgs(c *argChecker, t ElementType) {
	c.requirePositive("n", a.N)
	c.requireArray("w", a.W, 4)
	c.requireArray("g", a.G, 4)
	c.require(a.Low%Pointer(t.Bytes()) == 0, "low-precision copy is not aligned to its element size")
	c.requireArray("control", a.Control, pointAlignment)
}
