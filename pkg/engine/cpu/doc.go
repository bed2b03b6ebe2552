// Package cpu is the fast engine on processors: it runs a plan in float32 with
// Go workers, without any C library.
//
// # Layout
//
// Activations [n,c,h,w] lie as nChw8c: [n][⌈c/8⌉][h][w][8], so that one vector
// register holds eight channels of one pixel. Weights [k,c,r,s] lie as
// [⌈k/8⌉][⌈c/8⌉][r][s][8 of c][8 of k], vectors as they are. Channels beyond
// the logical ones are padding, and padding is always zero. The blocked layout
// is kept from kernel to kernel; only SetInput, Output, Get, Set and Gradient
// convert.
//
// # One matrix kernel
//
// Every convolution (forward, backward data, backward weights, transposed or
// not, of any window, stride and padding) is a sum over steps of outer products
// of up to six gathered rows with sixteen weights, and one assembly kernel
// computes it (see gemmFunc). The rows' addresses come from tables that are
// built once, at Load; a zero halo, where one is needed, is made by copying a
// block of the input into a worker's scratch memory. The method is that of the
// indirect convolution of Dukhan (The Indirect Convolution Algorithm,
// arXiv:1907.02129, 2019), with offsets in place of pointers.
//
// # Memory
//
// Parameters, gradients and optimiser slots are flat buffers of one layout, the
// gradients of a bucket next to each other, so that a bucket is a slice and the
// optimiser one pass. Activations share an arena by their lifetimes. Step
// allocates nothing (but the optimiser's slots, when it meets a rule first).
//
// # Reproducibility
//
// The work of a kernel is split in pieces that do not depend on the number of
// threads, each computed by one worker, and partial sums are added in a fixed
// order: results are the same bit for bit from run to run and for any number
// of threads.
//
// # Assembly
//
// The assembly (AVX2 and FMA) is written by internal/asmgen with avo; run
// "go generate" after a change. Each of its functions has a plain Go twin that
// serves other processors, and amd64 ones when LOCKSTEP_CPU=go is set.
package cpu

//go:generate go run ./internal/asmgen -dir .
