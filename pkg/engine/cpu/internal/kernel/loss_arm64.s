#include "textflag.h"
#include "neon_arm64.h"

// The binary cross-entropy of logits, its gradient, and an exponential function. V0 to V2 are the constants
// of e^x, which are those of Moshier's Cephes, expf; V3 and V4 those of the logarithm.
DATA constants<>+0(SB)/4, $(-87.0)
DATA constants<>+4(SB)/4, $(1.442695)
DATA constants<>+8(SB)/4, $(0.6933594)
DATA constants<>+12(SB)/4, $(-0.00021219444)
DATA constants<>+16(SB)/4, $(0.00019875691)
DATA constants<>+20(SB)/4, $(0.0013981999)
DATA constants<>+24(SB)/4, $(0.008333452)
DATA constants<>+28(SB)/4, $(0.041665796)
DATA constants<>+32(SB)/4, $(0.16666666)
DATA constants<>+36(SB)/4, $(0.5)
DATA constants<>+40(SB)/4, $(1.0)
DATA constants<>+44(SB)/4, $(1.0)
DATA constants<>+48(SB)/4, $(0.15384616)
DATA constants<>+52(SB)/4, $(0.18181819)
DATA constants<>+56(SB)/4, $(0.22222222)
DATA constants<>+60(SB)/4, $(0.2857143)
DATA constants<>+64(SB)/4, $(0.4)
DATA constants<>+68(SB)/4, $(0.6666667)
DATA constants<>+72(SB)/4, $(2.0)
DATA constants<>+76(SB)/4, $(0.0)
GLOBL constants<>(SB), RODATA|NOPTR, $80

#define CONSTANTS(r) \
	MOVD  $constants<>(SB), r; \
	FMOVQ 0(r), F0; \
	FMOVQ 16(r), F1; \
	FMOVQ 32(r), F2; \
	FMOVQ 48(r), F3; \
	FMOVQ 64(r), F4

// HORNER computes next = sum·x + c, where c is lane i of register m.
#define HORNER(sum, x, m, i, next) \
	SPREAD2(next, m, i); \
	THREE2(VMULADD, next, sum, x)

// EXPONENTIAL computes b16 = e^−|b8|, but e^−87 where |b8| is greater than 87. e^x = 2^n·e^x' with
// |x'| ≤ log(2)/2. It uses blocks 10, 12 and 14.
#define EXPONENTIAL \
	TWO2(VFNEG, 10, 8); \
	THREE2(VFMIN, 10, 10, 8); \
	SPREAD2(12, 0, 0); \
	THREE2(VFMAX, 10, 10, 12); \
	LANE2(VFMULLANE, 12, 10, 0, 1); \
	TWO2(VFRINTN, 12, 12); \
	LANE2(VFMLSLANE, 10, 12, 0, 2); \
	LANE2(VFMLSLANE, 10, 12, 0, 3); \
	SPREAD2(14, 1, 0); \
	HORNER(14, 10, 1, 1, 16); \
	HORNER(16, 10, 1, 2, 14); \
	HORNER(14, 10, 1, 3, 16); \
	HORNER(16, 10, 2, 0, 14); \
	HORNER(14, 10, 2, 1, 16); \
	HORNER(16, 10, 2, 2, 14); \
	HORNER(14, 10, 2, 3, 16); \
	TWO2(VFCVTNS, 12, 12); \
	VSHL $23, V12.S4, V12.S4; \
	VSHL $23, V13.S4, V13.S4; \
	THREE2(VADDINT, 16, 16, 12)

// BCE computes log(1+u) as 2·artanh(s) with s = u/(2+u) of at most 1/3. Block 6 is zero, and 26 the sum.
#define BCE \
	VLD1.P 32(R0), [V8.S4, V9.S4]; \
	EXPONENTIAL; \
	SPREAD2(18, 4, 2); \
	THREE2(VFADD, 18, 18, 16); \
	THREE2(VFDIV, 18, 16, 18); \
	THREE2(VFMUL, 16, 18, 18); \
	SPREAD2(20, 3, 0); \
	HORNER(20, 16, 3, 1, 22); \
	HORNER(22, 16, 3, 2, 20); \
	HORNER(20, 16, 3, 3, 22); \
	HORNER(22, 16, 4, 0, 20); \
	HORNER(20, 16, 4, 1, 22); \
	HORNER(22, 16, 4, 2, 20); \
	THREE2(VMULADD, 26, 18, 20); \
	THREE2(VFMAX, 20, 8, 6); \
	THREE2(VFADD, 26, 26, 20); \
	VLD1.P 32(R1), [V24.S4, V25.S4]; \
	THREE2(VMULSUB, 26, 8, 24)

TEXT ·bceNEON(SB), NOSPLIT, $0-32
	MOVD  z+0(FP), R0
	MOVD  t+8(FP), R1
	MOVD  out+16(FP), R2
	MOVD  n+24(FP), R3
	CONSTANTS(R4)
	CLEAR2(6)
	CLEAR2(26)
	LOOP(R3, BCE)
	FSTPQ (F26, F27), 0(R2)
	RET

// BCEGRAD computes 1/(1+u) where b8 is positive and u/(1+u) where it is not. Block 6 is zero, 24 is one,
// and V26 the scale.
#define BCEGRAD \
	VLD1.P 32(R0), [V8.S4, V9.S4]; \
	EXPONENTIAL; \
	THREE2(VFADD, 18, 16, 24); \
	THREE2(VFCMGT, 20, 6, 8); \
	THREE2(VCHOOSE, 20, 16, 24); \
	THREE2(VFDIV, 18, 20, 18); \
	VLD1.P 32(R1), [V22.S4, V23.S4]; \
	THREE2(VFSUB, 18, 18, 22); \
	LANE2(VFMULLANE, 18, 18, 26, 0); \
	VST1.P [V18.S4, V19.S4], 32(R2)

TEXT ·bceGradNEON(SB), NOSPLIT, $0-40
	MOVD  z+0(FP), R0
	MOVD  t+8(FP), R1
	MOVD  dz+16(FP), R2
	MOVD  scale+24(FP), R4
	MOVD  n+32(FP), R3
	FMOVS 0(R4), F26
	CONSTANTS(R4)
	CLEAR2(6)
	SPREAD2(24, 2, 3)
	LOOP(R3, BCEGRAD)
	RET

#define EXP \
	VLD1.P 32(R0), [V8.S4, V9.S4]; \
	EXPONENTIAL; \
	VST1.P [V16.S4, V17.S4], 32(R1)

TEXT ·expNEON(SB), NOSPLIT, $0-24
	MOVD x+0(FP), R0
	MOVD y+8(FP), R1
	MOVD n+16(FP), R2
	CONSTANTS(R3)
	LOOP(R2, EXP)
	RET
