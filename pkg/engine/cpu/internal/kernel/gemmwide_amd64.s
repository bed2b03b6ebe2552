#include "textflag.h"

// The matrix kernel for AVX-512, see GEMMFunc with interleaved weights: tiles of 1, 2, 3, 4, 6, 8
// and 12 rows of 8, 16 or 32 outputs, with eight floats per step ("Deep") and with one ("Flat").
// MultiplyRows computes other numbers of rows by two of these functions. Twelve rows of two vectors
// of sixteen outputs are 24 registers of sums, which leaves eight of the 32 for the operands.
//
// R8 to R13, R15, BX, CX, DX, SI and R14 contain the addresses of the rows. Only a tile of twelve
// rows uses R14 for a row; in others it is a counter. AX is the offset of a step, and DI points to
// its weights. Vector registers 0 to 23 are the sums, 24 and 25 weights, 26 to 31 inputs. Variables
// are on the stack: the table of the tile's rows, the number of tiles and of steps that are left,
// and the address of the next step.
#define TABLE 0(SP)
#define TILESLEFT 8(SP)
#define STEPAT 16(SP)
#define STEPSLEFT 24(SP)
#define FLOATSLEFT 32(SP)

// FIRST and RESTn call the macro do for each row of a tile: FIRST for row 0, RESTn for rows 1 to
// n−1. Its arguments are the row's number, its address, its sums, a register for its input, and at.
// Sums of 16 or 32 outputs have two names per register: its lower half, and all of it.
#define FIRST8(do, at) do(0, R8, Y0, Y26, at)
#define REST1x8(do, at)
#define REST2x8(do, at) do(1, R9, Y1, Y27, at)
#define REST3x8(do, at) REST2x8(do, at); do(2, R10, Y2, Y28, at)
#define REST4x8(do, at) REST3x8(do, at); do(3, R11, Y3, Y29, at)
#define REST6x8(do, at) REST4x8(do, at); do(4, R12, Y4, Y30, at); do(5, R13, Y5, Y31, at)
#define REST8x8(do, at) REST6x8(do, at); do(6, R15, Y6, Y26, at); do(7, BX, Y7, Y27, at)
#define REST12x8(do, at) \
	REST8x8(do, at); \
	do(8, CX, Y8, Y28, at); \
	do(9, DX, Y9, Y29, at); \
	do(10, SI, Y10, Y30, at); \
	do(11, R14, Y11, Y31, at)

#define FIRST16(do, at) do(0, R8, Y0, Z0, Z26, at)
#define REST1x16(do, at)
#define REST2x16(do, at) do(1, R9, Y1, Z1, Z27, at)
#define REST3x16(do, at) REST2x16(do, at); do(2, R10, Y2, Z2, Z28, at)
#define REST4x16(do, at) REST3x16(do, at); do(3, R11, Y3, Z3, Z29, at)
#define REST6x16(do, at) REST4x16(do, at); do(4, R12, Y4, Z4, Z30, at); do(5, R13, Y5, Z5, Z31, at)
#define REST8x16(do, at) REST6x16(do, at); do(6, R15, Y6, Z6, Z26, at); do(7, BX, Y7, Z7, Z27, at)
#define REST12x16(do, at) \
	REST8x16(do, at); \
	do(8, CX, Y8, Z8, Z28, at); \
	do(9, DX, Y9, Z9, Z29, at); \
	do(10, SI, Y10, Z10, Z30, at); \
	do(11, R14, Y11, Z11, Z31, at)

#define FIRST32(do, at) do(0, R8, Y0, Z0, Y1, Z1, Z26, at)
#define REST1x32(do, at)
#define REST2x32(do, at) do(1, R9, Y2, Z2, Y3, Z3, Z27, at)
#define REST3x32(do, at) REST2x32(do, at); do(2, R10, Y4, Z4, Y5, Z5, Z28, at)
#define REST4x32(do, at) REST3x32(do, at); do(3, R11, Y6, Z6, Y7, Z7, Z29, at)
#define REST6x32(do, at) \
	REST4x32(do, at); \
	do(4, R12, Y8, Z8, Y9, Z9, Z30, at); \
	do(5, R13, Y10, Z10, Y11, Z11, Z31, at)
#define REST8x32(do, at) \
	REST6x32(do, at); \
	do(6, R15, Y12, Z12, Y13, Z13, Z26, at); \
	do(7, BX, Y14, Z14, Y15, Z15, Z27, at)
