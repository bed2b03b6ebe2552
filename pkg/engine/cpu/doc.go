// Package cpu is the fast engine for CPUs. It runs programs of package plan in float32 with
// goroutines, without any C library.
//
// # Packages
//
// The package loads programs (load.go, origins.go, compile.go), runs and profiles them
// (executable.go, optimizer.go, profile.go). Its internal packages import only packages
// further down this list:
//
//   - layer turns the operations of a program into tasks,
//   - conv computes convolutions,
//   - workspace contains the memory that the operations share,
//   - threads runs tasks, and tensor describes layouts and operands,
//   - kernel contains the inner loops: assembly, and a plain Go version of each function.
//
// # Layout
//
// Activations [n,c,h,w] have the layout nChw8c: [n][⌈c/8⌉][h][w][8], so that one vector
// register (two of NEON) holds eight channels of one pixel. Volumes [n,c,d,h,w] have the
// layout of maps with d·h rows, features [n,k] that of maps of one pixel. Weights [k,c,r,s]
// are [⌈k/8⌉][⌈c/8⌉][r][s][8 of c][8 of k], and vectors are as usual. Channels beyond the
// logical ones are padding, and padding is always zero. All operations read and write this
// layout; only SetInput, Output, Get, Set and Gradient convert it.
//
// # One matrix kernel
//
// Every convolution (forward, backward data, backward weights, transposed or not, of any
// window, stride and padding) is a sum over steps of outer products of up to six gathered
// rows with sixteen weights (twelve rows with 32 weights with AVX-512). One assembly
// function computes it (see kernel.GEMMFunc). The addresses of the rows come from tables
// that are built once, at Load. If a window reaches outside of the input, a block of the
// input is copied, with a halo of zeros, to a worker's scratch memory. The method is the
// indirect convolution of Dukhan (The Indirect Convolution Algorithm, arXiv:1907.02129,
// 2019), with offsets in place of pointers.
//
// If maps are small, as in the last stages of a ResNet, a large part of a window is
// outside of them. The outputs are then divided into parts whose taps are all inside the
// map, no zeros are multiplied, and pixels of several images fill the rows of the matrix
// kernel. On maps of 2×2 this leaves 4 of 9 taps, on maps of one pixel 1.
//
// # Winograd
//
// 3×3 convolutions of stride 1 with a pad of 1, their transposes and their gradients can
// also be computed by tiles of 4×4 outputs with Winograd's F(4×4,3×3) (Lavin and Gray,
// Fast Algorithms for Convolutional Neural Networks, arXiv:1509.09308, 2015), which needs
// a quarter of the multiplications. Assembly transforms tiles and weights, and the same
// matrix kernel multiplies them. Options.Convolution "direct" and "winograd" force an
// algorithm; "auto" chooses for each shape by an estimate of the work (see
// conv.ShouldUseWinograd).
//
// 3×3×3 convolutions of volumes, of stride 1 with a pad of 1, are computed slice by
// slice. The products of the window's three taps along the depth are summed before they
// are transformed back, so that each slice is transformed once and used three times, and
// the matrices are [tiles, 3·in] by [3·in, out]. A worker holds the transformed slices
// that a few successive outputs depend on, not the whole volume. Taps outside of the
// volume are left out.
//
// Winograd's algorithm has larger rounding errors, since the transforms add and subtract
// multiples of up to eight. In float32 an output or a gradient of the inputs is off by at
// most 2e-5 of the greatest value, and a gradient of the weights by at most 4.2e-5; the
// direct algorithm stays within 1e-5. The tests compare every kernel with float64 within
// these bounds. Over random shapes of up to 48 channels the greatest errors seen are
// 1.2e-5, 8.3e-6 and 6.7e-6 (forward, backward data, backward weights); at 256 to 512
// channels 1.4e-5, 1.4e-5 and 3.1e-6. The sums of 3×3×3 windows have three times as many
// products: all three stay within 4.2e-5, and the greatest errors seen are 1.4e-5, 1.0e-5
// and 7.7e-6 at up to 40 channels and 3.7e-5, 3.6e-5 and 4.3e-6 at 64 to 512.
//
// # bfloat16
//
// With Options.Precision "bf16", convolutions with at least 16 input and output channels, and
// their gradients, round both operands to bfloat16 as they copy them for the matrix products
// (to nearest, to even; numbers below 2^−126 become zero). Sums, outputs, activations,
// gradients and weights stay in float32, so that no other operation changes and no copy of the
// weights is kept. The engine thus rounds fewer tensors than plan.ConvertToMixedPrecision does.
// Package reference also rounds outputs; an output of this engine therefore differs from
// the reference's by at most 2^−8 of its value, in addition to the effect of the order of
// sums. The gradients of whole networks are nearer to float64 than the reference's
// gradients in bf16, see the tests.
//
// Products are computed by AMX, or by AVX512_BF16 where AMX is missing, and by plain Go if
// LOCKSTEP_CPU=go is set (instruction sets "amx", "avx512_bf16" and "go"). On processors without
// AVX512_BF16 the precision is refused otherwise. The stride must be 1, or the size of the
// window without padding, as in a U-Net's transposed convolutions. Other convolutions, fully
// connected layers, and layers of few channels stay in fp32. A notice says how many operations
// round their operands.
//
// GFLOP/s of one core (environment/benchmarks.md):
//
//   - Intel Xeon with AMX: AMX 3470, float32 with AVX-512 235, AVX512_BF16 115. The direct
//     algorithm with AMX is as fast as Winograd's in fp32 or up to three times as fast.
//   - AMD EPYC (Zen 4): AVX512_BF16 236, float32 with AVX-512 118. Winograd's algorithm in fp32
//     is faster than both where it applies: its results per second are those of 197 to 315
//     GFLOP/s on the maps of the benchmarks' U-Net. With AVX512_BF16, such convolutions stay
//     in fp32.
//
// An Intel processor with AVX512_BF16 and without AMX is therefore slower in bf16 than in fp32.
// The notice says so. The same layers round on all processors with the same instruction set,
// so that results have the same bits.
//
// The inputs are copied to a worker's scratch memory, 32 channels of a position after the
// other, with a halo of zeros, so that each tap is a shift (see conv.DirectBF16). On small maps 32
// images of a pixel are adjacent instead, and taps outside of the map are left out.
//
// # Memory
//
// Parameters, gradients and optimizer slots are flat buffers with the same layout. The
// gradients of a bucket are adjacent, so that a bucket is a slice and an optimizer step is
// one pass. Activations share an arena according to their lifetimes. All operations share
// one scratch memory, which holds the transformed weights of a layer with Winograd's
// algorithm, four times as large as the weights. Each worker has scratch memory for the
// tiles that it transforms. Step allocates nothing, except the optimizer's slots when it
// first uses a rule.
//
// # Updates during the backward pass
//
// If nothing is exchanged or clipped, threads that wait for each other during the backward pass
// update weights that no further operation reads (Adam, AdamW and SGD). The optimizer is limited
// by memory and the products are not, so that both together take less time than one after the
// other. Timing.Optimizer is then only the time of the rest. Every element is updated by the same
// operations as before, so that the bits do not change. Such a step is no longer canceled once
// its backward pass has begun.
//
// # Fusion
//
// With Options.Fuse, operations that only move or scale values take no memory and no pass
// over it (see origins.go). The output of a batch norm, with its ReLU, is not stored if
// only convolutions and poolings read it: they normalize its input as they read it, and
// the backward pass computes again where the ReLU is active. A concatenation is read from
// its operands, and the slices of its gradient are parts of that gradient. The gradient of
// a max pooling is added to a slice in place, and the gradient of a batch norm overwrites
// the gradient that it is computed from. The statistics of a batch norm are computed while
// the output of the convolution is in the cache. With or without Fuse, a max pooling
// stores one byte per maximum, its index in the window; the gradient reads nothing else.
//
// # Reproducibility
//
// The work of an operation is divided into items that do not depend on the number of
// threads. One worker computes each item, and partial sums are added in a fixed order.
// Results have the same bits in every run and for any number of threads, with either
// algorithm. Another algorithm, or another instruction set, rounds differently.
//
// # Profile
//
// Engine.Profile writes a trace of some training steps: when each thread computed which
// operation, when inputs were copied and gradients exchanged, the optimizer, and how often
// the threads of a step waited for each other. One thread never waits. From two threads on that
// number hardly depends on the number of threads: the gradient of a batch norm needs one more
// if the threads outnumber its channel blocks.
package cpu
