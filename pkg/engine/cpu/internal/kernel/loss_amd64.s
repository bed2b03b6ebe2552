#include "textflag.h"
#include "vectors_amd64.h"

// The binary cross-entropy of logits, its gradient, and an exponential function. A constant fills a
// vector of AVX-512; AVX2 reads its first half.
#define FOUR(name, at, v) \
	DATA name<>+at+0(SB)/4, $v; \
	DATA name<>+at+4(SB)/4, $v; \
	DATA name<>+at+8(SB)/4, $v; \
	DATA name<>+at+12(SB)/4, $v
#define CONSTANT(name, v) \
	FOUR(name, 0, v); \
	FOUR(name, 16, v); \
	FOUR(name, 32, v); \
	FOUR(name, 48, v); \
	GLOBL name<>(SB), RODATA|NOPTR, $64

CONSTANT(one, (1.0))
CONSTANT(two, (2.0))
CONSTANT(least, (-87.0))
CONSTANT(perOctave, (1.442695))
CONSTANT(high, (0.6933594))
CONSTANT(low, (-0.00021219444))
CONSTANT(expA, (0.00019875691))
CONSTANT(expB, (0.0013981999))
CONSTANT(expC, (0.008333452))
CONSTANT(expD, (0.041665796))
CONSTANT(expE, (0.16666666))
CONSTANT(expF, (0.5))
CONSTANT(expG, (1.0))
CONSTANT(expH, (1.0))
CONSTANT(logA, (0.15384616))
CONSTANT(logB, (0.18181819))
CONSTANT(logC, (0.22222222))
CONSTANT(logD, (0.2857143))
CONSTANT(logE, (0.4))
CONSTANT(logF, (0.6666667))
CONSTANT(logG, (2.0))

// EXPONENTIAL computes V3 = e^−|V0|, but e^−87 where |V0| is greater than 87. e^x = 2^n·e^x' with
// |x'| ≤ log(2)/2; the constants are those of Moshier's Cephes, expf. It uses V1 and V2.
#define EXPONENTIAL \
	ZERO(V2); \
	VSUBPS       V0, V2, V2; \
	VMINPS       V0, V2, V1; \
	VMOVUPS      least<>(SB), V2; \
	VMAXPS       V1, V2, V1; \
	VMULPS       perOctave<>(SB), V1, V2; \
	ROUND(V2); \
	VFNMADD231PS high<>(SB), V2, V1; \
	VFNMADD231PS low<>(SB), V2, V1; \
	VMOVUPS      expA<>(SB), V3; \
	VFMADD213PS  expB<>(SB), V1, V3; \
	VFMADD213PS  expC<>(SB), V1, V3; \
	VFMADD213PS  expD<>(SB), V1, V3; \
	VFMADD213PS  expE<>(SB), V1, V3; \
	VFMADD213PS  expF<>(SB), V1, V3; \
	VFMADD213PS  expG<>(SB), V1, V3; \
	VFMADD213PS  expH<>(SB), V1, V3; \
	VCVTPS2DQ    V2, V2; \
	VPSLLD       $23, V2, V2; \
	VPADDD       V2, V3, V3

// BCE computes log(1+u) as 2·artanh(s) with s = u/(2+u) of at most 1/3. V7 is zero.
#define BCE(kind, at, s, q) \
	LOAD(kind, at(AX), V0); \
	EXPONENTIAL; \
	VADDPS      two<>(SB), V3, V1; \
	VDIVPS      V1, V3, V1; \
	VMULPS      V1, V1, V2; \
	VMOVUPS     logA<>(SB), V3; \
	VFMADD213PS logB<>(SB), V2, V3; \
	VFMADD213PS logC<>(SB), V2, V3; \
	VFMADD213PS logD<>(SB), V2, V3; \
	VFMADD213PS logE<>(SB), V2, V3; \
	VFMADD213PS logF<>(SB), V2, V3; \
	VFMADD213PS logG<>(SB), V2, V3; \
	ACCUMULATE(kind, VFMADD231PS, V1, V3, s); \
	VMAXPS      V0, V7, V3; \
	VADDPS      V3, s, s; \
	OPERAND(kind, VFNMADD231PS, at(CX), V0, s)

// BCEGRAD computes 1/(1+u) where V0 is positive and u/(1+u) where it is not. V6 is the scale, V7 is zero.
#define BCEGRAD(kind, at, s, q) \
	LOAD(kind, at(AX), V0); \
	EXPONENTIAL; \
	VADDPS  one<>(SB), V3, V1; \
	VMOVUPS one<>(SB), V2; \
	CHOOSELESS(kind, V0, V7, V3, V2, V2); \
	VDIVPS  V1, V2, V1; \
	OPERAND(kind, VSUBPS, at(CX), V1, V1); \
	VMULPS  V6, V1, V1; \
	STORE(kind, V1, at(DX))

#define EXP(kind, at, s, q) \
	LOAD(kind, at(AX), V0); \
	EXPONENTIAL; \
	STORE(kind, V3, at(CX))

#include "avx2_amd64.h"

TEXT ·bceAVX2(SB), NOSPLIT, $0-32
	MOVQ    z+0(FP), AX
	MOVQ    t+8(FP), CX
	MOVQ    out+16(FP), DX
	MOVQ    n+24(FP), DI
	ZERO(V4)
	ZERO(V7)
	LOOP(BCE, ADVANCE2)
	ADDHALVES(V4, Y4)
	VMOVUPS Y4, (DX)
	RETURN

TEXT ·bceGradAVX2(SB), NOSPLIT, $0-40
	MOVQ         z+0(FP), AX
	MOVQ         t+8(FP), CX
	MOVQ         dz+16(FP), DX
	MOVQ         scale+24(FP), SI
	MOVQ         n+32(FP), DI
	VBROADCASTSS (SI), V6
	ZERO(V7)
	LOOP(BCEGRAD, ADVANCE3)
	RETURN

TEXT ·expAVX2(SB), NOSPLIT, $0-24
	MOVQ x+0(FP), AX
	MOVQ y+8(FP), CX
	MOVQ n+16(FP), DI
	LOOP(EXP, ADVANCE2)
	RETURN

#include "avx512_amd64.h"

TEXT ·bceAVX512(SB), NOSPLIT, $0-32
	MOVQ    z+0(FP), AX
	MOVQ    t+8(FP), CX
	MOVQ    out+16(FP), DX
	MOVQ    n+24(FP), DI
	ZERO(V4)
	ZERO(V7)
	LOOP(BCE, ADVANCE2)
	ADDHALVES(V4, Y4)
	VMOVUPS Y4, (DX)
	RETURN

TEXT ·bceGradAVX512(SB), NOSPLIT, $0-40
	MOVQ         z+0(FP), AX
	MOVQ         t+8(FP), CX
	MOVQ         dz+16(FP), DX
	MOVQ         scale+24(FP), SI
	MOVQ         n+32(FP), DI
	VBROADCASTSS (SI), V6
	ZERO(V7)
	LOOP(BCEGRAD, ADVANCE3)
	RETURN

TEXT ·expAVX512(SB), NOSPLIT, $0-24
	MOVQ x+0(FP), AX
	MOVQ y+8(FP), CX
	MOVQ n+16(FP), DI
	LOOP(EXP, ADVANCE2)
	RETURN
