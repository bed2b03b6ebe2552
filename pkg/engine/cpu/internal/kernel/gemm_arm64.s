#include "textflag.h"
#include "neon_arm64.h"

// The matrix kernel for NEON, see GEMMFunc: tiles of 1 to 6 rows of 8 or 16 outputs, with eight floats
// per step ("Deep") and with one ("Flat"). For each row i of the tile and each output j it computes
//
//	y[i][j] = start + Σ x[i][t]·w[t][j]
//
// and adds the products in the order of t, each rounded once with its addition. A tile of 6×16 outputs
// has 24 registers of sums. V0 and V1 contain weights of eight outputs, and six registers the inputs of
// the rows: up to four successive floats each, one of which fmla selects.
//
// R0 to R5 contain the addresses of the rows, R10 to R15 those of a step's floats. R6 points to the
// table of rows, and R7 is the number of remaining tiles. In the loop over steps, R21 points to the step
// and R22 counts the remaining ones, R8 is the step's offset, R23 points to the weights, R9 and R19 to
// those of the step for the first and the second eight outputs, and R20 is their distance.

// FIRST and RESTn call the macro do for each row of a tile: FIRST for row 0, RESTn for rows 1 to n−1.
// Its arguments are the row's number, the registers of the row's address and of its floats' address,
// the number of the first register of sums and the names of all, the number and the name of the
// register of inputs, and at.
#define FIRST8(do, at) do(0, R0, R10, 2, (F2, F3), 4, F4, at)
#define REST1x8(do, at)
#define REST2x8(do, at) do(1, R1, R11, 5, (F5, F6), 7, F7, at)
#define REST3x8(do, at) REST2x8(do, at); do(2, R2, R12, 8, (F8, F9), 10, F10, at)
#define REST4x8(do, at) REST3x8(do, at); do(3, R3, R13, 11, (F11, F12), 13, F13, at)
#define REST5x8(do, at) REST4x8(do, at); do(4, R4, R14, 14, (F14, F15), 16, F16, at)
#define REST6x8(do, at) REST5x8(do, at); do(5, R5, R15, 17, (F17, F18), 19, F19, at)

#define FIRST16(do, at) do(0, R0, R10, 2, (F2, F3), (F4, F5), 6, F6, at)
#define REST1x16(do, at)
#define REST2x16(do, at) do(1, R1, R11, 7, (F7, F8), (F9, F10), 11, F11, at)
#define REST3x16(do, at) REST2x16(do, at); do(2, R2, R12, 12, (F12, F13), (F14, F15), 16, F16, at)
#define REST4x16(do, at) REST3x16(do, at); do(3, R3, R13, 17, (F17, F18), (F19, F20), 21, F21, at)
#define REST5x16(do, at) REST4x16(do, at); do(4, R4, R14, 22, (F22, F23), (F24, F25), 26, F26, at)
#define REST6x16(do, at) REST5x16(do, at); do(5, R5, R15, 27, (F27, F28), (F29, F30), 31, F31, at)

// The macros for FIRST and REST. ADDRESS adds the base in R24 to the row's offset, from byte at of the
// table of rows on. LOAD, STORE and COPY load the sums from y, store them there, and copy those of row 0.
// READ loads four floats from byte at of the step on, READONE one float. MULTIPLY adds the products of
// the weights with float at of the register of inputs.
#define ADDRESS8(i, row, floats, sum, pair, x, in, at) \
	MOVW (at+4*i)(R6), row; \
	ADD  R24, row
#define LOAD8(i, row, floats, sum, pair, x, in, at) FLDPQ 0(row), pair
#define STORE8(i, row, floats, sum, pair, x, in, at) FSTPQ pair, 0(row)
#define COPY8(i, row, floats, sum, pair, x, in, at) TWO2(VMOVE, sum, 2)
#define STEPADDRESS8(i, row, floats, sum, pair, x, in, at) ADD row, R8, floats
#define READ8(i, row, floats, sum, pair, x, in, at) FMOVQ at(floats), in
#define READONE8(i, row, floats, sum, pair, x, in, at) FMOVS (row)(R8), in
#define MULTIPLY8(i, row, floats, sum, pair, x, in, at) LANE2(VFMLALANE, sum, 0, x, at)

#define ADDRESS16(i, row, floats, sum, pair0, pair1, x, in, at) ADDRESS8(i, row, floats, sum, pair0, x, in, at)
#define LOAD16(i, row, floats, sum, pair0, pair1, x, in, at) FLDPQ 0(row), pair0
#define LOADSECOND16(i, row, floats, sum, pair0, pair1, x, in, at) \
	ADD   R20, row; \
	FLDPQ 0(row), pair1
#define STORE16(i, row, floats, sum, pair0, pair1, x, in, at) FSTPQ pair0, 0(row)
#define STORESECOND16(i, row, floats, sum, pair0, pair1, x, in, at) \
	ADD   R20, row; \
	FSTPQ pair1, 0(row)
