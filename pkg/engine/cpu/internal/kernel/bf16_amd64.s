#include "textflag.h"

// The products of bfloat16 numbers, see BF16. Go's assembler has no mnemonics for AVX512_BF16 and AMX, so
// that macros write these instructions as numbers. The encodings are from Intel's Software Developer's
// Manual, volume 2: sections 2.3 (VEX) and 2.7 (EVEX), and the pages of the instructions.

// EVEX is an instruction of three registers of 512 bits in the opcode map 0F38; prefix is 2 for F3 and 3
// for F2. Registers are numbered from 0 to 31.
#define EVEX(prefix, opcode, first, second, to) \
	BYTE $0x62; \
	BYTE $(2 | NOT(to, 3)<<7 | NOT(second, 4)<<6 | NOT(second, 3)<<5 | NOT(to, 4)<<4); \
	BYTE $((15-((first)&15))<<3 | 4 | prefix); \
	BYTE $(0x40 | NOT(first, 4)<<3); \
	BYTE $opcode; \
	BYTE $(0xc0 | ((to)&7)<<3 | ((second)&7))
#define NOT(register, bit) (1-(((register)>>bit)&1))

// VDPBF16PS adds the products of pairs: sum[i] += x[2i]·y[2i] + x[2i+1]·y[2i+1].
#define VDPBF16PS(x, y, sum) EVEX(2, 0x52, x, y, sum)

// VCVTNE2PS2BF16 rounds sixteen floats to the lower and sixteen to the upper half of to.
#define VCVTNE2PS2BF16(low, high, to) EVEX(3, 0x72, high, low, to)

// The instructions of AMX, in the opcode map 0F38. TILELOADD and TILESTORED access 16 rows at base +
// offset; the rows are stride bytes apart. TDPBF16PS adds the product of tiles x and y, which is in the
// layout of pairs, to sum.
#define BASE_AX 0
#define BASE_CX 1
#define BASE_DX 2
#define BASE_DI 7
#define STRIDE_R10 2
#define STRIDE_R12 4
#define TILEADDRESS(tile, base, stride, offset) \
	BYTE $(0x84 | tile<<3); \
	BYTE $(stride<<3 | base); \
	LONG $(offset)
#define TILELOADD(tile, base, stride, offset) \
	LONG $0x4b7ba2c4; \
	TILEADDRESS(tile, base, stride, offset)
#define TILESTORED(tile, base, stride, offset) \
	LONG $0x4b7aa2c4; \
	TILEADDRESS(tile, base, stride, offset)
#define TILEZERO(tile) \
	LONG $0x497be2c4; \
	BYTE $(0xc0 | tile<<3)
#define TDPBF16PS(x, y, sum) \
	LONG $(0x5c02e2c4 | (15-y)<<19); \
	BYTE $(0xc0 | sum<<3 | x)
#define LDTILECFG_AX \
	LONG $0x4978e2c4; \
	BYTE $0x00
#define TILERELEASE \
	LONG $0x4978e2c4; \
	BYTE $0xc0

// SUMS calls do for the sixteen vectors of eight rows of c.
#define SUMS(do) \
	do(0(DI), Z0); \
	do(64(DI), Z1); \
	do(128(DI), Z2); \
	do(192(DI), Z3); \
	do(256(DI), Z4); \
	do(320(DI), Z5); \
	do(384(DI), Z6); \
	do(448(DI), Z7); \
	do(512(DI), Z8); \
	do(576(DI), Z9); \
	do(640(DI), Z10); \
	do(704(DI), Z11); \
	do(768(DI), Z12); \
	do(832(DI), Z13); \
	do(896(DI), Z14); \
	do(960(DI), Z15)
#define LOADSUM(m, z) VMOVUPS m, z
#define STORESUM(m, z) VMOVUPS z, m
#define CLEARSUM(m, z) VPXORD z, z, z

// ROW multiplies a pair of a row, which it loads to register x, by two vectors of pairs of b.
#define ROW(pair, x, z, sum) \
	VPBROADCASTD pair, z; \
	VDPBF16PS(16, x, sum); \
	VDPBF16PS(17, x, sum+1)
#define PAIR(at, columns) \
	VMOVUPS (columns)(CX), Z16; \
	VMOVUPS (columns+64)(CX), Z17; \
	ROW(at(AX), 18, Z18, 0); \
	ROW(at(AX)(R10*1), 19, Z19, 2); \
	ROW(at(AX)(R10*2), 20, Z20, 4); \
	ROW(at(AX)(R11*1), 21, Z21, 6); \
	ROW(at(AX)(R10*4), 22, Z22, 8); \
	ROW(at(AX)(R12*1), 23, Z23, 10); \
	ROW(at(AX)(R11*2), 24, Z24, 12); \
	ROW(at(AX)(R13*1), 25, Z25, 14)

// Eight rows at a time, of two vectors: Z0 to Z15 are the sums, Z16 and Z17 columns of b, Z18 to Z25 pairs
// of a.
TEXT ·bf16MultiplyAVX512(SB), NOSPLIT, $8-57
	MOVQ tiles+48(FP), AX
	SHLQ $2, AX
	MOVQ AX, (SP)
	MOVQ c+0(FP), DI
	MOVQ a+8(FP), SI
	MOVQ b+16(FP), BX
	MOVQ aRow+40(FP), R10
	LEAQ (R10)(R10*2), R11 // 3 rows
	LEAQ (R10)(R10*4), R12 // 5 rows
	LEAQ (R11)(R10*4), R13 // 7 rows

part:
	MOVB  accumulate+56(FP), AL
	TESTB AL, AL
	JZ    fresh
	SUMS(LOADSUM)
	JMP   started

fresh:
	SUMS(CLEARSUM)

started:
	MOVQ steps+24(FP), R8
	MOVQ nstep+32(FP), R9

step:
	MOVLQSX (R8), AX
	MOVLQSX 4(R8), CX
	ADDQ    SI, AX
	ADDQ    BX, CX
	MOVQ    $4, DX

pairs:
	PAIR(0, 0)
	PAIR(4, 128)
	PAIR(8, 256)
	PAIR(12, 384)
	ADDQ $16, AX
	ADDQ $512, CX
	DECQ DX
	JNZ  pairs
	ADDQ $8, R8
	DECQ R9
	JNZ  step
	SUMS(STORESUM)
	ADDQ $1024, DI
	LEAQ (SI)(R10*8), SI
	DECQ (SP)
	JNZ  part
	VZEROUPPER
	RET

// tileConfig selects palette 1, and 16 rows of 64 bytes for each of the eight tile registers.
DATA tileConfig<>+0(SB)/8, $1
DATA tileConfig<>+8(SB)/8, $0
DATA tileConfig<>+16(SB)/8, $0x0040004000400040
DATA tileConfig<>+24(SB)/8, $0x0040004000400040
DATA tileConfig<>+32(SB)/8, $0
DATA tileConfig<>+40(SB)/8, $0
DATA tileConfig<>+48(SB)/8, $0x1010101010101010
DATA tileConfig<>+56(SB)/8, $0
GLOBL tileConfig<>(SB), RODATA|NOPTR, $64

// Tiles 0 to 3 are the four quarters of the sums, 4 and 5 the columns of b, 6 and 7 the rows of a. The tile
// registers are configured and released in the function, since Go's scheduler does not know them.
TEXT ·bf16MultiplyAMX(SB), NOSPLIT, $0-57
	LEAQ tileConfig<>(SB), AX
	LDTILECFG_AX
	MOVQ c+0(FP), DI
	MOVQ a+8(FP), SI
	MOVQ b+16(FP), BX
	MOVQ aRow+40(FP), R10
	MOVQ tiles+48(FP), R11
	MOVQ $128, R12
	MOVQ R10, R13
	SHLQ $4, R13

