#include "textflag.h"
#include "vectors_amd64.h"

// The functions for batch norm and for sums over pixels. V1 to V3 are the constants of a normalization.
#define NORMCONSTANTS(p) \
	EIGHT(0(p), V1); \
	EIGHT(32(p), V2); \
	EIGHT(64(p), V3)

// NORMALIZE computes v = max(v·V1 + V2, V3); NaN stays NaN.
#define NORMALIZE(v) \
	VFMADD213PS V2, V1, v; \
	VMAXPS      v, V3, v

// KEEPPOSITIVE loads dy from m, but zero where the ReLU after the normalization of V0 is zero.
#define KEEPPOSITIVE(kind, m, to) \
	VMOVAPS     V0, to; \
	VFMADD213PS V2, V1, to; \
	KEEPLESS(kind, V3, to, m, to)

// V1 is subtracted.
#define DEVIATIONS(kind, at, s, q) \
	LOAD(kind, (at)(AX), V0); \
	VSUBPS V1, V0, V0; \
	ACCUMULATE(kind, VADDPS, V0, s, s); \
	ACCUMULATE(kind, VFMADD231PS, V0, V0, q)

#define NORMALIZEVECTOR(kind, at, s, q) \
	LOAD(kind, (at)(AX), V0); \
	NORMALIZE(V0); \
	STORE(kind, V0, (at)(CX))

// V12 is the mean.
#define NORMSUMS(kind, at, s, q) \
	LOAD(kind, (at)(AX), V0); \
	KEEPPOSITIVE(kind, (at)(CX), V13); \
	VADDPS      V13, s, s; \
	VSUBPS      V12, V0, V0; \
	VFMADD231PS V0, V13, q

// V4 to V7 are the constants q of Set.NormGrad.
#define NORMGRAD(kind, at, s, q) \
	LOAD(kind, (at)(AX), V0); \
	KEEPPOSITIVE(kind, (at)(CX), V8); \
	VSUBPS      V6, V0, V0; \
	VFMADD213PS V7, V5, V0; \
	VFMADD231PS V8, V4, V0; \
	STORE(kind, V0, (at)(DX))

#define SUMS(kind, at, s, q) OPERAND(kind, VADDPS, (at)(AX), s, s)

// CLEARSUMS and CLEARSQUARES set the sums s and q of LOOP4 to zero.
#define CLEARSUMS \
	ZERO(V4); \
	ZERO(V5); \
	ZERO(V6); \
	ZERO(V7)
#define CLEARSQUARES \
	ZERO(V8); \
	ZERO(V9); \
	ZERO(V10); \
	ZERO(V11)
#define TOTALSUMS \
	TOTAL(V4, V5, V6, V7); \
	ADDHALVES(V4, Y4)
#define TOTALSQUARES \
	TOTAL(V8, V9, V10, V11); \
	ADDHALVES(V8, Y8)

// BOX calls NORMALIZE for each pixel of a Box, whose first field is at DX: pixels, rows, planes, and the
// distances of rows and planes in x and in y. BEGINPLANE runs before each plane. The rows of a box are
// short, so that AVX-512 uses these functions too.
#define BOX(BEGINPLANE, NORMALIZE) \
	MOVQ    0(DX), R10; \
	SHLQ    $5, R10; \
	MOVQ    16(DX), SI; \
plane: \
	CMPQ    SI, $1; \
	JLT     done; \
	BEGINPLANE; \
	MOVQ    AX, DI; \
	MOVQ    CX, R8; \
	MOVQ    8(DX), R11; \
row: \
	CMPQ    R11, $1; \
	JLT     rows_done; \
	XORQ    R9, R9; \
	PCALIGN $64; \
pixel: \
	VMOVUPS (DI)(R9*1), V0; \
	NORMALIZE(V0); \
	VMOVUPS V0, (R8)(R9*1); \
	ADDQ    $32, R9; \
	CMPQ    R9, R10; \
	JLT     pixel; \
	ADDQ    24(DX), DI; \
	ADDQ    40(DX), R8; \
	SUBQ    $1, R11; \
	JMP     row; \
rows_done: \
	ADDQ    32(DX), AX; \
	ADDQ    48(DX), CX; \
	SUBQ    $1, SI; \
	JMP     plane; \
done: \
	RETURN
#define NOTHING
#define UNCHANGED(v)
#define NEXTCONSTANTS \
	NORMCONSTANTS(BX); \
	ADDQ $96, BX

#include "avx2_amd64.h"

TEXT ·deviationsAVX2(SB), NOSPLIT, $0-24
	MOVQ    x+0(FP), AX
	MOVQ    pixels+8(FP), DI
	MOVQ    out+16(FP), DX
	EIGHT((DX), V1)
	CLEARSUMS
	CLEARSQUARES
	SHLQ    $3, DI
	LOOP4(DEVIATIONS, ADVANCE1)
	TOTALSUMS
	VADDPS  32(DX), Y4, Y4
	VMOVUPS Y4, 32(DX)
	TOTALSQUARES
	VADDPS  64(DX), Y8, Y8
	VMOVUPS Y8, 64(DX)
	RETURN

TEXT ·normalizeAVX2(SB), NOSPLIT, $0-32
	MOVQ x+0(FP), AX
	MOVQ y+8(FP), CX
	MOVQ p+16(FP), SI
	MOVQ pixels+24(FP), DI
	NORMCONSTANTS(SI)
	SHLQ $3, DI
	LOOP4(NORMALIZEVECTOR, ADVANCE2)
	RETURN

