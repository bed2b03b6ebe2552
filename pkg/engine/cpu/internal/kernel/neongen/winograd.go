package main

// writeWinogradFunctions writes the transforms of Winograd's F(4×4,3×3). Each is a product M·d·Mᵀ of a
// small constant matrix with a square of blocks. First the columns of d are multiplied and
// stored in scratch memory, then the rows of the scratch memory are multiplied and stored in
// the result.
func writeWinogradFunctions(a *assembler) {
	writeWinogradInput(a, "winogradInputNEON", false)
	writeWinogradInput(a, "winogradNormInputNEON", true)
	writeWinogradGradient(a)
	writeWinogradOutput(a)
	writeWinogradWeights(a)
	writeWinogradWeightGradient(a)
}

// loader returns the ith block of a row or column that a transform reads.
type loader func(i int) block

// storer stores the ith block of a transformed row or column. Transforms store them in
// ascending order.
type storer func(i int, v block)

// loadAll loads n blocks.
func loadAll(n int, load loader) []block {
	d := make([]block, n)
	for i := range d {
		d[i] = load(i)
	}
	return d
}

// storeResult stores the block that f returns, and frees the registers that f has taken.
func (a *assembler) storeResult(store storer, i int, f func() block) {
	a.scoped(func() { store(i, f()) })
}

// storeSumAndDifference stores even + odd as block i and even − odd as block i + 1.
func (a *assembler) storeSumAndDifference(store storer, i int, even, odd block) {
	a.storeResult(store, i, func() block { return a.compute(fadd, even, odd) })
	a.storeResult(store, i+1, func() block { return a.compute(fsub, even, odd) })
}

// scratch is the square of 6×6 blocks of scratch memory. Its register points to the middle
// of the square, so that all offsets fit in an instruction.
type scratch struct {
	*assembler
	middle register
}

// middleBlocks is the number of blocks before scratch.middle.
const middleBlocks = 18

// newScratch returns the scratch memory of the parameter tmp.
func (a *assembler) newScratch() scratch {
	s := scratch{a, a.loadParams("tmp")[0]}
	a.emit("ADD", imm(middleBlocks*blockBytes), s.middle)
	return s
}

// offset returns the offset of a block from s.middle.
func (s scratch) offset(row, column int) int { return (6*row + column - middleBlocks) * blockBytes }

// loadRow returns a loader of row i.
func (s scratch) loadRow(i int) loader {
	return func(k int) block { return s.load(s.middle, s.offset(i, k)) }
}

// storeColumn returns a storer of column j.
func (s scratch) storeColumn(j int) storer {
	return func(k int, v block) { s.store(v, s.middle, s.offset(k, j)) }
}

// storeAlong returns a storer of blocks that are stride bytes apart. It advances p.
func (a *assembler) storeAlong(p, stride register) storer {
	next := 0
	return func(i int, v block) {
		if i != next {
			panic(a.name + " does not store its blocks in ascending order")
		}
		next++
		a.storeStrided(v, p, stride)
	}
}

// addMultiples sets the registers to base, base + stride, base + 2·stride and so on.
func (a *assembler) addMultiples(to []register, base, stride register) {
	a.emit("MOVD", base, to[0])
	for i := 1; i < len(to); i++ {
		a.emit("ADD", stride, to[i-1], to[i])
	}
}

// multiplication writes the code that multiplies a row or a column by the matrix of a
// transform. first is set for the columns, which are multiplied before the rows.
type multiplication func(first bool, load loader, store storer)

// transform writes the rest of a function with the parameters x, v, tmp, row, plane, ld,
// step and blocks. The function reads squares of n×n blocks: the rows of a square are row
// bytes apart, the squares plane bytes. It writes squares of 6×6 blocks: the blocks of a
// square are ld bytes apart, the squares step bytes. begin writes code that runs before the
// transform of each channel block.
func (a *assembler) transform(n int, begin func(), multiply multiplication) {
	p := a.loadParams("x", "v", "row", "plane", "ld", "step", "blocks")
	x, v, row, plane, ld, step, blocks := p[0], p[1], p[2], p[3], p[4], p[5], p[6]
	tmp, rows, to := a.newScratch(), a.newRegisters(n), a.newRegister()
	a.loop("block", blocks, 1, func() {
		begin()
		a.addMultiples(rows, x, row)
		for j := range n {
			a.scoped(func() {
				multiply(true, func(i int) block { return a.load(rows[i], j*blockBytes) }, tmp.storeColumn(j))
			})
		}
		a.emit("MOVD", v, to)
		for i := range 6 {
			a.scoped(func() { multiply(false, tmp.loadRow(i), a.storeAlong(to, ld)) })
		}
		a.emit("ADD", plane, x)
		a.emit("ADD", step, v)
	})
	a.endFunction()
}