#define REST12x32(do, at) \
	REST8x32(do, at); \
	do(8, CX, Y16, Z16, Y17, Z17, Z28, at); \
	do(9, DX, Y18, Z18, Y19, Z19, Z29, at); \
	do(10, SI, Y20, Z20, Y21, Z21, Z30, at); \
	do(11, R14, Y22, Z22, Y23, Z23, Z31, at)

// The macros for FIRST and REST. ADDRESS adds the base in AX to the row's offset, from byte at of
// the tile's table on. LOAD, STORE and COPY load the sums from y, store them there, and copy those
// of row 0. MULTIPLY adds the product of the row's float at AX + at with the weights. When outputs
// are loaded and stored, AX is yNext, the distance between blocks of eight outputs, and DI is 3·yNext.
#define ADDRESS8(i, row, s, x, at) \
	MOVLQSX (at+4*i)(DI), row; \
	ADDQ    AX, row
#define LOAD8(i, row, s, x, at) VMOVUPS (row), s
#define STORE8(i, row, s, x, at) VMOVUPS s, (row)
#define COPY8(i, row, s, x, at) VMOVAPS Y0, s
#define MULTIPLY8(i, row, s, x, at) \
	VBROADCASTSS at(row)(AX*1), x; \
	VFMADD231PS  Y24, x, s

#define ADDRESS16(i, row, y, z, x, at) ADDRESS8(i, row, z, x, at)
#define LOAD16(i, row, y, z, x, at) \
	VMOVUPS      (row), y; \
	VINSERTF64X4 $1, (row)(AX*1), z, z
#define STORE16(i, row, y, z, x, at) \
	VMOVUPS       y, (row); \
	VEXTRACTF64X4 $1, z, (row)(AX*1)
#define STOREPAIR16(i, row, y, z, x, at) VMOVUPS z, (row)
#define COPY16(i, row, y, z, x, at) VMOVAPS Z0, z
#define MULTIPLY16(i, row, y, z, x, at) \
	VBROADCASTSS at(row)(AX*1), x; \
	VFMADD231PS  Z24, x, z

#define ADDRESS32(i, row, y0, z0, y1, z1, x, at) ADDRESS8(i, row, z0, x, at)
#define LOAD32(i, row, y0, z0, y1, z1, x, at) \
	VMOVUPS      (row), y0; \
	VINSERTF64X4 $1, (row)(AX*1), z0, z0; \
	VMOVUPS      (row)(AX*2), y1; \
	VINSERTF64X4 $1, (row)(DI*1), z1, z1
#define STORE32(i, row, y0, z0, y1, z1, x, at) \
	VMOVUPS       y0, (row); \
	VEXTRACTF64X4 $1, z0, (row)(AX*1); \
	VMOVUPS       y1, (row)(AX*2); \
	VEXTRACTF64X4 $1, z1, (row)(DI*1)
#define COPYFIRST32(i, row, y0, z0, y1, z1, x, at) VMOVAPS Z0, z0
#define COPYSECOND32(i, row, y0, z0, y1, z1, x, at) VMOVAPS Z1, z1
#define MULTIPLY32(i, row, y0, z0, y1, z1, x, at) \
	VBROADCASTSS at(row)(AX*1), x; \
	VFMADD231PS  Z24, x, z0; \
	VFMADD231PS  Z25, x, z1

// ADDRESSES sets the addresses of the rows to the base in AX plus their offsets.
#define ADDRESSES(FIRST, REST, ADDRESS, at) \
	FIRST(ADDRESS, at); \
	REST(ADDRESS, at)
#define OUTPUTS(FIRST, REST, ADDRESS) \
	MOVQ TABLE, DI; \
	MOVQ y+16(FP), AX; \
	ADDRESSES(FIRST, REST, ADDRESS, 48)

// BEGIN begins a tile. The code up to "fresh" initializes the sums with y, the code from there on
// with the bias. INPUTS prepares the loop over steps.
#define BEGIN(FIRST, REST, ADDRESS) \
	MOVQ  tiles+72(FP), AX; \
	MOVQ  AX, TILESLEFT; \
	MOVQ  rows+32(FP), AX; \
	MOVQ  AX, TABLE; \
tile: \
	MOVB  accumulate+80(FP), AL; \
	TESTB AL, AL; \
	JZ    fresh; \
	OUTPUTS(FIRST, REST, ADDRESS)

