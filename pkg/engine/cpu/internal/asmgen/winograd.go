package main

import (
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// winograd writes the transforms of Winograd's F(4×4,3×3). Each is a product
// M·d·Mᵀ of a small constant matrix with a square of vectors: the columns are
// transformed to scratch memory, then its rows to their places.
func winograd(a *assembler) {
	winogradInput(a, "winogradInputAVX2", false)
	winogradInput(a, "winogradNormInputAVX2", true)
	winogradGradient(a)
	winogradOutput(a)
	winogradWeights(a)
	winogradWeightGradient(a)
}

// spreadConstant is a register with value in every lane.
func (a *assembler) spreadConstant(name string, value float32) reg.VecVirtual {
	v := a.YMM()
	a.VBROADCASTSS(a.ConstData(name, operand.F32(value)), v)
	return v
}

// vectors loads n vectors.
func (a *assembler) vectors(n int, at func(i int) operand.Mem) []reg.VecVirtual {
	v := make([]reg.VecVirtual, n)
	for i := range v {
		v[i] = a.YMM()
		a.VMOVUPS(at(i), v[i])
	}
	return v
}

// product computes to = x·factor + add, or add − x·factor where negative.
func (a *assembler) product(x, factor, add reg.VecVirtual, negative bool) reg.VecVirtual {
	to := a.YMM()
	a.VMOVAPS(add, to)
	if negative {
		a.VFNMADD231PS(factor, x, to)
	} else {
		a.VFMADD231PS(factor, x, to)
	}
	return to
}

// sum is x + y, difference is x − y, scaled is x·factor.
func (a *assembler) sum(x, y reg.VecVirtual) reg.VecVirtual {
	to := a.YMM()
	a.VADDPS(y, x, to)
	return to
}

func (a *assembler) difference(x, y reg.VecVirtual) reg.VecVirtual {
	to := a.YMM()
	a.VSUBPS(y, x, to)
	return to
}

func (a *assembler) scaled(x, factor reg.VecVirtual) reg.VecVirtual {
	to := a.YMM()
	a.VMULPS(factor, x, to)
	return to
}

// strided is a function to address a vector every stride bytes from base, for
// up to six of them: times3 and times5 hold multiples of the stride.
type strided struct{ base, stride, times3, times5 reg.GPVirtual }

func (a *assembler) newStrided(base, stride reg.GPVirtual) strided {
	s := strided{base, stride, a.GP64(), a.GP64()}
	a.LEAQ(operand.Mem{Base: stride, Index: stride, Scale: 2}, s.times3)
	a.LEAQ(operand.Mem{Base: stride, Index: stride, Scale: 4}, s.times5)
	return s
}

func (s strided) at(i, offset int) operand.Mem {
	m := operand.Mem{Base: s.base, Disp: offset}
	switch i {
	case 1, 2, 4:
		m.Index, m.Scale = s.stride, uint8(i)
	case 3:
		m.Index, m.Scale = s.times3, 1
	case 5:
		m.Index, m.Scale = s.times5, 1
	}
	return m
}

// inputRow is Bᵀ·d (Lavin and Gray, equation 10 for m = 4).
func (a *assembler) inputRow(four, five reg.VecVirtual, d []reg.VecVirtual, store func(i int) operand.Mem) {
	put := func(i int, v reg.VecVirtual) { a.VMOVUPS(v, store(i)) }
	put(0, a.product(d[0], four, a.product(d[2], five, d[4], true), false))
	even, odd := a.product(d[2], four, d[4], true), a.product(d[1], four, d[3], true)
	put(1, a.sum(even, odd))
	put(2, a.difference(even, odd))
	even, odd = a.difference(d[4], d[2]), a.difference(d[3], d[1])
	a.VADDPS(odd, odd, odd)
	put(3, a.sum(even, odd))
	put(4, a.difference(even, odd))
	put(5, a.product(d[1], four, a.product(d[3], five, d[5], true), false))
}

const (
	squareRow = 6 * vector // bytes of a row of the scratch memory
	points    = 36         // of a transformed tile
)

// winogradInput writes the transform of inputs. Where norm is set it takes them
// from before a batch norm: each is normalised as it is read.
func winogradInput(a *assembler, name string, norm bool) {
	constants := "input"
	if norm {
		constants = "normInput"
		a.function(name, "func(x, v, tmp, p *float32, row, plane, ld, step, blocks int)", "transforms a normalised 6×6 patch of every channel block: Bᵀ·max(x·p[0] + p[1], p[2])·B.")
	} else {
		a.function(name, "func(x, v, tmp *float32, row, plane, ld, step, blocks int)", "transforms a 6×6 patch of every channel block: Bᵀ·x·B.")
	}
	four, five := a.spreadConstant(constants+"Four", 4), a.spreadConstant(constants+"Five", 5)
	var p reg.GPVirtual
	var c []reg.VecVirtual
	if norm {
		p = a.params("p")[0]
	}
	a.transform(6, func() {
		if norm {
			c = a.constants(p, normBlocks)
			a.ADDQ(imm(normBlocks*vector), p)
		}
	}, func(first bool, load, store func(i int) operand.Mem) {
		d := a.vectors(6, load)
		if first && norm {
			for _, v := range d {
				a.normalized(v, c)
			}
		}
		a.inputRow(four, five, d, store)
	})
}

// transform reads squares of n×n vectors whose rows are row and whose blocks
// are plane bytes apart, and writes squares of 6×6 with ld bytes from vector to
// vector and step bytes from block to block: x, v, tmp, row, plane, ld, step and
// blocks are the function's parameters. begin is written before each block;
// oneWay for its columns first and then for its rows.
func (a *assembler) transform(n int, begin func(), oneWay func(first bool, load, store func(i int) operand.Mem)) {
	p := a.params("x", "v", "tmp", "row", "ld", "blocks")
	x, v, tmp, row, ld, blocks := p[0], p[1], p[2], p[3], p[4], p[5]
	rows, to := a.newStrided(x, row), a.GP64()
	points := a.newStrided(to, ld)
	a.loop("block", blocks, 1, func() {
		begin()
		for j := range n {
			oneWay(true, func(i int) operand.Mem { return rows.at(i, j*vector) }, func(i int) operand.Mem { return mem(tmp, i*squareRow+j*vector) })
		}
		a.MOVQ(v, to)
		for i := range 6 {
			oneWay(false, func(k int) operand.Mem { return mem(tmp, i*squareRow+k*vector) }, func(k int) operand.Mem { return points.at(k, 0) })
			a.LEAQ(operand.Mem{Base: to, Index: ld, Scale: 4}, to)
			a.LEAQ(operand.Mem{Base: to, Index: ld, Scale: 2}, to)
		}
		far := a.params("plane", "step") // from the stack: they are more than there are registers
		a.ADDQ(far[0], x)
		a.ADDQ(far[1], v)
	})
	a.end()
}

func winogradGradient(a *assembler) {
	a.function("winogradGradientAVX2", "func(x, v, tmp *float32, row, plane, ld, step, blocks int)", "transforms a 4×4 tile of every channel block: A·x·Aᵀ.")
	four, eight := a.spreadConstant("gradientFour", 4), a.spreadConstant("gradientEight", 8)
	a.transform(4, func() {}, func(_ bool, load, store func(i int) operand.Mem) {
		d := a.vectors(4, load)
		put := func(i int, v reg.VecVirtual) { a.VMOVUPS(v, store(i)) }
		put(0, d[0])
		even, odd := a.sum(d[0], d[2]), a.sum(d[1], d[3])
		put(1, a.sum(even, odd))
		put(2, a.difference(even, odd))
		even, odd = a.product(d[2], four, d[0], false), a.product(d[3], eight, a.sum(d[1], d[1]), false)
		put(3, a.sum(even, odd))
		put(4, a.difference(even, odd))
		put(5, d[3])
	})
}

func winogradOutput(a *assembler) {
	a.function("winogradOutputAVX2", "func(m, y, bias, tmp *float32, ld, row, plane, biasStep, blocks int)", "transforms products to a 4×4 tile of every channel block: Aᵀ·m·A + bias.")
	p := a.params("m", "y", "bias", "tmp", "ld", "row", "plane", "biasStep", "blocks")
	m, y, bias, tmp, ld, row, plane, biasStep, blocks := p[0], p[1], p[2], p[3], p[4], p[5], p[6], p[7], p[8]
	two, four, eight := a.spreadConstant("outputTwo", 2), a.spreadConstant("outputFour", 4), a.spreadConstant("outputEight", 8)
	from, to, across := a.GP64(), a.GP64(), a.GP64()
	a.LEAQ(operand.Mem{Base: ld, Index: ld, Scale: 2}, across)
	a.ADDQ(across, across)
	points := a.newStrided(from, across)
	shift := a.YMM()
	oneWay := func(load func(i int) operand.Mem, put func(i int, v reg.VecVirtual)) {
		d := a.vectors(6, load)
		p, q, r, t := a.sum(d[1], d[2]), a.difference(d[1], d[2]), a.sum(d[3], d[4]), a.difference(d[3], d[4])
		put(0, a.sum(a.sum(d[0], p), r))
		put(1, a.product(t, two, q, false))
		put(2, a.product(r, four, p, false))
		put(3, a.product(t, eight, a.sum(q, d[5]), false))
	}
	a.loop("block", blocks, 1, func() {
		a.MOVQ(m, from)
		for j := range 6 {
			oneWay(func(i int) operand.Mem { return points.at(i, 0) }, func(i int, v reg.VecVirtual) { a.VMOVUPS(v, mem(tmp, i*squareRow+j*vector)) })
			a.ADDQ(ld, from)
		}
		a.MOVQ(y, to)
		a.VMOVUPS(mem(bias, 0), shift)
		for i := range 4 {
			oneWay(func(k int) operand.Mem { return mem(tmp, i*squareRow+k*vector) }, func(k int, v reg.VecVirtual) {
				a.VADDPS(shift, v, v)
				a.VMOVUPS(v, mem(to, k*vector))
			})
			a.ADDQ(row, to)
		}
		a.ADDQ(imm(vector), m)
		a.ADDQ(plane, y)
		a.ADDQ(biasStep, bias)
	})
	a.end()
}

// tapBytes is the way from tap to tap of a tile of 8×8 weights.
const tapBytes = 8 * vector

func winogradWeights(a *assembler) {
	a.function("winogradWeightsAVX2", "func(w, u, tmp *float32, ld int)", "transforms eight rows of eight weights with nine taps each: G·w·Gᵀ.")
	p := a.params("w", "u", "tmp", "ld")
	w, u, tmp, ld := p[0], p[1], p[2], p[3]
	quarter, sixth := a.spreadConstant("weightsQuarter", 1./4), a.spreadConstant("weightsSixth", 1./6)
	twelfth, small := a.spreadConstant("weightsTwelfth", 1./12), a.spreadConstant("weightsTwentyFourth", 1./24)
	oneWay := func(load, store func(i int) operand.Mem) {
		d := a.vectors(3, load)
		put := func(i int, v reg.VecVirtual) { a.VMOVUPS(v, store(i)) }
		put(0, a.scaled(d[0], quarter))
		even, odd, zero := a.scaled(a.sum(d[0], d[2]), sixth), a.scaled(d[1], sixth), a.zero()
		negative := a.difference(zero, even)
		put(1, a.difference(negative, odd))
		put(2, a.difference(odd, even))
		even, odd = a.product(d[0], small, a.scaled(d[2], sixth), false), a.scaled(d[1], twelfth)
		put(3, a.sum(even, odd))
		put(4, a.difference(even, odd))
		put(5, d[2])
	}
	to, next, rows := a.GP64(), a.GP64(), a.GP64()
	points := a.newStrided(to, ld)
	a.LEAQ(operand.Mem{Base: points.times5, Index: ld, Scale: 1}, next)
	a.MOVQ(imm(8), rows)
	a.loop("row", rows, 1, func() {
		for j := range 3 {
			oneWay(func(i int) operand.Mem { return mem(w, (3*i+j)*tapBytes) }, func(i int) operand.Mem { return mem(tmp, i*squareRow+j*vector) })
		}
		a.MOVQ(u, to)
		for i := range 6 {
			oneWay(func(k int) operand.Mem { return mem(tmp, i*squareRow+k*vector) }, func(k int) operand.Mem { return points.at(k, 0) })
			a.ADDQ(next, to)
		}
		a.ADDQ(imm(vector), w)
		a.ADDQ(imm(vector), u)
	})
	a.end()
}

func winogradWeightGradient(a *assembler) {
	a.function("winogradWeightGradientAVX2", "func(d, dw, tmp *float32, ld int)", "transforms products to eight rows of eight weights with nine taps each: Gᵀ·d·G.")
	p := a.params("d", "dw", "tmp", "ld")
	d, dw, tmp, ld := p[0], p[1], p[2], p[3]
	quarter, sixth := a.spreadConstant("backQuarter", 1./4), a.spreadConstant("backSixth", 1./6)
	twelfth, small := a.spreadConstant("backTwelfth", 1./12), a.spreadConstant("backTwentyFourth", 1./24)
	oneWay := func(load, store func(i int) operand.Mem) {
		v := a.vectors(6, load)
		p, q, r, t := a.sum(v[1], v[2]), a.difference(v[2], v[1]), a.sum(v[3], v[4]), a.difference(v[3], v[4])
		put := func(i int, v reg.VecVirtual) { a.VMOVUPS(v, store(i)) }
		put(0, a.product(p, sixth, a.product(v[0], quarter, a.scaled(r, small), false), true))
		put(1, a.product(q, sixth, a.scaled(t, twelfth), false))
		put(2, a.product(a.difference(r, p), sixth, v[5], false))
	}
	from, across, rows := a.GP64(), a.GP64(), a.GP64()
	a.LEAQ(operand.Mem{Base: ld, Index: ld, Scale: 2}, across)
	a.ADDQ(across, across)
	points := a.newStrided(from, across)
	a.MOVQ(imm(8), rows)
	a.loop("row", rows, 1, func() {
		a.MOVQ(d, from)
		for j := range 6 {
			oneWay(func(i int) operand.Mem { return points.at(i, 0) }, func(i int) operand.Mem { return mem(tmp, i*squareRow+j*vector) })
			a.ADDQ(ld, from)
		}
		for i := range 3 {
			oneWay(func(k int) operand.Mem { return mem(tmp, i*squareRow+k*vector) }, func(k int) operand.Mem { return mem(dw, (3*i+k)*tapBytes) })
		}
		a.ADDQ(imm(vector), d)
		a.ADDQ(imm(vector), dw)
	})
	a.end()
}
