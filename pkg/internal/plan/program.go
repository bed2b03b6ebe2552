// Package plan lowers a gorgonia graph of nn's operations to a Program: a list of kernels
// over static shapes. The program contains only the kernels that the loss, the outputs
// and the requested gradients need. A batch norm and its ReLU may be fused. Each tensor
// has a lifetime, for static memory planning, and gradients are grouped in buckets.
//
// A Program describes the computation in logical NCHW shapes. Each engine chooses the
// memory layout of the tensors.
package plan

import (
	"slices"

	"lockstep/pkg/internal/device"
)

// Op names a kernel. The comment of each constant lists inputs → outputs with their
// shapes: n is the batch size, c the input channels, k the output channels. Weights have
// PyTorch's layout. Where a comment shows the shape of an image [n,c,h,w], a volume
// [n,c,d,h,w] with weights [k,c,q,r,s] is also possible; "…" stands for the spatial
// dimensions of either.
type Op string

// The operations that an engine must implement.
const (
	// OpConv is a cross-correlation: x [n,c,h,w], w [k,c,r,s] (, b [k]) → y [n,k,h',w'],
	// h' = (h+2·pad−r)/stride+1.
	OpConv Op = "conv"
	// OpConvBackwardData: w [k,c,r,s], dy [n,k,h',w'] → dx [n,c,h,w].
	OpConvBackwardData Op = "conv_backward_data"
	// OpConvBackwardWeights: x [n,c,h,w], dy [n,k,h',w'] → dw [k,c,r,s].
	OpConvBackwardWeights Op = "conv_backward_weights"
	// OpConvTranspose: x [n,c,h,w], w [c,k,r,s] (, b [k]) → y [n,k,h',w'],
	// h' = (h−1)·stride−2·pad+r.
	OpConvTranspose Op = "conv_transpose"
	// OpConvTransposeBackwardData: w [c,k,r,s], dy [n,k,h',w'] → dx [n,c,h,w].
	OpConvTransposeBackwardData Op = "conv_transpose_backward_data"
	// OpConvTransposeBackwardWeights: x [n,c,h,w], dy [n,k,h',w'] → dw [c,k,r,s].
	OpConvTransposeBackwardWeights Op = "conv_transpose_backward_weights"
	// OpBiasBackward: dy [n,k,h,w] or [n,k] → db [k], the sum of dy over n, h, w.
	OpBiasBackward Op = "bias_backward"
	// OpBatchNorm: x [n,c,h,w], gamma [c], beta [c], running mean [c], running variance
	// [c] → y [n,c,h,w], saved mean [c], saved 1/√(var+ε) [c].
	//
	// With Attr.Training it normalizes by the batch's mean and biased variance and
	// updates the two running tensors in place: running ← (1−momentum)·running +
	// momentum·batch, with the unbiased variance (biased variance times m/(m−1)), as in
	// PyTorch. Without Attr.Training it normalizes by the running tensors, and the two
	// saved outputs are absent.
	//
	// Attr.ReLU applies max(0,·) to y. With Attr.Sync the statistics are computed over
	// all workers' batches. With Attr.Saved the last two inputs are a saved mean and
	// 1/√(var+ε), by which it normalizes.
	OpBatchNorm Op = "batch_norm"
	// OpBatchNormBackward: x, gamma, saved mean, saved 1/√(var+ε), dy → dx [n,c,h,w],
	// dgamma [c], dbeta [c]. With Attr.ReLU there are two more inputs, y and beta [c],
	// and dy is set to 0 where y ≤ 0. With beta an engine can recompute y instead of
	// keeping it; a program may omit beta.
	//
	// With Attr.Sync dx takes into account that the statistics depend on all workers'
	// batches. dgamma and dbeta are sums over this worker's batch, like other gradients;
	// GradSync averages them.
	OpBatchNormBackward Op = "batch_norm_backward"
	// OpReLU: x → y = max(0, x).
	OpReLU Op = "relu"
	// OpReLUBackward: y, dy → dx = dy where y > 0, else 0.
	OpReLUBackward Op = "relu_backward"
	// OpMaxPool: x [n,c,h,w] → y [n,c,h',w'], window Attr.Kernel, h' =
	// (h+2·pad−kernel)/stride+1. Rows and columns that no window covers are ignored.
	// Attr.Pad is less than the window, and nil without padding. The padding is −∞, or 0
	// with Attr.PadZeros.
	OpMaxPool Op = "max_pool"
	// OpMaxPoolBackward: x, y, dy → dx. If several elements of a window are the maximum,
	// the first in row order gets the gradient. With Attr.PadZeros this includes the
	// zeros of the padding: if such a zero is the first maximum, no element gets the
	// gradient.
	OpMaxPoolBackward Op = "max_pool_backward"
	// OpAvgPool: x [n,c,h,w] → y [n,c,h',w'], the mean of each window Attr.Kernel,
	// h' = (h−kernel)/stride+1.
	OpAvgPool Op = "avg_pool"
	// OpAvgPoolBackward: dy → dx [n,c,h,w]. Each element of dx is the sum of dy/(number of
	// elements of a window) over the windows that contain the element.
	OpAvgPoolBackward Op = "avg_pool_backward"
	// OpGlobalAvgPool: x [n,c,…] → y [n,c], the mean of each channel.
	OpGlobalAvgPool Op = "global_avg_pool"
	// OpGlobalAvgPoolBackward: dy [n,c] → dx [n,c,…] = dy/positions.
	OpGlobalAvgPoolBackward Op = "global_avg_pool_backward"
	// OpLinear: x [n,k], w [m,k] (, b [m]) → y [n,m] = x·wᵀ + b.
	OpLinear Op = "linear"
	// OpLinearBackwardData: w [m,k], dy [n,m] → dx [n,k] = dy·w.
	OpLinearBackwardData Op = "linear_backward_data"
	// OpLinearBackwardWeights: x [n,k], dy [n,m] → dw [m,k] = dyᵀ·x.
	OpLinearBackwardWeights Op = "linear_backward_weights"
	// OpReshape: x → y, the same elements in row-major order with another shape, or a
	// copy with the same shape.
	OpReshape Op = "reshape"
	// OpCast: x → y of the same shape, rounded to the type in which y is stored.
	OpCast Op = "cast"
	// OpPad: x [n,c,h,w] → y [n,c,h',w'], h' = pad + h + padEnd. It inserts Attr.Pad
	// zeros before and Attr.PadEnd zeros after each spatial dimension.
	OpPad Op = "pad"
	// OpPadBackward: dy [n,c,h',w'] → dx [n,c,h,w], dy without the padding.
	OpPadBackward Op = "pad_backward"
	// OpLeakyReLU: x → y = x where x > 0, else Attr.Slope·x. The slope is above 0.
	OpLeakyReLU Op = "leaky_relu"
	// OpLeakyReLUBackward: y, dy → dx = dy where y > 0, else Attr.Slope·dy.
	OpLeakyReLUBackward Op = "leaky_relu_backward"
	// OpTanh: x → y = tanh x.
	OpTanh Op = "tanh"
	// OpTanhBackward: y, dy → dx = dy·(1−y²).
	OpTanhBackward Op = "tanh_backward"
	// OpConcat: a [n,ca,h,w], b [n,cb,h,w] → y [n,ca+cb,h,w].
	OpConcat Op = "concat"
	// OpSlice: x [n,c,h,w] → y [n,c',h,w], the channels Attr.Offset … Attr.Offset+c'−1. It
	// also computes the gradient of OpConcat.
	OpSlice Op = "slice"
	// OpAdd: a, b → y of the same shape.
	OpAdd Op = "add"
	// OpBCEWithLogits: z, t of the same shape → a scalar (shape [1]), the mean over all
	// elements of max(z,0) − z·t + log(1+e^−|z|).
	OpBCEWithLogits Op = "bce_with_logits"
	// OpBCEWithLogitsBackward: z, t, dloss [1] → dz = dloss·(σ(z)−t)/elements.
	OpBCEWithLogitsBackward Op = "bce_with_logits_backward"
	// OpSoftmaxCrossEntropy: z [n,k], t [n,1] → a scalar (shape [1]), the mean over n of
	// −Σ_j q_j·log softmax(z)_j. q is Attr.Smoothing/k for each class, plus
	// 1−Attr.Smoothing for class t. t is an Input that contains class indexes: see
	// CheckClassIndexes.
	OpSoftmaxCrossEntropy Op = "softmax_cross_entropy"
	// OpSoftmaxCrossEntropyBackward: z, t, dloss [1] → dz = dloss·(softmax(z)−q)/n.
	OpSoftmaxCrossEntropyBackward Op = "softmax_cross_entropy_backward"
	// OpDiceBCE: z, t of the same shape [n,c,…] → a scalar (shape [1]), Attr.DiceWeight·D
	// + (1−Attr.DiceWeight)·B. B is the result of OpBCEWithLogits. D is the mean over n
	// and c of 1 − (2Σpt+1)/(Σp+Σt+1) with p = σ(z) and sums over the positions of one
	// channel of one sample.
	OpDiceBCE Op = "dice_bce"
	// OpDiceBCEBackward: z, t, dloss [1] → dz = dloss·((1−w)·(p−t)/elements −
	// w·p·(1−p)·(2t·S−I)/(S²·n·c)), w = Attr.DiceWeight, S = Σp+Σt+1, I = 2Σpt+1.
	OpDiceBCEBackward Op = "dice_bce_backward"
	// OpPixelCrossEntropy: z [n,k,…], t [n,1,…] → a scalar (shape [1]), Attr.DiceWeight·D +
	// (1−Attr.DiceWeight)·C. t is an Input that contains class indexes or Attr.Ignore: see
	// CheckClassIndexes. C is Σ w_t·(log Σ_j e^{z_j} − z_t) over the pixels whose t is a
	// class, w = Attr.ClassWeights, divided by n·(positions of one sample), which includes
	// all pixels. D is the mean over n and k of 1 − (2Σpy+1)/(Σp+Σy+1) with p = softmax(z),
	// y = 1 where t is class k, else 0, and sums over the pixels of one sample whose t is a
	// class.
	OpPixelCrossEntropy Op = "pixel_cross_entropy"
	// OpPixelCrossEntropyBackward: z, t, dloss [1] → dz = dloss·((1−d)·w_t·(p−y)/pixels +
	// d·p·(g − Σ_j g_j·p_j)), d = Attr.DiceWeight, g = (I − 2y·S)/(S²·n·k), S = Σp+Σy+1, I =
	// 2Σpy+1; 0 where t is Attr.Ignore.
	OpPixelCrossEntropyBackward Op = "pixel_cross_entropy_backward"
	// OpL1: y, t of the same shape → a scalar (shape [1]), the mean over all elements of
	// |y−t|. If Attr.ExpWeight is above 0, y and t have the shape [n,c,…], and
	// Attr.ExpWeight times the mean over channel 0 of |e^{14y}−e^{14t}| is added.
	OpL1 Op = "l1"
	// OpL1Backward: y, t, dloss [1] → dy = dloss·sign(y−t)/elements. In channel 0,
	// dloss·Attr.ExpWeight·14·e^{14y}·sign(e^{14y}−e^{14t})/(elements of channel 0) is
	// added. sign(0) is 0.
	OpL1Backward Op = "l1_backward"
)

