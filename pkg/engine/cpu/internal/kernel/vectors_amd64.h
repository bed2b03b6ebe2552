// Loops over vectors of floats, for AVX2 and AVX-512: see avx2_amd64.h.
//
// LOOP calls the macro BODY for each vector of DI floats, a multiple of eight, and ADVANCE to advance the
// pointers. BODY(kind, at, s, q) writes the code for the vector at byte at. kind is FULL, or TAIL for
// eight floats that are half a vector. s and q are two sums: V4 and V8. LOOP4 calls BODY for four
// vectors per iteration, with four pairs of sums V4 to V7 and V8 to V11, which hide the latency of an
// addition. It then calls LOOP for the other vectors.
//
// The loops are aligned, because a short loop that crosses two lines of the instruction cache takes up
// to 1.6 times as long (AMD EPYC). They are tested at their end: Go 1.26's assembler does not terminate
// if an aligned loop begins with a conditional jump over a long body.
#define LOOP(BODY, ADVANCE) \
	SUBQ $FLOATS, DI; \
	JLT  vector_done; \
	PCALIGN $64; \
vector: \
	BODY(FULL, 0, V4, V8); \
	ADVANCE(VECTOR); \
	SUBQ $FLOATS, DI; \
	JGE  vector; \
vector_done: \
	ADDQ $FLOATS, DI; \
	LASTEIGHT(BODY)
#define LOOP4(BODY, ADVANCE) \
	SUBQ $(4*FLOATS), DI; \
	JLT  four_done; \
	PCALIGN $64; \
four: \
	BODY(FULL, 0, V4, V8); \
	BODY(FULL, VECTOR, V5, V9); \
	BODY(FULL, 2*VECTOR, V6, V10); \
	BODY(FULL, 3*VECTOR, V7, V11); \
	ADVANCE(4*VECTOR); \
	SUBQ $(4*FLOATS), DI; \
	JGE  four; \
four_done: \
	ADDQ $(4*FLOATS), DI; \
	LOOP(BODY, ADVANCE)

// ADVANCEn advances the first n of AX, CX, DX and BX.
#define ADVANCE1(n) \
	ADDQ $(n), AX
#define ADVANCE2(n) \
	ADVANCE1(n); \
	ADDQ $(n), CX
#define ADVANCE3(n) \
	ADVANCE2(n); \
	ADDQ $(n), DX
#define ADVANCE4(n) \
	ADVANCE3(n); \
	ADDQ $(n), BX

// What a BODY does with memory and sums. In a TAIL only eight floats are read and written, and the lanes
// after them are zero.
#define FULL(full, tail) full
#define TAIL(full, tail) tail

#define LOAD(kind, m, v) kind(LOADFULL, LOADTAIL)(m, v)
#define STORE(kind, v, m) kind(STOREFULL, STORETAIL)(v, m)

// OPERAND executes an instruction with an operand in memory.
#define OPERAND(kind, INSTRUCTION, m, v, to) kind(OPERANDFULL, OPERANDTAIL)(INSTRUCTION, m, v, to)

// ACCUMULATE executes an instruction that adds to sum.
#define ACCUMULATE(kind, INSTRUCTION, v, w, sum) kind(ACCUMULATEFULL, ACCUMULATETAIL)(INSTRUCTION, v, w, sum)

// KEEPLESS sets to to v where first < second, else to zero. CHOOSELESS sets to to v where first < second,
// else to w. No number is less than NaN, and NaN is less than none.
#define KEEPLESS(kind, first, second, v, to) kind(KEEPLESSFULL, KEEPLESSTAIL)(first, second, v, to)
#define CHOOSELESS(kind, first, second, v, w, to) kind(CHOOSELESSFULL, CHOOSELESSTAIL)(first, second, v, w, to)

// TOTAL adds the four sums of LOOP4 to the first one. RETURN returns to Go; it clears the upper halves of
// the vector registers, since code that uses only SSE is slow otherwise.
#define TOTAL(s0, s1, s2, s3) \
	VADDPS s1, s0, s0; \
	VADDPS s3, s2, s2; \
	VADDPS s2, s0, s0
#define RETURN \
	VZEROUPPER; \
	RET
