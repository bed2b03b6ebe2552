package main

// writeUpdateFunctions writes the optimizers. No parameter may be named g, which is a register in
// assembly.
func writeUpdateFunctions(a *assembler) {
	writeAdam(a)
	writeSGD(a, "momentumNEON", true)
	writeSGD(a, "sgdNEON", false)
}

func writeAdam(a *assembler) {
	a.beginFunction("adamNEON", "w *float32, grad *float32, m *float32, v *float32, c *float32, n int", "performs one step of Adam.")
	r := a.loadParams("w", "grad", "m", "v", "n")
	constants := a.loadParams("c")[0]
	k := append(a.loadLanes(constants, 0), a.loadLanes(constants, 16)...)
	a.loopFloats(r[4], func() {
		weight, d := a.load(r[0], 0), a.loadNext(r[1])
		a.applyLane(fmlaLane, d, weight, k[0]) // d = grad + decay·w
		first := a.computeLane(fmulLane, d, k[2])
		a.applyLane(fmlaLane, first, a.load(r[2], 0), k[1]) // β1·m + (1 − β1)·d
		a.storeNext(first, r[2])
		a.apply(fmul, d, d, d)
		second := a.computeLane(fmulLane, d, k[4])
		a.applyLane(fmlaLane, second, a.load(r[3], 0), k[3]) // β2·v + (1 − β2)·d²
		a.storeNext(second, r[3])
		a.applyUnary(fsqrt, second, second)
		root := a.spread(k[6])
		a.applyLane(fmlaLane, root, second, k[5]) // √v/√(1 − β2^t) + ε
		a.applyLane(fmulLane, first, first, k[7])
		a.apply(fdiv, first, first, root)
		a.apply(fsub, weight, weight, first)
		a.storeNext(weight, r[0])
	})
}

func writeSGD(a *assembler, name string, momentum bool) {
	parameters, doc := "w *float32, grad *float32, c *float32, n int", "performs one step of gradient descent without momentum."
	if momentum {
		parameters, doc = "w *float32, grad *float32, buf *float32, c *float32, n int", "performs one step of gradient descent with momentum."
	}
	a.beginFunction(name, parameters, doc)
	r := a.loadParams("w", "grad", "n")
	var sums register
	if momentum {
		sums = a.loadParams("buf")[0]
	}
	k := a.loadLanes(a.loadParams("c")[0], 0) // the caller's constants fill a block
	a.loopFloats(r[2], func() {
		weight, d := a.load(r[0], 0), a.loadNext(r[1])
		a.applyLane(fmlaLane, d, weight, k[0])
		if momentum {
			a.applyLane(fmlaLane, d, a.load(sums, 0), k[1])
			a.storeNext(d, sums)
		}
		a.applyLane(fmlsLane, weight, d, k[2])
		a.storeNext(weight, r[0])
	})
}
