// Package plan lowers a gorgonia graph of nn's operations to a list of kernels
// over static shapes: only what the loss, the outputs and the gradients asked
// for need, fused where two kernels read and write the same data, with
// lifetimes for a static memory plan and gradients grouped in buckets.
//
// A Program says what is to be computed, in logical NCHW shapes. How a tensor
// lies in memory is the engine's own affair.
package plan

import (
	"slices"

	"lockstep/pkg/internal/device"
)

// Op names a kernel. The comment of each gives inputs → outputs with shapes,
// n the batch, c input channels, k output channels; weights lie as in PyTorch.
// Feature maps are images [n,c,h,w], as written, or volumes [n,c,d,h,w] with
// weights [k,c,q,r,s]; "…" stands for the spatial dimensions of either.
type Op string

// The kernels that an engine must offer.
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
	// OpBiasBackward: dy [n,k,h,w] or [n,k] → db [k], the sum over n, h, w.
	OpBiasBackward Op = "bias_backward"
	// OpBatchNorm: x [n,c,h,w], gamma [c], beta [c], running mean [c], running
	// variance [c] → y [n,c,h,w], saved mean [c], saved 1/√(var+ε) [c].
	// With Attr.Training it normalises by the batch's mean and biased variance
	// and updates the two running tensors in place (running ← (1−momentum)·running
	// + momentum·batch, the variance unbiased by m/(m−1), as PyTorch does);
	// without, by the running tensors, and the two saved outputs are absent.
	// Attr.ReLU applies max(0,·) to y. With Attr.Sync the batch is that of all
	// workers; with Attr.Saved the last two inputs are a saved mean and 1/√(var+ε),
	// by which it normalises.
	OpBatchNorm Op = "batch_norm"
	// OpBatchNormBackward: x, gamma, saved mean, saved 1/√(var+ε), dy (, y and
	// beta [c] with Attr.ReLU: dy counts where y > 0) → dx [n,c,h,w], dgamma [c],
	// dbeta [c]. With Attr.Sync dx is that of the statistics of all workers' batch,
	// while dgamma and dbeta are sums over this worker's, as of any parameter:
	// GradSync makes the mean of them. With beta an engine that has not kept y can compute it again;
	// a program may leave beta out.
	OpBatchNormBackward Op = "batch_norm_backward"
	// OpReLU: x → y = max(0, x).
	OpReLU Op = "relu"
	// OpReLUBackward: y, dy → dx = dy where y > 0, else 0.
	OpReLUBackward Op = "relu_backward"
	// OpMaxPool: x [n,c,h,w] → y [n,c,h',w'], window Attr.Kernel, h' = (h+2·pad−kernel)/stride+1
	// (rows and columns that no window covers are left out). Attr.Pad, less than
	// the window, is absent without padding. The padding is −∞, never the maximum;
	// with Attr.PadZeros it is zeros, which take part.
	OpMaxPool Op = "max_pool"
	// OpMaxPoolBackward: x, y, dy → dx; of equal maxima the first in row order gets
	// the gradient, zeros of the padding counted: where one of these is the
	// maximum nothing gets it.
	OpMaxPoolBackward Op = "max_pool_backward"
	// OpAvgPool: x [n,c,h,w] → y [n,c,h',w'], the mean of each window Attr.Kernel,
	// h' = (h−kernel)/stride+1.
	OpAvgPool Op = "avg_pool"
	// OpAvgPoolBackward: dy → dx [n,c,h,w], the sum over the windows that hold an
	// element of dy/elements of the window.
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
	// OpReshape: x → y, the same elements in logical order under another shape (or
	// the same: a copy).
	OpReshape Op = "reshape"
	// OpCast: x → y of the same shape, rounded to the type that y is stored in.
	OpCast Op = "cast"
	// OpPad: x [n,c,h,w] → y [n,c,h',w'], h' = pad + h + padEnd: Attr.Pad zeros in
	// front of each spatial dimension and Attr.PadEnd behind.
	OpPad Op = "pad"
	// OpPadBackward: dy [n,c,h',w'] → dx [n,c,h,w], the middle.
	OpPadBackward Op = "pad_backward"
	// OpLeakyReLU: x → y = x where x > 0, else Attr.Slope·x; the slope is above 0.
	OpLeakyReLU Op = "leaky_relu"
	// OpLeakyReLUBackward: y, dy → dx = dy where y > 0, else Attr.Slope·dy.
	OpLeakyReLUBackward Op = "leaky_relu_backward"
	// OpTanh: x → y = tanh x.
	OpTanh Op = "tanh"
	// OpTanhBackward: y, dy → dx = dy·(1−y²).
	OpTanhBackward Op = "tanh_backward"
	// OpConcat: a [n,ca,h,w], b [n,cb,h,w] → y [n,ca+cb,h,w].
	OpConcat Op = "concat"
	// OpSlice: x [n,c,h,w] → y [n,c',h,w], channels Attr.Offset … Attr.Offset+c'−1 (backward of OpConcat).
	OpSlice Op = "slice"
	// OpAdd: a, b → y of the same shape.
	OpAdd Op = "add"
	// OpBCEWithLogits: z, t of one shape → the mean over all elements of
	// max(z,0) − z·t + log(1+e^−|z|), a scalar (shape [1]).
	OpBCEWithLogits Op = "bce_with_logits"
	// OpBCEWithLogitsBackward: z, t, dloss [1] → dz = dloss·(σ(z)−t)/elements.
	OpBCEWithLogitsBackward Op = "bce_with_logits_backward"
	// OpSoftmaxCrossEntropy: z [n,k], t [n,1] → the mean over n of
	// −Σ_j q_j·log softmax(z)_j, a scalar (shape [1]); q is (1−Attr.Smoothing) at
	// class t plus Attr.Smoothing/k at each. t is an Input whose elements are
	// indexes of classes: see Program.Classes.
	OpSoftmaxCrossEntropy Op = "softmax_cross_entropy"
	// OpSoftmaxCrossEntropyBackward: z, t, dloss [1] → dz = dloss·(softmax(z)−q)/n.
	OpSoftmaxCrossEntropyBackward Op = "softmax_cross_entropy_backward"
	// OpDiceBCE: z, t of one shape [n,c,…] → Attr.DiceWeight·D + (1−Attr.DiceWeight)·B,
	// a scalar (shape [1]); B is that of OpBCEWithLogits, D the mean over n and c of
	// 1 − (2Σpt+1)/(Σp+Σt+1), p = σ(z), sums over the positions of one channel of
	// one sample.
	OpDiceBCE Op = "dice_bce"
	// OpDiceBCEBackward: z, t, dloss [1] → dz = dloss·((1−w)·(p−t)/elements −
	// w·p·(1−p)·(2t·S−I)/(S²·n·c)), w = Attr.DiceWeight, S = Σp+Σt+1, I = 2Σpt+1.
	OpDiceBCEBackward Op = "dice_bce_backward"
	// OpL1: y, t of one shape → the mean over all elements of |y−t|, a scalar
	// (shape [1]); plus, with Attr.ExpWeight above 0 and a shape [n,c,…],
	// Attr.ExpWeight times the mean over channel 0 of |e^{14y}−e^{14t}|.
	OpL1 Op = "l1"
	// OpL1Backward: y, t, dloss [1] → dy = dloss·sign(y−t)/elements, plus in channel
	// 0 dloss·Attr.ExpWeight·14·e^{14y}·sign(e^{14y}−e^{14t})/elements of channel 0;
	// sign(0) is 0.
	OpL1Backward Op = "l1_backward"
)