// KernelAttr contains the constants of a kernel. Constants that an operation does not use are
// zero.
type KernelAttr struct {
	Kernel   []int   // window of a pooling, one number per spatial dimension
	Stride   []int   // one number per spatial dimension
	Pad      []int   // padding on each side (OpPad: before), one number per spatial dimension
	PadEnd   []int   // OpPad: padding after, one number per spatial dimension
	PadZeros bool    // max pool: the padding is 0, not −∞
	Offset   int     // first channel of a slice
	Training bool    // batch norm: use the batch's statistics, not the running ones
	Sync     bool    // batch norm: use the statistics of all workers' batches
	Saved    bool    // batch norm: use saved statistics, when it is recomputed (see AddRecomputation)
	ReLU     bool    // batch norm: the ReLU after it is fused
	Epsilon  float64 // batch norm: added to the variance
	Momentum float64 // batch norm: weight of the batch in the running statistics

	Slope     float64 // leaky ReLU: factor of negative values
	Smoothing float64 // softmax cross-entropy: label smoothing
	ExpWeight float64 // l1: weight of the term on exponentials

	DiceWeight float64 // dice bce, pixel cross-entropy: weight of the Dice term

	ClassWeights []float64 // pixel cross-entropy: weight of each class; nil: 1 each
	Ignore       int       // pixel cross-entropy: the target of pixels that do not count
}

