package main

// writeNormFunctions writes the functions for batch normalization and for sums over pixels.
func writeNormFunctions(a *assembler) {
	writeDeviations(a)
	writeNormalize(a)
	writeNormSums(a)
	writeNormGrad(a)
	writeSums(a)
}

// accumulators is the number of partial sums that hide the latency of an addition.
const accumulators = 4

// newPartialSums returns one block of zeros for each of the accumulators.
func (a *assembler) newPartialSums() []block {
	v := make([]block, accumulators)
	for i := range v {
		v[i] = a.newZeroSum()
	}
	return v
}

// addPartialSums adds all partial sums to the first.
func (a *assembler) addPartialSums(v []block) block {
	a.apply(fadd, v[0], v[0], v[1])
	a.apply(fadd, v[2], v[2], v[3])
	a.apply(fadd, v[0], v[0], v[2])
	return v[0]
}

// loopPixels writes a loop over the blocks of pixels, several per iteration. body adds a
// block to partial sum i.
func (a *assembler) loopPixels(pixels register, body func(i int)) {
	a.emit("LSL", imm(3), pixels) // floats
	a.loopBlocks("pixel", pixels, accumulators, body)
}

// loadBlocks loads n successive blocks.
func (a *assembler) loadBlocks(p register, n int) []block {
	v := make([]block, n)
	for i := range v {
		v[i] = a.load(p, i*blockBytes)
	}
	return v
}

func writeDeviations(a *assembler) {
	a.beginFunction("deviationsNEON", "x *float32, pixels int, out *float32", "adds Σ (x − out[0]) to out[1] and Σ (x − out[0])² to out[2].")
	r := a.loadParams("x", "pixels", "out")
	from, sum, squares := a.load(r[2], 0), a.newPartialSums(), a.newPartialSums()
	a.loopPixels(r[1], func(i int) {
		d := a.loadNext(r[0])
		a.apply(fsub, d, d, from)
		a.apply(fadd, sum[i], sum[i], d)
		a.apply(fmla, squares[i], d, d)
	})
	for i, v := range [][]block{sum, squares} {
		total := a.addPartialSums(v)
		a.loadInto(from, r[2], (i+1)*blockBytes)
		a.apply(fadd, total, total, from)
		a.store(total, r[2], (i+1)*blockBytes)
	}
	a.endFunction()
}

// normBlocks is the number of blocks of constants with which a channel block is
// normalized.
const normBlocks = 3

// normalizeBlock replaces v by max(v·c[0] + c[1], c[2]); NaN stays NaN.
func (a *assembler) normalizeBlock(v block, c []block) {
	a.scoped(func() {
		to := a.copyBlock(c[1])
		a.apply(fmla, to, v, c[0])
		a.apply(fmax, v, to, c[2])
	})
}

func writeNormalize(a *assembler) {
	a.beginFunction("normalizeNEON", "x *float32, y *float32, p *float32, pixels int", "computes y = max(x·p[0] + p[1], p[2]).")
	r := a.loadParams("x", "y", "p", "pixels")
	c := a.loadBlocks(r[2], normBlocks)
	a.loopPixels(r[3], func(int) {
		v := a.loadNext(r[0])
		a.normalizeBlock(v, c)
		a.storeNext(v, r[1])
	})
	a.endFunction()
}

// loadMaskedGradient returns the block at dy, replaced by zero where the ReLU after the
// normalization of v returns zero, and advances dy.
func (a *assembler) loadMaskedGradient(dy register, v block, c []block) block {
	y := a.copyBlock(c[1])
	a.apply(fmla, y, v, c[0])
	a.apply(fcmgt, y, y, c[2])
	a.scoped(func() { a.apply(and, y, y, a.loadNext(dy)) })
	return y
}

func writeNormSums(a *assembler) {
	a.beginFunction("normSumsNEON", "x *float32, dy *float32, p *float32, mean *float32, out *float32, pixels int", "writes Σ dy and Σ dy·(x − mean) over the pixels where x·p[0] + p[1] > p[2].")
	r := a.loadParams("x", "dy", "p", "mean", "out", "pixels")
	c, mean := a.loadBlocks(r[2], normBlocks), a.load(r[3], 0)
	sum, dot := a.newPartialSums(), a.newPartialSums()
	a.loopPixels(r[5], func(i int) {
		v := a.loadNext(r[0])
		g := a.loadMaskedGradient(r[1], v, c)
		a.apply(fadd, sum[i], sum[i], g)
		a.apply(fsub, v, v, mean)
		a.apply(fmla, dot[i], v, g)
	})
	a.store(a.addPartialSums(sum), r[4], 0)
	a.store(a.addPartialSums(dot), r[4], blockBytes)
	a.endFunction()
}

func writeNormGrad(a *assembler) {
	a.beginFunction("normGradNEON", "x *float32, dy *float32, dx *float32, p *float32, q *float32, pixels int",
		"computes dx = q[0]·dy + q[1]·(x − q[2]) + q[3], with dy replaced by 0 unless x·p[0] + p[1] > p[2].")
	r := a.loadParams("x", "dy", "dx", "p", "q", "pixels")
	c, q := a.loadBlocks(r[3], normBlocks), a.loadBlocks(r[4], 4)
	a.loopPixels(r[5], func(int) {
		v := a.loadNext(r[0])
		g := a.loadMaskedGradient(r[1], v, c)
		a.apply(fsub, v, v, q[2])
		dx := a.copyBlock(q[3])
		a.apply(fmla, dx, v, q[1])
		a.apply(fmla, dx, g, q[0])
		a.storeNext(dx, r[2])
	})
	a.endFunction()
}

func writeSums(a *assembler) {
	a.beginFunction("sumsNEON", "x *float32, pixels int, out *float32", "writes the sum over the pixels for each channel.")
	r := a.loadParams("x", "pixels", "out")
	sum := a.newPartialSums()
	a.loopPixels(r[1], func(i int) { a.apply(fadd, sum[i], sum[i], a.loadNext(r[0])) })
	a.store(a.addPartialSums(sum), r[2], 0)
	a.endFunction()
}
