#include "textflag.h"
#include "vectors_amd64.h"

// Winograd's transforms F(4×4,3×3), see Winograd, for AVX2 and AVX-512. Each is a product M·d·Mᵀ of a
// small constant matrix with a square of vectors: the columns are transformed to scratch memory, then
// its rows to their places. With AVX-512 a vector has two channel blocks, or the weights of two blocks
// of output channels. If only one channel block is left, masks leave the second one out.
//
// DX points to the scratch memory, DI counts the remaining blocks, SI is the distance ld between the
// points of a square, and AX, CX and R10 point to what is read and written. With AVX-512, R13 points to
// the second block where AX or R10 points to the first.
//
// V0 to V4 are constants, and V5 to V10 the vectors that a transform multiplies.

DATA two<>+0(SB)/4, $2.0
GLOBL two<>(SB), RODATA|NOPTR, $4
DATA four<>+0(SB)/4, $4.0
GLOBL four<>(SB), RODATA|NOPTR, $4
DATA five<>+0(SB)/4, $5.0
GLOBL five<>(SB), RODATA|NOPTR, $4
DATA eight<>+0(SB)/4, $8.0
GLOBL eight<>(SB), RODATA|NOPTR, $4
DATA quarter<>+0(SB)/4, $0.25
GLOBL quarter<>(SB), RODATA|NOPTR, $4
DATA sixth<>+0(SB)/4, $0.16666667
GLOBL sixth<>(SB), RODATA|NOPTR, $4
DATA twelfth<>+0(SB)/4, $0.083333336
GLOBL twelfth<>(SB), RODATA|NOPTR, $4
DATA twentyfourth<>+0(SB)/4, $0.041666668
GLOBL twentyfourth<>(SB), RODATA|NOPTR, $4

// SQUARE is the vector in row i and column j of the scratch memory.
#define SQUARE(i, j) (VECTOR*(6*i+j))(DX)

#define SAVE(v, to) VMOVUPS v, to

#define LOADROW3(i) \
	VMOVUPS SQUARE(i, 0), V5; \
	VMOVUPS SQUARE(i, 1), V6; \
	VMOVUPS SQUARE(i, 2), V7
#define LOADROW4(i) \
	LOADROW3(i); \
	VMOVUPS SQUARE(i, 3), V8
#define LOADROW6(i) \
	LOADROW4(i); \
	VMOVUPS SQUARE(i, 4), V9; \
	VMOVUPS SQUARE(i, 5), V10

// TOCOLUMN stores the result of a transform as column j of the scratch memory. TOPOINTS stores it as
// the next six points at R10; POINTS sets R11 and R12 to multiples of their distance.
#define TOCOLUMN(TRANSFORM, j) TRANSFORM(SAVE, SQUARE(0, j), SQUARE(1, j), SQUARE(2, j), SQUARE(3, j), SQUARE(4, j), SQUARE(5, j))
#define TOPOINTS(TRANSFORM, STORE) \
	TRANSFORM(STORE, (R10), (R10)(SI*1), (R10)(SI*2), (R10)(R11*1), (R10)(SI*4), (R10)(R12*1)); \
	LEAQ (R10)(SI*4), R10; \
	LEAQ (R10)(SI*2), R10
#define POINTS \
	LEAQ (SI)(SI*2), R11; \
	LEAQ (SI)(SI*4), R12

// LOADPOINTS loads a column of a square of points, and advances R10 to the next column. POINTROWS sets
// R9, R11 and R12 to multiples of the distance of the square's rows.
#define LOADPOINTS \
	VMOVUPS (R10), V5; \
	VMOVUPS (R10)(R11*1), V6; \
	VMOVUPS (R10)(R11*2), V7; \
	VMOVUPS (R10)(R12*1), V8; \
	VMOVUPS (R10)(R11*4), V9; \
	VMOVUPS (R10)(R9*1), V10; \
	ADDQ    SI, R10
