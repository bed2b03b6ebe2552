package main

import (
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// norm writes the functions for batch normalization and for sums over pixels.
func norm(a *assembler) {
	deviations(a)
	normalize(a)
	normSums(a)
	normGrad(a)
	sums(a)
	if !a.wide { // rows of a box are short: AVX-512 uses these too
		box(a, "copyBoxAVX2", "copies", false)
		box(a, "normalizeBoxAVX2", "normalizes", true)
	}
}

// accumulators is the number of partial sums that hide the latency of an addition.
const accumulators = 4

func (a *assembler) newPartialSums() []reg.VecVirtual {
	v := make([]reg.VecVirtual, accumulators)
	for i := range v {
		v[i] = a.newZero()
	}
	return v
}

func (a *assembler) addPartialSums(v []reg.VecVirtual) reg.VecVirtual {
	a.VADDPS(v[1], v[0], v[0])
	a.VADDPS(v[3], v[2], v[2])
	a.VADDPS(v[2], v[0], v[0])
	return v[0]
}

// loopPixels calls body to add the vector at the given offset to partial sum i.
func (a *assembler) loopPixels(name string, pixels reg.GPVirtual, pointers []reg.GPVirtual, body func(i, offset int)) {
	a.SHLQ(operand.Imm(3), pixels) // floats
	a.loopVectors(name, pixels, accumulators, pointers, func(i int) { body(i, i*a.vectorBytes()) })
}

func deviations(a *assembler) {
	a.beginFunction("deviations"+a.setName(), "func(x *float32, pixels int, out *float32)",
		"adds Σ (x − out[0]) to out[1] and Σ (x − out[0])² to out[2].")
	r := a.loadParams("x", "pixels", "out")
	x, out := r[0], r[2]
	from, sum, squares := a.loadConstants(out, 1)[0], a.newPartialSums(), a.newPartialSums()
	a.loopPixels("pixel", r[1], []reg.GPVirtual{x}, func(i, offset int) {
		d := a.newVector()
		a.loadVector(mem(x, offset), d)
		a.VSUBPS(from, d, d)
		a.VADDPS(a.maskTail(d, sum[i], sum[i])...)
		a.VFMADD231PS(a.maskTail(d, d, squares[i])...)
	})
	for i, v := range [][]reg.VecVirtual{sum, squares} {
		total := a.addHalves(a.addPartialSums(v))
		a.VADDPS(mem(out, (i+1)*vector), total, total)
		a.VMOVUPS(total, mem(out, (i+1)*vector))
	}
	a.endFunction()
}

// loadConstants loads n blocks of eight constants, each into both halves of a wide vector.
func (a *assembler) loadConstants(p reg.GPVirtual, n int) []reg.VecVirtual {
	v := make([]reg.VecVirtual, n)
	for i := range v {
		v[i] = a.newVector()
		if a.wide {
			a.VBROADCASTF64X4(mem(p, i*vector), v[i])
		} else {
			a.VMOVUPS(mem(p, i*vector), v[i])
		}
	}
	return v
}

const normBlocks = 3

// normalizeVector computes v = max(v·c[0] + c[1], c[2]); NaN stays NaN.
func (a *assembler) normalizeVector(v reg.VecVirtual, c []reg.VecVirtual) {
	a.VFMADD213PS(c[1], c[0], v)
	a.VMAXPS(v, c[2], v)
}

func normalize(a *assembler) {
	a.beginFunction("normalize"+a.setName(), "func(x, y, p *float32, pixels int)", "computes y = max(x·p[0] + p[1], p[2]).")
	r := a.loadParams("x", "y", "p", "pixels")
	x, y, c := r[0], r[1], a.loadConstants(r[2], normBlocks)
	a.loopPixels("pixel", r[3], []reg.GPVirtual{x, y}, func(_, offset int) {
		v := a.newVector()
		a.loadVector(mem(x, offset), v)
		a.normalizeVector(v, c)
		a.storeVector(v, mem(y, offset))
	})
	a.endFunction()
}

// loadMaskedGradient loads dy, but zero where the ReLU after the normalization of v is
// zero.
func (a *assembler) loadMaskedGradient(dy operand.Mem, v reg.VecVirtual, c []reg.VecVirtual) reg.VecVirtual {
	y := a.newVector()
	a.VMOVAPS(v, y)
	a.VFMADD213PS(c[1], c[0], y)
	return a.selectOrZero(a.compareLess(c[2], y), dy)
}

func normSums(a *assembler) {
	a.beginFunction("normSums"+a.setName(), "func(x, dy, p, mean, out *float32, pixels int)", "writes Σ dy and Σ dy·(x − mean) over the pixels where x·p[0] + p[1] > p[2].")
	r := a.loadParams("x", "dy", "p", "mean", "out", "pixels")
	x, dy, out := r[0], r[1], r[4]
	c, mean := a.loadConstants(r[2], normBlocks), a.loadConstants(r[3], 1)[0]
	sum, dot := a.newPartialSums(), a.newPartialSums()
	a.loopPixels("pixel", r[5], []reg.GPVirtual{x, dy}, func(i, offset int) {
		v := a.newVector()
		a.loadVector(mem(x, offset), v)
		g := a.loadMaskedGradient(mem(dy, offset), v, c)
		a.VADDPS(g, sum[i], sum[i])
		a.VSUBPS(mean, v, v)
		a.VFMADD231PS(v, g, dot[i])
	})
	a.VMOVUPS(a.addHalves(a.addPartialSums(sum)), mem(out, 0))
	a.VMOVUPS(a.addHalves(a.addPartialSums(dot)), mem(out, vector))
	a.endFunction()
}

func normGrad(a *assembler) {
	a.beginFunction("normGrad"+a.setName(), "func(x, dy, dx, p, q *float32, pixels int)", "computes dx = q[0]·dy + q[1]·(x − q[2]) + q[3], with dy replaced by 0 unless x·p[0] + p[1] > p[2].")
	r := a.loadParams("x", "dy", "dx", "p", "q", "pixels")
	x, dy, dx := r[0], r[1], r[2]
	c, q := a.loadConstants(r[3], normBlocks), a.loadConstants(r[4], 4)
	a.loopPixels("pixel", r[5], []reg.GPVirtual{x, dy, dx}, func(_, offset int) {
		v := a.newVector()
		a.loadVector(mem(x, offset), v)
		g := a.loadMaskedGradient(mem(dy, offset), v, c)
		a.VSUBPS(q[2], v, v)
		a.VFMADD213PS(q[3], q[1], v)
		a.VFMADD231PS(g, q[0], v)
		a.storeVector(v, mem(dx, offset))
	})
	a.endFunction()
}

func sums(a *assembler) {
	a.beginFunction("sums"+a.setName(), "func(x *float32, pixels int, out *float32)", "writes the sum over the pixels for each channel.")
	r := a.loadParams("x", "pixels", "out")
	sum := a.newPartialSums()
	a.loopPixels("pixel", r[1], r[:1], func(i, offset int) { a.VADDPS(a.loadOperand(mem(r[0], offset)), sum[i], sum[i]) })
	a.VMOVUPS(a.addHalves(a.addPartialSums(sum)), mem(r[2], 0))
	a.endFunction()
}

// box writes CopyBox or, if normalizes is set, NormalizeBox. One vector is one pixel.
func box(a *assembler, name, verb string, normalizes bool) {
	signature, doc := "func(x, y *float32, b *int)", verb+" the pixels of a Box, whose first field is b."
	if normalizes {
		signature = "func(x, y, p *float32, b *int)"
	}
	a.beginFunction(name, signature, doc)
	r := a.loadParams("x", "y", "b")
	x, y, b := r[0], r[1], r[2]
	var p reg.GPVirtual
	if normalizes {
		p = a.loadParams("p")[0]
	}
	field := func(i int) operand.Mem { return mem(b, 8*i) } // of a Box: all fields are ints
	pixels, rows, planes, fromRow, toRow, at, end := field(0), a.GP64(), a.GP64(), a.GP64(), a.GP64(), a.GP64(), a.GP64()
	a.MOVQ(pixels, end)
	a.SHLQ(operand.Imm(5), end) // bytes
	a.MOVQ(field(2), planes)
	a.loop("plane", planes, 1, func() {
		var c []reg.VecVirtual
		if normalizes {
			c = a.loadConstants(p, normBlocks)
			a.ADDQ(imm(normBlocks*vector), p)
		}
		a.MOVQ(x, fromRow)
		a.MOVQ(y, toRow)
		a.MOVQ(field(1), rows)
		a.loop("row", rows, 1, func() {
			a.XORQ(at, at)
			a.Label("pixel")
			v := a.newVector()
			a.VMOVUPS(indexed(fromRow, at, 0), v)
			if normalizes {
				a.normalizeVector(v, c)
			}
			a.VMOVUPS(v, indexed(toRow, at, 0))
			a.ADDQ(imm(vector), at)
			a.CMPQ(at, end)
			a.JLT(operand.LabelRef("pixel"))
			a.ADDQ(field(3), fromRow)
			a.ADDQ(field(5), toRow)
		})
		a.ADDQ(field(4), x)
		a.ADDQ(field(6), y)
	})
	a.endFunction()
}
