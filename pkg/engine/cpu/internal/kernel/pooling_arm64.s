#include "textflag.h"
#include "neon_arm64.h"

// Max pooling and its gradient. WINDOW executes BODY for each element of a window of R3 rows of R4
// elements, R5 bytes apart. first points to the window, R10 to the element.
#define WINDOW(first, BODY) \
	MOVD first, R9; \
	MOVD R3, R11; \
	SUBS $1, R11; \
	BLT  row_done; \
row: \
	MOVD R9, R10; \
	ADD  R5, R9; \
	MOVD R4, R12; \
	SUBS $1, R12; \
	BLT  column_done; \
column: \
	BODY; \
	ADD  $32, R10; \
	SUBS $1, R12; \
	BGE  column; \
column_done: \
	SUBS $1, R11; \
	BGE  row; \
row_done:

// ONES sets each int32 of a block to 1, to count elements.
#define ONES(first, second) \
	MOVD $1, R9; \
	VDUP R9, first; \
	VDUP R9, second

// Block 8 is the maximum, 10 its index and 12 the index of the element. The comparison is "greater", so
// that the first of equal elements stays.
#define MAXIMUM \
	FLDPQ 0(R10), (F14, F15); \
	NORMALIZE(14, 16); \
	THREE2(VFCMGT, 16, 14, 8); \
	THREE2(VINSERT, 8, 14, 16); \
	THREE2(VINSERT, 10, 12, 16); \
	THREE2(VADDINT, 12, 12, 6)

TEXT ·maxPoolNEON(SB), NOSPLIT, $0-72
	MOVD x+0(FP), R0
	MOVD y+8(FP), R1
	MOVD p+16(FP), R8
	MOVD index+24(FP), R2
	MOVD count+32(FP), R7
	MOVD kh+40(FP), R3
	MOVD kw+48(FP), R4
	MOVD row+56(FP), R5
	MOVD step+64(FP), R6
	NORMCONSTANTS(R8)
	ONES(V6.S4, V7.S4)
	SUBS $1, R7
	BLT  done

window:
	FLDPQ   0(R0), (F8, F9)
	CLEAR2(10)
	CLEAR2(12)
	NORMALIZE(8, 14)
	WINDOW(R0, MAXIMUM)
	VST1.P  [V8.S4, V9.S4], 32(R1)
	VUZP1   V11.H8, V10.H8, V10.H8 // the lowest bytes of the eight indexes
	VUZP1   V10.B16, V10.B16, V10.B16
	FMOVD.P F10, 8(R2)
	ADD     R6, R0
	SUBS    $1, R7
	BGE     window

done:
	RET

// Block 2 is the gradient of the output, 4 the index of the maximum and 6 that of the element.
#define ADDGRADIENT \
	THREE2(VEQUALINT, 8, 4, 6); \
	THREE2(VANDBITS, 8, 8, 2); \
	FLDPQ 0(R10), (F10, F11); \
	THREE2(VFADD, 8, 8, 10); \
	FSTPQ (F8, F9), 0(R10); \
	THREE2(VADDINT, 6, 6, 0)

TEXT ·maxPoolGradNEON(SB), NOSPLIT, $0-64
	MOVD index+0(FP), R0
	MOVD dy+8(FP), R1
	MOVD dx+16(FP), R2
	MOVD count+24(FP), R7
	MOVD kh+32(FP), R3
	MOVD kw+40(FP), R4
	MOVD row+48(FP), R5
	MOVD step+56(FP), R6
	ONES(V0.S4, V1.S4)
	SUBS $1, R7
	BLT  done

window:
	VLD1.P  32(R1), [V2.S4, V3.S4]
	CLEAR2(6)
	FMOVD.P 8(R0), F4 // the eight bytes of the index, which become int32
	VUXTL   V4.B8, V4.H8
	VUXTL2  V4.H8, V5.S4
	VUXTL   V4.H4, V4.S4
	WINDOW(R2, ADDGRADIENT)
	ADD     R6, R2
	SUBS    $1, R7
	BGE     window

done:
	RET
