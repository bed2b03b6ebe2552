package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// wideRows is the number of rows of a full tile of the AVX-512 matrix kernel.
// Twelve rows of two vectors of sixteen outputs are 24 registers of sums, which
// leaves eight of the 32 for the operands.
const wideRows = 12

// gemmWide writes the AVX-512 matrix kernel for one, two or four blocks of eight outputs,
// eight floats per step ("Deep") and one ("Flat"). MultiplyRows in package kernel computes
// other numbers of rows by two of these functions.
func gemmWide(a *assembler) {
	for _, blocks := range []int{1, 2, 4} {
		for _, rows := range []int{1, 2, 3, 4, 6, 8, wideRows} {
			wideTile{assembler: a, rows: rows, blocks: blocks, deep: true}.write()
			wideTile{assembler: a, rows: rows, blocks: blocks}.write()
		}
	}
}

// wideTile is the matrix kernel for one shape of tile. Registers are assigned by
// hand: twelve hold the addresses of the rows (see wideRow), AX holds the offset of a
// step, and DI points to its weights. Other variables are on the stack. Vector registers
// 0–23 hold the sums, 24 and 25 weights, 26–31 inputs.
type wideTile struct {
	*assembler
	rows, blocks       int
	deep               bool
	table, tiles       operand.Mem // on the stack: the tile's rows, and how many tiles are left
	stepsAt, stepsLeft operand.Mem
}

// wideRow returns the register with the address of row i.
func wideRow(i int) reg.GPPhysical {
	return []reg.GPPhysical{
		reg.R8, reg.R9, reg.R10, reg.R11, reg.R12, reg.R13,
		reg.R15, reg.RBX, reg.RCX, reg.RDX, reg.RSI, reg.R14,
	}[i]
}

// spare is a register that only full tiles use for a row.
const spare = wideRows - 1

// vectors returns the number of vector registers for the outputs of a row.
func (g wideTile) vectors() int { return max(1, g.blocks/2) }

// register returns vector register i, with eight floats if there is one block.
func (g wideTile) register(i int) reg.VecPhysical {
	if g.blocks == 1 {
		return yRegisters[i]
	}
	return zRegisters[i]
}

// sum returns the register with vector v of the sums of row i.
func (g wideTile) sum(i, v int) reg.VecPhysical { return g.register(i*g.vectors() + v) }

// rowBytes returns the size of the weights that one float of x is multiplied by.
func (g wideTile) rowBytes() int { return g.blocks * vector }

func (g wideTile) write() {
	kind, depth := "Flat", 1
	if g.deep {
		kind, depth = "Deep", 8
	}
	g.beginFunction(fmt.Sprintf("gemm%s%dx%dAVX512", kind, g.rows, 8*g.blocks),
		"func(x, w, y, bias *float32, rows, steps *int32, wNext, yNext, nstep, tiles int, accumulate bool)",
		fmt.Sprintf("is a GEMMFunc for interleaved weights and tiles of %d×%d. Floats per step: %d.", g.rows, 8*g.blocks, depth))
	g.table, g.tiles, g.stepsAt, g.stepsLeft = g.AllocLocal(8), g.AllocLocal(8), g.AllocLocal(8), g.AllocLocal(8)
	g.loadParam("tiles", reg.RAX)
	g.MOVQ(reg.RAX, g.tiles)
	g.loadParam("rows", reg.RAX)
	g.MOVQ(reg.RAX, g.table)
	g.Label("tile")
	g.initializeSums()
	g.Comment("The rows' inputs.")
	g.loadParam("steps", reg.RAX)
	g.MOVQ(reg.RAX, g.stepsAt)
	g.loadParam("nstep", reg.RAX)
	g.MOVQ(reg.RAX, g.stepsLeft)
	g.loadAddresses("x", 0)
	if g.deep {
		g.deepSteps()
	} else {
		g.flatSteps()
	}
	g.Label("store")
	g.loadAddresses("y", wideRows)
	if g.blocks == 2 {
		g.storePairs()
	}
	g.accessOutputs(func(m operand.Mem, v reg.VecPhysical) { g.VMOVUPS(v.AsY(), m) },
		func(m operand.Mem, v reg.VecPhysical) { g.VEXTRACTF64X4(operand.Imm(1), v, m) })
	g.Label("stored")
	g.ADDQ(imm(2*wideRows*4), g.table)
	g.DECQ(g.tiles)
	g.JNZ(operand.LabelRef("tile"))
	g.endFunction()
}

