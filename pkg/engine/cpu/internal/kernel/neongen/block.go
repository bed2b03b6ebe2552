package main

import "fmt"

// The functions apply… and compute… write one instruction for each half of a block. The
// latter return the result in new registers.

// apply writes to = op(x, y), or to = op(to, x, y) if op adds to its result.
func (a *assembler) apply(op operation, to, x, y block) {
	for i := range to {
		a.write(op(to[i], x[i], y[i]))
	}
}

// applyLane writes to = op(x, y), or to = op(to, x, y) if op adds to its result.
func (a *assembler) applyLane(op laneOperation, to, x block, y lane) {
	for i := range to {
		a.write(op(to[i], x[i], y))
	}
}

// applyUnary writes to = op(x).
func (a *assembler) applyUnary(op unaryOperation, to, x block) {
	for i := range to {
		a.write(op(to[i], x[i]))
	}
}

// compute returns op(x, y).
func (a *assembler) compute(op operation, x, y block) block {
	to := a.newBlock()
	a.apply(op, to, x, y)
	return to
}

// computeLane returns op(x, y).
func (a *assembler) computeLane(op laneOperation, x block, y lane) block {
	to := a.newBlock()
	a.applyLane(op, to, x, y)
	return to
}

// copyBlock returns a copy of x.
func (a *assembler) copyBlock(x block) block {
	to := a.newBlock()
	a.applyUnary(move, to, x)
	return to
}

// writeSpread returns a block with c in all lanes.
func (a *assembler) spread(c lane) block {
	to := a.newBlock()
	a.spreadInto(to, c)
	return to
}

// spreadInto writes c to all lanes of to.
func (a *assembler) spreadInto(to block, c lane) {
	for _, v := range to {
		a.emit("VDUP", fmt.Sprintf("V%d.S[%d]", c.vector, c.index), v.as("S4"))
	}
}

// newZero returns a block of zeros.
func (a *assembler) newZero() block {
	v := a.newVector()
	a.emit("VEOR", v.as("B16"), v.as("B16"), v.as("B16"))
	return block{v, v}
}

// newZeroSum returns a block of zeros to which another block can be added.
func (a *assembler) newZeroSum() block {
	to := a.newBlock()
	for _, v := range to {
		a.emit("VEOR", v.as("B16"), v.as("B16"), v.as("B16"))
	}
	return to
}

// load returns the block at base + offset bytes.
func (a *assembler) load(base register, offset int) block {
	to := a.newBlock()
	a.loadInto(to, base, offset)
	return to
}

// loadInto loads the block at base + offset bytes.
func (a *assembler) loadInto(to block, base register, offset int) {
	a.emit("FLDPQ", mem(base, offset), to.registerPair())
}

// store stores a block at base + offset bytes.
func (a *assembler) store(from block, base register, offset int) {
	a.emit("FSTPQ", from.registerPair(), mem(base, offset))
}

// loadNext returns the block at p and advances p by a block.
func (a *assembler) loadNext(p register) block {
	to := a.newBlock()
	a.emit("VLD1.P", mem(p, blockBytes), to.registerList())
	return to
}

// storeNext stores a block at p and advances p by a block.
func (a *assembler) storeNext(from block, p register) {
	a.emit("VST1.P", from.registerList(), mem(p, blockBytes))
}

// loadStrided returns the block at p and advances p by stride bytes.
func (a *assembler) loadStrided(p, stride register) block {
	to := a.newBlock()
	a.emit("VLD1.P", fmt.Sprintf("(%s)(%s)", p, stride), to.registerList())
	return to
}

// storeStrided stores a block at p and advances p by stride bytes.
func (a *assembler) storeStrided(from block, p, stride register) {
	a.emit("VST1.P", from.registerList(), fmt.Sprintf("(%s)(%s)", p, stride))
}

// registerPair returns b as an operand of the instructions for two registers.
func (b block) registerPair() string { return fmt.Sprintf("(%s, %s)", b[0].float(), b[1].float()) }

// registerList returns b as an operand of the instructions for successive registers.
func (b block) registerList() string { return fmt.Sprintf("[%s, %s]", b[0].as("S4"), b[1].as("S4")) }