// TensorRole describes the origin and the lifetime of a tensor's values.
type TensorRole uint8

// The roles of tensors.
const (
	Activation TensorRole = iota // in the arena, from the kernel that writes it to its last reader
	Input                        // set by the caller before each step
	Parameter                    // persistent, trained
	State                        // persistent, not trained (running statistics)
	Gradient                     // gradient of a parameter: final after its bucket's Ready kernel, kept until the end of the step
	Output                       // read by the caller after the step (logits, loss)
	Constant                     // set to Value once
)

// Tensor describes a value of the program. Its index in Program.Tensors is its ID.
type Tensor struct {
	Name  string // the graph's name for parameters, states, inputs and outputs; else for people to read
	Shape []int  // logical: NCHW or NCDHW, [n,c], [k,c,r,s], [c], [1]
	Role  TensorRole
	Value float64 // of a Constant
	// Stored is the 16-bit type to which ConvertToMixedPrecision rounds each element when it is
	// written. The zero value means that elements have the precision in which the engine computes.
	Stored device.ElementType
	// First and Last are the indexes of the first and last kernel that read or write the
	// tensor, or −1 if there are none.
	First, Last int
}

// Elements returns the number of elements of t.
func (t Tensor) Elements() int {
	n := 1
	for _, d := range t.Shape {
		n *= d
	}
	return n
}