// writeWinogradInput writes the transform of inputs (Lavin and Gray, equation 10 for m = 4):
//
//	     ⎡ 4  0 −5  0  1  0 ⎤
//	     ⎢ 0 −4 −4  1  1  0 ⎥
//	Bᵀ = ⎢ 0  4 −4 −1  1  0 ⎥
//	     ⎢ 0 −2 −1  2  1  0 ⎥
//	     ⎢ 0  2 −1 −2  1  0 ⎥
//	     ⎣ 0  4  0 −5  0  1 ⎦
//
// If norm is set, each input is normalized as it is read.
func writeWinogradInput(a *assembler, name string, norm bool) {
	if norm {
		a.beginFunction(name, "x *float32, v *float32, tmp *float32, p *float32, row int, plane int, ld int, step int, blocks int",
			"transforms a normalized 6×6 patch of every channel block: Bᵀ·max(x·p[0] + p[1], p[2])·B.")
	} else {
		a.beginFunction(name, "x *float32, v *float32, tmp *float32, row int, plane int, ld int, step int, blocks int",
			"transforms a 6×6 patch of every channel block: Bᵀ·x·B.")
	}
	k := a.loadConstants(4, 5)
	four, five := k[0], k[1]
	var p register
	if norm {
		p = a.loadParams("p")[0]
	}
	var c []block
	a.transform(6, func() {
		if norm {
			c = a.loadBlocks(p, normBlocks)
			a.emit("ADD", imm(normBlocks*blockBytes), p)
		}
	}, func(first bool, load loader, store storer) {
		d := loadAll(6, func(i int) block {
			v := load(i)
			if first && norm {
				a.normalizeBlock(v, c)
			}
			return v
		})
		outer := func(sum block, i int) block { // 4·d[i] − 5·d[i+2] + sum
			a.applyLane(fmlsLane, sum, d[i+2], five)
			a.applyLane(fmlaLane, sum, d[i], four)
			return sum
		}
		a.storeResult(store, 0, func() block { return outer(a.copyBlock(d[4]), 0) })
		last := outer(d[5], 1)
		even, odd := a.compute(fsub, d[4], d[2]), a.compute(fsub, d[3], d[1]) // of rows 3 and 4
		a.apply(fadd, odd, odd, odd)
		a.applyLane(fmlsLane, d[4], d[2], four)
		a.applyLane(fmlsLane, d[3], d[1], four)
		a.storeSumAndDifference(store, 1, d[4], d[3])
		a.storeSumAndDifference(store, 3, even, odd)
		store(5, last)
	})
}

// writeWinogradGradient writes the transform of gradients of outputs:
//
//	    ⎡ 1  0  0  0 ⎤
//	    ⎢ 1  1  1  1 ⎥
//	A = ⎢ 1 −1  1 −1 ⎥
//	    ⎢ 1  2  4  8 ⎥
//	    ⎢ 1 −2  4 −8 ⎥
//	    ⎣ 0  0  0  1 ⎦
func writeWinogradGradient(a *assembler) {
	a.beginFunction("winogradGradientNEON", "x *float32, v *float32, tmp *float32, row int, plane int, ld int, step int, blocks int",
		"transforms a 4×4 tile of every channel block: A·x·Aᵀ.")
	k := a.loadConstants(4, 8)
	four, eight := k[0], k[1]
	a.transform(4, func() {}, func(_ bool, load loader, store storer) {
		d := loadAll(4, load)
		store(0, d[0])
		a.scoped(func() { a.storeSumAndDifference(store, 1, a.compute(fadd, d[0], d[2]), a.compute(fadd, d[1], d[3])) })
		a.scoped(func() {
			odd := a.compute(fadd, d[1], d[1])
			a.applyLane(fmlaLane, odd, d[3], eight)
			a.applyLane(fmlaLane, d[0], d[2], four)
			a.storeSumAndDifference(store, 3, d[0], odd)
		})
		store(5, d[3])
	})
}

