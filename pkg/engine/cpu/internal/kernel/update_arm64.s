#include "textflag.h"
#include "neon_arm64.h"

// The optimizers. The constants c of Set.Adam are the lanes of V0 and V1; those of Set.Momentum and Set.SGD
// are the first three.

// DECAY loads weights to block 2 and their gradients, with weight decay, to block 4.
#define DECAY \
	FLDPQ  0(R0), (F2, F3); \
	VLD1.P 32(R1), [V4.S4, V5.S4]; \
	LANE2(VFMLALANE, 4, 2, 0, 0)
#define ADAM \
	DECAY; \
	LANE2(VFMULLANE, 6, 4, 0, 2); \
	FLDPQ  0(R2), (F8, F9); \
	LANE2(VFMLALANE, 6, 8, 0, 1); \
	VST1.P [V6.S4, V7.S4], 32(R2); \
	THREE2(VFMUL, 4, 4, 4); \
	LANE2(VFMULLANE, 10, 4, 1, 0); \
	FLDPQ  0(R3), (F12, F13); \
	LANE2(VFMLALANE, 10, 12, 0, 3); \
	VST1.P [V10.S4, V11.S4], 32(R3); \
	TWO2(VFSQRT, 10, 10); \
	SPREAD2(14, 1, 2); \
	LANE2(VFMLALANE, 14, 10, 1, 1); \
	LANE2(VFMULLANE, 6, 6, 1, 3); \
	THREE2(VFDIV, 6, 6, 14); \
	THREE2(VFSUB, 2, 2, 6); \
	VST1.P [V2.S4, V3.S4], 32(R0)

TEXT ·adamNEON(SB), NOSPLIT, $0-48
	MOVD  w+0(FP), R0
	MOVD  grad+8(FP), R1
	MOVD  m+16(FP), R2
	MOVD  v+24(FP), R3
	MOVD  c+32(FP), R5
	MOVD  n+40(FP), R4
	FMOVQ 0(R5), F0
	FMOVQ 16(R5), F1
	LOOP(R4, ADAM)
	RET

#define MOMENTUM \
	DECAY; \
	FLDPQ  0(R2), (F6, F7); \
	LANE2(VFMLALANE, 4, 6, 0, 1); \
	VST1.P [V4.S4, V5.S4], 32(R2); \
	LANE2(VFMLSLANE, 2, 4, 0, 2); \
	VST1.P [V2.S4, V3.S4], 32(R0)

TEXT ·momentumNEON(SB), NOSPLIT, $0-40
	MOVD  w+0(FP), R0
	MOVD  grad+8(FP), R1
	MOVD  buf+16(FP), R2
	MOVD  c+24(FP), R3
	MOVD  n+32(FP), R4
	FMOVQ 0(R3), F0
	LOOP(R4, MOMENTUM)
	RET

#define SGD \
	DECAY; \
	LANE2(VFMLSLANE, 2, 4, 0, 2); \
	VST1.P [V2.S4, V3.S4], 32(R0)

TEXT ·sgdNEON(SB), NOSPLIT, $0-32
	MOVD  w+0(FP), R0
	MOVD  grad+8(FP), R1
	MOVD  c+16(FP), R2
	MOVD  n+24(FP), R3
	FMOVQ 0(R2), F0
	LOOP(R3, SGD)
	RET
