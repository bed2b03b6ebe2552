#include "textflag.h"

// The matrix kernel for AVX2, see GEMMFunc: tiles of 1 to 6 rows of 8 or 16 outputs, with eight
// floats per step ("Deep") and with one ("Flat").
//
// R8 to R13 contain the addresses of the rows, BX points to the table of rows, and R15 is the
// number of remaining tiles. In the loop over steps, SI points to the step, CX counts the
// remaining steps, AX is the step's offset, DI points to the weights, R14 to the weights of a step
// of eight floats, and DX is the distance to the second vector of weights. Y0 to Y11 are the sums,
// Y12 and Y13 weights, Y14 and Y15 inputs.

// FIRST and REST2 to REST6 call the macro do for each row of a tile: FIRST for row 0, RESTn for rows
// 1 to n−1. Its arguments are the row's number, its address, its one or two vectors of sums, a
// register for its input, and at.
#define FIRST8(do, at) do(0, R8, Y0, Y14, at)
#define REST1x8(do, at)
#define REST2x8(do, at) do(1, R9, Y1, Y15, at)
#define REST3x8(do, at) REST2x8(do, at); do(2, R10, Y2, Y14, at)
#define REST4x8(do, at) REST3x8(do, at); do(3, R11, Y3, Y15, at)
#define REST5x8(do, at) REST4x8(do, at); do(4, R12, Y4, Y14, at)
#define REST6x8(do, at) REST5x8(do, at); do(5, R13, Y5, Y15, at)

#define FIRST16(do, at) do(0, R8, Y0, Y1, Y14, at)
#define REST1x16(do, at)
#define REST2x16(do, at) do(1, R9, Y2, Y3, Y15, at)
#define REST3x16(do, at) REST2x16(do, at); do(2, R10, Y4, Y5, Y14, at)
#define REST4x16(do, at) REST3x16(do, at); do(3, R11, Y6, Y7, Y15, at)
#define REST5x16(do, at) REST4x16(do, at); do(4, R12, Y8, Y9, Y14, at)
#define REST6x16(do, at) REST5x16(do, at); do(5, R13, Y10, Y11, Y15, at)

// The macros for FIRST and REST. ADDRESS adds the base in AX to the row's offset, from byte at of
// the table of rows on. LOAD, STORE and COPY load the sums from y, store them there, and copy those
// of row 0. MULTIPLY adds the product of the row's float at AX + at with the weights.
#define ADDRESS8(i, row, s, x, at) \
	MOVLQSX (at+4*i)(BX), row; \
	ADDQ    AX, row
#define LOAD8(i, row, s, x, at) VMOVUPS (row), s
#define STORE8(i, row, s, x, at) VMOVUPS s, (row)
#define COPY8(i, row, s, x, at) VMOVAPS Y0, s
#define MULTIPLY8(i, row, s, x, at) \
	VBROADCASTSS at(row)(AX*1), x; \
	VFMADD231PS  Y12, x, s

#define ADDRESS16(i, row, s0, s1, x, at) ADDRESS8(i, row, s0, x, at)
#define LOAD16(i, row, s0, s1, x, at) \
	VMOVUPS (row), s0; \
	VMOVUPS (row)(DX*1), s1
#define STORE16(i, row, s0, s1, x, at) \
	VMOVUPS s0, (row); \
	VMOVUPS s1, (row)(DX*1)
#define COPYFIRST16(i, row, s0, s1, x, at) VMOVAPS Y0, s0
#define COPYSECOND16(i, row, s0, s1, x, at) VMOVAPS Y1, s1
#define MULTIPLY16(i, row, s0, s1, x, at) \
	VBROADCASTSS at(row)(AX*1), x; \
	VFMADD231PS  Y12, x, s0; \
	VFMADD231PS  Y13, x, s1

// INPUTS and OUTPUTS set the addresses of the rows in x and in y.
#define INPUTS(FIRST, REST, ADDRESS) \
	MOVQ x+0(FP), AX; \
	FIRST(ADDRESS, 0); \
	REST(ADDRESS, 0)