// writeWinogradOutput writes the transform of products back to outputs, by the transpose of the
// matrix A of writeWinogradGradient.
func writeWinogradOutput(a *assembler) {
	a.beginFunction("winogradOutputNEON", "m *float32, y *float32, bias *float32, tmp *float32, ld int, row int, plane int, biasStep int, blocks int",
		"transforms products to a 4×4 tile of every channel block: Aᵀ·m·A + bias.")
	k := a.loadConstants(2, 4, 8)
	two, four, eight := k[0], k[1], k[2]
	p := a.loadParams("m", "y", "bias", "ld", "row", "plane", "biasStep", "blocks")
	m, y, bias, ld, row, plane, biasStep, blocks := p[0], p[1], p[2], p[3], p[4], p[5], p[6], p[7]
	tmp, columns := a.newScratch(), a.newColumnReader(ld)
	multiply := func(load loader, store storer) {
		d := loadAll(6, load)
		p, q, r, t := a.compute(fadd, d[1], d[2]), a.compute(fsub, d[1], d[2]), a.compute(fadd, d[3], d[4]), a.compute(fsub, d[3], d[4])
		a.apply(fadd, d[0], d[0], p)
		a.apply(fadd, d[0], d[0], r)
		store(0, d[0])
		a.apply(fadd, d[5], d[5], q)
		a.applyLane(fmlaLane, q, t, two)
		store(1, q)
		a.applyLane(fmlaLane, p, r, four)
		store(2, p)
		a.applyLane(fmlaLane, d[5], t, eight)
		store(3, d[5])
	}
	a.loop("block", blocks, 1, func() {
		a.emit("MOVD", m, columns.start)
		for j := range 6 {
			a.scoped(func() { multiply(columns.loadColumn(), tmp.storeColumn(j)) })
		}
		shift, to := a.load(bias, 0), a.newRegister()
		a.emit("MOVD", y, to)
		for i := range 4 {
			a.scoped(func() {
				multiply(tmp.loadRow(i), func(k int, v block) {
					a.apply(fadd, v, v, shift)
					a.store(v, to, k*blockBytes)
				})
			})
			a.emit("ADD", row, to)
		}
		a.emit("ADD", plane, y)
		a.emit("ADD", biasStep, bias)
		a.emit("ADD", imm(blockBytes), m)
	})
	a.endFunction()
}

// columnReader reads the columns of a square of 6×6 blocks that are ld bytes apart, one after the
// other.
type columnReader struct {
	*assembler
	start                 register // first block of the next column
	next, ld, rowDistance register // next block, distance between blocks, distance between rows
}

// newColumnReader returns a columnReader whose start is not set yet.
func (a *assembler) newColumnReader(ld register) columnReader {
	p := columnReader{a, a.newRegister(), a.newRegister(), ld, a.newRegister()}
	a.emit("ADD", ld.String()+"<<1", ld, p.rowDistance) // 3·ld
	a.emit("ADD", p.rowDistance, p.rowDistance)
	return p
}

// loadColumn returns a loader of the next column.
func (p columnReader) loadColumn() loader {
	return func(i int) block {
		if i == 0 {
			p.emit("MOVD", p.start, p.next)
			p.emit("ADD", p.ld, p.start)
		}
		return p.loadStrided(p.next, p.rowDistance)
	}
}

// tapBytes is the distance in bytes between successive taps of a tile of 8×8 weights.
const tapBytes = 8 * blockBytes

// weightTaps returns registers that point to the first tap of each row of the window, in a
// tile of weights at base, and a function that advances them to the next input channel.
func (a *assembler) weightTaps(base register) (taps []register, advance func()) {
	taps = []register{base, a.newRegister(), a.newRegister()}
	for i := 1; i < len(taps); i++ {
		a.emit("ADD", imm(3*tapBytes*i), base, taps[i])
	}
	return taps, func() {
		for _, t := range taps {
			a.emit("ADD", imm(blockBytes), t)
		}
	}
}

