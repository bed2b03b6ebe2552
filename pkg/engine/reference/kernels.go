package reference

import (
	"fmt"

	"lockstep/pkg/internal/device"
	"lockstep/pkg/internal/plan"
)

// kernelCall is a kernel with the memory and the shapes of its operands. Both are nil for an
// absent operand.
type kernelCall[T number] struct {
	attr              plan.KernelAttr
	fault             LossFault
	in, out           [][]T
	inShape, outShape [][]int
}

// runKernel computes kernel k and rounds its results to the types in which they are stored.
func (x *executable[T]) runKernel(k plan.Kernel) error {
	if err := x.computeUnroundedKernel(k); err != nil {
		return err
	}
	for _, id := range k.Out {
		if id >= 0 {
			roundTo(x.program.Tensors[id].Stored, x.tensors[id])
		}
	}
	return nil
}

// roundTo rounds the values of v to typ if typ is a 16-bit type; otherwise it does nothing.
func roundTo[T number](typ device.ElementType, v []T) {
	if typ == device.Host {
		return
	}
	for i, f := range v {
		v[i] = T(typ.Round(float32(f)))
	}
}

// computeUnroundedKernel computes kernel k without rounding its results.
func (x *executable[T]) computeUnroundedKernel(k plan.Kernel) error {
	c := kernelCall[T]{attr: k.Attr, fault: x.engine.fault}
	for _, id := range k.In {
		c.in, c.inShape = append(c.in, x.tensors[id]), append(c.inShape, x.program.Tensors[id].Shape)
	}
	for _, id := range k.Out {
		if id < 0 {
			c.out, c.outShape = append(c.out, nil), append(c.outShape, nil)
			continue
		}
		c.out, c.outShape = append(c.out, x.tensors[id]), append(c.outShape, x.program.Tensors[id].Shape)
	}
	switch k.Op {
	case plan.OpConv:
		c.conv()
	case plan.OpConvBackwardData:
		c.convBackwardData()
	case plan.OpConvBackwardWeights:
		c.convBackwardWeights()
	case plan.OpConvTranspose:
		c.convTranspose()
	case plan.OpConvTransposeBackwardData:
		c.convTransposeBackwardData()
	case plan.OpConvTransposeBackwardWeights:
		c.convTransposeBackwardWeights()
	case plan.OpBiasBackward:
		c.biasBackward()
	case plan.OpBatchNorm:
		if err := c.batchNorm(&x.norms); err != nil {
			return fmt.Errorf("compute batch norm %s: %w", k.Name, err)
		}
	case plan.OpBatchNormBackward:
		if err := c.batchNormBackward(&x.norms); err != nil {
			return fmt.Errorf("compute gradient of batch norm %s: %w", k.Name, err)
		}
	case plan.OpReLU:
		c.relu()
	case plan.OpReLUBackward:
		c.reluBackward()
	case plan.OpMaxPool:
		c.maxPool()
	case plan.OpMaxPoolBackward:
		c.maxPoolBackward()
	case plan.OpConcat:
		c.concatChannels()
	case plan.OpSlice:
		c.sliceChannels()
	case plan.OpAdd:
		c.addTensors()
	case plan.OpBCEWithLogits:
		c.bceWithLogits()
	case plan.OpBCEWithLogitsBackward:
		c.bceWithLogitsBackward()
	default:
		return c.computeRemainingKernelOps(k)
	}
	return nil
}

// computeRemainingKernelOps continues the switch of computeUnroundedKernel.
func (c *kernelCall[T]) computeRemainingKernelOps(k plan.Kernel) error {
	switch k.Op {
	case plan.OpAvgPool:
		c.avgPool()
	case plan.OpAvgPoolBackward:
		c.avgPoolBackward()
	case plan.OpGlobalAvgPool:
		c.globalAvgPool()
	case plan.OpGlobalAvgPoolBackward:
		c.globalAvgPoolBackward()
	case plan.OpLinear:
		c.linear()
	case plan.OpLinearBackwardData:
		c.linearBackwardData()
	case plan.OpLinearBackwardWeights:
		c.linearBackwardWeights()
	case plan.OpReshape, plan.OpCast: // run rounds
		c.reshape()
	case plan.OpPad:
		c.padFeatureMap()
	case plan.OpPadBackward:
		c.padBackward()
	case plan.OpLeakyReLU:
		c.leakyReLU()
	case plan.OpLeakyReLUBackward:
		c.leakyReLUBackward()
	case plan.OpTanh:
		c.tanh()
	case plan.OpTanhBackward:
		c.tanhBackward()
	case plan.OpSoftmaxCrossEntropy:
		c.softmaxCrossEntropy()
	case plan.OpSoftmaxCrossEntropyBackward:
		c.softmaxCrossEntropyBackward()
	case plan.OpDiceBCE:
		c.diceBCE()
	case plan.OpDiceBCEBackward:
		c.diceBCEBackward()
	case plan.OpPixelCrossEntropy:
		c.pixelCrossEntropy()
	case plan.OpPixelCrossEntropyBackward:
		c.pixelCrossEntropyBackward()
	case plan.OpL1:
		c.l1Loss()
	case plan.OpL1Backward:
		c.l1LossBackward()
	default:
		return fmt.Errorf("run kernel %s: the reference engine does not support operation %q", k.Name, k.Op)
	}
	return nil
}
