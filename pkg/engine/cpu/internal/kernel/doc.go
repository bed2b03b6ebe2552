// Package kernel contains the inner loops of the CPU engine: the matrix kernel, Winograd's
// transforms, batch norm, pooling, losses, elementwise operations and optimizers. They work
// on plain memory and know nothing about layers.
//
// A [Set] contains all of them for one instruction set. [AvailableKernelSets] lists the sets that
// this processor supports; [ChooseKernelSet] selects one by name. The environment variable
// LOCKSTEP_CPU ([InstructionSetEnvVar]) forces one.
//
// # Layout
//
// Memory consists of blocks of [Lanes] floats: eight channels of one pixel, which fill one
// vector register of AVX2 or two of NEON. Functions take the address of the first float,
// and distances in bytes, as the assembly does.
//
// # Assembly
//
// There is assembly for amd64 (AVX2 with FMA, and AVX-512) and for arm64 (NEON). Macros write
// what several functions share: the tiles of the matrix kernel for all numbers of rows, the
// columns and rows of Winograd's transforms, and loops over vectors for AVX2 and for AVX-512
// (vectors_amd64.h). neon_arm64.h has the instructions that Go's assembler does not know. The
// result of a macro is visible with "go tool objdump". "go vet" compares parameters with the Go
// declarations only outside of macros, so that most functions load theirs there.
//
// Each assembly function has a plain Go version, which is used on other processors, and if
// LOCKSTEP_CPU=go is set. The tests compare the assembly with the plain Go versions. On a
// machine that is not arm64, qemu runs the tests of NEON:
//
//	GOARCH=arm64 go test -exec qemu-aarch64-static ./pkg/engine/cpu/internal/...
//
// The speed of NEON has not been measured yet; environment/benchmarks.md has numbers of
// instructions.
//
// With AVX-512 a block still has eight channels, and a vector register holds two blocks:
// two channel blocks of a pixel in Winograd's transforms, two pixels elsewhere. The weights
// of 32 output channels are interleaved for the matrix kernel (see [GEMM]). Each
// multiplication and addition is fused, as with AVX2, but sums are added in another order,
// so that results differ in their last bits.
//
// NEON has the tiles and the layout of AVX2, and multiplies and adds in the same order,
// so that its functions compute the same bits. Results of a training step still differ from
// results of AVX2 in their last bits, probably because on arm64 Go's compiler fuses products
// and sums in the code between the kernels; this was not isolated.
//
// # bfloat16
//
// A Set for precision bf16 also has [BF16], products of matrices that are rounded to
// bfloat16. [BF16Sets] lists these sets. Go's assembler has no mnemonics for AVX512_BF16 and
// AMX, so that macros write their instructions as numbers. Tile registers are configured and
// released within a function, and Go does not preempt assembly; Linux saves them when it
// switches threads.
//
// # Files
//
// The package has more files than others because each family of functions (bf16, gemm,
// gemmwide, loss, norm, pointwise, pooling, update, winograd) has separate files for its
// plain Go version (*_go.go), its assembly (*_amd64.s) and the declarations of the
// assembly (*_amd64.go); families for arm64 have *_arm64.s and *_arm64.go. The build selects
// them by these names.
package kernel
