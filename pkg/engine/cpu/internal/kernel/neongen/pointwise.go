package main

// writePointwiseFunctions writes the functions that compute each output element from the inputs at the
// same index, and the functions that rearrange weights.
func writePointwiseFunctions(a *assembler) {
	writeAdd(a)
	writeReLU(a)
	writeReLUGrad(a)
	writeLeakyReLU(a)
	writeTanhGrad(a)
	writeDistances(a)
	writeSigns(a)
	writeTranspose(a)
	writeSpread(a)
}

// loopFloats writes a loop over n floats, one block per iteration, and ends the function.
func (a *assembler) loopFloats(n register, body func()) {
	a.loopBlocks("block", n, 1, func(int) { body() })
	a.endFunction()
}

func writeAdd(a *assembler) {
	a.beginFunction("addNEON", "a *float32, b *float32, y *float32, n int", "computes y = a + b.")
	r := a.loadParams("a", "b", "y", "n")
	a.loopFloats(r[3], func() {
		v, w := a.loadNext(r[0]), a.loadNext(r[1])
		a.storeNext(a.compute(fadd, v, w), r[2])
	})
}

func writeReLU(a *assembler) {
	a.beginFunction("reluNEON", "x *float32, y *float32, n int", "computes y = max(x, 0).")
	r, zero := a.loadParams("x", "y", "n"), a.newZero()
	a.loopFloats(r[2], func() { a.storeNext(a.compute(fmax, a.loadNext(r[0]), zero), r[1]) })
}

func writeReLUGrad(a *assembler) {
	a.beginFunction("reluGradNEON", "y *float32, dy *float32, dx *float32, n int", "computes dx = dy where y > 0, else 0.")
	r, zero := a.loadParams("y", "dy", "dx", "n"), a.newZero()
	a.loopFloats(r[3], func() {
		y, dy := a.loadNext(r[0]), a.loadNext(r[1])
		positive := a.compute(fcmgt, y, zero)
		a.storeNext(a.compute(and, positive, dy), r[2])
	})
}

func writeLeakyReLU(a *assembler) {
	a.beginFunction("leakyNEON", "a *float32, b *float32, y *float32, slope *float32, n int", "computes y = b where a > 0, else slope·b.")
	r, zero := a.loadParams("a", "b", "y", "n"), a.newZero()
	slope := a.loadScalar("slope")
	a.loopFloats(r[3], func() {
		x, b := a.loadNext(r[0]), a.loadNext(r[1])
		y := a.compute(fcmgt, x, zero)
		a.apply(choose, y, b, a.computeLane(fmulLane, b, slope))
		a.storeNext(y, r[2])
	})
}

// loadScalar loads the float to which a parameter points.
func (a *assembler) loadScalar(name string) lane {
	v := a.newVector()
	a.emit("FMOVS", mem(a.loadParams(name)[0], 0), v.float())
	return lane{v, 0}
}

func writeTanhGrad(a *assembler) {
	a.beginFunction("tanhGradNEON", "y *float32, dy *float32, dx *float32, n int", "computes dx = dy·(1 − y²).")
	r, one := a.loadParams("y", "dy", "dx", "n"), a.loadConstants(1)[0]
	a.loopFloats(r[3], func() {
		y, dy, d := a.loadNext(r[0]), a.loadNext(r[1]), a.spread(one)
		a.apply(fmls, d, y, y)
		a.apply(fmul, d, d, dy)
		a.storeNext(d, r[2])
	})
}

func writeDistances(a *assembler) {
	a.beginFunction("distancesNEON", "a *float32, b *float32, out *float32, n int", "writes eight sums of |a − b| to out.")
	r, sum := a.loadParams("a", "b", "out", "n"), a.newZeroSum()
	a.loopBlocks("block", r[3], 1, func(int) {
		v, w := a.loadNext(r[0]), a.loadNext(r[1])
		a.apply(fadd, sum, sum, a.compute(fabd, v, w))
	})
	a.store(sum, r[2], 0)
	a.endFunction()
}

func writeSigns(a *assembler) {
	a.beginFunction("signsNEON", "a *float32, b *float32, y *float32, scale *float32, n int", "computes y = scale times the sign of a − b.")
	r := a.loadParams("a", "b", "y", "n")
	scale := a.spread(a.loadScalar("scale"))
	a.loopFloats(r[3], func() {
		v, w := a.loadNext(r[0]), a.loadNext(r[1])
		plus, minus := a.compute(fcmgt, v, w), a.compute(fcmgt, w, v)
		a.apply(and, plus, plus, scale)
		a.apply(and, minus, minus, scale)
		a.apply(fsub, plus, plus, minus)
		a.storeNext(plus, r[2])
	})
}

// writeTranspose writes a function that transposes an 8×8 tile as four 4×4 tiles. In each of them
// it exchanges single floats between two rows, and then pairs of floats.
func writeTranspose(a *assembler) {
	a.beginFunction("transposeNEON", "dst *float32, src *float32, stride int", "writes the transpose of an 8×8 tile.")
	r := a.loadParams("dst", "src", "stride")
	rows := make([]block, 8)
	for i := range rows {
		rows[i] = a.load(r[1], i*blockBytes)
	}
	var t [4]vector
	for i := range t {
		t[i] = a.newVector()
	}
	for half := range 2 {
		for part := range 2 { // of the rows
			from := rows[4*part:]
			// t[0] and t[2] contain the even columns of two rows, t[1] and t[3] the odd ones.
			for i := range 2 {
				a.emit("VTRN1", from[2*i+1][half].as("S4"), from[2*i][half].as("S4"), t[2*i].as("S4"))
				a.emit("VTRN2", from[2*i+1][half].as("S4"), from[2*i][half].as("S4"), t[2*i+1].as("S4"))
			}
			for i := range 2 {
				a.emit("VTRN1", t[i+2].as("D2"), t[i].as("D2"), from[i][half].as("D2"))
				a.emit("VTRN2", t[i+2].as("D2"), t[i].as("D2"), from[i+2][half].as("D2"))
			}
		}
	}
	// rows[4·p+i][h] now contains column 4·h + i of rows 4·p to 4·p + 3.
	for half := range 2 {
		for i := range 4 {
			a.emit("FSTPQ", block{rows[i][half], rows[4+i][half]}.registerPair(), mem(r[0], 0))
			a.emit("ADD", r[2], r[0])
		}
	}
	a.endFunction()
}

func writeSpread(a *assembler) {
	a.beginFunction("spreadNEON", "dst *float32, src *float32, stride int, n int", "copies n blocks to addresses that are stride bytes apart.")
	r := a.loadParams("dst", "src", "stride", "n")
	a.loop("block", r[3], 1, func() { a.storeStrided(a.loadNext(r[1]), r[0], r[2]) })
	a.endFunction()
}
