#include "textflag.h"
#include "vectors_amd64.h"

// Elementwise functions, and the functions that move weights. Constants are in V5 and V6.
DATA one<>+0(SB)/4, $1.0
GLOBL one<>(SB), RODATA|NOPTR, $4

#define SUM(kind, at, s, q) \
	LOAD(kind, at(AX), V0); \
	OPERAND(kind, VADDPS, at(CX), V0, V0); \
	STORE(kind, V0, at(DX))

#define RELU(kind, at, s, q) \
	OPERAND(kind, VMAXPS, at(AX), V5, V0); \
	STORE(kind, V0, at(CX))

#define RELUGRAD(kind, at, s, q) \
	KEEPLESS(kind, V5, at(AX), at(CX), V0); \
	STORE(kind, V0, at(DX))

#define LEAKY(kind, at, s, q) \
	LOAD(kind, at(CX), V1); \
	VMULPS V1, V6, V2; \
	CHOOSELESS(kind, V5, at(AX), V1, V2, V0); \
	STORE(kind, V0, at(DX))

#define TANHGRAD(kind, at, s, q) \
	LOAD(kind, at(AX), V0); \
	VMOVAPS      V5, V1; \
	VFNMADD231PS V0, V0, V1; \
	OPERAND(kind, VMULPS, at(CX), V1, V1); \
	STORE(kind, V1, at(DX))

#define DISTANCES(kind, at, s, q) \
	LOAD(kind, at(AX), V0); \
	OPERAND(kind, VSUBPS, at(CX), V0, V0); \
	VSUBPS V0, V5, V1; \
	VMAXPS V0, V1, V1; \
	VADDPS V1, s, s

#define SIGNS(kind, at, s, q) \
	LOAD(kind, at(AX), V0); \
	LOAD(kind, at(CX), V1); \
	KEEPLESS(kind, V1, V0, V6, V2); \
	KEEPLESS(kind, V0, V1, V6, V3); \
	VSUBPS V3, V2, V2; \
	STORE(kind, V2, at(DX))

#include "avx2_amd64.h"

TEXT ·addAVX2(SB), NOSPLIT, $0-32
	MOVQ a+0(FP), AX
	MOVQ b+8(FP), CX
	MOVQ y+16(FP), DX
	MOVQ n+24(FP), DI
	LOOP(SUM, ADVANCE3)
	RETURN

TEXT ·reluAVX2(SB), NOSPLIT, $0-24
	MOVQ x+0(FP), AX
	MOVQ y+8(FP), CX
	MOVQ n+16(FP), DI
	ZERO(V5)
	LOOP(RELU, ADVANCE2)
	RETURN

TEXT ·reluGradAVX2(SB), NOSPLIT, $0-32
	MOVQ y+0(FP), AX
	MOVQ dy+8(FP), CX
	MOVQ dx+16(FP), DX
	MOVQ n+24(FP), DI
	ZERO(V5)
	LOOP(RELUGRAD, ADVANCE3)
	RETURN

TEXT ·leakyAVX2(SB), NOSPLIT, $0-40
	MOVQ         a+0(FP), AX
	MOVQ         b+8(FP), CX
	MOVQ         y+16(FP), DX
	MOVQ         slope+24(FP), SI
	MOVQ         n+32(FP), DI
	ZERO(V5)
	VBROADCASTSS (SI), V6
	LOOP(LEAKY, ADVANCE3)
	RETURN

TEXT ·tanhGradAVX2(SB), NOSPLIT, $0-32
	MOVQ         y+0(FP), AX
	MOVQ         dy+8(FP), CX
	MOVQ         dx+16(FP), DX
	MOVQ         n+24(FP), DI
	VBROADCASTSS one<>(SB), V5
	LOOP(TANHGRAD, ADVANCE3)
	RETURN

TEXT ·distancesAVX2(SB), NOSPLIT, $0-32
	MOVQ    a+0(FP), AX
	MOVQ    b+8(FP), CX
	MOVQ    out+16(FP), DX
	MOVQ    n+24(FP), DI
	ZERO(V4)
	ZERO(V5)
	LOOP(DISTANCES, ADVANCE2)
	ADDHALVES(V4, Y4)
	VMOVUPS Y4, (DX)
	RETURN

TEXT ·signsAVX2(SB), NOSPLIT, $0-40
	MOVQ         a+0(FP), AX
	MOVQ         b+8(FP), CX
	MOVQ         y+16(FP), DX
	MOVQ         scale+24(FP), SI
	MOVQ         n+32(FP), DI
	VBROADCASTSS (SI), V6
	LOOP(SIGNS, ADVANCE3)
	RETURN