// Attr holds the constants of a kernel; those that its Op does not name are zero.
type Attr struct {
	Kernel   []int   // window of a pooling, a number a spatial dimension
	Stride   []int   // a number a spatial dimension
	Pad      []int   // padding on each side (OpPad: in front), a number a spatial dimension
	PadEnd   []int   // OpPad: behind, a number a spatial dimension
	PadZeros bool    // max pool: the padding is zeros that take part, not −∞
	Offset   int     // first channel of a slice
	Training bool    // batch norm: statistics of the batch, not the running ones
	Sync     bool    // batch norm: the batch whose statistics count is that of all workers
	Saved    bool    // batch norm: statistics that were saved; it runs again, see Recompute
	ReLU     bool    // batch norm: the activation is fused in
	Epsilon  float64 // batch norm: added to the variance
	Momentum float64 // batch norm: weight of the batch in the running statistics

	Slope     float64 // leaky ReLU: of the negative side
	Smoothing float64 // softmax cross-entropy: of the labels
	ExpWeight float64 // l1: of the term on exponentials

	DiceWeight float64 // dice bce: of the Dice term
}

// Role says where a tensor's contents come from and how long they live.
type Role uint8

// The roles.
const (
	Activation Role = iota // lives from its producer to its last reader, in the arena
	Input                  // set from outside before each step
	Parameter              // persistent, trained
	State                  // persistent, not trained (running statistics)
	Gradient               // of a parameter: final after its bucket's Ready kernel, persistent for the step
	Output                 // read from outside after the step (logits, loss)
	Constant               // filled with Value once
)

