package main

import "testing"

// TestEncodings compares every instruction that is written as a word with the encoding by
// LLVM 14 (llvm-mc -triple=aarch64 -show-encoding). The registers' numbers and the index
// have bits set in the highest and the lowest places.
func TestEncodings(t *testing.T) {
	const d, n, m = 3, 17, 30
	for _, c := range []struct {
		got  instruction
		want string
	}{
		{fadd(d, n, m), "WORD $0x4e3ed623 // fadd v3.4s, v17.4s, v30.4s"},
		{fsub(d, n, m), "WORD $0x4ebed623 // fsub v3.4s, v17.4s, v30.4s"},
		{fmul(d, n, m), "WORD $0x6e3ede23 // fmul v3.4s, v17.4s, v30.4s"},
		{fdiv(d, n, m), "WORD $0x6e3efe23 // fdiv v3.4s, v17.4s, v30.4s"},
		{fmax(d, n, m), "WORD $0x4e3ef623 // fmax v3.4s, v17.4s, v30.4s"},
		{fmin(d, n, m), "WORD $0x4ebef623 // fmin v3.4s, v17.4s, v30.4s"},
		{fabd(d, n, m), "WORD $0x6ebed623 // fabd v3.4s, v17.4s, v30.4s"},
		{fcmgt(d, n, m), "WORD $0x6ebee623 // fcmgt v3.4s, v17.4s, v30.4s"},
		{fneg(d, n), "WORD $0x6ea0fa23 // fneg v3.4s, v17.4s"},
		{fsqrt(d, n), "WORD $0x6ea1fa23 // fsqrt v3.4s, v17.4s"},
		{frintn(d, n), "WORD $0x4e218a23 // frintn v3.4s, v17.4s"},
		{fcvtns(d, n), "WORD $0x4e21aa23 // fcvtns v3.4s, v17.4s"},
		{fmulLane(d, n, lane{m, 1}), "WORD $0x4fbe9223 // fmul v3.4s, v17.4s, v30.s[1]"},
		{fmlaLane(d, n, lane{m, 2}), "WORD $0x4f9e1a23 // fmla v3.4s, v17.4s, v30.s[2]"},
		{fmlsLane(d, n, lane{m, 3}), "WORD $0x4fbe5a23 // fmls v3.4s, v17.4s, v30.s[3]"},
	} {
		if string(c.got) != c.want {
			t.Errorf("got %s, want %s", c.got, c.want)
		}
	}
}
