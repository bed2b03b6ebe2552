#include "textflag.h"
#include "neon_arm64.h"

// Winograd's transforms F(4×4,3×3) for NEON, see Winograd. Each is a product M·d·Mᵀ of a small constant
// matrix with a square of blocks. First the columns of d are multiplied and stored in scratch memory,
// then the rows of the scratch memory are multiplied and stored in the result.
//
// V0 contains constants, and blocks 2 to 12 are the ones that a transform multiplies. R8 points to the middle of the scratch memory, so that all offsets fit in an instruction.
// R7 counts the remaining channel blocks. R5 is the distance ld between the points of a square, and
// R15 points to the next point to write.

DATA four_five<>+0(SB)/4, $4.0
DATA four_five<>+4(SB)/4, $5.0
DATA four_five<>+8(SB)/8, $0
GLOBL four_five<>(SB), RODATA|NOPTR, $16
DATA four_eight<>+0(SB)/4, $4.0
DATA four_eight<>+4(SB)/4, $8.0
DATA four_eight<>+8(SB)/8, $0
GLOBL four_eight<>(SB), RODATA|NOPTR, $16
DATA two_four_eight<>+0(SB)/4, $2.0
DATA two_four_eight<>+4(SB)/4, $4.0
DATA two_four_eight<>+8(SB)/4, $8.0
DATA two_four_eight<>+12(SB)/4, $0
GLOBL two_four_eight<>(SB), RODATA|NOPTR, $16
DATA fractions<>+0(SB)/4, $0.25
DATA fractions<>+4(SB)/4, $0.16666667
DATA fractions<>+8(SB)/4, $0.083333336
DATA fractions<>+12(SB)/4, $0.041666668
GLOBL fractions<>(SB), RODATA|NOPTR, $16

#define CONSTANTS(symbol) \
	MOVD  $symbol<>(SB), R9; \
	FMOVQ 0(R9), F0

// Operations on blocks: d = n + m, d = n − m, d = n·c, d = d + n·c and d = d − n·c, where c is lane i of V0.
#define SUM(d, n, m) THREE2(VFADD, d, n, m)
#define DIFFERENCE(d, n, m) THREE2(VFSUB, d, n, m)
#define SCALED(d, n, i) LANE2(VFMULLANE, d, n, 0, i)
#define PLUS(d, n, i) LANE2(VFMLALANE, d, n, 0, i)
#define MINUS(d, n, i) LANE2(VFMLSLANE, d, n, 0, i)

// SQUARE is the block in row i and column j of the scratch memory.
#define SQUARE(i, j) (32*(6*i+j)-576)(R8)
#define SCRATCH ADD $576, R8

#define LOADROW3(i) \
	FLDPQ SQUARE(i, 0), (F2, F3); \
	FLDPQ SQUARE(i, 1), (F4, F5); \
	FLDPQ SQUARE(i, 2), (F6, F7)
#define LOADROW4(i) \
	LOADROW3(i); \
	FLDPQ SQUARE(i, 3), (F8, F9)
#define LOADROW6(i) \
	LOADROW4(i); \
	FLDPQ SQUARE(i, 4), (F10, F11); \
	FLDPQ SQUARE(i, 5), (F12, F13)

// The transforms call STORE for each block of their result, in ascending order, with its number, its
// registers and its place. STOREPOINT stores it at R15 and adds R5 to R15.
#define SAVE(block, pair, to) FSTPQ pair, to
#define STOREPOINT(block, pair, to) WORD $(0x4c85a9e0 | block) // st1 {block.4s, block+1.4s}, [x15], x5
#define TOCOLUMN(TRANSFORM, j) TRANSFORM(SAVE, SQUARE(0, j), SQUARE(1, j), SQUARE(2, j), SQUARE(3, j), SQUARE(4, j), SQUARE(5, j))
#define TOPOINTS(TRANSFORM) TRANSFORM(STOREPOINT, 0, 1, 2, 3, 4, 5)