// Kernel is one call of an operation. It reads the tensors In and writes the tensors Out.
type Kernel struct {
	Op         Op
	Name       string // name of the layer, for people and profiles
	In, Out    []int  // tensor IDs in the order of the Op's comment; absent ones are omitted at the end, else −1
	Attr       KernelAttr
	Backward   bool // the kernel is part of the backward pass
	Recomputed bool // a forward kernel that is run a second time: see Recompute
}

// Param pairs a parameter with its gradient.
type Param struct {
	Name string
	// Tensor and Grad are tensor IDs. Grad is −1 in a program without backward pass.
	Tensor, Grad int
	Bucket       int // index in Program.Buckets, −1 without backward pass
}

// GradientBucket is a group of gradients that are reduced together. Engines store gradients in the
// order of the buckets, so that each bucket is a slice of one flat buffer.
type GradientBucket struct {
	Params []int // indexes in Program.Params, in the order in which they become final
	Bytes  int   // size of the gradients in float32, without an engine's padding
	Ready  int   // index of the kernel after which every gradient of the bucket is final
}

// Program is the result of Lower: everything that an engine needs to run a graph.
type Program struct {
	Tensors []Tensor
	Kernels []Kernel
	Params  []Param
	Buckets []GradientBucket
	Inputs  []int // tensor IDs
	States  []int // tensor IDs
	Outputs []int // tensor IDs
	Loss    int   // tensor ID of the scalar loss, or −1
	// Forward is the number of kernels of the forward pass, which are Kernels[:Forward].
	Forward int
}

// HasSyncBatchNorm reports whether p has batch norms that exchange their statistics between
// workers.
func (p *Program) HasSyncBatchNorm() bool {
	return slices.ContainsFunc(p.Kernels, func(k Kernel) bool { return k.Attr.Sync })
}

// FindTensor returns the ID of the tensor with the given role and name, or −1.
func (p *Program) FindTensor(role TensorRole, name string) int {
	for i, t := range p.Tensors {
		if t.Role == role && t.Name == name {
			return i
		}
	}
	return -1
}
