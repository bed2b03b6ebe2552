package main

import (
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

func pooling(a *assembler) {
	maxPool(a)
	maxPoolGrad(a)
}

// windows writes loops over the elements of a window. The registers first point to its
// first row; body gets registers that point to the element.
func (a *assembler) windows(first []reg.GPVirtual, kh, kw, row reg.GPVirtual, body func(at []reg.GPVirtual)) {
	line, at := make([]reg.GPVirtual, len(first)), make([]reg.GPVirtual, len(first))
	for i := range first {
		line[i], at[i] = a.GP64(), a.GP64()
		a.MOVQ(first[i], line[i])
	}
	rows, cols := a.GP64(), a.GP64()
	a.MOVQ(kh, rows)
	a.loop("row", rows, 1, func() {
		for i := range line {
			a.MOVQ(line[i], at[i])
			a.ADDQ(row, line[i])
		}
		a.MOVQ(kw, cols)
		a.loop("column", cols, 1, func() {
			body(at)
			for i := range at {
				a.ADDQ(imm(vector), at[i])
			}
		})
	})
}

func maxPool(a *assembler) {
	a.beginFunction("maxPoolAVX2", "func(x, y, p *float32, index *byte, count, kh, kw, row, step int)",
		"writes the maxima of max(x·p[0] + p[1], p[2]) over count windows, and the index of each maximum in its window.")
	r := a.loadParams("x", "y", "index", "count")
	x, y, index := r[0], r[1], r[2]
	c := a.loadConstants(a.loadParams("p")[0], normBlocks)
	one := a.YMM()
	a.VPCMPEQD(one, one, one)
	a.VPSRLD(operand.Imm(31), one, one)
	a.loop("window", r[3], 1, func() {
		best, at, now, v, more := a.YMM(), a.newZero(), a.newZero(), a.YMM(), a.YMM()
		a.VMOVUPS(mem(x, 0), best)
		a.normalizeVector(best, c)
		w := a.loadParams("kh", "kw", "row")
		a.windows([]reg.GPVirtual{x}, w[0], w[1], w[2], func(e []reg.GPVirtual) {
			a.VMOVUPS(mem(e[0], 0), v)
			a.normalizeVector(v, c)
			a.VCMPPS(operand.Imm(less), v, best, more) // best < v, so that the first of equals stays
			a.VBLENDVPS(more, v, best, best)
			a.VBLENDVPS(more, now, at, at)
			a.VPADDD(one, now, now)
		})
		a.VMOVUPS(best, mem(y, 0))
		high := a.XMM()
		a.VEXTRACTI128(operand.Imm(1), at, high)
		a.VPACKUSDW(high, at.AsX(), high)
		a.VPACKUSWB(high, high, high)
		a.VMOVQ(high, mem(index, 0))
		a.ADDQ(a.loadParams("step")[0], x)
		a.ADDQ(imm(vector), y)
		a.ADDQ(imm(vector/4), index)
	})
	a.endFunction()
}

func maxPoolGrad(a *assembler) {
	a.beginFunction("maxPoolGradAVX2", "func(index *byte, dy, dx *float32, count, kh, kw, row, step int)",
		"adds dy to the elements of dx that index selects.")
	r := a.loadParams("index", "dy", "dx", "count")
	index, dy, dx := r[0], r[1], r[2]
	one := a.YMM()
	a.VPCMPEQD(one, one, one)
	a.VPSRLD(operand.Imm(31), one, one)
	a.loop("window", r[3], 1, func() {
		g, at, now, v := a.YMM(), a.YMM(), a.newZero(), a.YMM()
		a.VMOVUPS(mem(dy, 0), g)
		a.VPMOVZXBD(mem(index, 0), at)
		w := a.loadParams("kh", "kw", "row")
		a.windows([]reg.GPVirtual{dx}, w[0], w[1], w[2], func(e []reg.GPVirtual) {
			a.VPCMPEQD(now, at, v)
			a.VANDPS(g, v, v)
			a.VADDPS(mem(e[0], 0), v, v)
			a.VMOVUPS(v, mem(e[0], 0))
			a.VPADDD(one, now, now)
		})
		a.ADDQ(a.loadParams("step")[0], dx)
		a.ADDQ(imm(vector), dy)
		a.ADDQ(imm(vector/4), index)
	})
	a.endFunction()
}