// STORESUM stores even + odd to a and even − odd to b, with the help of block t.
#define STORESUM(STORE, t, pair, even, odd, a, b) \
	SUM(t, even, odd); \
	STORE(t, pair, a); \
	DIFFERENCE(t, even, odd); \
	STORE(t, pair, b)

// LOADPOINTS loads a column of a square of points, and advances R9 to the next column. POINTROWS sets
// R11 to the distance of the square's rows.
#define LOADPOINTS \
	MOVD   R9, R10; \
	ADD    R5, R9; \
	VLD1.P (R10)(R11), [V2.S4, V3.S4]; \
	VLD1.P (R10)(R11), [V4.S4, V5.S4]; \
	VLD1.P (R10)(R11), [V6.S4, V7.S4]; \
	VLD1.P (R10)(R11), [V8.S4, V9.S4]; \
	VLD1.P (R10)(R11), [V10.S4, V11.S4]; \
	VLD1.P (R10)(R11), [V12.S4, V13.S4]
#define POINTROWS \
	ADD R5<<1, R5, R11; \
	ADD R11, R11

// INPUT multiplies by (Lavin and Gray, equation 10 for m = 4)
//
//	     ⎡ 4  0 −5  0  1  0 ⎤
//	     ⎢ 0 −4 −4  1  1  0 ⎥
//	Bᵀ = ⎢ 0  4 −4 −1  1  0 ⎥
//	     ⎢ 0 −2 −1  2  1  0 ⎥
//	     ⎢ 0  2 −1 −2  1  0 ⎥
//	     ⎣ 0  4  0 −5  0  1 ⎦
#define INPUT(STORE, a0, a1, a2, a3, a4, a5) \
	TWO2(VMOVE, 14, 10); \
	MINUS(14, 6, 1); \
	PLUS(14, 2, 0); \
	STORE(14, (F14, F15), a0); \
	MINUS(12, 8, 1); \
	PLUS(12, 4, 0); \
	DIFFERENCE(16, 10, 6); \
	DIFFERENCE(18, 8, 4); \
	SUM(18, 18, 18); \
	MINUS(10, 6, 0); \
	MINUS(8, 4, 0); \
	STORESUM(STORE, 20, (F20, F21), 10, 8, a1, a2); \
	STORESUM(STORE, 20, (F20, F21), 16, 18, a3, a4); \
	STORE(12, (F12, F13), a5)

// GRADIENT multiplies by
//
//	    ⎡ 1  0  0  0 ⎤
//	    ⎢ 1  1  1  1 ⎥
//	A = ⎢ 1 −1  1 −1 ⎥
//	    ⎢ 1  2  4  8 ⎥
//	    ⎢ 1 −2  4 −8 ⎥
//	    ⎣ 0  0  0  1 ⎦
#define GRADIENT(STORE, a0, a1, a2, a3, a4, a5) \
	STORE(2, (F2, F3), a0); \
	SUM(10, 2, 6); \
	SUM(12, 4, 8); \
	STORESUM(STORE, 14, (F14, F15), 10, 12, a1, a2); \
	SUM(10, 4, 4); \
	PLUS(10, 8, 1); \
	PLUS(2, 6, 0); \
	STORESUM(STORE, 12, (F12, F13), 2, 10, a3, a4); \
	STORE(8, (F8, F9), a5)

// OUTPUT multiplies by Aᵀ.
#define OUTPUT(STORE, a0, a1, a2, a3) \
	SUM(14, 4, 6); \
	DIFFERENCE(16, 4, 6); \
	SUM(18, 8, 10); \
	DIFFERENCE(20, 8, 10); \
	SUM(2, 2, 14); \
	SUM(2, 2, 18); \
	STORE(2, (F2, F3), a0); \
	SUM(12, 12, 16); \
	PLUS(16, 20, 0); \
	STORE(16, (F16, F17), a1); \
	PLUS(14, 18, 1); \
	STORE(14, (F14, F15), a2); \
	PLUS(12, 20, 2); \
	STORE(12, (F12, F13), a3)