#define POINTROWS \
	LEAQ (SI)(SI*2), R11; \
	ADDQ R11, R11; \
	LEAQ (R11)(R11*2), R12; \
	LEAQ (R11)(R11*4), R9

// INPUT computes Bᵀ·d (Lavin and Gray, equation 10 for m = 4).
#define INPUT(STORE, a0, a1, a2, a3, a4, a5) \
	VMOVAPS      V9, V11; \
	VFNMADD231PS V1, V7, V11; \
	VFMADD231PS  V0, V5, V11; \
	STORE(V11, a0); \
	VMOVAPS      V9, V5; \
	VFNMADD231PS V0, V7, V5; \
	VMOVAPS      V8, V11; \
	VFNMADD231PS V0, V6, V11; \
	VADDPS       V11, V5, V12; \
	STORE(V12, a1); \
	VSUBPS       V11, V5, V5; \
	STORE(V5, a2); \
	VSUBPS       V7, V9, V5; \
	VSUBPS       V6, V8, V7; \
	VADDPS       V7, V7, V7; \
	VADDPS       V7, V5, V9; \
	STORE(V9, a3); \
	VSUBPS       V7, V5, V5; \
	STORE(V5, a4); \
	VFNMADD231PS V1, V8, V10; \
	VFMADD231PS  V0, V6, V10; \
	STORE(V10, a5)

// GRADIENT computes A·d.
#define GRADIENT(STORE, a0, a1, a2, a3, a4, a5) \
	STORE(V5, a0); \
	VADDPS      V7, V5, V9; \
	VADDPS      V8, V6, V10; \
	VADDPS      V10, V9, V11; \
	STORE(V11, a1); \
	VSUBPS      V10, V9, V9; \
	STORE(V9, a2); \
	VFMADD231PS V0, V7, V5; \
	VADDPS      V6, V6, V6; \
	VFMADD231PS V1, V8, V6; \
	VADDPS      V6, V5, V7; \
	STORE(V7, a3); \
	VSUBPS      V6, V5, V5; \
	STORE(V5, a4); \
	STORE(V8, a5)

// WEIGHTS computes G·d.
#define WEIGHTS(STORE, a0, a1, a2, a3, a4, a5) \
	VMULPS      V0, V5, V8; \
	STORE(V8, a0); \
	VADDPS      V7, V5, V8; \
	VMULPS      V1, V8, V8; \
	VMULPS      V1, V6, V9; \
	VSUBPS      V8, V4, V10; \
	VSUBPS      V9, V10, V10; \
	STORE(V10, a1); \
	VSUBPS      V8, V9, V9; \
	STORE(V9, a2); \
	VMULPS      V1, V7, V8; \
	VFMADD231PS V3, V5, V8; \
	VMULPS      V2, V6, V9; \
	VADDPS      V9, V8, V10; \
	STORE(V10, a3); \
	VSUBPS      V9, V8, V8; \
	STORE(V8, a4); \
	STORE(V7, a5)

// OUTPUT computes Aᵀ·d, and WEIGHTGRADIENT Gᵀ·d. STORE also gets the name of the lower half of a vector.
#define OUTPUT(STORE, a0, a1, a2, a3) \
	VADDPS      V7, V6, V11; \
	VSUBPS      V7, V6, V6; \
	VADDPS      V9, V8, V7; \
	VSUBPS      V9, V8, V8; \
	VADDPS      V11, V5, V5; \
	VADDPS      V7, V5, V5; \
	STORE(V5, Y5, a0); \
	VADDPS      V10, V6, V10; \
	VFMADD231PS V0, V8, V6; \
	STORE(V6, Y6, a1); \
	VFMADD231PS V1, V7, V11; \
	STORE(V11, Y11, a2); \
	VFMADD231PS V2, V8, V10; \
	STORE(V10, Y10, a3)