#define COPY16(i, row, floats, sum, pair0, pair1, x, in, at) TWO2(VMOVE, sum, 2)
#define COPYSECOND16(i, row, floats, sum, pair0, pair1, x, in, at) TWO2(VMOVE, sum+2, 4)
#define STEPADDRESS16(i, row, floats, sum, pair0, pair1, x, in, at) ADD row, R8, floats
#define READ16(i, row, floats, sum, pair0, pair1, x, in, at) FMOVQ at(floats), in
#define READONE16(i, row, floats, sum, pair0, pair1, x, in, at) FMOVS (row)(R8), in
#define MULTIPLY16(i, row, floats, sum, pair0, pair1, x, in, at) LANE2(VFMLALANE, sum, 0, x, at)
#define MULTIPLYSECOND16(i, row, floats, sum, pair0, pair1, x, in, at) LANE2(VFMLALANE, sum+2, 0, x, at)

// EACH calls do for all rows.
#define EACH(FIRST, REST, do, at) \
	FIRST(do, at); \
	REST(do, at)

// BEGIN begins a tile. The code up to "fresh" initializes the sums with y, the code from there on with
// the bias. INPUTS prepares the loop over steps; weights is the register for the address of the weights.
#define BEGIN(FIRST, REST, ADDRESS) \
	MOVD  rows+32(FP), R6; \
	MOVD  tiles+72(FP), R7; \
tile: \
	MOVBU accumulate+80(FP), R25; \
	CBZ   R25, fresh; \
	OUTPUTS(FIRST, REST, ADDRESS)
#define OUTPUTS(FIRST, REST, ADDRESS) \
	MOVD y+16(FP), R24; \
	EACH(FIRST, REST, ADDRESS, 24)
#define INPUTS(FIRST, REST, ADDRESS, weights) \
	MOVD x+0(FP), R24; \
	EACH(FIRST, REST, ADDRESS, 0); \
	MOVD w+8(FP), weights; \
	MOVD steps+40(FP), R21; \
	MOVD nstep+64(FP), R22; \
	CBZ  R22, store
#define END \
	ADD  $48, R6; \
	SUBS $1, R7; \
	BNE  tile; \
	RET

#define BEGIN8(REST, weights) \
	BEGIN(FIRST8, REST, ADDRESS8); \
	EACH(FIRST8, REST, LOAD8, 0); \
	B     started; \
fresh: \
	MOVD  bias+24(FP), R25; \
	FLDPQ 0(R25), (F2, F3); \
	REST(COPY8, 0); \
started: \
	INPUTS(FIRST8, REST, ADDRESS8, weights)
#define END8(REST) \
store: \
	OUTPUTS(FIRST8, REST, ADDRESS8); \
	EACH(FIRST8, REST, STORE8, 0); \
	END

#define BEGIN16(REST, weights) \
	BEGIN(FIRST16, REST, ADDRESS16); \
	EACH(FIRST16, REST, LOAD16, 0); \
	MOVD  yNext+56(FP), R20; \
	EACH(FIRST16, REST, LOADSECOND16, 0); \
	B     started; \
fresh: \
	MOVD  bias+24(FP), R25; \
	FLDPQ 0(R25), (F2, F3); \
	REST(COPY16, 0); \
	FLDPQ 32(R25), (F4, F5); \
	REST(COPYSECOND16, 0); \
started: \
	INPUTS(FIRST16, REST, ADDRESS16, weights); \
	MOVD  wNext+48(FP), R20
#define END16(REST) \
store: \
	OUTPUTS(FIRST16, REST, ADDRESS16); \
	EACH(FIRST16, REST, STORE16, 0); \
	MOVD yNext+56(FP), R20; \
	EACH(FIRST16, REST, STORESECOND16, 0); \
	END

// PRODUCT adds the outer product of float i of the rows' inputs with the weights at byte at of the step's.
#define PRODUCT8(REST, i, at) \
	FLDPQ at(R9), (F0, F1); \
	EACH(FIRST8, REST, MULTIPLY8, i)
#define PRODUCT16(REST, i, at) \
	FLDPQ at(R9), (F0, F1); \
	EACH(FIRST16, REST, MULTIPLY16, i); \
	FLDPQ at(R19), (F0, F1); \
	EACH(FIRST16, REST, MULTIPLYSECOND16, i)

#define STEP \
	LDPSW.P 8(R21), (R8, R9); \
	ADD     R23, R9
#define NEXTSTEP \
	SUBS $1, R22; \
	BNE  step

#define DEEP8(REST) \
	BEGIN8(REST, R23); \