// loadAddresses sets the registers of the rows to the base, a parameter, plus the rows'
// offsets, which begin at entry first of the table.
func (g wideTile) loadAddresses(base string, first int) {
	g.MOVQ(g.table, reg.RDI)
	g.loadParam(base, reg.RAX)
	for i := range g.rows {
		g.MOVLQSX(mem(reg.RDI, 4*(first+i)), wideRow(i))
		g.ADDQ(reg.RAX, wideRow(i))
	}
}

// accessOutputs calls low and high with the address of each block of outputs, in this order,
// and with the register of its sums: low for the lower half of the register, high for the
// upper half. The registers of the rows hold the addresses of the outputs.
func (g wideTile) accessOutputs(low, high func(m operand.Mem, sum reg.VecPhysical)) {
	if g.blocks > 1 {
		g.loadParam("yNext", reg.RAX)
	}
	if g.blocks > 2 {
		g.LEAQ(operand.Mem{Base: reg.RAX, Index: reg.RAX, Scale: 2}, reg.RDI)
	}
	for i := range g.rows {
		row := wideRow(i)
		low(mem(row, 0), g.sum(i, 0))
		if g.blocks > 1 {
			high(indexed(row, reg.RAX, 0), g.sum(i, 0))
		}
		if g.blocks > 2 {
			low(operand.Mem{Base: row, Index: reg.RAX, Scale: 2}, g.sum(i, 1))
			high(indexed(row, reg.RDI, 0), g.sum(i, 1))
		}
	}
}

// storePairs stores both blocks of a row at once if they are adjacent in y, and then jumps to
// "stored". Without it Winograd's products of eight channels take 6 % longer. Tiles of four
// blocks do not gain from it.
func (g wideTile) storePairs() {
	g.loadParam("yNext", reg.RAX)
	g.CMPQ(reg.RAX, imm(vector))
	g.JNE(operand.LabelRef("apart"))
	for i := range g.rows {
		g.VMOVUPS(g.sum(i, 0), mem(wideRow(i), 0))
	}
	g.JMP(operand.LabelRef("stored"))
	g.Label("apart")
}

// initializeSums sets the sums to the bias, or to the values of the outputs.
func (g wideTile) initializeSums() {
	g.loadParam("accumulate", reg.AL)
	g.TESTB(reg.AL, reg.AL)
	g.JZ(operand.LabelRef("fresh"))
	g.loadAddresses("y", wideRows)
	g.accessOutputs(func(m operand.Mem, v reg.VecPhysical) { g.VMOVUPS(m, v.AsY()) },
		func(m operand.Mem, v reg.VecPhysical) { g.VINSERTF64X4(operand.Imm(1), m, v, v) })
	g.JMP(operand.LabelRef("started"))
	g.Label("fresh")
	g.loadParam("bias", reg.RAX)
	for v := range g.vectors() {
		g.VMOVUPS(mem(reg.RAX, 2*v*vector), g.sum(0, v))
		for i := 1; i < g.rows; i++ {
			g.VMOVAPS(g.sum(0, v), g.sum(i, v))
		}
	}
	g.Label("started")
}

// addProduct adds the outer product of the rows' floats at AX + offset with the weights at
// DI + weights.
func (g wideTile) addProduct(offset, weights int) {
	for v := range g.vectors() {
		g.VMOVUPS(mem(reg.RDI, weights+2*v*vector), g.register(24+v))
	}
	for i := range g.rows {
		x := g.register(26 + i%6)
		g.VBROADCASTSS(indexed(wideRow(i), reg.RAX, offset), x)
		for v := range g.vectors() {
			g.VFMADD231PS(g.register(24+v), x, g.sum(i, v))
		}
	}
}