#define WEIGHTGRADIENT(STORE, a0, a1, a2) \
	VADDPS       V7, V6, V11; \
	VSUBPS       V6, V7, V6; \
	VADDPS       V9, V8, V7; \
	VSUBPS       V9, V8, V8; \
	VMULPS       V3, V7, V9; \
	VFMADD231PS  V0, V5, V9; \
	VFNMADD231PS V1, V11, V9; \
	STORE(V9, Y9, a0); \
	VMULPS       V2, V8, V8; \
	VFMADD231PS  V1, V6, V8; \
	STORE(V8, Y8, a1); \
	VSUBPS       V11, V7, V7; \
	VFMADD231PS  V1, V7, V10; \
	STORE(V10, Y10, a2)
#define SAVEWHOLE(v, half, to) VMOVUPS v, to

// BLOCKS begins and NEXTBLOCK ends the loop over the blocks of inputs and of gradients, whose rows are
// BX bytes apart. SECONDBLOCK and ADVANCE are of the instruction set.
#define BLOCKS(plane) \
	LEAQ (BX)(BX*2), R8; \
	LEAQ (BX)(BX*4), R9; \
	POINTS; \
block: \
	CMPQ DI, $1; \
	JLT  done; \
	SECONDBLOCK(AX, plane)
#define NEXTBLOCK(plane, step) \
	ADVANCE(plane, step); \
	JMP  block; \
done: \
	RETURN

// PREFETCHROWS4 asks for bytes at+0 to at+63 of the first four rows at base, and of those at R13. They are of
// the tile to the right, which is transformed next. Rows of a map with many pixels are so far apart that
// the processor does not ask for them by itself, and that they do not fit together into the first-level
// cache: so the second-level cache gets them. triple is three times BX.
#define PREFETCHROWS4(at, base, triple) \
	PREFETCHROW((at)(base), (at)(R13)); \
	PREFETCHROW((at)(base)(BX*1), (at)(R13)(BX*1)); \
	PREFETCHROW((at)(base)(BX*2), (at)(R13)(BX*2)); \
	PREFETCHROW((at)(base)(triple*1), (at)(R13)(triple*1))
#define PREFETCHROWS6(at) \
	PREFETCHROWS4(at, AX, R8); \
	PREFETCHROW((at)(AX)(BX*4), (at)(R13)(BX*4)); \
	PREFETCHROW((at)(AX)(R9*1), (at)(R13)(R9*1))

#define LOADCOLUMN4(j) \
	LOADBLOCKS((32*j)(AX), (32*j)(R13), V5); \
	LOADBLOCKS((32*j)(AX)(BX*1), (32*j)(R13)(BX*1), V6); \
	LOADBLOCKS((32*j)(AX)(BX*2), (32*j)(R13)(BX*2), V7); \
	LOADBLOCKS((32*j)(AX)(R8*1), (32*j)(R13)(R8*1), V8)
#define LOADCOLUMN6(j) \
	LOADCOLUMN4(j); \
	LOADBLOCKS((32*j)(AX)(BX*4), (32*j)(R13)(BX*4), V9); \
	LOADBLOCKS((32*j)(AX)(R9*1), (32*j)(R13)(R9*1), V10)

#define INPUTCOLUMN(j) \
	LOADCOLUMN6(j); \
	TOCOLUMN(INPUT, j)

// NORMALIZE computes v = max(v·V2 + V3, V4); NaN stays NaN.
#define NORMALIZE(v) \
	VFMADD213PS V3, V2, v; \
	VMAXPS      v, V4, v
#define NORMINPUTCOLUMN(j) \
	LOADCOLUMN6(j); \
	NORMALIZE(V5); \
	NORMALIZE(V6); \
	NORMALIZE(V7); \
	NORMALIZE(V8); \
	NORMALIZE(V9); \
	NORMALIZE(V10); \
	TOCOLUMN(INPUT, j)
#define INPUTROW(i) \
	LOADROW6(i); \
	TOPOINTS(INPUT, STOREBLOCKS)
