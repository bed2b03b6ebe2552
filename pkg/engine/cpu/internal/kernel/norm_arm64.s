#include "textflag.h"
#include "neon_arm64.h"

// The functions for batch norm and for sums over pixels. Blocks 0, 2 and 4 are the constants of a
// normalization. Blocks 8 to 14 and 16 to 22 are partial sums, which hide the latency of an addition.

// PIXELS calls BODY for each block of pixels, four per iteration, with the numbers of two sums.
#define PIXELS(pixels, BODY) \
	LSL  $3, pixels; \
	SUBS $32, pixels; \
	BLT  four_done; \
four: \
	BODY(8, 16); \
	BODY(10, 18); \
	BODY(12, 20); \
	BODY(14, 22); \
	SUBS $32, pixels; \
	BGE  four; \
four_done: \
	ADD  $32, pixels; \
	LOOP(pixels, BODY(8, 16))

#define CLEARSUMS(s) \
	CLEAR2(s); \
	CLEAR2(s+2); \
	CLEAR2(s+4); \
	CLEAR2(s+6)
#define TOTAL(s) \
	THREE2(VFADD, s, s, s+2); \
	THREE2(VFADD, s+4, s+4, s+6); \
	THREE2(VFADD, s, s, s+4)

// Block 0 is subtracted.
#define DEVIATIONS(s, q) \
	VLD1.P 32(R0), [V24.S4, V25.S4]; \
	THREE2(VFSUB, 24, 24, 0); \
	THREE2(VFADD, s, s, 24); \
	THREE2(VMULADD, q, 24, 24)

TEXT ·deviationsNEON(SB), NOSPLIT, $0-24
	MOVD  x+0(FP), R0
	MOVD  pixels+8(FP), R1
	MOVD  out+16(FP), R2
	FLDPQ 0(R2), (F0, F1)
	CLEARSUMS(8)
	CLEARSUMS(16)
	PIXELS(R1, DEVIATIONS)
	TOTAL(8)
	FLDPQ 32(R2), (F0, F1)
	THREE2(VFADD, 8, 8, 0)
	FSTPQ (F8, F9), 32(R2)
	TOTAL(16)
	FLDPQ 64(R2), (F0, F1)
	THREE2(VFADD, 16, 16, 0)
	FSTPQ (F16, F17), 64(R2)
	RET

#define NORMALIZEBLOCK(s, q) \
	VLD1.P 32(R0), [V24.S4, V25.S4]; \
	NORMALIZE(24, 26); \
	VST1.P [V24.S4, V25.S4], 32(R1)

TEXT ·normalizeNEON(SB), NOSPLIT, $0-32
	MOVD x+0(FP), R0
	MOVD y+8(FP), R1
	MOVD p+16(FP), R2
	MOVD pixels+24(FP), R3
	NORMCONSTANTS(R2)
	PIXELS(R3, NORMALIZEBLOCK)
	RET

// LOADGRADIENT loads x to block 24, and dy to block 26, but zero where the ReLU after the normalization
// of x is zero.
#define LOADGRADIENT \
	VLD1.P 32(R0), [V24.S4, V25.S4]; \
	TWO2(VMOVE, 26, 2); \
	THREE2(VMULADD, 26, 24, 0); \
	THREE2(VFCMGT, 26, 26, 4); \
	VLD1.P 32(R1), [V28.S4, V29.S4]; \
	THREE2(VANDBITS, 26, 26, 28)

// Block 6 is the mean.
#define NORMSUMS(s, q) \
	LOADGRADIENT; \
	THREE2(VFADD, s, s, 26); \
	THREE2(VFSUB, 24, 24, 6); \
	THREE2(VMULADD, q, 24, 26)

TEXT ·normSumsNEON(SB), NOSPLIT, $0-48
	MOVD  x+0(FP), R0
	MOVD  dy+8(FP), R1
	MOVD  p+16(FP), R2
	MOVD  mean+24(FP), R3
	MOVD  out+32(FP), R4
	MOVD  pixels+40(FP), R5
	NORMCONSTANTS(R2)
	FLDPQ 0(R3), (F6, F7)
	CLEARSUMS(8)
	CLEARSUMS(16)
	PIXELS(R5, NORMSUMS)
	TOTAL(8)
	FSTPQ (F8, F9), 0(R4)
	TOTAL(16)
	FSTPQ (F16, F17), 32(R4)
	RET

// Blocks 6, 8, 10 and 12 are the constants q of Set.NormGrad.
#define NORMGRAD(s, q) \
	LOADGRADIENT; \
	THREE2(VFSUB, 24, 24, 10); \
	TWO2(VMOVE, 28, 12); \
	THREE2(VMULADD, 28, 24, 8); \
	THREE2(VMULADD, 28, 26, 6); \
	VST1.P [V28.S4, V29.S4], 32(R2)

TEXT ·normGradNEON(SB), NOSPLIT, $0-48
	MOVD  x+0(FP), R0
	MOVD  dy+8(FP), R1
	MOVD  dx+16(FP), R2
	MOVD  p+24(FP), R3
	MOVD  q+32(FP), R4
	MOVD  pixels+40(FP), R5
	NORMCONSTANTS(R3)
	FLDPQ 0(R4), (F6, F7)
	FLDPQ 32(R4), (F8, F9)
	FLDPQ 64(R4), (F10, F11)
	FLDPQ 96(R4), (F12, F13)
	PIXELS(R5, NORMGRAD)
	RET

#define SUMS(s, q) \
	VLD1.P 32(R0), [V24.S4, V25.S4]; \
	THREE2(VFADD, s, s, 24)

TEXT ·sumsNEON(SB), NOSPLIT, $0-24
	MOVD  x+0(FP), R0
	MOVD  pixels+8(FP), R1
	MOVD  out+16(FP), R2
	CLEARSUMS(8)
	PIXELS(R1, SUMS)
	TOTAL(8)
	FSTPQ (F8, F9), 0(R2)
	RET