func (g wideTile) deepSteps() {
	g.CMPQ(g.stepsLeft, imm(0))
	g.JE(operand.LabelRef("store"))
	g.Label("step")
	g.MOVQ(g.stepsAt, reg.RDI)
	g.MOVLQSX(mem(reg.RDI, 0), reg.RAX)
	g.MOVLQSX(mem(reg.RDI, 4), reg.RDI)
	if g.blocks > 1 {
		g.SHLQ(operand.Imm(uint64(g.blocks/2)), reg.RDI) // times 2 or 4
	}
	g.ADDQ(g.stackParam("w"), reg.RDI)
	g.ADDQ(imm(8), g.stepsAt)
	const unrolled = 2 // of the eight floats
	left := operand.Op(wideRow(spare))
	if g.rows == wideRows {
		left = g.AllocLocal(8)
	}
	g.MOVQ(imm(8/unrolled), left)
	g.Label("floats")
	for k := range unrolled {
		g.addProduct(4*k, k*g.rowBytes())
	}
	g.ADDQ(imm(4*unrolled), reg.RAX)
	g.ADDQ(imm(unrolled*g.rowBytes()), reg.RDI)
	g.DECQ(left)
	g.JNZ(operand.LabelRef("floats"))
	g.DECQ(g.stepsLeft)
	g.JNZ(operand.LabelRef("step"))
}

func (g wideTile) flatSteps() {
	g.loadParam("w", reg.RDI)
	g.CMPQ(g.stepsLeft, imm(0))
	g.JE(operand.LabelRef("store"))
	if g.rows < wideRows {
		g.MOVQ(g.stepsAt, wideRow(spare))
	}
	g.Label("step")
	if g.rows < wideRows {
		g.MOVLQSX(mem(wideRow(spare), 0), reg.RAX)
		g.ADDQ(imm(4), wideRow(spare))
	} else {
		g.MOVQ(g.stepsAt, reg.RAX)
		g.MOVLQSX(mem(reg.RAX, 0), reg.RAX)
		g.ADDQ(imm(4), g.stepsAt)
	}
	g.addProduct(0, 0)
	g.ADDQ(g.stackParam("wNext"), reg.RDI)
	g.DECQ(g.stepsLeft)
	g.JNZ(operand.LabelRef("step"))
}

// stackParam returns the address of a parameter on the stack.
func (a *assembler) stackParam(name string) operand.Mem {
	b, err := a.Param(name).Resolve()
	if err != nil {
		panic(err) // the name is not in the signature
	}
	return b.Addr
}

// yRegisters and zRegisters are the vector registers of eight and of sixteen floats.
var (
	yRegisters = []reg.VecPhysical{
		reg.Y0, reg.Y1, reg.Y2, reg.Y3, reg.Y4, reg.Y5, reg.Y6, reg.Y7, reg.Y8, reg.Y9, reg.Y10, reg.Y11, reg.Y12, reg.Y13, reg.Y14, reg.Y15,
		reg.Y16, reg.Y17, reg.Y18, reg.Y19, reg.Y20, reg.Y21, reg.Y22, reg.Y23, reg.Y24, reg.Y25, reg.Y26, reg.Y27, reg.Y28, reg.Y29, reg.Y30, reg.Y31,
	}
	zRegisters = []reg.VecPhysical{
		reg.Z0, reg.Z1, reg.Z2, reg.Z3, reg.Z4, reg.Z5, reg.Z6, reg.Z7, reg.Z8, reg.Z9, reg.Z10, reg.Z11, reg.Z12, reg.Z13, reg.Z14, reg.Z15,
		reg.Z16, reg.Z17, reg.Z18, reg.Z19, reg.Z20, reg.Z21, reg.Z22, reg.Z23, reg.Z24, reg.Z25, reg.Z26, reg.Z27, reg.Z28, reg.Z29, reg.Z30, reg.Z31,
	}
)