#define OUTPUTS(FIRST, REST, ADDRESS) \
	MOVQ y+16(FP), AX; \
	FIRST(ADDRESS, 24); \
	REST(ADDRESS, 24)

// BEGIN begins a tile. The code up to "fresh" initializes the sums with y, the code from there on
// with the bias.
#define BEGIN(FIRST, REST, ADDRESS) \
	MOVQ  tiles+72(FP), R15; \
	MOVQ  rows+32(FP), BX; \
tile: \
	MOVB  accumulate+80(FP), AL; \
	TESTB AL, AL; \
	JZ    fresh; \
	OUTPUTS(FIRST, REST, ADDRESS)

#define END \
	ADDQ $48, BX; \
	DECQ R15; \
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
	INPUTS(FIRST8, REST, ADDRESS8); \
	MOVQ    steps+40(FP), SI; \
	MOVQ    w+8(FP), DI; \
	MOVQ    nstep+64(FP), CX

#define END8(REST) \
store: \
	OUTPUTS(FIRST8, REST, ADDRESS8); \
	FIRST8(STORE8, 0); \
	REST(STORE8, 0); \
	END

#define BEGIN16(REST) \
	BEGIN(FIRST16, REST, ADDRESS16); \
	MOVQ    yNext+56(FP), DX; \
	FIRST16(LOAD16, 0); \
	REST(LOAD16, 0); \
	JMP     started; \
fresh: \
	MOVQ    bias+24(FP), AX; \
	VMOVUPS (AX), Y0; \
	REST(COPYFIRST16, 0); \
	VMOVUPS 32(AX), Y1; \
	REST(COPYSECOND16, 0); \
started: \
	INPUTS(FIRST16, REST, ADDRESS16); \
	MOVQ    steps+40(FP), SI; \
	MOVQ    w+8(FP), DI; \
	MOVQ    wNext+48(FP), DX; \
	MOVQ    nstep+64(FP), CX

#define END16(REST) \
store: \
	OUTPUTS(FIRST16, REST, ADDRESS16); \
	MOVQ yNext+56(FP), DX; \
	FIRST16(STORE16, 0); \
	REST(STORE16, 0); \
	END

// PRODUCT adds the outer product of the rows' floats at AX + at with the weights at w + weights.
#define PRODUCT8(REST, w, at, weights) \
	VMOVUPS weights(w), Y12; \
	FIRST8(MULTIPLY8, at); \
	REST(MULTIPLY8, at)
#define PRODUCT16(REST, w, at, weights) \
	VMOVUPS weights(w), Y12; \
	VMOVUPS weights(w)(DX*1), Y13; \
	FIRST16(MULTIPLY16, at); \
	REST(MULTIPLY16, at)

#define DEEPSTEPS(PRODUCT, REST) \
	TESTQ   CX, CX; \
	JZ      store; \
step: \
	MOVLQSX (SI), AX; \
	MOVLQSX 4(SI), R14; \
	ADDQ    DI, R14; \
	PRODUCT(REST, R14, 0, 0); \
	PRODUCT(REST, R14, 4, 32); \
	PRODUCT(REST, R14, 8, 64); \
	PRODUCT(REST, R14, 12, 96); \
	PRODUCT(REST, R14, 16, 128); \
	PRODUCT(REST, R14, 20, 160); \
	PRODUCT(REST, R14, 24, 192); \
	PRODUCT(REST, R14, 28, 224); \
	ADDQ    $8, SI; \
	DECQ    CX; \
	JNZ     step

// FLATSTEPS computes four steps per iteration, and then those that are left.
#define FLATSTEPS(PRODUCT, REST) \
	SUBQ    $4, CX; \
	JLT     rest; \
