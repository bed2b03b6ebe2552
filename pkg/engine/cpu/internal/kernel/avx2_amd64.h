// Macros with which functions for AVX2 and for AVX-512 are written once. This file defines those that
// differ for AVX2. avx512_amd64.h, which is included after the functions for AVX2, replaces them.
//
// V0 to V15 are the vector registers, VECTOR is their size in bytes and FLOATS their number of floats.
#define V0 Y0
#define V1 Y1
#define V2 Y2
#define V3 Y3
#define V4 Y4
#define V5 Y5
#define V6 Y6
#define V7 Y7
#define V8 Y8
#define V9 Y9
#define V10 Y10
#define V11 Y11
#define V12 Y12
#define V13 Y13
#define V14 Y14
#define V15 Y15
#define VECTOR 32
#define FLOATS 8

#define ZERO(v) VXORPS v, v, v
#define ROUND(v) VROUNDPS $0, v, v

// EIGHT loads eight floats into each half of v.
#define EIGHT(m, v) VMOVUPS m, v

// ADDHALVES sets half, the lower half of v, to the sum of both halves.
#define ADDHALVES(v, half)

// The following macros have a version for the last eight floats, if these are half a vector: see LOAD.
#define LOADFULL(m, v) VMOVUPS m, v
#define STOREFULL(v, m) VMOVUPS v, m
#define OPERANDFULL(INSTRUCTION, m, v, to) INSTRUCTION m, v, to
#define ACCUMULATEFULL(INSTRUCTION, v, w, sum) INSTRUCTION v, w, sum
#define KEEPLESSFULL(first, second, v, to) \
	VCMPPS $0x11, second, first, to; \
	VANDPS v, to, to
#define CHOOSELESSFULL(first, second, v, w, to) \
	VCMPPS    $0x11, second, first, V15; \
	VBLENDVPS V15, v, w, to

// LASTEIGHT writes the code for the last eight floats, if DI is not zero.
#define LASTEIGHT(BODY)