TEXT ·normSumsAVX2(SB), NOSPLIT, $0-48
	MOVQ    x+0(FP), AX
	MOVQ    dy+8(FP), CX
	MOVQ    p+16(FP), SI
	MOVQ    mean+24(FP), BX
	MOVQ    out+32(FP), DX
	MOVQ    pixels+40(FP), DI
	NORMCONSTANTS(SI)
	EIGHT((BX), V12)
	CLEARSUMS
	CLEARSQUARES
	SHLQ    $3, DI
	LOOP4(NORMSUMS, ADVANCE2)
	TOTALSUMS
	VMOVUPS Y4, (DX)
	TOTALSQUARES
	VMOVUPS Y8, 32(DX)
	RETURN

TEXT ·normGradAVX2(SB), NOSPLIT, $0-48
	MOVQ x+0(FP), AX
	MOVQ dy+8(FP), CX
	MOVQ dx+16(FP), DX
	MOVQ p+24(FP), SI
	MOVQ q+32(FP), BX
	MOVQ pixels+40(FP), DI
	NORMCONSTANTS(SI)
	EIGHT(0(BX), V4)
	EIGHT(32(BX), V5)
	EIGHT(64(BX), V6)
	EIGHT(96(BX), V7)
	SHLQ $3, DI
	LOOP4(NORMGRAD, ADVANCE3)
	RETURN

TEXT ·sumsAVX2(SB), NOSPLIT, $0-24
	MOVQ    x+0(FP), AX
	MOVQ    pixels+8(FP), DI
	MOVQ    out+16(FP), DX
	CLEARSUMS
	SHLQ    $3, DI
	LOOP4(SUMS, ADVANCE1)
	TOTALSUMS
	VMOVUPS Y4, (DX)
	RETURN

TEXT ·copyBoxAVX2(SB), NOSPLIT, $0-24
	MOVQ x+0(FP), AX
	MOVQ y+8(FP), CX
	MOVQ b+16(FP), DX
	BOX(NOTHING, UNCHANGED)

TEXT ·normalizeBoxAVX2(SB), NOSPLIT, $0-32
	MOVQ x+0(FP), AX
	MOVQ y+8(FP), CX
	MOVQ p+16(FP), BX
	MOVQ b+24(FP), DX
	BOX(NEXTCONSTANTS, NORMALIZE)

#include "avx512_amd64.h"

TEXT ·deviationsAVX512(SB), NOSPLIT, $0-24
	MOVQ    x+0(FP), AX
	MOVQ    pixels+8(FP), DI
	MOVQ    out+16(FP), DX
	EIGHT((DX), V1)
	CLEARSUMS
	CLEARSQUARES
	SHLQ    $3, DI
	LOOP4(DEVIATIONS, ADVANCE1)
	TOTALSUMS
	VADDPS  32(DX), Y4, Y4
	VMOVUPS Y4, 32(DX)
	TOTALSQUARES
	VADDPS  64(DX), Y8, Y8
	VMOVUPS Y8, 64(DX)
	RETURN

TEXT ·normalizeAVX512(SB), NOSPLIT, $0-32
	MOVQ x+0(FP), AX
	MOVQ y+8(FP), CX
	MOVQ p+16(FP), SI
	MOVQ pixels+24(FP), DI
	NORMCONSTANTS(SI)
	SHLQ $3, DI
	LOOP4(NORMALIZEVECTOR, ADVANCE2)
	RETURN

TEXT ·normSumsAVX512(SB), NOSPLIT, $0-48
	MOVQ    x+0(FP), AX
	MOVQ    dy+8(FP), CX
	MOVQ    p+16(FP), SI
	MOVQ    mean+24(FP), BX
	MOVQ    out+32(FP), DX
	MOVQ    pixels+40(FP), DI
	NORMCONSTANTS(SI)
	EIGHT((BX), V12)
	CLEARSUMS
	CLEARSQUARES
	SHLQ    $3, DI
	LOOP4(NORMSUMS, ADVANCE2)
	TOTALSUMS
	VMOVUPS Y4, (DX)
	TOTALSQUARES
	VMOVUPS Y8, 32(DX)
	RETURN

TEXT ·normGradAVX512(SB), NOSPLIT, $0-48
	MOVQ x+0(FP), AX
	MOVQ dy+8(FP), CX
	MOVQ dx+16(FP), DX
	MOVQ p+24(FP), SI
	MOVQ q+32(FP), BX
	MOVQ pixels+40(FP), DI
	NORMCONSTANTS(SI)
	EIGHT(0(BX), V4)
	EIGHT(32(BX), V5)
	EIGHT(64(BX), V6)
	EIGHT(96(BX), V7)
	SHLQ $3, DI
	LOOP4(NORMGRAD, ADVANCE3)
	RETURN

TEXT ·sumsAVX512(SB), NOSPLIT, $0-24
	MOVQ    x+0(FP), AX
	MOVQ    pixels+8(FP), DI
	MOVQ    out+16(FP), DX
	CLEARSUMS
	SHLQ    $3, DI
	LOOP4(SUMS, ADVANCE1)
	TOTALSUMS
	VMOVUPS Y4, (DX)
	RETURN