steps: \
	MOVLQSX (SI), AX; \
	PRODUCT(REST, DI, 0, 0); \
	MOVLQSX 4(SI), AX; \
	PRODUCT(REST, DI, 0, 32); \
	MOVLQSX 8(SI), AX; \
	PRODUCT(REST, DI, 0, 64); \
	MOVLQSX 12(SI), AX; \
	PRODUCT(REST, DI, 0, 96); \
	ADDQ    $16, SI; \
	ADDQ    $128, DI; \
	SUBQ    $4, CX; \
	JGE     steps; \
rest: \
	ADDQ    $4, CX; \
	JZ      store; \
step: \
	MOVLQSX (SI), AX; \
	PRODUCT(REST, DI, 0, 0); \
	ADDQ    $4, SI; \
	ADDQ    $32, DI; \
	DECQ    CX; \
	JNZ     step

#define DEEP8(REST) \
	BEGIN8(REST); \
	DEEPSTEPS(PRODUCT8, REST); \
	END8(REST)
#define DEEP16(REST) \
	BEGIN16(REST); \
	DEEPSTEPS(PRODUCT16, REST); \
	END16(REST)
#define FLAT8(REST) \
	BEGIN8(REST); \
	FLATSTEPS(PRODUCT8, REST); \
	END8(REST)
#define FLAT16(REST) \
	BEGIN16(REST); \
	FLATSTEPS(PRODUCT16, REST); \
	END16(REST)

TEXT ·gemmDeep1x8(SB), NOSPLIT, $0-81
	DEEP8(REST1x8)

TEXT ·gemmFlat1x8(SB), NOSPLIT, $0-81
	FLAT8(REST1x8)

TEXT ·gemmDeep2x8(SB), NOSPLIT, $0-81
	DEEP8(REST2x8)

TEXT ·gemmFlat2x8(SB), NOSPLIT, $0-81
	FLAT8(REST2x8)

TEXT ·gemmDeep3x8(SB), NOSPLIT, $0-81
	DEEP8(REST3x8)

TEXT ·gemmFlat3x8(SB), NOSPLIT, $0-81
	FLAT8(REST3x8)

TEXT ·gemmDeep4x8(SB), NOSPLIT, $0-81
	DEEP8(REST4x8)

TEXT ·gemmFlat4x8(SB), NOSPLIT, $0-81
	FLAT8(REST4x8)

TEXT ·gemmDeep5x8(SB), NOSPLIT, $0-81
	DEEP8(REST5x8)

TEXT ·gemmFlat5x8(SB), NOSPLIT, $0-81
	FLAT8(REST5x8)

TEXT ·gemmDeep6x8(SB), NOSPLIT, $0-81
	DEEP8(REST6x8)

TEXT ·gemmFlat6x8(SB), NOSPLIT, $0-81
	FLAT8(REST6x8)

TEXT ·gemmDeep1x16(SB), NOSPLIT, $0-81
	DEEP16(REST1x16)

TEXT ·gemmFlat1x16(SB), NOSPLIT, $0-81
	FLAT16(REST1x16)

TEXT ·gemmDeep2x16(SB), NOSPLIT, $0-81
	DEEP16(REST2x16)

TEXT ·gemmFlat2x16(SB), NOSPLIT, $0-81
	FLAT16(REST2x16)

TEXT ·gemmDeep3x16(SB), NOSPLIT, $0-81
	DEEP16(REST3x16)

TEXT ·gemmFlat3x16(SB), NOSPLIT, $0-81
	FLAT16(REST3x16)

TEXT ·gemmDeep4x16(SB), NOSPLIT, $0-81
	DEEP16(REST4x16)

TEXT ·gemmFlat4x16(SB), NOSPLIT, $0-81
	FLAT16(REST4x16)

TEXT ·gemmDeep5x16(SB), NOSPLIT, $0-81
	DEEP16(REST5x16)

TEXT ·gemmFlat5x16(SB), NOSPLIT, $0-81
	FLAT16(REST5x16)

TEXT ·gemmDeep6x16(SB), NOSPLIT, $0-81
	DEEP16(REST6x16)

TEXT ·gemmFlat6x16(SB), NOSPLIT, $0-81
	FLAT16(REST6x16)
