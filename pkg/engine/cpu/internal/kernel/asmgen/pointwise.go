package main

import (
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// pointwise writes elementwise functions, and, for eight floats only, the functions that
// move weights.
func pointwise(a *assembler) {
	a.beginFunction("add"+a.setName(), "func(a, b, y *float32, n int)", "computes y = a + b.")
	r := a.loadParams("a", "b", "y", "n")
	a.loopFloats(r[3], r[:3], func() {
		v := a.newVector()
		a.loadVector(mem(r[0], 0), v)
		a.VADDPS(a.loadOperand(mem(r[1], 0)), v, v)
		a.storeVector(v, mem(r[2], 0))
	})

	a.beginFunction("relu"+a.setName(), "func(x, y *float32, n int)", "computes y = max(x, 0).")
	s := a.loadParams("x", "y", "n")
	zero := a.newZero()
	a.loopFloats(s[2], s[:2], func() {
		v := a.newVector()
		a.VMAXPS(a.loadOperand(mem(s[0], 0)), zero, v)
		a.storeVector(v, mem(s[1], 0))
	})

	a.beginFunction("reluGrad"+a.setName(), "func(y, dy, dx *float32, n int)", "computes dx = dy where y > 0, else 0.")
	t := a.loadParams("y", "dy", "dx", "n")
	none := a.newZero()
	a.loopFloats(t[3], t[:3], func() {
		a.storeVector(a.selectOrZero(a.compareLess(none, mem(t[0], 0)), mem(t[1], 0)), mem(t[2], 0))
	})
	activations(a)
	distances(a)
	if !a.wide {
		transpose(a)
		spread(a)
	}
}

func activations(a *assembler) {
	a.beginFunction("leaky"+a.setName(), "func(a, b, y, slope *float32, n int)", "computes y = b where a > 0, else slope·b.")
	r := a.loadParams("a", "b", "y", "slope", "n")
	slope, zero := a.newVector(), a.newZero()
	a.VBROADCASTSS(mem(r[3], 0), slope)
	a.loopFloats(r[4], r[:3], func() {
		positive, v, w := a.compareLess(zero, mem(r[0], 0)), a.newVector(), a.newVector()
		a.loadVector(mem(r[1], 0), v)
		a.VMULPS(v, slope, w)
		a.storeVector(a.selectEither(positive, v, w), mem(r[2], 0))
	})

	a.beginFunction("tanhGrad"+a.setName(), "func(y, dy, dx *float32, n int)", "computes dx = dy·(1 − y²).")
	s := a.loadParams("y", "dy", "dx", "n")
	one := a.constantVector("One", 1)
	a.loopFloats(s[3], s[:3], func() {
		v, w := a.newVector(), a.newVector()
		a.loadVector(mem(s[0], 0), v)
		a.VMOVUPS(one, w)
		a.VFNMADD231PS(v, v, w)
		a.VMULPS(a.loadOperand(mem(s[1], 0)), w, w)
		a.storeVector(w, mem(s[2], 0))
	})
}

func distances(a *assembler) {
	a.beginFunction("distances"+a.setName(), "func(a, b, out *float32, n int)", "writes to out eight sums of |a − b|.")
	r := a.loadParams("a", "b", "out", "n")
	sum, zero := a.newZero(), a.newZero()
	a.loopVectors("vector", r[3], 1, r[:2], func(int) {
		v, w := a.newVector(), a.newVector()
		a.loadVector(mem(r[0], 0), v)
		a.VSUBPS(a.loadOperand(mem(r[1], 0)), v, v)
		a.VSUBPS(v, zero, w)
		a.VMAXPS(v, w, w)
		a.VADDPS(w, sum, sum)
	})
	a.VMOVUPS(a.addHalves(sum), mem(r[2], 0))
	a.endFunction()

	a.beginFunction("signs"+a.setName(), "func(a, b, y, scale *float32, n int)", "computes y = scale times the sign of a − b.")
	s := a.loadParams("a", "b", "y", "scale", "n")
	scale := a.newVector()
	a.VBROADCASTSS(mem(s[3], 0), scale)
	a.loopFloats(s[4], s[:3], func() {
		v, w := a.newVector(), a.newVector()
		a.loadVector(mem(s[0], 0), v)
		a.loadVector(mem(s[1], 0), w)
		plus, minus := a.selectOrZero(a.compareLess(w, v), scale), a.selectOrZero(a.compareLess(v, w), scale)
		a.VSUBPS(minus, plus, plus)
		a.storeVector(plus, mem(s[2], 0))
	})
}

func (a *assembler) loopFloats(n reg.GPVirtual, pointers []reg.GPVirtual, body func()) {
	a.loopVectors("vector", n, 1, pointers, func(int) { body() })
	a.endFunction()
}

// transpose exchanges rows and columns of an 8×8 tile in three rounds: it exchanges
// floats within 64 bits, pairs of floats within 128 bits, and halves of a register.
func transpose(a *assembler) {
	a.beginFunction("transposeAVX2", "func(dst, src *float32, stride int)", "writes the transpose of an 8×8 tile.")
	p := a.loadParams("dst", "src", "stride")
	var r, t [8]reg.VecVirtual
	for i := range r {
		r[i], t[i] = a.YMM(), a.YMM()
		a.VMOVUPS(mem(p[1], i*vector), r[i])
	}
	for i := 0; i < 8; i += 2 {
		a.VUNPCKLPS(r[i+1], r[i], t[i])
		a.VUNPCKHPS(r[i+1], r[i], t[i+1])
	}
	for i := 0; i < 8; i += 4 {
		a.VSHUFPS(operand.Imm(0x44), t[i+2], t[i], r[i])
		a.VSHUFPS(operand.Imm(0xee), t[i+2], t[i], r[i+1])
		a.VSHUFPS(operand.Imm(0x44), t[i+3], t[i+1], r[i+2])
		a.VSHUFPS(operand.Imm(0xee), t[i+3], t[i+1], r[i+3])
	}
	for i := range 4 {
		a.VPERM2F128(operand.Imm(0x20), r[i+4], r[i], t[i])
		a.VPERM2F128(operand.Imm(0x31), r[i+4], r[i], t[i+4])
	}
	for i := range t {
		a.VMOVUPS(t[i], mem(p[0], 0))
		a.ADDQ(p[2], p[0])
	}
	a.endFunction()
}

func spread(a *assembler) {
	a.beginFunction("spreadAVX2", "func(dst, src *float32, stride, n int)", "copies n vectors to addresses that are stride bytes apart.")
	q := a.loadParams("dst", "src", "stride", "n")
	a.loop("vector", q[3], 1, func() {
		v := a.YMM()
		a.VMOVUPS(mem(q[1], 0), v)
		a.VMOVUPS(v, mem(q[0], 0))
		a.ADDQ(imm(vector), q[1])
		a.ADDQ(q[2], q[0])
	})
	a.endFunction()
}
