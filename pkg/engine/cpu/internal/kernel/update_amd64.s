#include "textflag.h"
#include "vectors_amd64.h"

// The optimizers. The constants c of Set.Adam are in V7 to V14. V7 to V9 are also those of Set.Momentum and
// Set.SGD.
#define CONSTANTS3(c) \
	VBROADCASTSS 0(c), V7; \
	VBROADCASTSS 4(c), V8; \
	VBROADCASTSS 8(c), V9

#define ADAM(kind, at, s, q) \
	LOAD(kind, at(AX), V0); \
	LOAD(kind, at(CX), V1); \
	VFMADD231PS V0, V7, V1; \
	VMULPS      V1, V9, V2; \
	OPERAND(kind, VFMADD231PS, at(DX), V8, V2); \
	STORE(kind, V2, at(DX)); \
	VMULPS      V1, V1, V1; \
	VMULPS      V1, V11, V1; \
	OPERAND(kind, VFMADD231PS, at(BX), V10, V1); \
	STORE(kind, V1, at(BX)); \
	VSQRTPS     V1, V1; \
	VFMADD213PS V13, V12, V1; \
	VMULPS      V14, V2, V2; \
	VDIVPS      V1, V2, V2; \
	VSUBPS      V2, V0, V0; \
	STORE(kind, V0, at(AX))

#define MOMENTUM(kind, at, s, q) \
	LOAD(kind, at(AX), V0); \
	LOAD(kind, at(CX), V1); \
	VFMADD231PS  V0, V7, V1; \
	OPERAND(kind, VFMADD231PS, at(DX), V8, V1); \
	STORE(kind, V1, at(DX)); \
	VFNMADD231PS V1, V9, V0; \
	STORE(kind, V0, at(AX))

#define SGD(kind, at, s, q) \
	LOAD(kind, at(AX), V0); \
	LOAD(kind, at(CX), V1); \
	VFMADD231PS  V0, V7, V1; \
	VFNMADD231PS V1, V9, V0; \
	STORE(kind, V0, at(AX))

#include "avx2_amd64.h"

TEXT ·adamAVX2(SB), NOSPLIT, $0-48
	MOVQ         w+0(FP), AX
	MOVQ         grad+8(FP), CX
	MOVQ         m+16(FP), DX
	MOVQ         v+24(FP), BX
	MOVQ         c+32(FP), SI
	MOVQ         n+40(FP), DI
	CONSTANTS3(SI)
	VBROADCASTSS 12(SI), V10
	VBROADCASTSS 16(SI), V11
	VBROADCASTSS 20(SI), V12
	VBROADCASTSS 24(SI), V13
	VBROADCASTSS 28(SI), V14
	LOOP(ADAM, ADVANCE4)
	RETURN

TEXT ·momentumAVX2(SB), NOSPLIT, $0-40
	MOVQ w+0(FP), AX
	MOVQ grad+8(FP), CX
	MOVQ buf+16(FP), DX
	MOVQ c+24(FP), SI
	MOVQ n+32(FP), DI
	CONSTANTS3(SI)
	LOOP(MOMENTUM, ADVANCE3)
	RETURN

TEXT ·sgdAVX2(SB), NOSPLIT, $0-32
	MOVQ w+0(FP), AX
	MOVQ grad+8(FP), CX
	MOVQ c+16(FP), SI
	MOVQ n+24(FP), DI
	CONSTANTS3(SI)
	LOOP(SGD, ADVANCE2)
	RETURN

#include "avx512_amd64.h"

TEXT ·adamAVX512(SB), NOSPLIT, $0-48
	MOVQ         w+0(FP), AX
	MOVQ         grad+8(FP), CX
	MOVQ         m+16(FP), DX
	MOVQ         v+24(FP), BX
	MOVQ         c+32(FP), SI
	MOVQ         n+40(FP), DI
	CONSTANTS3(SI)
	VBROADCASTSS 12(SI), V10
	VBROADCASTSS 16(SI), V11
	VBROADCASTSS 20(SI), V12
	VBROADCASTSS 24(SI), V13
	VBROADCASTSS 28(SI), V14
	LOOP(ADAM, ADVANCE4)
	RETURN

TEXT ·momentumAVX512(SB), NOSPLIT, $0-40
	MOVQ w+0(FP), AX
	MOVQ grad+8(FP), CX
	MOVQ buf+16(FP), DX
	MOVQ c+24(FP), SI
	MOVQ n+32(FP), DI
	CONSTANTS3(SI)
	LOOP(MOMENTUM, ADVANCE3)
	RETURN

TEXT ·sgdAVX512(SB), NOSPLIT, $0-32
	MOVQ w+0(FP), AX
	MOVQ grad+8(FP), CX
	MOVQ c+16(FP), SI
	MOVQ n+24(FP), DI
	CONSTANTS3(SI)
	LOOP(SGD, ADVANCE2)
	RETURN
