// Package plan lowers a gorgonia graph of nn's operations to a list of kernels
// over static shapes: only what the loss, the outputs and the gradients asked
// for need, fused where two kernels read and write the same data, with
// lifetimes for a static memory plan and gradients grouped in buckets.
//
// A Program says what is to be computed, in logical NCHW shapes. How a tensor
// lies in memory is the engine's own affair.
package plan

// Op names a kernel. The comment of each gives inputs → outputs with shapes,
// n the batch, c input channels, k output channels; weights lie as in PyTorch.
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
	// OpBiasBackward: dy [n,k,h,w] → db [k], the sum over n, h, w.
	OpBiasBackward Op = "bias_backward"
	// OpBatchNorm: x [n,c,h,w], gamma [c], beta [c], running mean [c], running
	// variance [c] → y [n,c,h,w], saved mean [c], saved 1/√(var+ε) [c].
	// With Attr.Training it normalises by the batch's mean and biased variance
	// and updates the two running tensors in place (running ← (1−momentum)·running
	// + momentum·batch, the variance unbiased by m/(m−1), as PyTorch does);
	// without, by the running tensors, and the two saved outputs are absent.
	// Attr.ReLU applies max(0,·) to y.
	OpBatchNorm Op = "batch_norm"
	// OpBatchNormBackward: x, gamma, saved mean, saved 1/√(var+ε), dy (, y and
	// beta [c] with Attr.ReLU: dy counts where y > 0) → dx [n,c,h,w], dgamma [c],
	// dbeta [c]. With beta an engine that has not kept y can compute it again;
	// a program may leave beta out.
	OpBatchNormBackward Op = "batch_norm_backward"
	// OpReLU: x → y = max(0, x).
	OpReLU Op = "relu"
	// OpReLUBackward: y, dy → dx = dy where y > 0, else 0.
	OpReLUBackward Op = "relu_backward"
	// OpMaxPool: x [n,c,h,w] → y [n,c,h',w'], window Attr.Kernel, h' = (h−kernel)/stride+1
	// (rows and columns that no window covers are left out).
	OpMaxPool Op = "max_pool"
	// OpMaxPoolBackward: x, y, dy → dx; of equal maxima the first in row order gets the gradient.
	OpMaxPoolBackward Op = "max_pool_backward"
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
)

// Attr holds the constants of a kernel; those that its Op does not name are zero.
type Attr struct {
	Kernel   []int   // window of a pooling, a number a spatial dimension
	Stride   []int   // a number a spatial dimension
	Pad      []int   // zeros on each side, a number a spatial dimension
	Offset   int     // first channel of a slice
	Training bool    // batch norm: statistics of the batch, not the running ones
	ReLU     bool    // batch norm: the activation is fused in
	Epsilon  float64 // batch norm: added to the variance
	Momentum float64 // batch norm: weight of the batch in the running statistics
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
	Shape []int  // logical: NCHW, [k,c,r,s], [c], [1]
	Role  Role
	Value float64 // of a Constant
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

// Lookup is the id of the tensor of that name and role, −1 where there is none.
func (p *Program) Lookup(role Role, name string) int {
	for i, t := range p.Tensors {
		if t.Role == role && t.Name == name {
			return i
		}
	}
	return -1
}