step: \
	STEP; \
	EACH(FIRST8, REST, STEPADDRESS8, 0); \
	EACH(FIRST8, REST, READ8, 0); \
	PRODUCT8(REST, 0, 0); \
	PRODUCT8(REST, 1, 32); \
	PRODUCT8(REST, 2, 64); \
	PRODUCT8(REST, 3, 96); \
	EACH(FIRST8, REST, READ8, 16); \
	PRODUCT8(REST, 0, 128); \
	PRODUCT8(REST, 1, 160); \
	PRODUCT8(REST, 2, 192); \
	PRODUCT8(REST, 3, 224); \
	NEXTSTEP; \
	END8(REST)
#define DEEP16(REST) \
	BEGIN16(REST, R23); \
step: \
	STEP; \
	ADD R20, R9, R19; \
	EACH(FIRST16, REST, STEPADDRESS16, 0); \
	EACH(FIRST16, REST, READ16, 0); \
	PRODUCT16(REST, 0, 0); \
	PRODUCT16(REST, 1, 32); \
	PRODUCT16(REST, 2, 64); \
	PRODUCT16(REST, 3, 96); \
	EACH(FIRST16, REST, READ16, 16); \
	PRODUCT16(REST, 0, 128); \
	PRODUCT16(REST, 1, 160); \
	PRODUCT16(REST, 2, 192); \
	PRODUCT16(REST, 3, 224); \
	NEXTSTEP; \
	END16(REST)

#define FLAT8(REST) \
	BEGIN8(REST, R9); \
step: \
	MOVW.P 4(R21), R8; \
	EACH(FIRST8, REST, READONE8, 0); \
	PRODUCT8(REST, 0, 0); \
	ADD    $32, R9; \
	NEXTSTEP; \
	END8(REST)
#define FLAT16(REST) \
	BEGIN16(REST, R9); \
	ADD    R20, R9, R19; \
step: \
	MOVW.P 4(R21), R8; \
	EACH(FIRST16, REST, READONE16, 0); \
	PRODUCT16(REST, 0, 0); \
	ADD    $32, R9; \
	ADD    $32, R19; \
	NEXTSTEP; \
	END16(REST)

TEXT ·gemmDeep1x8NEON(SB), NOSPLIT, $0-81
	DEEP8(REST1x8)

TEXT ·gemmFlat1x8NEON(SB), NOSPLIT, $0-81
	FLAT8(REST1x8)

TEXT ·gemmDeep2x8NEON(SB), NOSPLIT, $0-81
	DEEP8(REST2x8)

TEXT ·gemmFlat2x8NEON(SB), NOSPLIT, $0-81
	FLAT8(REST2x8)

TEXT ·gemmDeep3x8NEON(SB), NOSPLIT, $0-81
	DEEP8(REST3x8)

TEXT ·gemmFlat3x8NEON(SB), NOSPLIT, $0-81
	FLAT8(REST3x8)

TEXT ·gemmDeep4x8NEON(SB), NOSPLIT, $0-81
	DEEP8(REST4x8)

TEXT ·gemmFlat4x8NEON(SB), NOSPLIT, $0-81
	FLAT8(REST4x8)

TEXT ·gemmDeep5x8NEON(SB), NOSPLIT, $0-81
	DEEP8(REST5x8)

TEXT ·gemmFlat5x8NEON(SB), NOSPLIT, $0-81
	FLAT8(REST5x8)

TEXT ·gemmDeep6x8NEON(SB), NOSPLIT, $0-81
	DEEP8(REST6x8)

TEXT ·gemmFlat6x8NEON(SB), NOSPLIT, $0-81
	FLAT8(REST6x8)

TEXT ·gemmDeep1x16NEON(SB), NOSPLIT, $0-81
	DEEP16(REST1x16)

TEXT ·gemmFlat1x16NEON(SB), NOSPLIT, $0-81
	FLAT16(REST1x16)

TEXT ·gemmDeep2x16NEON(SB), NOSPLIT, $0-81
	DEEP16(REST2x16)

TEXT ·gemmFlat2x16NEON(SB), NOSPLIT, $0-81
	FLAT16(REST2x16)

TEXT ·gemmDeep3x16NEON(SB), NOSPLIT, $0-81
	DEEP16(REST3x16)

TEXT ·gemmFlat3x16NEON(SB), NOSPLIT, $0-81
	FLAT16(REST3x16)

TEXT ·gemmDeep4x16NEON(SB), NOSPLIT, $0-81
	DEEP16(REST4x16)

TEXT ·gemmFlat4x16NEON(SB), NOSPLIT, $0-81
	FLAT16(REST4x16)

TEXT ·gemmDeep5x16NEON(SB), NOSPLIT, $0-81
	DEEP16(REST5x16)

TEXT ·gemmFlat5x16NEON(SB), NOSPLIT, $0-81
	FLAT16(REST5x16)

TEXT ·gemmDeep6x16NEON(SB), NOSPLIT, $0-81
	DEEP16(REST6x16)

TEXT ·gemmFlat6x16NEON(SB), NOSPLIT, $0-81
	FLAT16(REST6x16)
