// Package kernel holds the inner loops of the engine on processors: the matrix
// kernel, Winograd's transforms, batch norm, pooling, losses, elementwise
// operations and optimizers. Each works on plain memory and knows no layer.
//
// A [Set] has all of them for one instruction set. [Available] lists the sets
// that this processor has; [Choose] picks one by name. The environment variable
// LOCKSTEP_CPU ([EnvVar]) forces one.
//
// # Layout
//
// Memory is in blocks of [Lanes] floats: eight channels of one pixel, so that one
// vector register of AVX2 holds a block. Functions take the address of the first
// float and distances in bytes, as the assembly does.
//
// # Assembly
//
// The assembly (AVX2 with FMA, and AVX-512) is written by the program in asmgen with avo;
// run "go generate" after a change to it. Each of the assembly's functions has a
// plain Go twin, in the files *_go.go, which other processors use, and amd64
// processors when LOCKSTEP_CPU=go is set. The tests compare the twins.
//
// With AVX-512 the blocks still have eight channels, and a vector register holds
// two of them: two channel blocks of a pixel in Winograd's transforms, two pixels
// elsewhere. The weights of 32 output channels are stored next to each other for
// the matrix kernel (see [GEMM]). Each multiplication and addition is fused, as with
// AVX2, but sums are added in another order, so that results differ in their last
// bits.
package kernel

//go:generate go run ./asmgen -dir .
