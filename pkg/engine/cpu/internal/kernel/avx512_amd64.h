// The macros of avx2_amd64.h for AVX-512. K1 is the mask of the last eight floats.
#undef V0
#undef V1
#undef V2
#undef V3
#undef V4
#undef V5
#undef V6
#undef V7
#undef V8
#undef V9
#undef V10
#undef V11
#undef V12
#undef V13
#undef V14
#undef V15
#define V0 Z0
#define V1 Z1
#define V2 Z2
#define V3 Z3
#define V4 Z4
#define V5 Z5
#define V6 Z6
#define V7 Z7
#define V8 Z8
#define V9 Z9
#define V10 Z10
#define V11 Z11
#define V12 Z12
#define V13 Z13
#define V14 Z14
#define V15 Z15
#undef VECTOR
#undef FLOATS
#define VECTOR 64
#define FLOATS 16

#undef ZERO
#define ZERO(v) VPXORD v, v, v
#undef ROUND
#define ROUND(v) VRNDSCALEPS $0, v, v
#undef EIGHT
#define EIGHT(m, v) VBROADCASTF64X4 m, v
#undef ADDHALVES
#define ADDHALVES(v, half) \
	VEXTRACTF64X4 $1, v, Y15; \
	VADDPS        half, Y15, half

#define LOADTAIL(m, v) VMOVUPS.Z m, K1, v
#define STORETAIL(v, m) VMOVUPS v, K1, m
#define OPERANDTAIL(INSTRUCTION, m, v, to) \
	VMOVUPS.Z   m, K1, V15; \
	INSTRUCTION V15, v, to
#define ACCUMULATETAIL(INSTRUCTION, v, w, sum) INSTRUCTION v, w, K1, sum

#undef KEEPLESSFULL
#define KEEPLESSFULL(first, second, v, to) \
	VCMPPS    $0x11, second, first, K2; \
	VMOVUPS.Z v, K2, to
#define KEEPLESSTAIL(first, second, v, to) \
	VCMPPS    $0x11, second, first, K1, K2; \
	VMOVUPS.Z v, K2, to
#undef CHOOSELESSFULL
#define CHOOSELESSFULL(first, second, v, w, to) \
	VCMPPS    $0x11, second, first, K2; \
	VBLENDMPS v, w, K2, to
#define CHOOSELESSTAIL(first, second, v, w, to) \
	VCMPPS    $0x11, second, first, K1, K2; \
	VBLENDMPS v, w, K2, to

#undef LASTEIGHT
#define LASTEIGHT(BODY) \
	TESTQ DI, DI; \
	JZ    end; \
	MOVL  $0xff, R9; \
	KMOVW R9, K1; \
	BODY(TAIL, 0, V4, V8); \
end:
