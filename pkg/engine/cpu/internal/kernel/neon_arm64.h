// The NEON instructions on vectors of four floats that Go's assembler does not know, encoded as words.
// Operands are numbers of vector registers, in Arm's order: the destination first. The encodings are
// from the Arm Architecture Reference Manual for A-profile architecture (DDI 0487), section C4.1, "Data
// processing - Scalar Floating-Point and Advanced SIMD": Rd is in bits 0 to 4, Rn in bits 5 to 9, Rm in
// bits 16 to 20. The index of a lane has its bits in bit 21, the lower one, and in bit 11.

#define TWO(code, d, n) WORD $(code | (n)<<5 | (d))
#define THREE(code, d, n, m) WORD $(code | (m)<<16 | (n)<<5 | (d))
#define LANE(code, d, n, m, i) WORD $(code | ((i)&1)<<21 | ((i)>>1)<<11 | (m)<<16 | (n)<<5 | (d))

#define VFADD(d, n, m) THREE(0x4e20d400, d, n, m) // d = n + m
#define VFSUB(d, n, m) THREE(0x4ea0d400, d, n, m) // d = n − m
#define VFMUL(d, n, m) THREE(0x6e20dc00, d, n, m) // d = n·m
#define VFDIV(d, n, m) THREE(0x6e20fc00, d, n, m) // d = n/m
#define VFMAX(d, n, m) THREE(0x4e20f400, d, n, m) // d = max(n, m), which is NaN if one of them is
#define VFMIN(d, n, m) THREE(0x4ea0f400, d, n, m) // d = min(n, m), which is NaN if one of them is
#define VFABD(d, n, m) THREE(0x6ea0d400, d, n, m) // d = |n − m|
#define VFCMGT(d, n, m) THREE(0x6ea0e400, d, n, m) // all bits of d set where n > m, none elsewhere
#define VFNEG(d, n) TWO(0x6ea0f800, d, n) // d = −n
#define VFSQRT(d, n) TWO(0x6ea1f800, d, n) // d = √n
#define VFRINTN(d, n) TWO(0x4e218800, d, n) // d = n rounded to integers, halves to even ones
#define VFCVTNS(d, n) TWO(0x4e21a800, d, n) // like VFRINTN, converted to int32
#define VFMULLANE(d, n, m, i) LANE(0x4f809000, d, n, m, i) // d = n·m[i]
#define VFMLALANE(d, n, m, i) LANE(0x4f801000, d, n, m, i) // d = d + n·m[i], rounded once
#define VFMLSLANE(d, n, m, i) LANE(0x4f805000, d, n, m, i) // d = d − n·m[i], rounded once

// Instructions that Go's assembler knows, for macros that have the numbers of registers only.
#define VMOVE(d, n) THREE(0x4ea01c00, d, n, n) // d = n
#define VMULADD(d, n, m) THREE(0x4e20cc00, d, n, m) // d = d + n·m, rounded once
#define VMULSUB(d, n, m) THREE(0x4ea0cc00, d, n, m) // d = d − n·m, rounded once
#define VANDBITS(d, n, m) THREE(0x4e201c00, d, n, m) // the bits that are set in both n and m
#define VCHOOSE(d, n, m) THREE(0x6e601c00, d, n, m) // each bit of d from n where it is set in d, else from m
#define VINSERT(d, n, m) THREE(0x6ea01c00, d, n, m) // the bits of n that are set in m, copied to d
#define VADDINT(d, n, m) THREE(0x4ea08400, d, n, m) // d = n + m for int32
#define VEQUALINT(d, n, m) THREE(0x6ea08c00, d, n, m) // all bits of d set where n = m for int32, none elsewhere
#define VSPREAD(d, n, i) WORD $(0x4e040400 | (i)<<19 | (n)<<5 | (d)) // d = n[i] in all lanes

// A block of eight floats is in two successive vector registers. The number of a block is the one of its
// first register. THREE2 and so on execute an instruction for a block; the operand with a lane is one
// register.
#define TWO2(INSTRUCTION, d, n) \
	INSTRUCTION(d, n); \
	INSTRUCTION(d+1, n+1)
#define THREE2(INSTRUCTION, d, n, m) \
	INSTRUCTION(d, n, m); \
	INSTRUCTION(d+1, n+1, m+1)
#define LANE2(INSTRUCTION, d, n, m, i) \
	INSTRUCTION(d, n, m, i); \
	INSTRUCTION(d+1, n+1, m, i)
#define SPREAD2(d, n, i) \
	VSPREAD(d, n, i); \
	VSPREAD(d+1, n, i)
#define CLEAR2(d) \
	THREE(0x6e201c00, d, d, d); \
	THREE(0x6e201c00, d+1, d+1, d+1)

// LOOP executes BODY for each block of count floats, a multiple of eight.
#define LOOP(count, BODY) \
	SUBS $8, count; \
	BLT  block_done; \
block: \
	BODY; \
	SUBS $8, count; \
	BGE  block; \
block_done:

// NORMALIZE computes d = max(d·b0 + b2, b4), with the help of block t; NaN stays NaN.
#define NORMALIZE(d, t) \
	TWO2(VMOVE, t, 2); \
	THREE2(VMULADD, t, d, 0); \
	THREE2(VFMAX, d, t, 4)
#define NORMCONSTANTS(p) \
	FLDPQ 0(p), (F0, F1); \
	FLDPQ 32(p), (F2, F3); \
	FLDPQ 64(p), (F4, F5)
