package main

import "fmt"

// maxRows is the number of rows of a full tile.
const maxRows = 6

// maxBlocks is the number of blocks of eight outputs of the widest tile.
const maxBlocks = 2

// writeGEMMFunctions writes the matrix kernel for every number of rows and of blocks of outputs, with
// eight floats per step ("Deep") and with one ("Flat"). For each row i of the tile and each
// output j it computes
//
//	y[i][j] = start + Σ x[i][t]·w[t][j]
//
// and adds the products in the order of t, each rounded once with its addition. A tile of
// 6×16 outputs has 24 registers of sums. Two registers contain weights of eight outputs, and
// six the inputs of the rows: up to four successive floats each, one of which fmla selects.
func writeGEMMFunctions(a *assembler) {
	for blocks := 1; blocks <= maxBlocks; blocks++ {
		for rows := 1; rows <= maxRows; rows++ {
			newGEMMTile(a, rows, blocks, true).write()
			newGEMMTile(a, rows, blocks, false).write()
		}
	}
}

// gemmTile is the matrix kernel for one shape of tile.
type gemmTile struct {
	*assembler
	deep   bool
	sums   [][]block  // of each row and block of outputs
	row    []register // addresses of the rows' inputs or outputs
	table  register   // offsets of the rows
	weight block
	inputs []vector // of each row
}

// newGEMMTile begins the function for a shape of tile and assigns its registers.
func newGEMMTile(a *assembler, rows, blocks int, deep bool) *gemmTile {
	kind, floats := "Flat", 1
	if deep {
		kind, floats = "Deep", 8
	}
	a.beginFunction(fmt.Sprintf("gemm%s%dx%dNEON", kind, rows, 8*blocks),
		"x *float32, w *float32, y *float32, bias *float32, rows *int32, steps *int32, wNext int, yNext int, nstep int, tiles int, accumulate bool",
		fmt.Sprintf("is a GEMMFunc for tiles of %d×%d. Floats per step: %d.", rows, 8*blocks, floats))
	g := &gemmTile{assembler: a, deep: deep, sums: make([][]block, rows), row: a.newRegisters(rows), weight: a.newBlock()}
	for i := range g.sums {
		for range blocks {
			g.sums[i] = append(g.sums[i], a.newBlock())
		}
		g.inputs = append(g.inputs, a.newVector())
	}
	return g
}

// write writes the function.
func (g *gemmTile) write() {
	g.table = g.loadParams("rows")[0]
	tiles := g.loadParams("tiles")[0]
	g.label("tile")
	g.scoped(g.initializeSums)
	g.scoped(func() {
		g.comment("The rows' inputs.")
		g.loadAddresses(g.loadParams("x")[0], 0)
		p := g.loadParams("w", "steps", "nstep")
		g.emit("CBZ", p[2], "store")
		if g.deep {
			g.deepSteps(p[0], p[1], p[2])
		} else {
			g.flatSteps(p[0], p[1], p[2])
		}
	})
	g.label("store")
	g.scoped(func() { g.accessOutputs(g.store) })
	g.emit("ADD", imm(2*maxRows*4), g.table)
	g.emit("SUBS", imm(1), tiles)
	g.emit("BNE", "tile")
	g.endFunction()
}

// loadAddresses sets the registers of the rows to base plus the rows' offsets, which begin
// at entry first of the table.
func (g *gemmTile) loadAddresses(base register, first int) {
	for i, r := range g.row {
		g.emit("MOVW", mem(g.table, 4*(first+i)), r)
		g.emit("ADD", base, r)
	}
}

// accessOutputs calls access with the sum and the address of each output.
func (g *gemmTile) accessOutputs(access func(sum block, base register, offset int)) {
	g.loadAddresses(g.loadParams("y")[0], maxRows)
	for i, r := range g.row {
		access(g.sums[i][0], r, 0)
	}
	if len(g.sums[0]) > 1 {
		next := g.loadParams("yNext")[0]
		for i, r := range g.row {
			g.emit("ADD", next, r)
			access(g.sums[i][1], r, 0)
		}
	}
}

// initializeSums sets the sums to the bias, or to the values of the outputs.
func (g *gemmTile) initializeSums() {
	r := g.newRegister()
	g.emit("MOVBU", g.param("accumulate"), r)
	g.emit("CBZ", r, "fresh")
	g.scoped(func() { g.accessOutputs(g.loadInto) })
	g.emit("B", "started")
	g.label("fresh")
	g.emit("MOVD", g.param("bias"), r)
	for b, sum := range g.sums[0] {
		g.loadInto(sum, r, b*blockBytes)
		for i := 1; i < len(g.sums); i++ {
			g.applyUnary(move, g.sums[i][b], sum)
		}
	}
	g.label("started")
}

// addProducts adds the outer product of float c of the rows' inputs with the weights, whose
// blocks are at w[0] and w[1] plus offset bytes.
func (g *gemmTile) addProducts(w []register, offset, c int) {
	for b := range g.sums[0] {
		g.loadInto(g.weight, w[b], offset)
		for i := range g.sums {
			g.applyLane(fmlaLane, g.sums[i][b], g.weight, lane{g.inputs[i], c})
		}
	}
}

// deepSteps writes the loop over steps of eight floats.
func (g *gemmTile) deepSteps(w, steps, count register) {
	input, offset, weights := g.newRegisters(len(g.row)), g.newRegister(), g.newRegisters(len(g.sums[0]))
	var next register // distance between the weights of two blocks
	if len(weights) > 1 {
		next = g.loadParams("wNext")[0]
	}
	g.label("step")
	g.emit("LDPSW.P", mem(steps, 8), fmt.Sprintf("(%s, %s)", offset, weights[0]))
	g.emit("ADD", w, weights[0])
	if len(weights) > 1 {
		g.emit("ADD", next, weights[0], weights[1])
	}
	for i, r := range g.row {
		g.emit("ADD", r, offset, input[i])
	}
	for half := range 2 {
		for i, v := range g.inputs {
			g.emit("FMOVQ", mem(input[i], 16*half), v.float())
		}
		for c := range 4 {
			g.addProducts(weights, (4*half+c)*blockBytes, c)
		}
	}
	g.emit("SUBS", imm(1), count)
	g.emit("BNE", "step")
}

// flatSteps writes the loop over steps of one float.
func (g *gemmTile) flatSteps(w, steps, count register) {
	offset, weights := g.newRegister(), []register{w}
	if len(g.sums[0]) > 1 {
		second := g.loadParams("wNext")[0]
		g.emit("ADD", w, second)
		weights = append(weights, second)
	}
	g.label("step")
	g.emit("MOVW.P", mem(steps, 4), offset)
	for i, v := range g.inputs {
		g.emit("FMOVS", fmt.Sprintf("(%s)(%s)", g.row[i], offset), v.float())
	}
	g.addProducts(weights, 0, 0)
	for _, r := range weights {
		g.emit("ADD", imm(blockBytes), r)
	}
	g.emit("SUBS", imm(1), count)
	g.emit("BNE", "step")
}
