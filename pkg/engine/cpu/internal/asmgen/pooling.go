package main

import (
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// pooling writes the maximum over windows and its gradient.
func pooling(a *assembler) {
	maxPool(a)
	maxPoolGrad(a)
}

// windows runs body for every element of a window whose first row begins at
// the registers first; body gets registers that point to the element.
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
	a.function("maxPoolAVX2", "func(x, y *float32, count, kh, kw, row, step int)", "writes the maxima of count windows.")
	r := a.params("x", "y", "count", "kh", "kw", "row", "step")
	x, y := r[0], r[1]
	a.loop("window", r[2], 1, func() {
		best, v := a.YMM(), a.YMM()
		a.VMOVUPS(mem(x, 0), best)
		a.windows([]reg.GPVirtual{x}, r[3], r[4], r[5], func(at []reg.GPVirtual) {
			a.VMOVUPS(mem(at[0], 0), v)
			a.VMAXPS(best, v, best)
		})
		a.VMOVUPS(best, mem(y, 0))
		a.ADDQ(r[6], x)
		a.ADDQ(imm(vector), y)
	})
	a.end()
}

func maxPoolGrad(a *assembler) {
	a.function("maxPoolGradAVX2", "func(x, y, dy, dx *float32, count, kh, kw, row, step int)",
		"adds dy to dx where x first equals y in its window.")
	x, dx, count := a.GP64(), a.GP64(), a.GP64()
	a.param("x", x)
	a.param("dx", dx)
	a.param("count", count)
	r := a.params("y", "dy")
	y, dy := r[0], r[1]
	a.loop("window", count, 1, func() {
		top, g, taken, eq, v := a.YMM(), a.YMM(), a.zero(), a.YMM(), a.YMM()
		a.VMOVUPS(mem(y, 0), top)
		a.VMOVUPS(mem(dy, 0), g)
		w := a.params("kh", "kw", "row")
		a.windows([]reg.GPVirtual{x, dx}, w[0], w[1], w[2], func(at []reg.GPVirtual) {
			a.VCMPPS(operand.Imm(0), mem(at[0], 0), top, eq) // equal, false for NaN
			a.VANDNPS(eq, taken, eq)
			a.VORPS(eq, taken, taken)
			a.VANDPS(g, eq, v)
			a.VADDPS(mem(at[1], 0), v, v)
			a.VMOVUPS(v, mem(at[1], 0))
		})
		step := a.params("step")[0]
		a.ADDQ(step, x)
		a.ADDQ(step, dx)
		a.ADDQ(imm(vector), y)
		a.ADDQ(imm(vector), dy)
	})
	a.end()
}