// Tensor is a value of the program; its index in Program.Tensors is its id.
type Tensor struct {
	Name  string // parameters, states, inputs and outputs by their own name; others for people
	Shape []int  // logical: NCHW or NCDHW, [n,c], [k,c,r,s], [c], [1]
	Role  Role
	Value float64 // of a Constant
	// Stored is the 16-bit type that each element is rounded to when it is
	// written, where MixedPrecision chose one; otherwise the zero Type: elements
	// are of the precision that the engine computes in.
	Stored device.Type
	// First and Last are the indexes of the first and last kernel that touch
	// the tensor (−1 where none does).
	First, Last int
}

// Elements is the number of elements of t.
func (t Tensor) Elements() int {
	n := 1
	for _, d := range t.Shape {
		n *= d
	}
	return n
}

// Kernel is one call: it reads the tensors In and writes the tensors Out.
type Kernel struct {
	Op       Op
	Name     string // of the layer, for people and profiles
	In, Out  []int  // tensor ids, in the order of the Op's comment; an absent optional one is left out (at the end) or −1
	Attr     Attr
	Backward bool // it belongs to the backward pass
	Again    bool // it is a forward kernel that runs once more: see Recompute
}

// Param pairs a parameter with its gradient.
type Param struct {
	Name string
	// Tensor and Grad are tensor ids; Grad is −1 in a program without backward pass.
	Tensor, Grad int
	Bucket       int // index in Program.Buckets, −1 without backward pass
}

// Bucket is a group of gradients that is reduced at once. An engine lays the
// gradients of a bucket next to each other, buckets in order, so that a bucket
// is a slice of one flat buffer.
type Bucket struct {
	Params []int // indexes in Program.Params, in the order in which they become final
	Bytes  int   // logical size in float32, without an engine's padding
	Ready  int   // index of the kernel after which every gradient of the bucket is final
}

// Program is a lowered graph.
type Program struct {
	Tensors []Tensor
	Kernels []Kernel
	Params  []Param
	Buckets []Bucket
	Inputs  []int // tensor ids
	States  []int
	Outputs []int
	Loss    int // tensor id of the scalar loss, −1 without one
	// Forward is the number of kernels of the forward pass: Kernels[:Forward].
	Forward int
}

// Synchronised says whether p has batch norms that exchange their statistics.
func (p *Program) Synchronised() bool {
	return slices.ContainsFunc(p.Kernels, func(k Kernel) bool { return k.Attr.Sync })
}

// Lookup is the id of the tensor of that name and role, −1 where there is none.
func (p *Program) Lookup(role Role, name string) int {
	for i, t := range p.Tensors {
		if t.Role == role && t.Name == name {
			return i
		}
	}
	return -1
}