tile:
	MOVB  accumulate+56(FP), AL
	TESTB AL, AL
	JZ    fresh
	TILELOADD(0, BASE_DI, STRIDE_R12, 0)
	TILELOADD(1, BASE_DI, STRIDE_R12, 64)
	TILELOADD(2, BASE_DI, STRIDE_R12, 16*128)
	TILELOADD(3, BASE_DI, STRIDE_R12, 16*128+64)
	JMP   started

fresh:
	TILEZERO(0)
	TILEZERO(1)
	TILEZERO(2)
	TILEZERO(3)

started:
	MOVQ steps+24(FP), R8
	MOVQ nstep+32(FP), R9

step:
	MOVLQSX (R8), AX
	MOVLQSX 4(R8), CX
	ADDQ    SI, AX
	ADDQ    BX, CX
	LEAQ    (AX)(R13*1), DX
	TILELOADD(6, BASE_AX, STRIDE_R10, 0)
	TILELOADD(4, BASE_CX, STRIDE_R12, 0)
	TDPBF16PS(6, 4, 0)
	TILELOADD(5, BASE_CX, STRIDE_R12, 64)
	TDPBF16PS(6, 5, 1)
	TILELOADD(7, BASE_DX, STRIDE_R10, 0)
	TDPBF16PS(7, 4, 2)
	TDPBF16PS(7, 5, 3)
	ADDQ    $8, R8
	DECQ    R9
	JNZ     step
	TILESTORED(0, BASE_DI, STRIDE_R12, 0)
	TILESTORED(1, BASE_DI, STRIDE_R12, 64)
	TILESTORED(2, BASE_DI, STRIDE_R12, 16*128)
	TILESTORED(3, BASE_DI, STRIDE_R12, 16*128+64)
	ADDQ    $4096, DI
	LEAQ    (SI)(R13*2), SI
	DECQ    R11
	JNZ     tile
	TILERELEASE
	VZEROUPPER
	RET

// LOADPAIR loads eight floats at low and eight at high into z, whose lower half is y.
#define LOADPAIR(low, high, y, z) \
	VMOVUPS      low, y; \
	VINSERTF64X4 $1, high, z, z

#define ADVANCESOURCES(n) \
	ADDQ $n, SI; \
	ADDQ $n, BX; \
	ADDQ $n, CX; \
	ADDQ $n, DX
#define STOREPIXEL \
	VCVTNE2PS2BF16(0, 1, 2); \
	VMOVUPS Z2, (DI); \
	ADVANCESOURCES(32); \
	ADDQ    R9, DI; \
	SUBQ    $1, R8

// Z16 to Z21 are the factors, summands and lower bounds of the normalization, for two pairs of sources.
TEXT ·bf16PackRowsAVX512(SB), NOSPLIT, $0-64
	MOVQ  dst+0(FP), DI
	MOVQ  s0+8(FP), SI
	MOVQ  s1+16(FP), BX
	MOVQ  s2+24(FP), CX
	MOVQ  s3+32(FP), DX
	MOVQ  norm+40(FP), R10
	MOVQ  n+48(FP), R8
	MOVQ  step+56(FP), R9
	TESTQ R10, R10
	JNZ   constants

pixel:
	CMPQ R8, $1
	JLT  end
	LOADPAIR((SI), (BX), Y0, Z0)
	LOADPAIR((CX), (DX), Y1, Z1)
	STOREPIXEL
	JMP  pixel

constants:
	LOADPAIR(0(R10), 96(R10), Y16, Z16)
	LOADPAIR(192(R10), 288(R10), Y17, Z17)
	LOADPAIR(32(R10), 128(R10), Y18, Z18)
	LOADPAIR(224(R10), 320(R10), Y19, Z19)
	LOADPAIR(64(R10), 160(R10), Y20, Z20)
	LOADPAIR(256(R10), 352(R10), Y21, Z21)