// WEIGHTS multiplies by
//
//	    ⎡  1/4    0     0  ⎤
//	    ⎢ −1/6  −1/6  −1/6 ⎥
//	G = ⎢ −1/6   1/6  −1/6 ⎥
//	    ⎢ 1/24  1/12   1/6 ⎥
//	    ⎢ 1/24 −1/12   1/6 ⎥
//	    ⎣   0     0     1  ⎦
#define WEIGHTS(STORE, a0, a1, a2, a3, a4, a5) \
	SCALED(8, 2, 0); \
	STORE(8, (F8, F9), a0); \
	SUM(8, 2, 6); \
	SCALED(10, 4, 1); \
	SCALED(8, 8, 1); \
	TWO2(VFNEG, 12, 8); \
	DIFFERENCE(12, 12, 10); \
	STORE(12, (F12, F13), a1); \
	DIFFERENCE(12, 10, 8); \
	STORE(12, (F12, F13), a2); \
	SCALED(8, 6, 1); \
	SCALED(10, 4, 2); \
	PLUS(8, 2, 3); \
	STORESUM(STORE, 12, (F12, F13), 8, 10, a3, a4); \
	STORE(6, (F6, F7), a5)

// WEIGHTGRADIENT multiplies by Gᵀ.
#define WEIGHTGRADIENT(STORE, a0, a1, a2) \
	SUM(14, 4, 6); \
	DIFFERENCE(16, 6, 4); \
	SUM(18, 8, 10); \
	DIFFERENCE(20, 8, 10); \
	SCALED(22, 18, 3); \
	PLUS(22, 2, 0); \
	MINUS(22, 14, 1); \
	STORE(22, (F22, F23), a0); \
	SCALED(22, 20, 2); \
	PLUS(22, 16, 1); \
	STORE(22, (F22, F23), a1); \
	DIFFERENCE(18, 18, 14); \
	PLUS(12, 18, 1); \
	STORE(12, (F12, F13), a2)

// BLOCKS begins and NEXTBLOCK ends the loop over the squares of inputs and of gradients. R1 points to
// a square, R3 is the distance of its rows and R4 the distance to the next square. R9 to R14 point to
// the rows. R2 points to the points of the square, and R6 is the distance to those of the next square.
#define BLOCKS \
	SCRATCH; \
	SUBS $1, R7; \
	BLT  done; \
block:
#define ROWADDRESSES \
	MOVD R1, R9; \
	ADD  R3, R9, R10; \
	ADD  R3, R10, R11; \
	ADD  R3, R11, R12; \
	ADD  R3, R12, R13; \
	ADD  R3, R13, R14
#define NEXTBLOCK \
	ADD  R4, R1; \
	ADD  R6, R2; \
	SUBS $1, R7; \
	BGE  block; \
done: \
	RET

#define INPUTCOLUMN(j) \
	FLDPQ (32*j)(R9), (F2, F3); \
	FLDPQ (32*j)(R10), (F4, F5); \
	FLDPQ (32*j)(R11), (F6, F7); \
	FLDPQ (32*j)(R12), (F8, F9); \
	FLDPQ (32*j)(R13), (F10, F11); \
	FLDPQ (32*j)(R14), (F12, F13); \
	TOCOLUMN(INPUT, j)

// NORMALIZEINPUT computes d = max(d·factor + summand, bound) with the constants in blocks 22, 24 and 26.
#define NORMALIZEINPUT(d) \
	TWO2(VMOVE, 14, 24); \
	THREE2(VMULADD, 14, d, 22); \
	THREE2(VFMAX, d, 14, 26)
#define NORMINPUTCOLUMN(j) \
	FLDPQ (32*j)(R9), (F2, F3); \
	NORMALIZEINPUT(2); \
	FLDPQ (32*j)(R10), (F4, F5); \
	NORMALIZEINPUT(4); \
	FLDPQ (32*j)(R11), (F6, F7); \
	NORMALIZEINPUT(6); \
	FLDPQ (32*j)(R12), (F8, F9); \
	NORMALIZEINPUT(8); \
	FLDPQ (32*j)(R13), (F10, F11); \
	NORMALIZEINPUT(10); \
	FLDPQ (32*j)(R14), (F12, F13); \
	NORMALIZEINPUT(12); \
	TOCOLUMN(INPUT, j)
