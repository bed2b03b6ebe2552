// Package cpu is the fast engine on processors: it runs a plan in float32 with
// Go workers, without any C library.
//
// # Layout
//
// Activations [n,c,h,w] lie as nChw8c: [n][⌈c/8⌉][h][w][8], so that one vector
// register holds eight channels of one pixel. Volumes [n,c,d,h,w] are maps of
// d·h rows in this respect, features [n,k] maps of one pixel. Weights [k,c,r,s] lie as
// [⌈k/8⌉][⌈c/8⌉][r][s][8 of c][8 of k], vectors as they are. Channels beyond
// the logical ones are padding, and padding is always zero. The blocked layout
// is kept from kernel to kernel; only SetInput, Output, Get, Set and Gradient
// convert.
//
// # One matrix kernel
//
// Every convolution (forward, backward data, backward weights, transposed or
// not, of any window, stride and padding) is a sum over steps of outer products
// of up to six gathered rows with sixteen weights (twelve with 32 where there is
// AVX-512), and one assembly kernel computes it (see kernel.GEMMFunc). The rows' addresses come from tables that are
// built once, at Load; a zero halo, where one is needed, is made by copying a
// block of the input into a worker's scratch memory. The method is that of the
// indirect convolution of Dukhan (The Indirect Convolution Algorithm,
// arXiv:1907.02129, 2019), with offsets in place of pointers.
//
// Where maps are small, as in the last stages of a ResNet, much of a window lies
// outside of them: the outputs are then cut in parts that have the same taps
// inside (see axis.cut), no zeros are multiplied, and pixels of many images fill
// the matrix kernel's rows. On maps of 2×2 that leaves 4 of 9 taps, on one pixel 1.
//
// # Winograd
//
// 3×3 convolutions of stride 1 with a pad of 1, their transposes and gradients
// may instead be computed by tiles of 4×4 outputs with Winograd's F(4×4,3×3)
// (Lavin and Gray, Fast Algorithms for Convolutional Neural Networks,
// arXiv:1509.09308, 2015), which takes a quarter of the multiplications:
// assembly transforms tiles and weights, and the same matrix kernel multiplies.
// Options.Convolution "direct" and "winograd" force the choice; "auto" makes it
// for each shape by an estimate of the work (see winogradPays).
//
// 3×3×3 convolutions of volumes, of stride 1 with a pad of 1, are computed so
// slice by slice: the products of the window's three taps along the depth are
// summed before they are transformed back, so that each slice is transformed
// once and serves three, and the matrices are [tiles, 3·in] by [3·in, out]. A
// worker holds the transformed slices that a few successive outputs depend on,
// not the volume. Taps outside of the volume are left out.
//
// Its roundings are larger, since the transforms add and subtract multiples up
// to eight: in float32 an output or a gradient of the inputs is off by at most
// 2e-5 of the greatest one, a gradient of the weights by at most 4.2e-5,
// where the direct algorithm keeps within 1e-5. The tests hold every kernel to
// these bounds against float64. Over random shapes of up to 48 channels the
// greatest errors seen are 1.2e-5, 8.3e-6 and 6.7e-6 (forward, backward data,
// backward weights); at 256 to 512 channels 1.4e-5, 1.4e-5 and 3.1e-6. The sums of
// 3×3×3 windows have three times as many products: all three keep within 4.2e-5,
// and the greatest errors seen are 1.4e-5, 1.0e-5 and 7.7e-6 at up to 40 channels
// and 3.7e-5, 3.6e-5 and 4.3e-6 at 64 to 512.
//
// # Memory
//
// Parameters, gradients and optimiser slots are flat buffers of one layout, the
// gradients of a bucket next to each other, so that a bucket is a slice and the
// optimiser one pass. Activations share an arena by their lifetimes. Kernels
// share one scratch memory, which with Winograd holds a layer's transformed
// weights, four times as large as these, and each worker has some of its own
// for the tiles that it transforms. Step allocates nothing (but the optimiser's
// slots, when it meets a rule first).
//
// # Fusion
//
// With Options.Fuse what only moves or scales values takes no memory and no
// pass over it (see chooseOrigins). The output of a batch norm, with its ReLU,
// that only convolutions and poolings read is never stored: they normalise its
// input as they read it, and the backward pass computes the ReLU's decision
// again. A concatenation is its parts where they are, its gradient's slices
// places in the whole; a pooling's gradient is added to the slice in place, and
// a batch norm's is written over the one that arrives. The statistics of a batch
// norm are taken while the convolution's output is in the cache. A pooling keeps
// a byte that says which element was the greatest, and its gradient reads that
// alone (with or without Fuse).
//
// # Reproducibility
//
// The work of a kernel is split in pieces that do not depend on the number of
// threads, each computed by one worker, and partial sums are added in a fixed
// order: results are the same bit for bit from run to run and for any number
// of threads, with either algorithm. Another algorithm, and assembly in place of
// plain Go, gives other roundings.
//
// # Watching
//
// Engine.Profile writes a trace of some training steps: what every thread did
// when, the inputs, the exchange of gradients and the optimiser.
package cpu