normalize:
	CMPQ        R8, $1
	JLT         end
	LOADPAIR((SI), (BX), Y0, Z0)
	VFMADD213PS Z18, Z16, Z0
	VMAXPS      Z0, Z20, Z0
	LOADPAIR((CX), (DX), Y1, Z1)
	VFMADD213PS Z19, Z17, Z1
	VMAXPS      Z1, Z21, Z1
	STOREPIXEL
	JMP         normalize

end:
	VZEROUPPER
	RET

// Each word of pairWords and columnWords is the index of the word that VPERMW copies there: words of two
// pixels in turn, and the words of each channel of four pixels.
DATA pairWords<>+0(SB)/8, $0x0011000100100000
DATA pairWords<>+8(SB)/8, $0x0013000300120002
DATA pairWords<>+16(SB)/8, $0x0015000500140004
DATA pairWords<>+24(SB)/8, $0x0017000700160006
DATA pairWords<>+32(SB)/8, $0x0019000900180008
DATA pairWords<>+40(SB)/8, $0x001b000b001a000a
DATA pairWords<>+48(SB)/8, $0x001d000d001c000c
DATA pairWords<>+56(SB)/8, $0x001f000f001e000e
GLOBL pairWords<>(SB), RODATA|NOPTR, $64
DATA columnWords<>+0(SB)/8, $0x0018001000080000
DATA columnWords<>+8(SB)/8, $0x0019001100090001
DATA columnWords<>+16(SB)/8, $0x001a0012000a0002
DATA columnWords<>+24(SB)/8, $0x001b0013000b0003
DATA columnWords<>+32(SB)/8, $0x001c0014000c0004
DATA columnWords<>+40(SB)/8, $0x001d0015000d0005
DATA columnWords<>+48(SB)/8, $0x001e0016000e0006
DATA columnWords<>+56(SB)/8, $0x001f0017000f0007
GLOBL columnWords<>(SB), RODATA|NOPTR, $64

// PACKPAIR packs two pixels of two sources.
#define PACKPAIR(s0, s1, to) \
	LOADPAIR((s0), (s1), Y0, Z0); \
	LOADPAIR(32(s0), 32(s1), Y1, Z1); \
	VCVTNE2PS2BF16(0, 1, 2); \
	VPERMW  Z2, Z31, Z3; \
	VMOVUPS Z3, to

TEXT ·bf16PackPairsAVX512(SB), NOSPLIT, $0-48
	VMOVUPS pairWords<>(SB), Z31
	MOVQ    dst+0(FP), DI
	MOVQ    s0+8(FP), SI
	MOVQ    s1+16(FP), BX
	MOVQ    s2+24(FP), CX
	MOVQ    s3+32(FP), DX
	MOVQ    n+40(FP), R8

pair:
	CMPQ R8, $2
	JLT  pair_done
	PACKPAIR(SI, BX, (DI))
	PACKPAIR(CX, DX, 64(DI))
	ADVANCESOURCES(64)
	ADDQ $128, DI
	SUBQ $2, R8
	JMP  pair

pair_done:
	VZEROUPPER
	RET