#define INPUTS(FIRST, REST, ADDRESS) \
	MOVQ steps+40(FP), AX; \
	MOVQ AX, STEPAT; \
	MOVQ nstep+64(FP), AX; \
	MOVQ AX, STEPSLEFT; \
	MOVQ TABLE, DI; \
	MOVQ x+0(FP), AX; \
	ADDRESSES(FIRST, REST, ADDRESS, 0)

#define END \
	ADDQ $96, TABLE; \
	DECQ TILESLEFT; \
	JNZ  tile; \
	VZEROUPPER; \
	RET

#define BEGIN8(REST) \
	BEGIN(FIRST8, REST, ADDRESS8); \
	FIRST8(LOAD8, 0); \
	REST(LOAD8, 0); \
	JMP     started; \
fresh: \
	MOVQ    bias+24(FP), AX; \
	VMOVUPS (AX), Y0; \
	REST(COPY8, 0); \
started: \
	INPUTS(FIRST8, REST, ADDRESS8)

#define END8(REST) \
store: \
	OUTPUTS(FIRST8, REST, ADDRESS8); \
	FIRST8(STORE8, 0); \
	REST(STORE8, 0); \
	END

#define BEGIN16(REST) \
	BEGIN(FIRST16, REST, ADDRESS16); \
	MOVQ    yNext+56(FP), AX; \
	FIRST16(LOAD16, 0); \
	REST(LOAD16, 0); \
	JMP     started; \
fresh: \
	MOVQ    bias+24(FP), AX; \
	VMOVUPS (AX), Z0; \
	REST(COPY16, 0); \
started: \
	INPUTS(FIRST16, REST, ADDRESS16)

// END16 stores both blocks of a row at once if they are adjacent in y. Without it Winograd's
// products of eight channels take 6 % longer. Tiles of 32 outputs do not gain from it.
#define END16(REST) \
store: \
	OUTPUTS(FIRST16, REST, ADDRESS16); \
	MOVQ yNext+56(FP), AX; \
	CMPQ AX, $32; \
	JNE  apart; \
	FIRST16(STOREPAIR16, 0); \
	REST(STOREPAIR16, 0); \
	JMP  stored; \
apart: \
	MOVQ yNext+56(FP), AX; \
	FIRST16(STORE16, 0); \
	REST(STORE16, 0); \
stored: \
	END

#define BEGIN32(REST) \
	BEGIN(FIRST32, REST, ADDRESS32); \
	MOVQ    yNext+56(FP), AX; \
	LEAQ    (AX)(AX*2), DI; \
	FIRST32(LOAD32, 0); \
	REST(LOAD32, 0); \
	JMP     started; \
fresh: \
	MOVQ    bias+24(FP), AX; \
	VMOVUPS (AX), Z0; \
	REST(COPYFIRST32, 0); \
	VMOVUPS 64(AX), Z1; \
	REST(COPYSECOND32, 0); \
started: \
	INPUTS(FIRST32, REST, ADDRESS32)

#define END32(REST) \
store: \
	OUTPUTS(FIRST32, REST, ADDRESS32); \
	MOVQ yNext+56(FP), AX; \
	LEAQ (AX)(AX*2), DI; \
	FIRST32(STORE32, 0); \
	REST(STORE32, 0); \
	END

// PRODUCT adds the outer product of the rows' floats at AX + at with the weights at DI + weights.
#define PRODUCT8(REST, at, weights) \
	VMOVUPS weights(DI), Y24; \
	FIRST8(MULTIPLY8, at); \
	REST(MULTIPLY8, at)
#define PRODUCT16(REST, at, weights) \
	VMOVUPS weights(DI), Z24; \
	FIRST16(MULTIPLY16, at); \
	REST(MULTIPLY16, at)
#define PRODUCT32(REST, at, weights) \
	VMOVUPS weights(DI), Z24; \
	VMOVUPS (weights+64)(DI), Z25; \
	FIRST32(MULTIPLY32, at); \
	REST(MULTIPLY32, at)

// WEIGHTSn multiplies the offset of a step's weights by the number of blocks of outputs.
#define WEIGHTS8
#define WEIGHTS16 SHLQ $1, DI
#define WEIGHTS32 SHLQ $2, DI