#define INPUTROW(i) \
	LOADROW6(i); \
	TOPOINTS(INPUT)
#define INPUTBLOCK(COLUMN) \
	ROWADDRESSES; \
	COLUMN(0); \
	COLUMN(1); \
	COLUMN(2); \
	COLUMN(3); \
	COLUMN(4); \
	COLUMN(5); \
	MOVD R2, R15; \
	INPUTROW(0); \
	INPUTROW(1); \
	INPUTROW(2); \
	INPUTROW(3); \
	INPUTROW(4); \
	INPUTROW(5); \
	NEXTBLOCK

#define GRADIENTCOLUMN(j) \
	FLDPQ (32*j)(R9), (F2, F3); \
	FLDPQ (32*j)(R10), (F4, F5); \
	FLDPQ (32*j)(R11), (F6, F7); \
	FLDPQ (32*j)(R12), (F8, F9); \
	TOCOLUMN(GRADIENT, j)
#define GRADIENTROW(i) \
	LOADROW4(i); \
	TOPOINTS(GRADIENT)

// OUTPUTROW adds the bias in block 22 to four outputs and stores them at R12.
#define STOREPIXEL(block, pair, at) \
	SUM(block, block, 22); \
	FSTPQ pair, at(R12)
#define OUTPUTCOLUMN(j) \
	LOADPOINTS; \
	OUTPUT(SAVE, SQUARE(0, j), SQUARE(1, j), SQUARE(2, j), SQUARE(3, j))
#define OUTPUTROW(i) \
	LOADROW6(i); \
	OUTPUT(STOREPIXEL, 0, 32, 64, 96); \
	ADD R3, R12

// A tile of weights has nine taps of 256 bytes, and eight rows of eight weights at each. WEIGHTTAPS sets
// R13 and R14 to the second and the third row of taps of the tile at first.
#define WEIGHTTAPS(first) \
	ADD $768, first, R13; \
	ADD $1536, first, R14
#define NEXTWEIGHTS \
	ADD $32, R0; \
	ADD $32, R1; \
	ADD $32, R13; \
	ADD $32, R14; \
	SUBS $1, R7; \
	BNE row; \
	RET
#define WEIGHTCOLUMN(j) \
	FLDPQ (256*j)(R0), (F2, F3); \
	FLDPQ (256*j)(R13), (F4, F5); \
	FLDPQ (256*j)(R14), (F6, F7); \
	TOCOLUMN(WEIGHTS, j)
#define WEIGHTROW(i) \
	LOADROW3(i); \
	TOPOINTS(WEIGHTS)
#define WEIGHTGRADIENTCOLUMN(j) \
	LOADPOINTS; \
	WEIGHTGRADIENT(SAVE, SQUARE(0, j), SQUARE(1, j), SQUARE(2, j))
#define WEIGHTGRADIENTROW(i, taps) \
	LOADROW6(i); \
	WEIGHTGRADIENT(SAVE, 0(taps), 256(taps), 512(taps))

TEXT ·winogradInputNEON(SB), NOSPLIT, $0-64
	MOVD x+0(FP), R1
	MOVD v+8(FP), R2
	MOVD tmp+16(FP), R8
	MOVD row+24(FP), R3
	MOVD plane+32(FP), R4
	MOVD ld+40(FP), R5
	MOVD step+48(FP), R6
	MOVD blocks+56(FP), R7
	CONSTANTS(four_five)
	BLOCKS
	INPUTBLOCK(INPUTCOLUMN)

TEXT ·winogradNormInputNEON(SB), NOSPLIT, $0-72
	MOVD  x+0(FP), R1
	MOVD  v+8(FP), R2
	MOVD  tmp+16(FP), R8
	MOVD  p+24(FP), R0
	MOVD  row+32(FP), R3
	MOVD  plane+40(FP), R4
	MOVD  ld+48(FP), R5
	MOVD  step+56(FP), R6
	MOVD  blocks+64(FP), R7
	CONSTANTS(four_five)
	BLOCKS
	FLDPQ 0(R0), (F22, F23)
	FLDPQ 32(R0), (F24, F25)
	FLDPQ 64(R0), (F26, F27)
	ADD   $96, R0
	INPUTBLOCK(NORMINPUTCOLUMN)

