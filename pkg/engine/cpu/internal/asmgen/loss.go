package main

import (
	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// loss writes the binary cross-entropy of logits and its gradient.
func loss(a *assembler) {
	a.function("bceAVX2", "func(z, t, out *float32, n int)", "writes eight sums of max(z,0) − z·t + log(1+e^−|z|).")
	r := a.params("z", "t", "out", "n")
	sum := a.zero()
	a.overPairs(r, func(z, u reg.VecVirtual) {
		// log(1+u) is 2·artanh(s) with s = u/(2+u) of at most 1/3.
		s, q, p := a.YMM(), a.YMM(), a.YMM()
		a.VADDPS(a.single("Two", 2), u, s)
		a.VDIVPS(s, u, s)
		a.VMULPS(s, s, q)
		a.polynomial("Log", q, p, 2./13, 2./11, 2./9, 2./7, 2./5, 2./3, 2)
		a.VFMADD231PS(s, p, sum)
		a.VXORPS(p, p, p)
		a.VMAXPS(z, p, p)
		a.VADDPS(p, sum, sum)
		a.VFNMADD231PS(mem(r[1], 0), z, sum)
	}, r[:2])
	a.VMOVUPS(sum, mem(r[2], 0))
	a.end()

	a.function("bceGradAVX2", "func(z, t, dz, scale *float32, n int)", "computes dz = scale·(1/(1+e^−z) − t).")
	r = a.params("z", "t", "dz", "scale", "n")
	scale := a.YMM()
	a.VBROADCASTSS(mem(r[3], 0), scale)
	a.overPairs([]reg.GPVirtual{r[0], r[1], r[2], r[4]}, func(z, u reg.VecVirtual) {
		d := a.YMM()
		a.VADDPS(a.single("One", 1), u, d)
		top := a.YMM()
		a.VMOVUPS(a.single("One", 1), top)
		a.VBLENDVPS(z, u, top, top) // 1/(1+u) where z is positive, u/(1+u) where it is not
		a.VDIVPS(d, top, d)
		a.VSUBPS(mem(r[1], 0), d, d)
		a.VMULPS(scale, d, d)
		a.VMOVUPS(d, mem(r[2], 0))
	}, r[:3])
	a.end()
}

// overPairs runs body for vectors of logits z (the first of r; the last is
// their number) with u = e^−|z|, and moves the pointers on.
func (a *assembler) overPairs(r []reg.GPVirtual, body func(z, u reg.VecVirtual), moved []reg.GPVirtual) {
	a.loop("vector", r[len(r)-1], vector/4, func() {
		z, x, n, u := a.YMM(), a.YMM(), a.YMM(), a.YMM()
		a.VMOVUPS(mem(r[0], 0), z)
		a.VXORPS(n, n, n)
		a.VSUBPS(z, n, n)
		a.VMINPS(z, n, x)
		a.VMOVUPS(a.single("Least", -87), n)
		a.VMAXPS(x, n, x) // NaN stays NaN
		// e^x = 2^n·e^x', |x'| ≤ log(2)/2; the constants are those of Moshier's Cephes, expf.
		a.VMULPS(a.single("PerOctave", 1.44269504088896341), x, n)
		a.VROUNDPS(operand.Imm(0), n, n)
		a.VFNMADD231PS(a.single("High", 0.693359375), n, x)
		a.VFNMADD231PS(a.single("Low", -2.12194440e-4), n, x)
		a.polynomial("Exp", x, u, 1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1, 1, 1)
		a.VCVTPS2DQ(n, n)
		a.VPSLLD(operand.Imm(23), n, n)
		a.VPADDD(n, u, u)
		body(z, u)
		for _, p := range moved {
			a.ADDQ(imm(vector), p)
		}
	})
}

// polynomial computes to = c[0]·xⁿ + … + c[n] by Horner's rule.
func (a *assembler) polynomial(name string, x, to reg.VecVirtual, c ...float32) {
	for i, v := range c {
		m := a.single(name+string(rune('A'+i)), v)
		if i == 0 {
			a.VMOVUPS(m, to)
		} else {
			a.VFMADD213PS(m, x, to)
		}
	}
}

// single is a vector in memory with value in every lane.
func (a *assembler) single(name string, value float32) operand.Mem {
	name = "loss" + name
	m, ok := a.singles[name]
	if !ok {
		m = a.StaticGlobal(name)
		a.DataAttributes(attr.RODATA | attr.NOPTR)
		for range vector / 4 {
			a.AppendDatum(operand.F32(value))
		}
		a.singles[name] = m
	}
	return m
}