// The transpose exchanges floats within 64 bits, pairs of floats within 128 bits, and halves of a
// register.
TEXT ·transposeAVX2(SB), NOSPLIT, $0-24
	MOVQ       dst+0(FP), AX
	MOVQ       src+8(FP), CX
	MOVQ       stride+16(FP), DX
	// The caller transposes four adjacent tiles, then goes far on in memory, and reads the next kilobyte when it
	// comes back for the next four.
	PREFETCHT0 1024(CX)
	PREFETCHT0 1088(CX)
	PREFETCHT0 1152(CX)
	PREFETCHT0 1216(CX)
	VMOVUPS    (CX), Y0
	VMOVUPS    32(CX), Y2
	VMOVUPS    64(CX), Y4
	VMOVUPS    96(CX), Y5
	VMOVUPS    128(CX), Y7
	VMOVUPS    160(CX), Y9
	VMOVUPS    192(CX), Y11
	VMOVUPS    224(CX), Y12
	VUNPCKLPS  Y2, Y0, Y1
	VUNPCKHPS  Y2, Y0, Y3
	VUNPCKLPS  Y5, Y4, Y2
	VUNPCKHPS  Y5, Y4, Y6
	VUNPCKLPS  Y9, Y7, Y8
	VUNPCKHPS  Y9, Y7, Y10
	VUNPCKLPS  Y12, Y11, Y9
	VUNPCKHPS  Y12, Y11, Y12
	VSHUFPS    $0x44, Y2, Y1, Y0
	VSHUFPS    $0xee, Y2, Y1, Y2
	VSHUFPS    $0x44, Y6, Y3, Y4
	VSHUFPS    $0xee, Y6, Y3, Y5
	VSHUFPS    $0x44, Y9, Y8, Y7
	VSHUFPS    $0xee, Y9, Y8, Y9
	VSHUFPS    $0x44, Y12, Y10, Y11
	VSHUFPS    $0xee, Y12, Y10, Y12
	VPERM2F128 $0x20, Y7, Y0, Y1
	VPERM2F128 $0x31, Y7, Y0, Y8
	VPERM2F128 $0x20, Y9, Y2, Y3
	VPERM2F128 $0x31, Y9, Y2, Y10
	VPERM2F128 $0x20, Y11, Y4, Y2
	VPERM2F128 $0x31, Y11, Y4, Y9
	VPERM2F128 $0x20, Y12, Y5, Y6
	VPERM2F128 $0x31, Y12, Y5, Y12
	VMOVUPS    Y1, (AX)
	ADDQ       DX, AX
	VMOVUPS    Y3, (AX)
	ADDQ       DX, AX
	VMOVUPS    Y2, (AX)
	ADDQ       DX, AX
	VMOVUPS    Y6, (AX)
	ADDQ       DX, AX
	VMOVUPS    Y8, (AX)
	ADDQ       DX, AX
	VMOVUPS    Y10, (AX)
	ADDQ       DX, AX
	VMOVUPS    Y9, (AX)
	ADDQ       DX, AX
	VMOVUPS    Y12, (AX)
	ADDQ       DX, AX
	VZEROUPPER
	RET

TEXT ·spreadAVX2(SB), NOSPLIT, $0-32
	MOVQ dst+0(FP), AX
	MOVQ src+8(FP), CX
	MOVQ stride+16(FP), DX
	MOVQ n+24(FP), BX

vector:
	CMPQ    BX, $1
	JLT     vector_done
	VMOVUPS (CX), Y0
	VMOVUPS Y0, (AX)
	ADDQ    $32, CX
	ADDQ    DX, AX
	SUBQ    $1, BX
	JMP     vector

vector_done:
	VZEROUPPER
	RET

#include "avx512_amd64.h"

TEXT ·addAVX512(SB), NOSPLIT, $0-32
	MOVQ a+0(FP), AX
	MOVQ b+8(FP), CX
	MOVQ y+16(FP), DX
	MOVQ n+24(FP), DI
	LOOP(SUM, ADVANCE3)
	RETURN

TEXT ·reluAVX512(SB), NOSPLIT, $0-24
	MOVQ x+0(FP), AX
	MOVQ y+8(FP), CX
	MOVQ n+16(FP), DI
	ZERO(V5)
	LOOP(RELU, ADVANCE2)
	RETURN

TEXT ·reluGradAVX512(SB), NOSPLIT, $0-32
	MOVQ y+0(FP), AX
	MOVQ dy+8(FP), CX
	MOVQ dx+16(FP), DX
	MOVQ n+24(FP), DI
	ZERO(V5)
	LOOP(RELUGRAD, ADVANCE3)
	RETURN

TEXT ·leakyAVX512(SB), NOSPLIT, $0-40
	MOVQ         a+0(FP), AX
	MOVQ         b+8(FP), CX
	MOVQ         y+16(FP), DX
	MOVQ         slope+24(FP), SI
	MOVQ         n+32(FP), DI
	ZERO(V5)
	VBROADCASTSS (SI), V6
	LOOP(LEAKY, ADVANCE3)
	RETURN

TEXT ·tanhGradAVX512(SB), NOSPLIT, $0-32
	MOVQ         y+0(FP), AX
	MOVQ         dy+8(FP), CX
	MOVQ         dx+16(FP), DX
	MOVQ         n+24(FP), DI
	VBROADCASTSS one<>(SB), V5
	LOOP(TANHGRAD, ADVANCE3)
	RETURN

TEXT ·distancesAVX512(SB), NOSPLIT, $0-32
	MOVQ    a+0(FP), AX
	MOVQ    b+8(FP), CX
	MOVQ    out+16(FP), DX
	MOVQ    n+24(FP), DI
	ZERO(V4)
	ZERO(V5)
	LOOP(DISTANCES, ADVANCE2)
	ADDHALVES(V4, Y4)
	VMOVUPS Y4, (DX)
	RETURN

TEXT ·signsAVX512(SB), NOSPLIT, $0-40
	MOVQ         a+0(FP), AX
	MOVQ         b+8(FP), CX
	MOVQ         y+16(FP), DX
	MOVQ         scale+24(FP), SI
	MOVQ         n+32(FP), DI
	VBROADCASTSS (SI), V6
	LOOP(SIGNS, ADVANCE3)
	RETURN