// A tile of inputs begins a pixel before a multiple of four, which begins a cache line. It has six pixels,
// of which two are in the tile to the right.
#define INPUTBLOCK(COLUMN) \
	PREFETCHROWS6(224); \
	PREFETCHROWS6(288); \
	COLUMN(0); \
	COLUMN(1); \
	COLUMN(2); \
	COLUMN(3); \
	COLUMN(4); \
	COLUMN(5); \
	MOVQ CX, R10; \
	INPUTROW(0); \
	INPUTROW(1); \
	INPUTROW(2); \
	INPUTROW(3); \
	INPUTROW(4); \
	INPUTROW(5)
#define INPUTS(plane, step) \
	VBROADCASTSS four<>(SB), V0; \
	VBROADCASTSS five<>(SB), V1; \
	BLOCKS(plane); \
	INPUTBLOCK(INPUTCOLUMN); \
	NEXTBLOCK(plane, step)

// R15 points to the constants of the next block.
#define NORMINPUTS(plane, step) \
	VBROADCASTSS four<>(SB), V0; \
	VBROADCASTSS five<>(SB), V1; \
	BLOCKS(plane); \
	LOADBLOCKS(0(R15), 96(R15), V2); \
	LOADBLOCKS(32(R15), 128(R15), V3); \
	LOADBLOCKS(64(R15), 160(R15), V4); \
	ADDQ $(3*VECTOR), R15; \
	INPUTBLOCK(NORMINPUTCOLUMN); \
	NEXTBLOCK(plane, step)

#define GRADIENTCOLUMN(j) \
	LOADCOLUMN4(j); \
	TOCOLUMN(GRADIENT, j)
#define GRADIENTROW(i) \
	LOADROW4(i); \
	TOPOINTS(GRADIENT, STOREBLOCKS)
#define GRADIENTS(plane, step) \
	VBROADCASTSS four<>(SB), V0; \
	VBROADCASTSS eight<>(SB), V1; \
	BLOCKS(plane); \
	PREFETCHROWS4(128, AX, R8); \
	PREFETCHROWS4(192, AX, R8); \
	GRADIENTCOLUMN(0); \
	GRADIENTCOLUMN(1); \
	GRADIENTCOLUMN(2); \
	GRADIENTCOLUMN(3); \
	MOVQ CX, R10; \
	GRADIENTROW(0); \
	GRADIENTROW(1); \
	GRADIENTROW(2); \
	GRADIENTROW(3); \
	GRADIENTROW(4); \
	GRADIENTROW(5); \
	NEXTBLOCK(plane, step)

// OUTPUTS reads the points at AX and writes rows, BX bytes apart, to CX. R8 points to the bias. A
// vector of the last block alone also reads what follows that block: memory of the block's own point.
#define OUTPUTCOLUMN(j) \
	LOADPOINTS; \
	OUTPUT(SAVEWHOLE, SQUARE(0, j), SQUARE(1, j), SQUARE(2, j), SQUARE(3, j))
#define OUTPUTROW(i) \
	LOADROW6(i); \
	OUTPUT(STOREPIXEL, 0, 32, 64, 96); \
	NEXTOUTPUTROW
#define OUTPUTS(plane, biasStep) \
	VBROADCASTSS two<>(SB), V0; \
	VBROADCASTSS four<>(SB), V1; \
	VBROADCASTSS eight<>(SB), V2; \
	POINTROWS; \
	LEAQ (BX)(BX*2), R14; \
block: \
	CMPQ DI, $1; \
	JLT  done; \
	SECONDBLOCK(R8, biasStep); \
	LOADBLOCKS(0(R8), 0(R13), V3); \
	MOVQ AX, R10; \
	OUTPUTCOLUMN(0); \
	OUTPUTCOLUMN(1); \
	OUTPUTCOLUMN(2); \
	OUTPUTCOLUMN(3); \
	OUTPUTCOLUMN(4); \
	OUTPUTCOLUMN(5); \
	MOVQ CX, R10; \
	SECONDOUTPUT(plane); \
	PREFETCHROWS4(128, R10, R14); \
	PREFETCHROWS4(192, R10, R14); \
	OUTPUTROW(0); \
	OUTPUTROW(1); \
	OUTPUTROW(2); \
	OUTPUTROW(3); \
	ADVANCEOUTPUTS(plane, biasStep); \
	ADDQ $VECTOR, AX; \
	JMP  block; \
