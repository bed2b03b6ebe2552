package cuda

import (
	"errors"
	"fmt"

	"lockstep/pkg/engine/cuda/internal/number"
	"lockstep/pkg/engine/cuda/kernels"
	"lockstep/pkg/internal/plan"
)

// lossOperands returns the operands of t, a loss or the gradient of a loss, as fields of a
// kernels.BCE, whatever the kind of loss. typ is the element type of the logits.
func (x *executable) lossOperands(t loweredTask) (b kernels.BCE, typ kernels.ElementType, err error) {
	z := x.memory.locations[t.in[0]]
	if x.program.Tensors[t.in[1]].Role != plan.Input {
		return b, 0, errors.New("the target of the loss is not an input of the program, which the cuda engine requires")
	}
	b = kernels.BCE{
		Rows: z.positionCount(), Channels: z.channels(), Z: x.tensorPointer(t.in[0]), ZPitch: z.pitch,
		T: x.tensorPointer(t.in[1]), Partial: kernels.Pointer(x.memory.scratch.ptr),
	}
	if len(t.in) == 2 {
		b.Loss = x.tensorPointer(t.out[0])
		return b, number.KernelType(z.typ), nil
	}
	dz := x.memory.locations[t.out[0]]
	if dz.typ != z.typ {
		return b, 0, fmt.Errorf("logits have type %s, but their gradient has type %s", z.typ, dz.typ)
	}
	b.DLoss, b.Control, b.DZ, b.DZPitch = x.tensorPointer(t.in[2]), kernels.Pointer(x.memory.control.ptr), x.tensorPointer(t.out[0]), dz.pitch
	return b, number.KernelType(z.typ), nil
}

func (x *executable) bceLaunches(t loweredTask) ([]kernels.Launch, error) {
	b, typ, err := x.lossOperands(t)
	switch {
	case err != nil:
		return nil, err
	case t.op == plan.OpBCEWithLogits:
		return b.Forward(typ)
	}
	return b.Backward(typ)
}

func (x *executable) l1LossLaunches(t loweredTask) ([]kernels.Launch, error) {
	b, typ, err := x.lossOperands(t)
	l := kernels.L1{BCE: b, ExpWeight: t.attr.ExpWeight}
	switch {
	case err != nil:
		return nil, err
	case t.op == plan.OpL1:
		return l.Forward(typ)
	}
	return l.Backward(typ)
}

func (x *executable) diceLaunches(t loweredTask) ([]kernels.Launch, error) {
	b, typ, err := x.lossOperands(t)
	d := kernels.DiceBCE{BCE: b, Points: x.memory.locations[t.in[0]].positionsPerRow(), Weight: t.attr.DiceWeight}
	switch {
	case err != nil:
		return nil, err
	case t.op == plan.OpDiceBCE:
		return d.Forward(typ)
	}
	return d.Backward(typ)
}

func (x *executable) softmaxLaunches(t loweredTask) ([]kernels.Launch, error) {
	b, typ, err := x.lossOperands(t)
	if err != nil {
		return nil, err
	}
	s := kernels.SoftmaxCE{
		Rows: b.Rows, Classes: b.Channels, Z: b.Z, ZPitch: b.ZPitch, T: b.T, Smoothing: t.attr.Smoothing,
		Partial: b.Partial, Loss: b.Loss, DLoss: b.DLoss, Control: b.Control, DZ: b.DZ, DZPitch: b.DZPitch,
	}
	if t.op == plan.OpSoftmaxCrossEntropy {
		return s.Forward(typ)
	}
	return s.Backward(typ)
}
