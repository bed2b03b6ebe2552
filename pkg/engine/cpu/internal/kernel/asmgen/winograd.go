package main

import (
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// winograd writes the transforms of Winograd's F(4×4,3×3). Each is a product
// M·d·Mᵀ of a small constant matrix with a square of vectors: the columns are
// transformed to scratch memory, then its rows to their places. With AVX-512 a vector
// has two channel blocks (of weights, two blocks of output channels); if there is only
// one, a mask leaves the second one out.
func winograd(a *assembler) {
	winogradInput(a, "winogradInput"+a.setName(), false)
	winogradInput(a, "winogradNormInput"+a.setName(), true)
	winogradGradient(a)
	winogradOutput(a)
	winogradWeights(a)
	winogradWeightGradient(a)
}

func (a *assembler) spreadConstant(name string, value float32) reg.VecVirtual {
	v := a.newVector()
	a.VBROADCASTSS(a.ConstData(name+a.setName(), operand.F32(value)), v)
	return v
}

func (a *assembler) vectors(n int, at func(i int) place) []reg.VecVirtual {
	v := make([]reg.VecVirtual, n)
	for i := range v {
		v[i] = a.newVector()
		a.load(at(i), v[i])
	}
	return v
}

// place is the place of a vector in memory. If second is set, the vector's two blocks
// are not adjacent. If masks is set, they leave out the second block if there is none.
type place struct {
	first  operand.Mem
	second *operand.Mem
	masks  *pairMasks
}

func whole(m operand.Mem) place { return place{first: m} }

func (a *assembler) load(p place, v reg.VecVirtual) {
	if p.second == nil {
		a.VMOVUPS(p.first, v)
		return
	}
	a.VBROADCASTF64X4(p.first, v) // the second half is written next, or has no meaning
	if p.masks == nil {
		a.VINSERTF64X4(operand.Imm(1), *p.second, v, v)
	} else {
		a.VBROADCASTF64X4(*p.second, p.masks.pairs, v)
	}
}

func (a *assembler) store(v reg.VecVirtual, p place) {
	switch {
	case p.second == nil && p.masks == nil:
		a.VMOVUPS(v, p.first)
	case p.second == nil:
		a.VMOVUPS(v, p.masks.lanes, p.first)
	case p.masks == nil:
		a.VMOVUPS(v.AsY(), p.first)
		a.VEXTRACTF64X4(operand.Imm(1), v, *p.second)
	default:
		high := a.YMM()
		a.VMOVUPS(v.AsY(), p.first)
		a.VEXTRACTF64X4(operand.Imm(1), v, high)
		a.VMOVUPS(high, p.masks.second, *p.second)
	}
}

// pairMasks holds masks for the lanes of two channel blocks, or of one if there is only
// one: for all floats, for pairs of floats in the second half, and for the eight floats
// of the second block.
type pairMasks struct{ lanes, pairs, second reg.OpmaskVirtual }

func (a *assembler) newMasks() pairMasks { return pairMasks{a.K(), a.K(), a.K()} }

// setMasks sets the masks for the number of remaining blocks.
func (a *assembler) setMasks(m pairMasks, blocks operand.Op) {
	bits := a.GP32()
	a.MOVL(operand.U32(0xffff), bits)
	a.CMPQ(blocks, imm(2))
	a.JGE(operand.LabelRef("pair"))
	a.MOVL(operand.U32(0x00ff), bits)
	a.Label("pair")
	a.KMOVW(bits, m.lanes)
	a.SHRL(operand.Imm(8), bits)
	a.KMOVW(bits, m.second)
	a.ANDL(operand.U32(0xf0), bits)
	a.KMOVW(bits, m.pairs)
}

// product computes to = x·factor + add, or add − x·factor where negative.
func (a *assembler) product(x, factor, add reg.VecVirtual, negative bool) reg.VecVirtual {
	to := a.newVector()
	a.VMOVAPS(add, to)
	if negative {
		a.VFNMADD231PS(factor, x, to)
	} else {
		a.VFMADD231PS(factor, x, to)
	}
	return to
}

func (a *assembler) sum(x, y reg.VecVirtual) reg.VecVirtual {
	to := a.newVector()
	a.VADDPS(y, x, to)
	return to
}

func (a *assembler) difference(x, y reg.VecVirtual) reg.VecVirtual {
	to := a.newVector()
	a.VSUBPS(y, x, to)
	return to
}

func (a *assembler) scaled(x, factor reg.VecVirtual) reg.VecVirtual {
	to := a.newVector()
	a.VMULPS(factor, x, to)
	return to
}

// strided returns a function that addresses up to six vectors, stride bytes apart, from
// base on. times3 and times5 hold multiples of the stride.
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

// inputRow computes Bᵀ·d (Lavin and Gray, equation 10 for m = 4).
func (a *assembler) inputRow(four, five reg.VecVirtual, d []reg.VecVirtual, store func(i int) place) {
	put := func(i int, v reg.VecVirtual) { a.store(v, store(i)) }
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

func (a *assembler) square(tmp reg.GPVirtual, row, i int) place {
	return whole(mem(tmp, (6*row+i)*a.vectorBytes()))
}

// winogradInput writes the transform of inputs, which it normalizes first if norm is set.
func winogradInput(a *assembler, name string, norm bool) {
	constants := "input"
	if norm {
		constants = "normInput"
		a.beginFunction(name, "func(x, v, tmp, p *float32, row, plane, ld, step, blocks int)", "transforms a normalized 6×6 patch of every channel block: Bᵀ·max(x·p[0] + p[1], p[2])·B.")
	} else {
		a.beginFunction(name, "func(x, v, tmp *float32, row, plane, ld, step, blocks int)", "transforms a 6×6 patch of every channel block: Bᵀ·x·B.")
	}
	four, five := a.spreadConstant(constants+"Four", 4), a.spreadConstant(constants+"Five", 5)
	var p reg.GPVirtual
	var c []reg.VecVirtual
	if norm {
		p = a.loadParams("p")[0]
	}
	a.transform(6, func(m pairMasks) {
		if norm {
			c = a.blockConstants(p, m)
		}
	}, func(first bool, load, store func(i int) place) {
		d := a.vectors(6, load)
		if first && norm {
			for _, v := range d {
				a.normalizeVector(v, c)
			}
		}
		a.inputRow(four, five, d, store)
	})
}

// blockConstants loads the constants that normalize a vector's channel blocks, and advances
// p.
func (a *assembler) blockConstants(p reg.GPVirtual, m pairMasks) []reg.VecVirtual {
	if !a.wide {
		c := a.loadConstants(p, normBlocks)
		a.ADDQ(imm(normBlocks*vector), p)
		return c
	}
	c := make([]reg.VecVirtual, normBlocks)
	for i := range c {
		c[i] = a.newVector()
		second := mem(p, (normBlocks+i)*vector)
		a.load(place{mem(p, i*vector), &second, &m}, c[i])
	}
	a.ADDQ(imm(2*normBlocks*vector), p)
	return c
}

// transform writes a function with the parameters x, v, tmp, row, plane, ld, step and
// blocks. It reads squares of n×n vectors, whose rows are row bytes and whose blocks are
// plane bytes apart, and writes squares of 6×6 vectors, which are ld bytes and whose
// blocks are step bytes apart. begin writes code before the blocks of a vector; oneWay
// writes the transform, first of the columns and then of the rows. With AVX-512 step must
// be the size of a block.
func (a *assembler) transform(n int, begin func(m pairMasks), oneWay func(first bool, load, store func(i int) place)) {
	p := a.loadParams("x", "v", "tmp", "row", "ld")
	x, v, tmp, row, ld, blocks := p[0], p[1], p[2], p[3], p[4], a.blocksLeft()
	rows, to := a.newStrided(x, row), a.GP64()
	points := a.newStrided(to, ld)
	next := rows // the rows of the second block
	var m pairMasks
	if a.wide {
		m, next.base = a.newMasks(), a.GP64()
	}
	a.loop("block", blocks, 1, func() {
		if a.wide {
			a.setMasks(m, blocks)
			a.MOVQ(x, next.base)
			a.ADDQ(a.stackParam("plane"), next.base)
		}
		begin(m)
		for j := range n {
			oneWay(true, func(i int) place { return a.inBlocks(rows.at(i, j*vector), next.at(i, j*vector), m) },
				func(i int) place { return a.square(tmp, i, j) })
		}
		a.MOVQ(v, to)
		for i := range 6 {
			oneWay(false, func(k int) place { return a.square(tmp, i, k) }, func(k int) place { return a.inLanes(points.at(k, 0), m) })
			a.LEAQ(operand.Mem{Base: to, Index: ld, Scale: 4}, to)
			a.LEAQ(operand.Mem{Base: to, Index: ld, Scale: 2}, to)
		}
		if a.wide {
			a.MOVQ(next.base, x)
			a.ADDQ(a.stackParam("plane"), x)
			a.ADDQ(imm(2*vector), v)
			a.DECQ(blocks)
			return
		}
		far := a.loadParams("plane", "step") // from the stack: they are more than there are registers
		a.ADDQ(far[0], x)
		a.ADDQ(far[1], v)
	})
	a.endFunction()
}

// blocksLeft returns the counter of remaining blocks: on the stack with AVX-512, whose
// transforms need one more register.
func (a *assembler) blocksLeft() operand.Op {
	if a.wide {
		return a.stackParam("blocks")
	}
	return a.loadParams("blocks")[0]
}

func (a *assembler) inBlocks(first, second operand.Mem, m pairMasks) place {
	if a.wide {
		return place{first, &second, &m}
	}
	return whole(first)
}

func (a *assembler) inLanes(first operand.Mem, m pairMasks) place {
	if a.wide {
		return place{first: first, masks: &m}
	}
	return whole(first)
}

func winogradGradient(a *assembler) {
	a.beginFunction("winogradGradient"+a.setName(), "func(x, v, tmp *float32, row, plane, ld, step, blocks int)", "transforms a 4×4 tile of every channel block: A·x·Aᵀ.")
	four, eight := a.spreadConstant("gradientFour", 4), a.spreadConstant("gradientEight", 8)
	a.transform(4, func(pairMasks) {}, func(_ bool, load, store func(i int) place) {
		d := a.vectors(4, load)
		put := func(i int, v reg.VecVirtual) { a.store(v, store(i)) }
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
	a.beginFunction("winogradOutput"+a.setName(), "func(m, y, bias, tmp *float32, ld, row, plane, biasStep, blocks int)", "transforms products to a 4×4 tile of every channel block: Aᵀ·m·A + bias.")
	p := a.loadParams("m", "y", "bias", "tmp", "ld", "row")
	m, y, bias, tmp, ld, row, blocks := p[0], p[1], p[2], p[3], p[4], p[5], a.blocksLeft()
	two, four, eight := a.spreadConstant("outputTwo", 2), a.spreadConstant("outputFour", 4), a.spreadConstant("outputEight", 8)
	from, to, across := a.GP64(), a.GP64(), a.GP64()
	a.LEAQ(operand.Mem{Base: ld, Index: ld, Scale: 2}, across)
	a.ADDQ(across, across)
	points := a.newStrided(from, across)
	shift := a.newVector()
	oneWay := func(load func(i int) place, put func(i int, v reg.VecVirtual)) {
		d := a.vectors(6, load)
		p, q, r, t := a.sum(d[1], d[2]), a.difference(d[1], d[2]), a.sum(d[3], d[4]), a.difference(d[3], d[4])
		put(0, a.sum(a.sum(d[0], p), r))
		put(1, a.product(t, two, q, false))
		put(2, a.product(r, four, p, false))
		put(3, a.product(t, eight, a.sum(q, d[5]), false))
	}
	next := a.GP64() // the row of the second block, and its bias
	var masks pairMasks
	if a.wide {
		masks = a.newMasks()
	}
	a.loop("block", blocks, 1, func() {
		if a.wide {
			a.setMasks(masks, blocks)
			a.MOVQ(bias, next)
			a.ADDQ(a.stackParam("biasStep"), next)
		}
		a.MOVQ(m, from)
		for j := range 6 {
			// A single block's vector also reads what follows it: memory of the block's own
			// point.
			oneWay(func(i int) place { return whole(points.at(i, 0)) }, func(i int, v reg.VecVirtual) { a.store(v, a.square(tmp, i, j)) })
			a.ADDQ(ld, from)
		}
		a.MOVQ(y, to)
		a.load(a.inBlocks(mem(bias, 0), mem(next, 0), masks), shift)
		if a.wide {
			a.MOVQ(y, next)
			a.ADDQ(a.stackParam("plane"), next)
		}
		for i := range 4 {
			oneWay(func(k int) place { return a.square(tmp, i, k) }, func(k int, v reg.VecVirtual) {
				a.VADDPS(shift, v, v)
				a.store(v, a.inBlocks(mem(to, k*vector), mem(next, k*vector), masks))
			})
			a.ADDQ(row, to)
			if a.wide {
				a.ADDQ(row, next)
			}
		}
		for range a.vectorBytes() / vector {
			a.ADDQ(a.stackParam("plane"), y)
			a.ADDQ(a.stackParam("biasStep"), bias)
		}
		a.ADDQ(imm(a.vectorBytes()), m)
		if a.wide {
			a.DECQ(blocks)
		}
	})
	a.endFunction()
}

// tapBytes is the distance of taps of a tile of 8×8 weights.
const tapBytes = 8 * vector

// weightParams writes the beginning of a transform of weights: of one tile with AVX2, of
// a pair whose points are joined with AVX-512. tile and points are names of parameters.
// It returns the registers of both, of tmp and of ld, a function that returns the place
// of eight weights at a tap, and one that advances to the next row of weights.
func (a *assembler) weightParams(name, parameters, tile, points, doc string) (r []reg.GPVirtual, tap func(t int) place, next func()) {
	if !a.wide {
		a.beginFunction(name+a.setName(), "func("+parameters+", tmp *float32, ld int)", doc)
		r = a.loadParams(tile, points, "tmp", "ld")
		return r, func(t int) place { return whole(mem(r[0], t*tapBytes)) }, func() {
			a.ADDQ(imm(vector), r[0])
			a.ADDQ(imm(vector), r[1])
		}
	}
	a.beginFunction(name+"Pair"+a.setName(), "func("+parameters+", tmp *float32, next, ld, row int)", doc)
	r = a.loadParams(tile, points, "tmp", "ld")
	second := a.GP64()
	a.MOVQ(r[0], second)
	a.ADDQ(a.stackParam("next"), second)
	return r, func(t int) place {
			m := mem(second, t*tapBytes)
			return place{first: mem(r[0], t*tapBytes), second: &m}
		}, func() {
			a.ADDQ(imm(vector), r[0])
			a.ADDQ(imm(vector), second)
			a.ADDQ(a.stackParam("row"), r[1])
		}
}

func winogradWeights(a *assembler) {
	p, weights, nextRow := a.weightParams("winogradWeights", "w, u", "w", "u", "transforms eight rows of eight weights with nine taps each: G·w·Gᵀ.")
	u, tmp, ld := p[1], p[2], p[3]
	quarter, sixth := a.spreadConstant("weightsQuarter", 1./4), a.spreadConstant("weightsSixth", 1./6)
	twelfth, small := a.spreadConstant("weightsTwelfth", 1./12), a.spreadConstant("weightsTwentyFourth", 1./24)
	oneWay := func(load, store func(i int) place) {
		d := a.vectors(3, load)
		put := func(i int, v reg.VecVirtual) { a.store(v, store(i)) }
		put(0, a.scaled(d[0], quarter))
		even, odd, zero := a.scaled(a.sum(d[0], d[2]), sixth), a.scaled(d[1], sixth), a.newZero()
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
			oneWay(func(i int) place { return weights(3*i + j) }, func(i int) place { return a.square(tmp, i, j) })
		}
		a.MOVQ(u, to)
		for i := range 6 {
			oneWay(func(k int) place { return a.square(tmp, i, k) }, func(k int) place { return whole(points.at(k, 0)) })
			a.ADDQ(next, to)
		}
		nextRow()
	})
	a.endFunction()
}

func winogradWeightGradient(a *assembler) {
	p, weights, nextRow := a.weightParams("winogradWeightGradient", "d, dw", "dw", "d", "transforms products to eight rows of eight weights with nine taps each: Gᵀ·d·G.")
	d, tmp, ld := p[1], p[2], p[3]
	quarter, sixth := a.spreadConstant("backQuarter", 1./4), a.spreadConstant("backSixth", 1./6)
	twelfth, small := a.spreadConstant("backTwelfth", 1./12), a.spreadConstant("backTwentyFourth", 1./24)
	oneWay := func(load, store func(i int) place) {
		v := a.vectors(6, load)
		p, q, r, t := a.sum(v[1], v[2]), a.difference(v[2], v[1]), a.sum(v[3], v[4]), a.difference(v[3], v[4])
		put := func(i int, v reg.VecVirtual) { a.store(v, store(i)) }
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
			oneWay(func(i int) place { return whole(points.at(i, 0)) }, func(i int) place { return a.square(tmp, i, j) })
			a.ADDQ(ld, from)
		}
		for i := range 3 {
			oneWay(func(k int) place { return a.square(tmp, i, k) }, func(k int) place { return weights(3*i + k) })
		}
		nextRow()
	})
	a.endFunction()
}
