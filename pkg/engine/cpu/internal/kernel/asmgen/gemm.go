package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// maxRows is the number of rows of a full tile.
const maxRows = 6

// gemm writes the matrix kernel for every number of rows and of vectors of outputs, with
// eight floats per step ("Deep") and with one ("Flat").
func gemm(a *assembler) {
	for vectors := 1; vectors <= 2; vectors++ {
		for rows := 1; rows <= maxRows; rows++ {
			gemmTile{a, rows, vectors, true}.write()
			gemmTile{a, rows, vectors, false}.write()
		}
	}
}

// gemmTile is the matrix kernel for one shape of tile. Registers are assigned by
// hand, since all are in use: R8–R13 hold the addresses of the rows, BX the table of
// rows, and R15 the number of remaining tiles. In the loop over steps, SI points to the
// step, CX counts the remaining steps, AX is the step's offset, DI points to the weights,
// R14 to the weights of a step of eight floats, and DX is the distance to the second
// vector of weights. Y0–Y11 hold the sums, Y12 and Y13 weights, Y14 and Y15 inputs.
type gemmTile struct {
	*assembler
	rows, vectors int
	deep          bool
}

// unroll is the number of steps of one float per turn of the loop.
const unroll = 4

func (g gemmTile) sum(i, v int) reg.VecPhysical { return vectorRegister(i*g.vectors + v) }

func vectorRegister(i int) reg.VecPhysical {
	return []reg.VecPhysical{
		reg.Y0, reg.Y1, reg.Y2, reg.Y3, reg.Y4, reg.Y5, reg.Y6, reg.Y7,
		reg.Y8, reg.Y9, reg.Y10, reg.Y11, reg.Y12, reg.Y13, reg.Y14, reg.Y15,
	}[i]
}

func row(i int) reg.GPPhysical {
	return []reg.GPPhysical{reg.R8, reg.R9, reg.R10, reg.R11, reg.R12, reg.R13}[i]
}

func (g gemmTile) write() {
	kind := map[bool]string{true: "Deep", false: "Flat"}[g.deep]
	g.beginFunction(fmt.Sprintf("gemm%s%dx%d", kind, g.rows, 8*g.vectors),
		"func(x, w, y, bias *float32, rows, steps *int32, wNext, yNext, nstep, tiles int, accumulate bool)",
		fmt.Sprintf("is a GEMMFunc for tiles of %d×%d. Floats per step: %d.", g.rows, 8*g.vectors, map[bool]int{true: 8, false: 1}[g.deep]))
	g.loadParam("tiles", reg.R15)
	g.loadParam("rows", reg.RBX)
	g.Label("tile")
	g.initializeSums()
	g.Comment("The rows' inputs.")
	g.loadParam("x", reg.RAX)
	g.loadAddresses(0)
	g.loadParam("steps", reg.RSI)
	g.loadParam("w", reg.RDI)
	if g.vectors > 1 {
		g.loadParam("wNext", reg.RDX)
	}
	g.loadParam("nstep", reg.RCX)
	if g.deep {
		g.deepSteps()
	} else {
		g.flatSteps()
	}
	g.Label("store")
	g.loadParam("y", reg.RAX)
	g.loadAddresses(maxRows)
	g.accessOutputs(func(m operand.Mem, sum reg.VecPhysical) { g.VMOVUPS(sum, m) })
	g.ADDQ(imm(2*maxRows*4), reg.RBX)
	g.DECQ(reg.R15)
	g.JNZ(operand.LabelRef("tile"))
	g.endFunction()
}

// loadAddresses adds the base in AX to the rows' offsets, from entry first of the table on.
func (g gemmTile) loadAddresses(first int) {
	for i := range g.rows {
		g.MOVLQSX(mem(reg.RBX, 4*(first+i)), row(i))
		g.ADDQ(reg.RAX, row(i))
	}
}

// accessOutputs calls f with the address of each output and the register of its sum.
func (g gemmTile) accessOutputs(f func(m operand.Mem, sum reg.VecPhysical)) {
	if g.vectors > 1 {
		g.loadParam("yNext", reg.RDX)
	}
	for i := range g.rows {
		f(mem(row(i), 0), g.sum(i, 0))
		if g.vectors > 1 {
			f(indexed(row(i), reg.RDX, 0), g.sum(i, 1))
		}
	}
}

// initializeSums sets the sums to the bias, or to the values of the outputs.
func (g gemmTile) initializeSums() {
	g.loadParam("accumulate", reg.AL)
	g.TESTB(reg.AL, reg.AL)
	g.JZ(operand.LabelRef("fresh"))
	g.loadParam("y", reg.RAX)
	g.loadAddresses(maxRows)
	g.accessOutputs(func(m operand.Mem, sum reg.VecPhysical) { g.VMOVUPS(m, sum) })
	g.JMP(operand.LabelRef("started"))
	g.Label("fresh")
	g.loadParam("bias", reg.RAX)
	for v := range g.vectors {
		g.VMOVUPS(mem(reg.RAX, v*vector), g.sum(0, v))
		for i := 1; i < g.rows; i++ {
			g.VMOVAPS(g.sum(0, v), g.sum(i, v))
		}
	}
	g.Label("started")
}

// addProduct adds the outer product of the rows' floats at AX + offset with the weights at
// w + weights.
func (g gemmTile) addProduct(w reg.GPPhysical, offset, weights int) {
	g.VMOVUPS(mem(w, weights), reg.Y12)
	if g.vectors > 1 {
		g.VMOVUPS(indexed(w, reg.RDX, weights), reg.Y13)
	}
	for i := range g.rows {
		x := vectorRegister(14 + i%2)
		g.VBROADCASTSS(indexed(row(i), reg.RAX, offset), x)
		for v := range g.vectors {
			g.VFMADD231PS(vectorRegister(12+v), x, g.sum(i, v))
		}
	}
}

func (g gemmTile) deepSteps() {
	g.TESTQ(reg.RCX, reg.RCX)
	g.JZ(operand.LabelRef("store"))
	g.Label("step")
	g.MOVLQSX(mem(reg.RSI, 0), reg.RAX)
	g.MOVLQSX(mem(reg.RSI, 4), reg.R14)
	g.ADDQ(reg.RDI, reg.R14)
	for k := range 8 {
		g.addProduct(reg.R14, 4*k, k*vector)
	}
	g.ADDQ(imm(8), reg.RSI)
	g.DECQ(reg.RCX)
	g.JNZ(operand.LabelRef("step"))
}

func (g gemmTile) flatSteps() {
	g.SUBQ(imm(unroll), reg.RCX)
	g.JLT(operand.LabelRef("rest"))
	g.Label("steps")
	for k := range unroll {
		g.MOVLQSX(mem(reg.RSI, 4*k), reg.RAX)
		g.addProduct(reg.RDI, 0, k*vector)
	}
	g.ADDQ(imm(4*unroll), reg.RSI)
	g.ADDQ(imm(unroll*vector), reg.RDI)
	g.SUBQ(imm(unroll), reg.RCX)
	g.JGE(operand.LabelRef("steps"))
	g.Label("rest")
	g.ADDQ(imm(unroll), reg.RCX)
	g.JZ(operand.LabelRef("store"))
	g.Label("step")
	g.MOVLQSX(mem(reg.RSI, 0), reg.RAX)
	g.addProduct(reg.RDI, 0, 0)
	g.ADDQ(imm(4), reg.RSI)
	g.ADDQ(imm(vector), reg.RDI)
	g.DECQ(reg.RCX)
	g.JNZ(operand.LabelRef("step"))
}