TEXT ·winogradGradientNEON(SB), NOSPLIT, $0-64
	MOVD x+0(FP), R1
	MOVD v+8(FP), R2
	MOVD tmp+16(FP), R8
	MOVD row+24(FP), R3
	MOVD plane+32(FP), R4
	MOVD ld+40(FP), R5
	MOVD step+48(FP), R6
	MOVD blocks+56(FP), R7
	CONSTANTS(four_eight)
	BLOCKS
	ROWADDRESSES
	GRADIENTCOLUMN(0)
	GRADIENTCOLUMN(1)
	GRADIENTCOLUMN(2)
	GRADIENTCOLUMN(3)
	MOVD R2, R15
	GRADIENTROW(0)
	GRADIENTROW(1)
	GRADIENTROW(2)
	GRADIENTROW(3)
	GRADIENTROW(4)
	GRADIENTROW(5)
	NEXTBLOCK

TEXT ·winogradOutputNEON(SB), NOSPLIT, $0-72
	MOVD  m+0(FP), R0
	MOVD  y+8(FP), R1
	MOVD  bias+16(FP), R2
	MOVD  tmp+24(FP), R8
	MOVD  ld+32(FP), R5
	MOVD  row+40(FP), R3
	MOVD  plane+48(FP), R4
	MOVD  biasStep+56(FP), R6
	MOVD  blocks+64(FP), R7
	CONSTANTS(two_four_eight)
	POINTROWS
	BLOCKS
	MOVD  R0, R9
	OUTPUTCOLUMN(0)
	OUTPUTCOLUMN(1)
	OUTPUTCOLUMN(2)
	OUTPUTCOLUMN(3)
	OUTPUTCOLUMN(4)
	OUTPUTCOLUMN(5)
	FLDPQ 0(R2), (F22, F23)
	MOVD  R1, R12
	OUTPUTROW(0)
	OUTPUTROW(1)
	OUTPUTROW(2)
	OUTPUTROW(3)
	ADD   $32, R0
	NEXTBLOCK

TEXT ·winogradWeightsNEON(SB), NOSPLIT, $0-32
	MOVD w+0(FP), R0
	MOVD u+8(FP), R1
	MOVD tmp+16(FP), R8
	MOVD ld+24(FP), R5
	CONSTANTS(fractions)
	SCRATCH
	WEIGHTTAPS(R0)
	MOVD $8, R7
row:
	WEIGHTCOLUMN(0)
	WEIGHTCOLUMN(1)
	WEIGHTCOLUMN(2)
	MOVD R1, R15
	WEIGHTROW(0)
	WEIGHTROW(1)
	WEIGHTROW(2)
	WEIGHTROW(3)
	WEIGHTROW(4)
	WEIGHTROW(5)
	NEXTWEIGHTS

TEXT ·winogradWeightGradientNEON(SB), NOSPLIT, $0-32
	MOVD d+0(FP), R0
	MOVD dw+8(FP), R1
	MOVD tmp+16(FP), R8
	MOVD ld+24(FP), R5
	CONSTANTS(fractions)
	SCRATCH
	POINTROWS
	WEIGHTTAPS(R1)
	MOVD $8, R7
row:
	MOVD R0, R9
	WEIGHTGRADIENTCOLUMN(0)
	WEIGHTGRADIENTCOLUMN(1)
	WEIGHTGRADIENTCOLUMN(2)
	WEIGHTGRADIENTCOLUMN(3)
	WEIGHTGRADIENTCOLUMN(4)
	WEIGHTGRADIENTCOLUMN(5)
	WEIGHTGRADIENTROW(0, R1)
	WEIGHTGRADIENTROW(1, R13)
	WEIGHTGRADIENTROW(2, R14)
	NEXTWEIGHTS
