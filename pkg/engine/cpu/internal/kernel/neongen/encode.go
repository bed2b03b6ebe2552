package main

import "fmt"

// instruction is a line of Go assembly. Go's assembler knows the integer instructions on
// vectors, but of those on floats only VFMLA and VFMLS. The functions below encode the others
// as words, with the instruction in Arm's syntax in a comment.
//
// The encodings are from the Arm Architecture Reference Manual for A-profile architecture
// (DDI 0487), section C4.1, "Data processing - Scalar Floating-Point and Advanced SIMD":
// Rd is in bits 0 to 4, Rn in bits 5 to 9, Rm in bits 16 to 20. All are for four floats (the
// bit Q is 1 and the bit sz is 0).
type instruction string

// operation is an instruction that computes d from n and m, or d from d, n and m.
type operation func(d, n, m vector) instruction

// laneOperation is an instruction that computes d from n and one float, or d from d, n and
// one float.
type laneOperation func(d, n vector, m lane) instruction

// unaryOperation is an instruction that computes d from n.
type unaryOperation func(d, n vector) instruction

// newWord returns the instruction with the given code, which is text in Arm's syntax.
func newWord(code uint32, text string) instruction {
	return instruction(fmt.Sprintf("WORD $0x%08x // %s", code, text))
}

// encodeThreeSame encodes an instruction of the class "Advanced SIMD three same".
func encodeThreeSame(name string, code uint32, d, n, m vector) instruction {
	return newWord(code|uint32(m)<<16|uint32(n)<<5|uint32(d), fmt.Sprintf("%s v%d.4s, v%d.4s, v%d.4s", name, d, n, m))
}

// fadd computes d = n + m.
func fadd(d, n, m vector) instruction { return encodeThreeSame("fadd", 0x4e20d400, d, n, m) }

// fsub computes d = n − m.
func fsub(d, n, m vector) instruction { return encodeThreeSame("fsub", 0x4ea0d400, d, n, m) }

// fmul computes d = n·m.
func fmul(d, n, m vector) instruction { return encodeThreeSame("fmul", 0x6e20dc00, d, n, m) }

// fdiv computes d = n/m.
func fdiv(d, n, m vector) instruction { return encodeThreeSame("fdiv", 0x6e20fc00, d, n, m) }

// fmax computes d = max(n, m), which is NaN if one of them is.
func fmax(d, n, m vector) instruction { return encodeThreeSame("fmax", 0x4e20f400, d, n, m) }

// fmin computes d = min(n, m), which is NaN if one of them is.
func fmin(d, n, m vector) instruction { return encodeThreeSame("fmin", 0x4ea0f400, d, n, m) }

// fabd computes d = |n − m|.
func fabd(d, n, m vector) instruction { return encodeThreeSame("fabd", 0x6ea0d400, d, n, m) }

// fcmgt sets all bits of d where n > m, and clears them elsewhere; it clears them for NaN.
func fcmgt(d, n, m vector) instruction { return encodeThreeSame("fcmgt", 0x6ea0e400, d, n, m) }

// encodeTwoMisc encodes an instruction of the class "Advanced SIMD two-register miscellaneous".
func encodeTwoMisc(name string, code uint32, d, n vector) instruction {
	return newWord(code|uint32(n)<<5|uint32(d), fmt.Sprintf("%s v%d.4s, v%d.4s", name, d, n))
}

// fneg computes d = −n.
func fneg(d, n vector) instruction { return encodeTwoMisc("fneg", 0x6ea0f800, d, n) }

// fsqrt computes d = √n.
func fsqrt(d, n vector) instruction { return encodeTwoMisc("fsqrt", 0x6ea1f800, d, n) }

// frintn rounds n to integers, halves to even ones.
func frintn(d, n vector) instruction { return encodeTwoMisc("frintn", 0x4e218800, d, n) }

// fcvtns rounds n like frintn and converts it to int32.
func fcvtns(d, n vector) instruction { return encodeTwoMisc("fcvtns", 0x4e21a800, d, n) }

// encodeByElement encodes an instruction of the class "Advanced SIMD vector x indexed element". The
// bits of the index are L (bit 21, the lower one) and H (bit 11).
func encodeByElement(name string, code uint32, d, n vector, m lane) instruction {
	code |= uint32(m.index&1)<<21 | uint32(m.index>>1)<<11
	return newWord(code|uint32(m.vector)<<16|uint32(n)<<5|uint32(d),
		fmt.Sprintf("%s v%d.4s, v%d.4s, v%d.s[%d]", name, d, n, m.vector, m.index))
}

// fmulLane computes d = n·m.
func fmulLane(d, n vector, m lane) instruction { return encodeByElement("fmul", 0x4f809000, d, n, m) }

// fmlaLane computes d = d + n·m, rounded once.
func fmlaLane(d, n vector, m lane) instruction { return encodeByElement("fmla", 0x4f801000, d, n, m) }

// fmlsLane computes d = d − n·m, rounded once.
func fmlsLane(d, n vector, m lane) instruction { return encodeByElement("fmls", 0x4f805000, d, n, m) }

// The following instructions are known to Go's assembler, whose operands are in the
// opposite order: m, n, d.

// fmla computes d = d + n·m, rounded once.
func fmla(d, n, m vector) instruction { return formatKnown("VFMLA", "S4", d, n, m) }

// fmls computes d = d − n·m, rounded once.
func fmls(d, n, m vector) instruction { return formatKnown("VFMLS", "S4", d, n, m) }

// addInt computes d = n + m for int32.
func addInt(d, n, m vector) instruction { return formatKnown("VADD", "S4", d, n, m) }

// equalInt sets all bits of d where n = m for int32, and clears them elsewhere.
func equalInt(d, n, m vector) instruction { return formatKnown("VCMEQ", "S4", d, n, m) }

// and computes the bits that are set in both n and m.
func and(d, n, m vector) instruction { return formatKnown("VAND", "B16", d, n, m) }

// choose takes each bit of d from n where it is set in d, else from m.
func choose(d, n, m vector) instruction { return formatKnown("VBSL", "B16", d, n, m) }

// insertIf copies the bits of n that are set in m to d.
func insertIf(d, n, m vector) instruction { return formatKnown("VBIT", "B16", d, n, m) }

// formatKnown returns an instruction of Go's assembler on vectors with the given arrangement of
// lanes.
func formatKnown(mnemonic, lanes string, d, n, m vector) instruction {
	return instruction(fmt.Sprintf("%s %s, %s, %s", mnemonic, m.as(lanes), n.as(lanes), d.as(lanes)))
}

// move copies n to d.
func move(d, n vector) instruction {
	return instruction(fmt.Sprintf("VMOV %s, %s", n.as("B16"), d.as("B16")))
}