done: \
	RETURN

// The weights at AX have nine taps of 256 bytes, and eight rows of eight floats at each. The points of
// the rows are at CX, step bytes apart.
#define WEIGHTCONSTANTS \
	VBROADCASTSS quarter<>(SB), V0; \
	VBROADCASTSS sixth<>(SB), V1; \
	VBROADCASTSS twelfth<>(SB), V2; \
	VBROADCASTSS twentyfourth<>(SB), V3
#define WEIGHTCOLUMN(j) \
	LOADTAP(256*j, V5); \
	LOADTAP(256*(3+j), V6); \
	LOADTAP(256*(6+j), V7); \
	TOCOLUMN(WEIGHTS, j)
#define WEIGHTROW(i) \
	LOADROW3(i); \
	TOPOINTS(WEIGHTS, SAVE)
#define WEIGHTROWS(step) \
	WEIGHTCONSTANTS; \
	ZERO(V4); \
	POINTS; \
	MOVQ   $8, DI; \
row: \
	WEIGHTCOLUMN(0); \
	WEIGHTCOLUMN(1); \
	WEIGHTCOLUMN(2); \
	MOVQ   CX, R10; \
	WEIGHTROW(0); \
	WEIGHTROW(1); \
	WEIGHTROW(2); \
	WEIGHTROW(3); \
	WEIGHTROW(4); \
	WEIGHTROW(5); \
	NEXTWEIGHTS(step); \
	DECQ   DI; \
	JNZ    row; \
	RETURN

#define WEIGHTGRADIENTCOLUMN(j) \
	LOADPOINTS; \
	WEIGHTGRADIENT(SAVEWHOLE, SQUARE(0, j), SQUARE(1, j), SQUARE(2, j))
#define WEIGHTGRADIENTROW(i) \
	LOADROW6(i); \
	WEIGHTGRADIENT(STORETAP, 256*(3*i), 256*(3*i+1), 256*(3*i+2))
#define WEIGHTGRADIENTROWS(step) \
	WEIGHTCONSTANTS; \
	POINTROWS; \
	MOVQ $8, DI; \
row: \
	MOVQ CX, R10; \
	WEIGHTGRADIENTCOLUMN(0); \
	WEIGHTGRADIENTCOLUMN(1); \
	WEIGHTGRADIENTCOLUMN(2); \
	WEIGHTGRADIENTCOLUMN(3); \
	WEIGHTGRADIENTCOLUMN(4); \
	WEIGHTGRADIENTCOLUMN(5); \
	WEIGHTGRADIENTROW(0); \
	WEIGHTGRADIENTROW(1); \
	WEIGHTGRADIENTROW(2); \
	NEXTWEIGHTS(step); \
	DECQ DI; \
	JNZ  row; \
	RETURN

// The macros of AVX2, which has one block per vector.
#include "avx2_amd64.h"
#define SECONDBLOCK(first, distance)
#define PREFETCHROW(first, second) PREFETCHT1 first
#define LOADBLOCKS(first, second, v) VMOVUPS first, v
#define STOREBLOCKS(v, to) VMOVUPS v, to
#define ADVANCE(plane, step) \
	ADDQ plane, AX; \
	ADDQ step, CX; \
	DECQ DI
#define SECONDOUTPUT(plane)
#define STOREPIXEL(v, half, at) \
	VADDPS  V3, v, v; \
	VMOVUPS v, at(R10)
#define NEXTOUTPUTROW ADDQ BX, R10
#define ADVANCEOUTPUTS(plane, biasStep) \
	ADDQ plane, CX; \
	ADDQ biasStep, R8; \
	DECQ DI
