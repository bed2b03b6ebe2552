package main

// writePoolingFunctions writes the maximum over windows and its gradient.
func writePoolingFunctions(a *assembler) {
	writeMaxPool(a)
	writeMaxPoolGrad(a)
}

// loopWindow writes loops over the elements of a window whose first row is at first. body
// gets a register that points to the element.
func (a *assembler) loopWindow(first, kh, kw, row register, body func(at register)) {
	a.scoped(func() {
		line, at, rows, columns := a.newRegister(), a.newRegister(), a.newRegister(), a.newRegister()
		a.emit("MOVD", first, line)
		a.emit("MOVD", kh, rows)
		a.loop("row", rows, 1, func() {
			a.emit("MOVD", line, at)
			a.emit("ADD", row, line)
			a.emit("MOVD", kw, columns)
			a.loop("column", columns, 1, func() {
				body(at)
				a.emit("ADD", imm(blockBytes), at)
			})
		})
	})
}

// loadIntOne returns a block with the integer 1 in all lanes.
func (a *assembler) loadIntOne() block {
	v := a.newVector()
	a.scoped(func() {
		r := a.newRegister()
		a.emit("MOVD", imm(1), r)
		a.emit("VDUP", r, v.as("S4"))
	})
	return block{v, v}
}

func writeMaxPool(a *assembler) {
	a.beginFunction("maxPoolNEON", "x *float32, y *float32, p *float32, index *byte, count int, kh int, kw int, row int, step int",
		"writes the maxima of max(x·p[0] + p[1], p[2]) over count windows, and the index of each maximum in its window.")
	r := a.loadParams("x", "y", "index", "kh", "kw", "row", "step", "count")
	x, y, index := r[0], r[1], r[2]
	c, one := a.loadBlocks(a.loadParams("p")[0], normBlocks), a.loadIntOne()
	a.loop("window", r[7], 1, func() {
		best, at, now := a.load(x, 0), a.newZeroSum(), a.newZeroSum()
		a.normalizeBlock(best, c)
		a.loopWindow(x, r[3], r[4], r[5], func(e register) {
			v := a.load(e, 0)
			a.normalizeBlock(v, c)
			more := a.compute(fcmgt, v, best) // not for equal values, of which the first one stays
			a.apply(insertIf, best, v, more)
			a.apply(insertIf, at, now, more)
			a.apply(addInt, now, now, one)
		})
		a.storeNext(best, y)
		// The lowest bytes of the eight indexes.
		a.emit("VUZP1", at[1].as("H8"), at[0].as("H8"), at[0].as("H8"))
		a.emit("VUZP1", at[0].as("B16"), at[0].as("B16"), at[0].as("B16"))
		a.emit("FMOVD.P", at[0].float(), mem(index, 8))
		a.emit("ADD", r[6], x)
	})
	a.endFunction()
}

func writeMaxPoolGrad(a *assembler) {
	a.beginFunction("maxPoolGradNEON", "index *byte, dy *float32, dx *float32, count int, kh int, kw int, row int, step int",
		"adds dy to the elements of dx that index selects.")
	r := a.loadParams("index", "dy", "dx", "kh", "kw", "row", "step", "count")
	index, dy, dx := r[0], r[1], r[2]
	one := a.loadIntOne()
	a.loop("window", r[7], 1, func() {
		g, at, now := a.loadNext(dy), a.newBlock(), a.newZeroSum()
		// The eight bytes of the index as integers of 32 bits.
		a.emit("FMOVD.P", mem(index, 8), at[0].float())
		a.emit("VUXTL", at[0].as("B8"), at[0].as("H8"))
		a.emit("VUXTL2", at[0].as("H8"), at[1].as("S4"))
		a.emit("VUXTL", at[0].as("H4"), at[0].as("S4"))
		a.loopWindow(dx, r[3], r[4], r[5], func(e register) {
			v := a.compute(equalInt, at, now)
			a.apply(and, v, v, g)
			a.apply(fadd, v, v, a.load(e, 0))
			a.store(v, e, 0)
			a.apply(addInt, now, now, one)
		})
		a.emit("ADD", r[6], dx)
	})
	a.endFunction()
}