// A row of a tile becomes four pairs of 32 bits. The eight pairs with the same index of a tile are
// gathered, then those of two tiles. firstPairs and lastPairs contain the places of pairs 0 and 1, and of
// pairs 2 and 3, of the eight rows.
DATA firstPairs<>+0(SB)/8, $0x0000000400000000
DATA firstPairs<>+8(SB)/8, $0x0000000c00000008
DATA firstPairs<>+16(SB)/8, $0x0000001400000010
DATA firstPairs<>+24(SB)/8, $0x0000001c00000018
DATA firstPairs<>+32(SB)/8, $0x0000000500000001
DATA firstPairs<>+40(SB)/8, $0x0000000d00000009
DATA firstPairs<>+48(SB)/8, $0x0000001500000011
DATA firstPairs<>+56(SB)/8, $0x0000001d00000019
GLOBL firstPairs<>(SB), RODATA|NOPTR, $64
DATA lastPairs<>+0(SB)/8, $0x0000000600000002
DATA lastPairs<>+8(SB)/8, $0x0000000e0000000a
DATA lastPairs<>+16(SB)/8, $0x0000001600000012
DATA lastPairs<>+24(SB)/8, $0x0000001e0000001a
DATA lastPairs<>+32(SB)/8, $0x0000000700000003
DATA lastPairs<>+40(SB)/8, $0x0000000f0000000b
DATA lastPairs<>+48(SB)/8, $0x0000001700000013
DATA lastPairs<>+56(SB)/8, $0x0000001f0000001b
GLOBL lastPairs<>(SB), RODATA|NOPTR, $64

#define GATHERPAIRS(s, first, last) \
	VMOVUPS  (s), Z0; \
	VMOVUPS  64(s), Z1; \
	VMOVUPS  128(s), Z2; \
	VMOVUPS  192(s), Z3; \
	VCVTNE2PS2BF16(0, 1, 4); \
	VCVTNE2PS2BF16(2, 3, 5); \
	VMOVUPS  Z30, first; \
	VPERMI2D Z5, Z4, first; \
	VMOVUPS  Z31, last; \
	VPERMI2D Z5, Z4, last
#define STOREHALVES(half, first, second, to) \
	VSHUFI64X2 $half, second, first, Z6; \
	VMOVUPS    Z6, to
#define PACKTWOTILES(s0, s1, at) \
	GATHERPAIRS(s0, Z8, Z9); \
	GATHERPAIRS(s1, Z10, Z11); \
	STOREHALVES(0x44, Z8, Z10, at(DI)); \
	STOREHALVES(0xee, Z8, Z10, (at+128)(DI)); \
	STOREHALVES(0x44, Z9, Z11, (at+256)(DI)); \
	STOREHALVES(0xee, Z9, Z11, (at+384)(DI))

TEXT ·bf16PackTransposedAVX512(SB), NOSPLIT, $0-40
	VMOVUPS firstPairs<>(SB), Z30
	VMOVUPS lastPairs<>(SB), Z31
	MOVQ    dst+0(FP), DI
	MOVQ    s0+8(FP), SI
	MOVQ    s1+16(FP), BX
	MOVQ    s2+24(FP), CX
	MOVQ    s3+32(FP), DX
	PACKTWOTILES(SI, BX, 0)
	PACKTWOTILES(CX, DX, 64)
	VZEROUPPER
	RET

// Vector j of an iteration gets pixels 4j to 4j+3, channel by channel, so that each channel is a quadword.
// Then the 8×8 quadwords are transposed: FOURCHANNELS does it for the even or the odd channels.
#define FOURPIXELS(at, z) \
	VMOVUPS (at)(SI), Z16; \
	VMOVUPS (at+64)(SI), Z17; \
	VCVTNE2PS2BF16(16, 17, 18); \
	VPERMW  Z18, Z31, z
#define FOURCHANNELS(q0, q1, q2, q3, c0, c1, c2, c3) \
	VSHUFI64X2 $0x88, q1, q0, Z16; \
	VSHUFI64X2 $0x88, q3, q2, Z18; \
	VSHUFI64X2 $0xdd, q1, q0, Z17; \
	VSHUFI64X2 $0xdd, q3, q2, Z19; \
	VSHUFI64X2 $0x88, Z18, Z16, c0; \
	VSHUFI64X2 $0x88, Z19, Z17, c1; \
	VSHUFI64X2 $0xdd, Z18, Z16, c2; \
	VSHUFI64X2 $0xdd, Z19, Z17, c3