#define LOADTAP(at, v) VMOVUPS (at)(AX), v
#define STORETAP(v, half, at) VMOVUPS v, (at)(AX)
#define NEXTWEIGHTS(step) \
	ADDQ $32, AX; \
	ADDQ step, CX

TEXT ·winogradInputAVX2(SB), NOSPLIT, $0-64
	MOVQ x+0(FP), AX
	MOVQ v+8(FP), CX
	MOVQ tmp+16(FP), DX
	MOVQ row+24(FP), BX
	MOVQ ld+40(FP), SI
	MOVQ blocks+56(FP), DI
	INPUTS(plane+32(FP), step+48(FP))

TEXT ·winogradNormInputAVX2(SB), NOSPLIT, $0-72
	MOVQ x+0(FP), AX
	MOVQ v+8(FP), CX
	MOVQ tmp+16(FP), DX
	MOVQ p+24(FP), R15
	MOVQ row+32(FP), BX
	MOVQ ld+48(FP), SI
	MOVQ blocks+64(FP), DI
	NORMINPUTS(plane+40(FP), step+56(FP))

TEXT ·winogradGradientAVX2(SB), NOSPLIT, $0-64
	MOVQ x+0(FP), AX
	MOVQ v+8(FP), CX
	MOVQ tmp+16(FP), DX
	MOVQ row+24(FP), BX
	MOVQ ld+40(FP), SI
	MOVQ blocks+56(FP), DI
	GRADIENTS(plane+32(FP), step+48(FP))

TEXT ·winogradOutputAVX2(SB), NOSPLIT, $0-72
	MOVQ m+0(FP), AX
	MOVQ y+8(FP), CX
	MOVQ bias+16(FP), R8
	MOVQ tmp+24(FP), DX
	MOVQ ld+32(FP), SI
	MOVQ row+40(FP), BX
	MOVQ blocks+64(FP), DI
	OUTPUTS(plane+48(FP), biasStep+56(FP))

TEXT ·winogradWeightsAVX2(SB), NOSPLIT, $0-32
	MOVQ w+0(FP), AX
	MOVQ u+8(FP), CX
	MOVQ tmp+16(FP), DX
	MOVQ ld+24(FP), SI
	WEIGHTROWS($32)

TEXT ·winogradWeightGradientAVX2(SB), NOSPLIT, $0-32
	MOVQ d+0(FP), CX
	MOVQ dw+8(FP), AX
	MOVQ tmp+16(FP), DX
	MOVQ ld+24(FP), SI
	WEIGHTGRADIENTROWS($32)

#include "avx512_amd64.h"

// The macros of AVX-512, which has two blocks per vector. The masks of SECONDBLOCK leave out the second
// one if only one is left: K1 is for all floats, K2 for the second block, and K3 for pairs of floats.
#undef SECONDBLOCK
#define SECONDBLOCK(first, distance) \
	MOVL  $0xffff, R10; \
	CMPQ  DI, $2; \
	JGE   pair; \
	MOVL  $0x00ff, R10; \
pair: \
	KMOVW R10, K1; \
	SHRL  $8, R10; \
	KMOVW R10, K2; \
	ANDL  $0xf0, R10; \
	KMOVW R10, K3; \
	MOVQ  first, R13; \
	ADDQ  distance, R13
#undef PREFETCHROW
#define PREFETCHROW(first, second) \
	PREFETCHT1 first; \
	PREFETCHT1 second
#undef LOADBLOCKS
#define LOADBLOCKS(first, second, v) \
	VBROADCASTF64X4 first, v; \
	VBROADCASTF64X4 second, K3, v
#undef STOREBLOCKS
#define STOREBLOCKS(v, to) VMOVUPS v, K1, to
#undef ADVANCE
#define ADVANCE(plane, step) \
	MOVQ R13, AX; \
	ADDQ plane, AX; \
	ADDQ $64, CX; \
	SUBQ $2, DI
