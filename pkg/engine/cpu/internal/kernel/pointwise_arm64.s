#include "textflag.h"
#include "neon_arm64.h"

// Elementwise functions, and the functions that move weights. Block 0 is zero, V30 a constant.
DATA one<>+0(SB)/4, $1.0
GLOBL one<>(SB), RODATA|NOPTR, $4

// LOADTWO loads blocks 2 and 4, STORE6 stores block 6.
#define LOADTWO \
	VLD1.P 32(R0), [V2.S4, V3.S4]; \
	VLD1.P 32(R1), [V4.S4, V5.S4]
#define STORE6 VST1.P [V6.S4, V7.S4], 32(R2)

#define SUM \
	LOADTWO; \
	THREE2(VFADD, 6, 2, 4); \
	STORE6

TEXT ·addNEON(SB), NOSPLIT, $0-32
	MOVD a+0(FP), R0
	MOVD b+8(FP), R1
	MOVD y+16(FP), R2
	MOVD n+24(FP), R3
	LOOP(R3, SUM)
	RET

#define RELU \
	VLD1.P 32(R0), [V2.S4, V3.S4]; \
	THREE2(VFMAX, 2, 2, 0); \
	VST1.P [V2.S4, V3.S4], 32(R1)

TEXT ·reluNEON(SB), NOSPLIT, $0-24
	MOVD x+0(FP), R0
	MOVD y+8(FP), R1
	MOVD n+16(FP), R2
	CLEAR2(0)
	LOOP(R2, RELU)
	RET

#define RELUGRAD \
	LOADTWO; \
	THREE2(VFCMGT, 6, 2, 0); \
	THREE2(VANDBITS, 6, 6, 4); \
	STORE6

TEXT ·reluGradNEON(SB), NOSPLIT, $0-32
	MOVD y+0(FP), R0
	MOVD dy+8(FP), R1
	MOVD dx+16(FP), R2
	MOVD n+24(FP), R3
	CLEAR2(0)
	LOOP(R3, RELUGRAD)
	RET

#define LEAKY \
	LOADTWO; \
	THREE2(VFCMGT, 6, 2, 0); \
	LANE2(VFMULLANE, 8, 4, 30, 0); \
	THREE2(VCHOOSE, 6, 4, 8); \
	STORE6

TEXT ·leakyNEON(SB), NOSPLIT, $0-40
	MOVD  a+0(FP), R0
	MOVD  b+8(FP), R1
	MOVD  y+16(FP), R2
	MOVD  slope+24(FP), R4
	MOVD  n+32(FP), R3
	CLEAR2(0)
	FMOVS 0(R4), F30
	LOOP(R3, LEAKY)
	RET

#define TANHGRAD \
	LOADTWO; \
	SPREAD2(6, 30, 0); \
	THREE2(VMULSUB, 6, 2, 2); \
	THREE2(VFMUL, 6, 6, 4); \
	STORE6

TEXT ·tanhGradNEON(SB), NOSPLIT, $0-32
	MOVD  y+0(FP), R0
	MOVD  dy+8(FP), R1
	MOVD  dx+16(FP), R2
	MOVD  n+24(FP), R3
	FMOVS one<>(SB), F30
	LOOP(R3, TANHGRAD)
	RET

#define DISTANCES \
	LOADTWO; \
	THREE2(VFABD, 6, 2, 4); \
	THREE2(VFADD, 0, 0, 6)

TEXT ·distancesNEON(SB), NOSPLIT, $0-32
	MOVD  a+0(FP), R0
	MOVD  b+8(FP), R1
	MOVD  out+16(FP), R2
	MOVD  n+24(FP), R3
	CLEAR2(0)
	LOOP(R3, DISTANCES)
	FSTPQ (F0, F1), 0(R2)
	RET

// Block 10 is the scale.
#define SIGNS \
	LOADTWO; \
	THREE2(VFCMGT, 6, 2, 4); \
	THREE2(VFCMGT, 8, 4, 2); \
	THREE2(VANDBITS, 6, 6, 10); \
	THREE2(VANDBITS, 8, 8, 10); \
	THREE2(VFSUB, 6, 6, 8); \
	STORE6

TEXT ·signsNEON(SB), NOSPLIT, $0-40
	MOVD  a+0(FP), R0
	MOVD  b+8(FP), R1
	MOVD  y+16(FP), R2
	MOVD  scale+24(FP), R4
	MOVD  n+32(FP), R3
	FMOVS 0(R4), F30
	SPREAD2(10, 30, 0)
	LOOP(R3, SIGNS)
	RET

// TRANSPOSE exchanges rows and columns of the 4×4 floats in four registers: single floats, and then pairs.
#define TRANSPOSE(a, b, c, d) \
	VTRN1 b.S4, a.S4, V16.S4; \
	VTRN2 b.S4, a.S4, V17.S4; \
	VTRN1 d.S4, c.S4, V18.S4; \
	VTRN2 d.S4, c.S4, V19.S4; \
	VTRN1 V18.D2, V16.D2, a.D2; \
	VTRN2 V18.D2, V16.D2, c.D2; \
	VTRN1 V19.D2, V17.D2, b.D2; \
	VTRN2 V19.D2, V17.D2, d.D2
#define STOREROW(pair) \
	FSTPQ pair, 0(R0); \
	ADD   R2, R0

TEXT ·transposeNEON(SB), NOSPLIT, $0-24
	MOVD  dst+0(FP), R0
	MOVD  src+8(FP), R1
	MOVD  stride+16(FP), R2
	FLDPQ 0(R1), (F0, F1)
	FLDPQ 32(R1), (F2, F3)
	FLDPQ 64(R1), (F4, F5)
	FLDPQ 96(R1), (F6, F7)
	FLDPQ 128(R1), (F8, F9)
	FLDPQ 160(R1), (F10, F11)
	FLDPQ 192(R1), (F12, F13)
	FLDPQ 224(R1), (F14, F15)
	TRANSPOSE(V0, V2, V4, V6)
	TRANSPOSE(V8, V10, V12, V14)
	TRANSPOSE(V1, V3, V5, V7)
	TRANSPOSE(V9, V11, V13, V15)
	STOREROW((F0, F8))
	STOREROW((F2, F10))
	STOREROW((F4, F12))
	STOREROW((F6, F14))
	STOREROW((F1, F9))
	STOREROW((F3, F11))
	STOREROW((F5, F13))
	STOREROW((F7, F15))
	RET

TEXT ·spreadNEON(SB), NOSPLIT, $0-32
	MOVD dst+0(FP), R0
	MOVD src+8(FP), R1
	MOVD stride+16(FP), R2
	MOVD n+24(FP), R3
	SUBS $1, R3
	BLT  done

block:
	VLD1.P 32(R1), [V0.S4, V1.S4]
	VST1.P [V0.S4, V1.S4], (R0)(R2)
	SUBS   $1, R3
	BGE    block

done:
	RET
