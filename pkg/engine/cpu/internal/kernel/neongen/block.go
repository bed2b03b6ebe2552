package main

import "fmt"

// The following functions write one instruction for each half of a block. Those without a
// parameter to return a new block.

// apply writes to = op(x, y).
func (a *assembler) apply(op operation, to, x, y block) {
	for i := range to {
		a.write(op(to[i], x[i], y[i]))
	}
}

// applyLane writes to = op(x, y).
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

// spread returns a block with c in all lanes.
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
	a.emit("FLDPQ", mem(base, offset), to.pair())
}

// store stores a block at base + offset bytes.
func (a *assembler) store(from block, base register, offset int) {
	a.emit("FSTPQ", from.pair(), mem(base, offset))
}

// loadNext returns the block at p and advances p by a block.
func (a *assembler) loadNext(p register) block {
	to := a.newBlock()
	a.emit("VLD1.P", mem(p, blockBytes), to.list())
	return to
}

// storeNext stores a block at p and advances p by a block.
func (a *assembler) storeNext(from block, p register) {
	a.emit("VST1.P", from.list(), mem(p, blockBytes))
}

// loadStrided returns the block at p and advances p by stride bytes.
func (a *assembler) loadStrided(p, stride register) block {
	to := a.newBlock()
	a.emit("VLD1.P", fmt.Sprintf("(%s)(%s)", p, stride), to.list())
	return to
}

// storeStrided stores a block at p and advances p by stride bytes.
func (a *assembler) storeStrided(from block, p, stride register) {
	a.emit("VST1.P", from.list(), fmt.Sprintf("(%s)(%s)", p, stride))
}

// pair returns b as an operand of the instructions for two registers.
func (b block) pair() string { return fmt.Sprintf("(%s, %s)", b[0].float(), b[1].float()) }

// list returns b as an operand of the instructions for successive registers.
func (b block) list() string { return fmt.Sprintf("[%s, %s]", b[0].as("S4"), b[1].as("S4")) }
