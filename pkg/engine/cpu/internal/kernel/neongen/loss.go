package main

// writeLossFunctions writes the binary cross-entropy of logits, its gradient, and an
// exponential function.
func writeLossFunctions(a *assembler) {
	writeBCE(a)
	writeBCEGrad(a)
	writeExp(a)
}

// exponential contains the constants with which loopLogits computes e^x.
type exponential struct {
	least, perOctave, high, low lane
	polynomial                  []lane
}

// loadExponential loads the constants for e^x, and the constants in others, whose lanes it
// returns in more. The constants for e^x are from expf in Moshier's Cephes library.
func (a *assembler) loadExponential(others ...float32) (e exponential, more []lane) {
	k := a.loadConstants(append([]float32{
		-87, 1.44269504088896341, 0.693359375, -2.12194440e-4,
		1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1, 1, 1,
	}, others...)...)
	return exponential{k[0], k[1], k[2], k[3], k[4:12]}, k[12:]
}

// polynomial returns c[0]·xⁿ + … + c[n], by Horner's rule.
func (a *assembler) polynomial(x block, c []lane) block {
	sum, next := a.spread(c[0]), a.newBlock()
	for _, v := range c[1:] {
		a.spreadInto(next, v)
		a.apply(fmla, next, sum, x)
		sum, next = next, sum
	}
	return sum
}

// loopLogits writes a loop over blocks of logits z, with u = e^−|z|, and advances the
// pointer to the logits.
func (a *assembler) loopLogits(logits, n register, e exponential, body func(z, u block)) {
	a.loopBlocks("block", n, 1, func(int) {
		z, x := a.loadNext(logits), a.newBlock()
		a.applyUnary(fneg, x, z)
		a.apply(fmin, x, x, z)
		var octaves, u block
		octaves = a.spread(e.least)
		a.apply(fmax, x, x, octaves) // NaN stays NaN
		// e^x = 2^n·e^x', |x'| ≤ log(2)/2.
		a.applyLane(fmulLane, octaves, x, e.perOctave)
		a.applyUnary(frintn, octaves, octaves)
		a.applyLane(fmlsLane, x, octaves, e.high)
		a.applyLane(fmlsLane, x, octaves, e.low)
		u = a.polynomial(x, e.polynomial)
		a.applyUnary(fcvtns, octaves, octaves)
		for _, v := range octaves {
			a.emit("VSHL", imm(23), v.as("S4"), v.as("S4")) // to the exponent of a float
		}
		a.apply(addInt, u, u, octaves)
		body(z, u)
	})
}

func writeBCE(a *assembler) {
	a.beginFunction("bceNEON", "z *float32, t *float32, out *float32, n int", "writes eight sums of max(z,0) − z·t + log(1+e^−|z|) to out.")
	r := a.loadParams("z", "t", "out", "n")
	e, k := a.loadExponential(2./13, 2./11, 2./9, 2./7, 2./5, 2./3, 2)
	sum, zero := a.newZeroSum(), a.newZero()
	a.loopLogits(r[0], r[3], e, func(z, u block) {
		// log(1+u) is 2·artanh(s) with s = u/(2+u) of at most 1/3.
		s := a.spread(k[6])
		a.apply(fadd, s, s, u)
		a.apply(fdiv, s, u, s)
		a.apply(fmul, u, s, s)
		p := a.polynomial(u, k)
		a.apply(fmla, sum, s, p)
		a.apply(fmax, p, z, zero)
		a.apply(fadd, sum, sum, p)
		a.apply(fmls, sum, z, a.loadNext(r[1]))
	})
	a.store(sum, r[2], 0)
	a.endFunction()
}

func writeBCEGrad(a *assembler) {
	a.beginFunction("bceGradNEON", "z *float32, t *float32, dz *float32, scale *float32, n int", "computes dz = scale·(1/(1+e^−z) − t).")
	r := a.loadParams("z", "t", "dz", "n")
	e, k := a.loadExponential(1)
	scale, one, zero := a.loadScalar("scale"), a.spread(k[0]), a.newZero()
	a.loopLogits(r[0], r[3], e, func(z, u block) {
		d := a.compute(fadd, u, one)
		top := a.compute(fcmgt, zero, z)
		a.apply(choose, top, u, one) // 1/(1+u) where z is positive, u/(1+u) where it is not
		a.apply(fdiv, d, top, d)
		a.apply(fsub, d, d, a.loadNext(r[1]))
		a.applyLane(fmulLane, d, d, scale)
		a.storeNext(d, r[2])
	})
	a.endFunction()
}

func writeExp(a *assembler) {
	a.beginFunction("expNEON", "x *float32, y *float32, n int", "computes y = e^−|x|.")
	r := a.loadParams("x", "y", "n")
	e, _ := a.loadExponential()
	a.loopLogits(r[0], r[2], e, func(_, u block) { a.storeNext(u, r[1]) })
	a.endFunction()
}
