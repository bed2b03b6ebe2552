package main

import (
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// norm writes the kernels of batch normalisation and of sums over pixels.
func norm(a *assembler) {
	moments(a)
	normalize(a, "normalizeAVX2", false)
	normalize(a, "normalizeReLUAVX2", true)
	normSums(a, "normSumsAVX2", false)
	normSums(a, "normSumsReLUAVX2", true)
	normGrad(a, "normGradAVX2", false)
	normGrad(a, "normGradReLUAVX2", true)
	sums(a)
}

// accumulators is the number of partial sums that hide the latency of an addition.
const accumulators = 4

// partials returns so many vector registers of zeros.
func (a *assembler) partials() []reg.VecVirtual {
	v := make([]reg.VecVirtual, accumulators)
	for i := range v {
		v[i] = a.zero()
	}
	return v
}

// join adds the partial sums up in the first.
func (a *assembler) join(v []reg.VecVirtual) reg.VecVirtual {
	a.VADDPS(v[1], v[0], v[0])
	a.VADDPS(v[3], v[2], v[2])
	a.VADDPS(v[2], v[0], v[0])
	return v[0]
}

// overPixels runs body for every pixel, several at a time: body adds the pixel
// offset bytes on to partial sum i. The pointers are moved on.
func (a *assembler) overPixels(name string, pixels reg.GPVirtual, pointers []reg.GPVirtual, body func(i, offset int)) {
	a.loop(name+"_many", pixels, accumulators, func() {
		for i := range accumulators {
			body(i, i*vector)
		}
		for _, p := range pointers {
			a.ADDQ(imm(accumulators*vector), p)
		}
	})
	a.loop(name+"_one", pixels, 1, func() {
		body(0, 0)
		for _, p := range pointers {
			a.ADDQ(imm(vector), p)
		}
	})
}

func moments(a *assembler) {
	a.function("momentsAVX2", "func(x *float32, pixels int, out *float32)",
		"writes the channels' means and sums of squared distances from them.")
	p := a.params("x", "pixels", "out")
	x, pixels, out := p[0], p[1], p[2]
	total, again := a.GP64(), a.GP64()
	a.MOVQ(pixels, total)
	a.MOVQ(x, again)
	sum := a.partials()
	a.overPixels("sum", pixels, []reg.GPVirtual{x}, func(i, offset int) {
		a.VADDPS(mem(x, offset), sum[i], sum[i])
	})
	mean, count := a.join(sum), a.YMM()
	a.VXORPS(count, count, count)
	a.VCVTSI2SSQ(total, count.AsX(), count.AsX())
	a.VBROADCASTSS(count.AsX(), count)
	a.VDIVPS(count, mean, mean)
	a.VMOVUPS(mean, mem(out, 0))
	squares, d := a.partials(), a.YMM()
	a.overPixels("square", total, []reg.GPVirtual{again}, func(i, offset int) {
		a.VMOVUPS(mem(again, offset), d)
		a.VSUBPS(mean, d, d)
		a.VFMADD231PS(d, d, squares[i])
	})
	a.VMOVUPS(a.join(squares), mem(out, vector))
	a.end()
}

// constants loads so many blocks of eight constants.
func (a *assembler) constants(p reg.GPVirtual, n int) []reg.VecVirtual {
	v := make([]reg.VecVirtual, n)
	for i := range v {
		v[i] = a.YMM()
		a.VMOVUPS(mem(p, i*vector), v[i])
	}
	return v
}

func normalize(a *assembler, name string, relu bool) {
	a.function(name, "func(x, y, p *float32, pixels int)", "computes y = (x − p[0])·p[1] + p[2], without negative values where ReLU is fused in.")
	r := a.params("x", "y", "p", "pixels")
	x, y, c := r[0], r[1], a.constants(r[2], 3)
	var zero reg.VecVirtual
	if relu {
		zero = a.zero()
	}
	a.overPixels("pixel", r[3], []reg.GPVirtual{x, y}, func(_, offset int) {
		v := a.YMM()
		a.VMOVUPS(mem(x, offset), v)
		a.VSUBPS(c[0], v, v)
		a.VFMADD213PS(c[2], c[1], v)
		if relu {
			a.VMAXPS(v, zero, v)
		}
		a.VMOVUPS(v, mem(y, offset))
	})
	a.end()
}

// less is the predicate of VCMPPS for first < second, false for NaN.
const less = 0x11

// counted loads dy, zero where a fused ReLU has cut y off.
func (a *assembler) counted(dy, y operand.Mem, zero reg.VecVirtual, relu bool) reg.VecVirtual {
	g := a.YMM()
	if relu {
		a.VCMPPS(operand.Imm(less), y, zero, g)
		a.VANDPS(dy, g, g)
	} else {
		a.VMOVUPS(dy, g)
	}
	return g
}

func normSums(a *assembler, name string, relu bool) {
	a.function(name, "func(x, dy, y, mean, out *float32, pixels int)", "writes Σ dy and Σ dy·(x − mean).")
	r := a.params("x", "dy", "y", "mean", "out", "pixels")
	x, dy, y, out := r[0], r[1], r[2], r[4]
	mean := a.constants(r[3], 1)[0]
	zero, sum, dot := a.zero(), a.partials(), a.partials()
	moved := []reg.GPVirtual{x, dy, y}
	a.overPixels("pixel", r[5], moved, func(i, offset int) {
		g, v := a.counted(mem(dy, offset), mem(y, offset), zero, relu), a.YMM()
		a.VADDPS(g, sum[i], sum[i])
		a.VMOVUPS(mem(x, offset), v)
		a.VSUBPS(mean, v, v)
		a.VFMADD231PS(v, g, dot[i])
	})
	a.VMOVUPS(a.join(sum), mem(out, 0))
	a.VMOVUPS(a.join(dot), mem(out, vector))
	a.end()
}

func normGrad(a *assembler, name string, relu bool) {
	a.function(name, "func(x, dy, y, dx, p *float32, pixels int)", "computes dx = p[0]·dy + p[1]·(x − p[2]) + p[3].")
	r := a.params("x", "dy", "y", "dx", "p", "pixels")
	x, dy, y, dx := r[0], r[1], r[2], r[3]
	c, zero := a.constants(r[4], 4), a.zero()
	a.overPixels("pixel", r[5], []reg.GPVirtual{x, dy, y, dx}, func(_, offset int) {
		g, v := a.counted(mem(dy, offset), mem(y, offset), zero, relu), a.YMM()
		a.VMOVUPS(mem(x, offset), v)
		a.VSUBPS(c[2], v, v)
		a.VFMADD213PS(c[3], c[1], v)
		a.VFMADD231PS(g, c[0], v)
		a.VMOVUPS(v, mem(dx, offset))
	})
	a.end()
}

func sums(a *assembler) {
	a.function("sumsAVX2", "func(x *float32, pixels int, out *float32)", "writes the sums of the pixels' channels.")
	r := a.params("x", "pixels", "out")
	sum := a.partials()
	a.overPixels("pixel", r[1], r[:1], func(i, offset int) { a.VADDPS(mem(r[0], offset), sum[i], sum[i]) })
	a.VMOVUPS(a.join(sum), mem(r[2], 0))
	a.end()
}