#undef SECONDOUTPUT
#define SECONDOUTPUT(plane) \
	MOVQ CX, R13; \
	ADDQ plane, R13
#undef STOREPIXEL
#define STOREPIXEL(v, half, at) \
	VADDPS        V3, v, v; \
	VMOVUPS       half, at(R10); \
	VEXTRACTF64X4 $1, v, half; \
	VMOVUPS       half, K2, at(R13)
#undef NEXTOUTPUTROW
#define NEXTOUTPUTROW \
	ADDQ BX, R10; \
	ADDQ BX, R13
#undef ADVANCEOUTPUTS
#define ADVANCEOUTPUTS(plane, biasStep) \
	ADDQ plane, CX; \
	ADDQ plane, CX; \
	ADDQ biasStep, R8; \
	ADDQ biasStep, R8; \
	SUBQ $2, DI
#undef LOADTAP
#define LOADTAP(at, v) \
	VBROADCASTF64X4 (at)(AX), v; \
	VINSERTF64X4    $1, (at)(R13), v, v
#undef STORETAP
#define STORETAP(v, half, at) \
	VMOVUPS       half, (at)(AX); \
	VEXTRACTF64X4 $1, v, (at)(R13)
#undef NEXTWEIGHTS
#define NEXTWEIGHTS(step) \
	ADDQ $32, AX; \
	ADDQ $32, R13; \
	ADDQ step, CX

TEXT ·winogradInputAVX512(SB), NOSPLIT, $0-64
	MOVQ x+0(FP), AX
	MOVQ v+8(FP), CX
	MOVQ tmp+16(FP), DX
	MOVQ row+24(FP), BX
	MOVQ ld+40(FP), SI
	MOVQ blocks+56(FP), DI
	INPUTS(plane+32(FP), step+48(FP))

TEXT ·winogradNormInputAVX512(SB), NOSPLIT, $0-72
	MOVQ x+0(FP), AX
	MOVQ v+8(FP), CX
	MOVQ tmp+16(FP), DX
	MOVQ p+24(FP), R15
	MOVQ row+32(FP), BX
	MOVQ ld+48(FP), SI
	MOVQ blocks+64(FP), DI
	NORMINPUTS(plane+40(FP), step+56(FP))

TEXT ·winogradGradientAVX512(SB), NOSPLIT, $0-64
	MOVQ x+0(FP), AX
	MOVQ v+8(FP), CX
	MOVQ tmp+16(FP), DX
	MOVQ row+24(FP), BX
	MOVQ ld+40(FP), SI
	MOVQ blocks+56(FP), DI
	GRADIENTS(plane+32(FP), step+48(FP))

TEXT ·winogradOutputAVX512(SB), NOSPLIT, $0-72
	MOVQ m+0(FP), AX
	MOVQ y+8(FP), CX
	MOVQ bias+16(FP), R8
	MOVQ tmp+24(FP), DX
	MOVQ ld+32(FP), SI
	MOVQ row+40(FP), BX
	MOVQ blocks+64(FP), DI
	OUTPUTS(plane+48(FP), biasStep+56(FP))

TEXT ·winogradWeightsPairAVX512(SB), NOSPLIT, $0-48
	MOVQ w+0(FP), AX
	MOVQ u+8(FP), CX
	MOVQ tmp+16(FP), DX
	MOVQ ld+32(FP), SI
	MOVQ AX, R13
	ADDQ next+24(FP), R13
	WEIGHTROWS(row+40(FP))

TEXT ·winogradWeightGradientPairAVX512(SB), NOSPLIT, $0-48
	MOVQ d+0(FP), CX
	MOVQ dw+8(FP), AX
	MOVQ tmp+16(FP), DX
	MOVQ ld+32(FP), SI
	MOVQ AX, R13
	ADDQ next+24(FP), R13
	WEIGHTGRADIENTROWS(row+40(FP))