// DEEPSTEPS computes two of eight floats per iteration of its inner loop. left counts them, and
// size is the size of the weights of one float.
#define DEEPSTEPS(REST, PRODUCT, WEIGHTS, size, left) \
	CMPQ    STEPSLEFT, $0; \
	JE      store; \
step: \
	MOVQ    STEPAT, DI; \
	MOVLQSX (DI), AX; \
	MOVLQSX 4(DI), DI; \
	WEIGHTS; \
	ADDQ    w+8(FP), DI; \
	ADDQ    $8, STEPAT; \
	MOVQ    $4, left; \
floats: \
	PRODUCT(REST, 0, 0); \
	PRODUCT(REST, 4, size); \
	ADDQ    $8, AX; \
	ADDQ    $(2*size), DI; \
	DECQ    left; \
	JNZ     floats; \
	DECQ    STEPSLEFT; \
	JNZ     step

#define FLATBEGIN \
	MOVQ w+8(FP), DI; \
	CMPQ STEPSLEFT, $0; \
	JE   store
#define FLATNEXT \
	ADDQ wNext+48(FP), DI; \
	DECQ STEPSLEFT; \
	JNZ  step

#define FLATSTEPS(REST, PRODUCT) \
	FLATBEGIN; \
	MOVQ    STEPAT, R14; \
step: \
	MOVLQSX (R14), AX; \
	ADDQ    $4, R14; \
	PRODUCT(REST, 0, 0); \
	FLATNEXT

// FLATSTEPS12 is FLATSTEPS for twelve rows, which leave no register for the address of the step.
#define FLATSTEPS12(REST, PRODUCT) \
	FLATBEGIN; \
step: \
	MOVQ    STEPAT, AX; \
	MOVLQSX (AX), AX; \
	ADDQ    $4, STEPAT; \
	PRODUCT(REST, 0, 0); \
	FLATNEXT

#define DEEP8(REST, left) \
	BEGIN8(REST); \
	DEEPSTEPS(REST, PRODUCT8, WEIGHTS8, 32, left); \
	END8(REST)
#define DEEP16(REST, left) \
	BEGIN16(REST); \
	DEEPSTEPS(REST, PRODUCT16, WEIGHTS16, 64, left); \
	END16(REST)
#define DEEP32(REST, left) \
	BEGIN32(REST); \
	DEEPSTEPS(REST, PRODUCT32, WEIGHTS32, 128, left); \
	END32(REST)
#define FLAT8(REST, STEPS) \
	BEGIN8(REST); \
	STEPS(REST, PRODUCT8); \
	END8(REST)
#define FLAT16(REST, STEPS) \
	BEGIN16(REST); \
	STEPS(REST, PRODUCT16); \
	END16(REST)
#define FLAT32(REST, STEPS) \
	BEGIN32(REST); \
	STEPS(REST, PRODUCT32); \
	END32(REST)

TEXT ·gemmDeep1x8AVX512(SB), NOSPLIT, $32-81
	DEEP8(REST1x8, R14)

TEXT ·gemmFlat1x8AVX512(SB), NOSPLIT, $32-81
	FLAT8(REST1x8, FLATSTEPS)

TEXT ·gemmDeep2x8AVX512(SB), NOSPLIT, $32-81
	DEEP8(REST2x8, R14)

TEXT ·gemmFlat2x8AVX512(SB), NOSPLIT, $32-81
	FLAT8(REST2x8, FLATSTEPS)

TEXT ·gemmDeep3x8AVX512(SB), NOSPLIT, $32-81
	DEEP8(REST3x8, R14)

TEXT ·gemmFlat3x8AVX512(SB), NOSPLIT, $32-81
	FLAT8(REST3x8, FLATSTEPS)

TEXT ·gemmDeep4x8AVX512(SB), NOSPLIT, $32-81
	DEEP8(REST4x8, R14)

TEXT ·gemmFlat4x8AVX512(SB), NOSPLIT, $32-81
	FLAT8(REST4x8, FLATSTEPS)

TEXT ·gemmDeep6x8AVX512(SB), NOSPLIT, $32-81
	DEEP8(REST6x8, R14)

TEXT ·gemmFlat6x8AVX512(SB), NOSPLIT, $32-81
	FLAT8(REST6x8, FLATSTEPS)

TEXT ·gemmDeep8x8AVX512(SB), NOSPLIT, $32-81
	DEEP8(REST8x8, R14)