// writeWinogradWeights writes the transform of weights:
//
//	    ⎡  1/4    0     0  ⎤
//	    ⎢ −1/6  −1/6  −1/6 ⎥
//	G = ⎢ −1/6   1/6  −1/6 ⎥
//	    ⎢ 1/24  1/12   1/6 ⎥
//	    ⎢ 1/24 −1/12   1/6 ⎥
//	    ⎣   0     0     1  ⎦
func writeWinogradWeights(a *assembler) {
	a.beginFunction("winogradWeightsNEON", "w *float32, u *float32, tmp *float32, ld int",
		"transforms eight rows of eight weights with nine taps each: G·w·Gᵀ.")
	k := a.loadConstants(1./4, 1./6, 1./12, 1./24)
	quarter, sixth, twelfth, small := k[0], k[1], k[2], k[3]
	p := a.loadParams("w", "u", "ld")
	tmp, to, rows := a.newScratch(), a.newRegister(), a.newRegister()
	taps, advance := a.weightTaps(p[0])
	multiply := func(load loader, store storer) {
		d := loadAll(3, load)
		a.storeResult(store, 0, func() block { return a.computeLane(fmulLane, d[0], quarter) })
		a.scoped(func() {
			even, odd := a.compute(fadd, d[0], d[2]), a.computeLane(fmulLane, d[1], sixth)
			a.applyLane(fmulLane, even, even, sixth)
			a.storeResult(store, 1, func() block {
				negative := a.newBlock()
				a.applyUnary(fneg, negative, even)
				a.apply(fsub, negative, negative, odd)
				return negative
			})
			a.storeResult(store, 2, func() block { return a.compute(fsub, odd, even) })
		})
		a.scoped(func() {
			even, odd := a.computeLane(fmulLane, d[2], sixth), a.computeLane(fmulLane, d[1], twelfth)
			a.applyLane(fmlaLane, even, d[0], small)
			a.storeSumAndDifference(store, 3, even, odd)
		})
		store(5, d[2])
	}
	a.emit("MOVD", imm(8), rows)
	a.loop("row", rows, 1, func() {
		for j := range 3 {
			a.scoped(func() {
				multiply(func(i int) block { return a.load(taps[i], j*tapBytes) }, tmp.storeColumn(j))
			})
		}
		a.emit("MOVD", p[1], to)
		for i := range 6 {
			a.scoped(func() { multiply(tmp.loadRow(i), a.storeAlong(to, p[2])) })
		}
		advance()
		a.emit("ADD", imm(blockBytes), p[1])
	})
	a.endFunction()
}

// writeWinogradWeightGradient writes the transform of products back to gradients of weights, by
// the transpose of the matrix G of writeWinogradWeights.
func writeWinogradWeightGradient(a *assembler) {
	a.beginFunction("winogradWeightGradientNEON", "d *float32, dw *float32, tmp *float32, ld int",
		"transforms products to eight rows of eight weights with nine taps each: Gᵀ·d·G.")
	k := a.loadConstants(1./4, 1./6, 1./12, 1./24)
	quarter, sixth, twelfth, small := k[0], k[1], k[2], k[3]
	p := a.loadParams("d", "dw", "ld")
	tmp, columns, rows := a.newScratch(), a.newColumnReader(p[2]), a.newRegister()
	taps, advance := a.weightTaps(p[1])
	multiply := func(load loader, store storer) {
		v := loadAll(6, load)
		p, q, r, t := a.compute(fadd, v[1], v[2]), a.compute(fsub, v[2], v[1]), a.compute(fadd, v[3], v[4]), a.compute(fsub, v[3], v[4])
		a.storeResult(store, 0, func() block {
			to := a.computeLane(fmulLane, r, small)
			a.applyLane(fmlaLane, to, v[0], quarter)
			a.applyLane(fmlsLane, to, p, sixth)
			return to
		})
		a.storeResult(store, 1, func() block {
			to := a.computeLane(fmulLane, t, twelfth)
			a.applyLane(fmlaLane, to, q, sixth)
			return to
		})
		a.storeResult(store, 2, func() block {
			a.apply(fsub, r, r, p)
			a.applyLane(fmlaLane, v[5], r, sixth)
			return v[5]
		})
	}
	a.emit("MOVD", imm(8), rows)
	a.loop("row", rows, 1, func() {
		a.emit("MOVD", p[0], columns.start)
		for j := range 6 {
			a.scoped(func() { multiply(columns.loadColumn(), tmp.storeColumn(j)) })
		}
		for i := range 3 {
			a.scoped(func() {
				multiply(tmp.loadRow(i), func(k int, v block) { a.store(v, taps[i], k*tapBytes) })
			})
		}
		advance()
		a.emit("ADD", imm(blockBytes), p[0])
	})
	a.endFunction()
}
