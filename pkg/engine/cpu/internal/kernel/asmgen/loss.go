package main

import (
	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// loss writes the binary cross-entropy of logits, its gradient, and an exponential function.
func loss(a *assembler) {
	a.beginFunction("bce"+a.setName(), "func(z, t, out *float32, n int)", "writes eight sums of max(z,0) − z·t + log(1+e^−|z|).")
	r := a.loadParams("z", "t", "out", "n")
	sum := a.newZero()
	a.loopLogits(r, func(z, u reg.VecVirtual) {
		// log(1+u) is 2·artanh(s) with s = u/(2+u) of at most 1/3.
		s, q, p := a.newVector(), a.newVector(), a.newVector()
		a.VADDPS(a.constantVector("Two", 2), u, s)
		a.VDIVPS(s, u, s)
		a.VMULPS(s, s, q)
		a.polynomial("Log", q, p, 2./13, 2./11, 2./9, 2./7, 2./5, 2./3, 2)
		a.VFMADD231PS(a.maskTail(s, p, sum)...)
		a.VMAXPS(z, a.newZero(), p)
		a.VADDPS(p, sum, sum)
		a.VFNMADD231PS(a.loadOperand(mem(r[1], 0)), z, sum)
	}, r[:2])
	a.VMOVUPS(a.addHalves(sum), mem(r[2], 0))
	a.endFunction()

	a.beginFunction("bceGrad"+a.setName(), "func(z, t, dz, scale *float32, n int)", "computes dz = scale·(1/(1+e^−z) − t).")
	r = a.loadParams("z", "t", "dz", "scale", "n")
	scale := a.newVector()
	a.VBROADCASTSS(mem(r[3], 0), scale)
	a.loopLogits([]reg.GPVirtual{r[0], r[1], r[2], r[4]}, func(z, u reg.VecVirtual) {
		d, one := a.newVector(), a.newVector()
		a.VADDPS(a.constantVector("One", 1), u, d)
		a.VMOVUPS(a.constantVector("One", 1), one)
		top := a.selectEither(a.compareLess(z, a.newZero()), u, one) // 1/(1+u) where z is positive, u/(1+u) where it is not
		a.VDIVPS(d, top, d)
		a.VSUBPS(a.loadOperand(mem(r[1], 0)), d, d)
		a.VMULPS(scale, d, d)
		a.storeVector(d, mem(r[2], 0))
	}, r[:3])
	a.endFunction()

	a.beginFunction("exp"+a.setName(), "func(x, y *float32, n int)", "computes y = e^−|x|.")
	r = a.loadParams("x", "y", "n")
	a.loopLogits(r, func(_, u reg.VecVirtual) { a.storeVector(u, mem(r[1], 0)) }, r[:2])
	a.endFunction()
}

// loopLogits writes a loop over vectors of logits z, with u = e^−|z|, and advances the
// pointers. r begins with the pointer to the logits and ends with their number.
func (a *assembler) loopLogits(r []reg.GPVirtual, body func(z, u reg.VecVirtual), moved []reg.GPVirtual) {
	a.loopVectors("vector", r[len(r)-1], 1, moved, func(int) {
		z, x, n, u := a.newVector(), a.newVector(), a.newZero(), a.newVector()
		a.loadVector(mem(r[0], 0), z)
		a.VSUBPS(z, n, n)
		a.VMINPS(z, n, x)
		a.VMOVUPS(a.constantVector("Least", -87), n)
		a.VMAXPS(x, n, x) // NaN stays NaN
		// e^x = 2^n·e^x', |x'| ≤ log(2)/2; the constants are those of Moshier's Cephes, expf.
		a.VMULPS(a.constantVector("PerOctave", 1.44269504088896341), x, n)
		if a.wide {
			a.VRNDSCALEPS(operand.Imm(0), n, n)
		} else {
			a.VROUNDPS(operand.Imm(0), n, n)
		}
		a.VFNMADD231PS(a.constantVector("High", 0.693359375), n, x)
		a.VFNMADD231PS(a.constantVector("Low", -2.12194440e-4), n, x)
		a.polynomial("Exp", x, u, 1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1, 1, 1)
		a.VCVTPS2DQ(n, n)
		a.VPSLLD(operand.Imm(23), n, n)
		a.VPADDD(n, u, u)
		body(z, u)
	})
}

// polynomial computes to = c[0]·xⁿ + … + c[n] by Horner's rule.
func (a *assembler) polynomial(name string, x, to reg.VecVirtual, c ...float32) {
	for i, v := range c {
		m := a.constantVector(name+string(rune('A'+i)), v)
		if i == 0 {
			a.VMOVUPS(m, to)
		} else {
			a.VFMADD213PS(m, x, to)
		}
	}
}

// constantVector returns a vector in memory with value in every lane.
func (a *assembler) constantVector(name string, value float32) operand.Mem {
	name = "loss" + name + a.setName()
	m, ok := a.constantVectors[name]
	if !ok {
		m = a.StaticGlobal(name)
		a.DataAttributes(attr.RODATA | attr.NOPTR)
		for range a.vectorBytes() / 4 {
			a.AppendDatum(operand.F32(value))
		}
		a.constantVectors[name] = m
	}
	return m
}