#define STOREFOUR(c0, c1, c2, c3) \
	VMOVUPS c0, (AX); \
	VMOVUPS c1, (AX)(R10*1); \
	VMOVUPS c2, (AX)(R10*2); \
	VMOVUPS c3, (AX)(R11*1); \
	LEAQ    (AX)(R10*4), AX

TEXT ·bf16PackColumnsAVX512(SB), NOSPLIT, $0-32
	VMOVUPS columnWords<>(SB), Z31
	MOVQ    dst+0(FP), DI
	MOVQ    src+8(FP), SI
	MOVQ    n+16(FP), R8
	MOVQ    row+24(FP), R10
	LEAQ    (R10)(R10*2), R11

pixels:
	CMPQ        R8, $32
	JLT         pixels_done
	FOURPIXELS(0, Z0)
	FOURPIXELS(128, Z1)
	FOURPIXELS(256, Z2)
	FOURPIXELS(384, Z3)
	FOURPIXELS(512, Z4)
	FOURPIXELS(640, Z5)
	FOURPIXELS(768, Z6)
	FOURPIXELS(896, Z7)
	VPUNPCKLQDQ Z1, Z0, Z8
	VPUNPCKHQDQ Z1, Z0, Z12
	VPUNPCKLQDQ Z3, Z2, Z9
	VPUNPCKHQDQ Z3, Z2, Z13
	VPUNPCKLQDQ Z5, Z4, Z10
	VPUNPCKHQDQ Z5, Z4, Z14
	VPUNPCKLQDQ Z7, Z6, Z11
	VPUNPCKHQDQ Z7, Z6, Z15
	FOURCHANNELS(Z8, Z9, Z10, Z11, Z0, Z2, Z4, Z6)
	FOURCHANNELS(Z12, Z13, Z14, Z15, Z1, Z3, Z5, Z7)
	MOVQ        DI, AX
	STOREFOUR(Z0, Z1, Z2, Z3)
	STOREFOUR(Z4, Z5, Z6, Z7)
	ADDQ        $1024, SI
	ADDQ        $64, DI
	SUBQ        $32, R8
	JMP         pixels

pixels_done:
	VZEROUPPER
	RET

// UNPACK stores with STORE: VMOVNTPS writes past the cache. Such a store may become visible to other cores
// after later stores. The instructions with LOCK with which threads wait for each other order them again
// (Intel, Software Developer's Manual, volume 3, section 13.3.1).
#define UNPACK(STORE) \
block: \
	CMPQ    R11, $1; \
	JLT     block_done; \
	VMOVUPS (BX), Y0; \
	MOVQ    DI, AX; \
	MOVQ    SI, CX; \
	MOVQ    R12, DX; \
row: \
	CMPQ    DX, $1; \
	JLT     row_done; \
	VADDPS  (CX), Y0, Y1; \
	STORE   Y1, (AX); \
	ADDQ    R8, CX; \
	ADDQ    R9, AX; \
	SUBQ    $1, DX; \
	JMP     row; \
row_done: \
	ADDQ    $32, SI; \
	ADDQ    $32, BX; \
	ADDQ    R10, DI; \
	SUBQ    $1, R11; \
	JMP     block; \
block_done: \
	VZEROUPPER; \
	RET

TEXT ·bf16UnpackAVX512(SB), NOSPLIT, $0-64
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ bias+16(FP), BX
	MOVQ n+24(FP), R12
	MOVQ srcRow+32(FP), R8
	MOVQ dstRow+40(FP), R9
	MOVQ dstBlock+48(FP), R10
	MOVQ blocks+56(FP), R11
	UNPACK(VMOVUPS)

TEXT ·bf16UnpackUncachedAVX512(SB), NOSPLIT, $0-64
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ bias+16(FP), BX
	MOVQ n+24(FP), R12
	MOVQ srcRow+32(FP), R8
	MOVQ dstRow+40(FP), R9
	MOVQ dstBlock+48(FP), R10
	MOVQ blocks+56(FP), R11
	UNPACK(VMOVNTPS)