TEXT ·gemmFlat8x8AVX512(SB), NOSPLIT, $32-81
	FLAT8(REST8x8, FLATSTEPS)

TEXT ·gemmDeep12x8AVX512(SB), NOSPLIT, $40-81
	DEEP8(REST12x8, FLOATSLEFT)

TEXT ·gemmFlat12x8AVX512(SB), NOSPLIT, $32-81
	FLAT8(REST12x8, FLATSTEPS12)

TEXT ·gemmDeep1x16AVX512(SB), NOSPLIT, $32-81
	DEEP16(REST1x16, R14)

TEXT ·gemmFlat1x16AVX512(SB), NOSPLIT, $32-81
	FLAT16(REST1x16, FLATSTEPS)

TEXT ·gemmDeep2x16AVX512(SB), NOSPLIT, $32-81
	DEEP16(REST2x16, R14)

TEXT ·gemmFlat2x16AVX512(SB), NOSPLIT, $32-81
	FLAT16(REST2x16, FLATSTEPS)

TEXT ·gemmDeep3x16AVX512(SB), NOSPLIT, $32-81
	DEEP16(REST3x16, R14)

TEXT ·gemmFlat3x16AVX512(SB), NOSPLIT, $32-81
	FLAT16(REST3x16, FLATSTEPS)

TEXT ·gemmDeep4x16AVX512(SB), NOSPLIT, $32-81
	DEEP16(REST4x16, R14)

TEXT ·gemmFlat4x16AVX512(SB), NOSPLIT, $32-81
	FLAT16(REST4x16, FLATSTEPS)

TEXT ·gemmDeep6x16AVX512(SB), NOSPLIT, $32-81
	DEEP16(REST6x16, R14)

TEXT ·gemmFlat6x16AVX512(SB), NOSPLIT, $32-81
	FLAT16(REST6x16, FLATSTEPS)

TEXT ·gemmDeep8x16AVX512(SB), NOSPLIT, $32-81
	DEEP16(REST8x16, R14)

TEXT ·gemmFlat8x16AVX512(SB), NOSPLIT, $32-81
	FLAT16(REST8x16, FLATSTEPS)

TEXT ·gemmDeep12x16AVX512(SB), NOSPLIT, $40-81
	DEEP16(REST12x16, FLOATSLEFT)

TEXT ·gemmFlat12x16AVX512(SB), NOSPLIT, $32-81
	FLAT16(REST12x16, FLATSTEPS12)

TEXT ·gemmDeep1x32AVX512(SB), NOSPLIT, $32-81
	DEEP32(REST1x32, R14)

TEXT ·gemmFlat1x32AVX512(SB), NOSPLIT, $32-81
	FLAT32(REST1x32, FLATSTEPS)

TEXT ·gemmDeep2x32AVX512(SB), NOSPLIT, $32-81
	DEEP32(REST2x32, R14)

TEXT ·gemmFlat2x32AVX512(SB), NOSPLIT, $32-81
	FLAT32(REST2x32, FLATSTEPS)

TEXT ·gemmDeep3x32AVX512(SB), NOSPLIT, $32-81
	DEEP32(REST3x32, R14)

TEXT ·gemmFlat3x32AVX512(SB), NOSPLIT, $32-81
	FLAT32(REST3x32, FLATSTEPS)

TEXT ·gemmDeep4x32AVX512(SB), NOSPLIT, $32-81
	DEEP32(REST4x32, R14)

TEXT ·gemmFlat4x32AVX512(SB), NOSPLIT, $32-81
	FLAT32(REST4x32, FLATSTEPS)

TEXT ·gemmDeep6x32AVX512(SB), NOSPLIT, $32-81
	DEEP32(REST6x32, R14)

TEXT ·gemmFlat6x32AVX512(SB), NOSPLIT, $32-81
	FLAT32(REST6x32, FLATSTEPS)

TEXT ·gemmDeep8x32AVX512(SB), NOSPLIT, $32-81
	DEEP32(REST8x32, R14)

TEXT ·gemmFlat8x32AVX512(SB), NOSPLIT, $32-81
	FLAT32(REST8x32, FLATSTEPS)

TEXT ·gemmDeep12x32AVX512(SB), NOSPLIT, $40-81
	DEEP32(REST12x32, FLOATSLEFT)

TEXT ·gemmFlat12x32AVX512(SB), NOSPLIT, $32-81
	FLAT32(REST12x32, FLATSTEPS12)
