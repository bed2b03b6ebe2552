package main

import (
	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/ir"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// The products of bfloat16 numbers. Go's assembler has no mnemonics for AVX512_BF16 and AMX,
// so that these instructions are written as numbers, with registers assigned by hand. The
// encodings are from Intel's Software Developer's Manual, volume 2: sections 2.3 (VEX) and
// 2.7 (EVEX), and the pages of the instructions.

// tileBytes is one row of a tile: 32 floats.
const tileBytes = 128

func bf16(a *assembler) {
	a.wide = true
	bf16MultiplyAVX512(a)
	bf16MultiplyAMX(a)
	bf16PackRows(a)
	bf16PackPairs(a)
	bf16PackTransposed(a)
	bf16PackColumns(a)
	bf16Unpack(a, "bf16UnpackAVX512", "Unpack", a.VMOVUPS)
	bf16Unpack(a, "bf16UnpackUncachedAVX512", "UnpackUncached", func(ops ...operand.Op) { a.VMOVNTPS(ops[0], ops[1]) })
}

// writeCode writes an instruction of at least 4 bytes as numbers, after its mnemonic.
func (a *assembler) writeCode(mnemonic string, code ...byte) {
	a.Comment(mnemonic)
	a.Instruction(&ir.Instruction{Opcode: "LONG", Operands: []operand.Op{operand.U32(uint32(code[0]) | uint32(code[1])<<8 | uint32(code[2])<<16 | uint32(code[3])<<24)}})
	for _, b := range code[4:] {
		a.Instruction(&ir.Instruction{Opcode: "BYTE", Operands: []operand.Op{operand.U8(b)}})
	}
}

// evex writes an instruction of three registers of 512 bits in the opcode map 0F38. prefix
// is 2 for F3 and 3 for F2. Registers are numbered from 0 to 31; the instruction writes to.
func (a *assembler) evex(mnemonic string, prefix, opcode byte, to, first, second int) {
	not := func(n, bit, position int) byte { return byte(^n >> bit & 1 << position) }
	a.writeCode(mnemonic,
		0x62,
		not(to, 3, 7)|not(second, 4, 6)|not(second, 3, 5)|not(to, 4, 4)|2,
		byte(^first&15<<3)|1<<2|prefix,
		2<<5|not(first, 4, 3),
		opcode,
		0xc0|byte(to&7<<3)|byte(second&7))
}

// addPairProducts adds the products of pairs: sum[i] += x[2i]·y[2i] + x[2i+1]·y[2i+1].
func (a *assembler) addPairProducts(x, y, sum int) { a.evex("VDPBF16PS", 2, 0x52, sum, x, y) }

// roundVectors rounds sixteen floats to the lower and sixteen to the upper half of to.
func (a *assembler) roundVectors(low, high, to int) { a.evex("VCVTNE2PS2BF16", 3, 0x72, to, high, low) }

// vexTile writes an AMX instruction in the opcode map 0F38 with ModR/M byte modrm and more
// bytes. prefix is 0, 2 (F3) or 3 (F2).
func (a *assembler) vexTile(mnemonic string, prefix, opcode byte, vector int, extend byte, modrm ...byte) {
	a.writeCode(mnemonic, append([]byte{0xc4, 0xe0&^extend | 2, byte(^vector&15<<3) | prefix, opcode}, modrm...)...)
}

// Registers of bf16MultiplyAMX: loads and stores of tiles have a base and a stride.
const (
	baseAX, baseCX, baseDX, baseDI = 0, 1, 2, 7
	extendX                        = 0x40 // the stride is R8 to R15
	strideR10, strideR12           = 2, 4 // without the bit in extendX
)

// accessTile loads or stores 16 rows, stride bytes apart, at base + offset.
func (a *assembler) accessTile(mnemonic string, prefix byte, tile int, base, stride byte, offset int) {
	a.vexTile(mnemonic, prefix, 0x4b, 0, extendX, 0x80|byte(tile<<3)|4, stride<<3|base,
		byte(offset), byte(offset>>8), byte(offset>>16), byte(offset>>24))
}

func (a *assembler) loadTile(tile int, base, stride byte, offset int) {
	a.accessTile("TILELOADD", 3, tile, base, stride, offset)
}

func (a *assembler) storeTile(tile int, base, stride byte, offset int) {
	a.accessTile("TILESTORED", 2, tile, base, stride, offset)
}

// addTileProduct adds the product of tiles x and y, in the layout of pairs, to sum.
func (a *assembler) addTileProduct(x, y, sum int) {
	a.vexTile("TDPBF16PS", 2, 0x5c, y, 0, 0xc0|byte(sum<<3)|byte(x))
}

const bf16MultiplySignature = "func(c *float32, a, b *uint16, steps *int32, nstep, aRow, tiles int, accumulate bool)"

// bf16MultiplyAMX writes BF16.Multiply with tile registers: 0 to 3 are the four quarters of
// the sums, 4 and 5 the columns of b, 6 and 7 the rows of a. The tile registers are
// configured and released in the function, since Go's scheduler does not know them.
func bf16MultiplyAMX(a *assembler) {
	a.beginFunction("bf16MultiplyAMX", bf16MultiplySignature, "is BF16.Multiply with AMX.")
	config := a.StaticGlobal("tileConfig")
	a.DataAttributes(attr.RODATA | attr.NOPTR)
	words := [8]uint64{0: 1} // palette 1
	for i := range 8 {
		words[2+i/4] |= 64 << (16 * (i % 4)) // bytes per row of tile i
		words[6] |= 16 << (8 * i)            // rows of tile i
	}
	for i, w := range words {
		a.AddDatum(8*i, operand.U64(w))
	}
	a.LEAQ(config, reg.RAX)
	a.vexTile("LDTILECFG (AX)", 0, 0x49, 0, 0, baseAX)
	a.loadParam("c", reg.RDI)
	a.loadParam("a", reg.RSI)
	a.loadParam("b", reg.RBX)
	a.loadParam("aRow", reg.R10)
	a.loadParam("tiles", reg.R11)
	a.MOVQ(imm(tileBytes), reg.R12)
	a.MOVQ(reg.R10, reg.R13)
	a.SHLQ(operand.Imm(4), reg.R13)
	corners := []int{0, tileBytes / 2, 16 * tileBytes, 16*tileBytes + tileBytes/2}
	a.Label("tile")
	a.loadParam("accumulate", reg.AL)
	a.TESTB(reg.AL, reg.AL)
	a.JZ(operand.LabelRef("fresh"))
	for i, at := range corners {
		a.loadTile(i, baseDI, strideR12, at)
	}
	a.JMP(operand.LabelRef("started"))
	a.Label("fresh")
	for i := range corners {
		a.vexTile("TILEZERO", 3, 0x49, 0, 0, 0xc0|byte(i<<3))
	}
	a.Label("started")
	a.loadParam("steps", reg.R8)
	a.loadParam("nstep", reg.R9)
	a.Label("step")
	a.MOVLQSX(mem(reg.R8, 0), reg.RAX)
	a.MOVLQSX(mem(reg.R8, 4), reg.RCX)
	a.ADDQ(reg.RSI, reg.RAX)
	a.ADDQ(reg.RBX, reg.RCX)
	a.LEAQ(indexed(reg.RAX, reg.R13, 0), reg.RDX)
	a.loadTile(6, baseAX, strideR10, 0)
	a.loadTile(4, baseCX, strideR12, 0)
	a.addTileProduct(6, 4, 0)
	a.loadTile(5, baseCX, strideR12, tileBytes/2)
	a.addTileProduct(6, 5, 1)
	a.loadTile(7, baseDX, strideR10, 0)
	a.addTileProduct(7, 4, 2)
	a.addTileProduct(7, 5, 3)
	a.ADDQ(imm(8), reg.R8)
	a.DECQ(reg.R9)
	a.JNZ(operand.LabelRef("step"))
	for i, at := range corners {
		a.storeTile(i, baseDI, strideR12, at)
	}
	a.ADDQ(imm(32*tileBytes), reg.RDI)
	a.LEAQ(operand.Mem{Base: reg.RSI, Index: reg.R13, Scale: 2}, reg.RSI)
	a.DECQ(reg.R11)
	a.JNZ(operand.LabelRef("tile"))
	a.vexTile("TILERELEASE", 0, 0x49, 0, 0, 0xc0)
	a.endFunction()
}

// bf16MultiplyAVX512 writes BF16.Multiply with AVX512_BF16: eight rows at a time, of two
// vectors. Vector registers 0 to 15 are the sums, 16 and 17 columns of b, 18 to 25 pairs of
// a.
func bf16MultiplyAVX512(a *assembler) {
	a.beginFunction("bf16MultiplyAVX512", bf16MultiplySignature, "is BF16.Multiply with AVX512_BF16.")
	const rows, unrolled = 8, 4
	parts := a.AllocLocal(8)
	a.loadParam("tiles", reg.RAX)
	a.SHLQ(operand.Imm(2), reg.RAX)
	a.MOVQ(reg.RAX, parts)
	a.loadParam("c", reg.RDI)
	a.loadParam("a", reg.RSI)
	a.loadParam("b", reg.RBX)
	a.loadParam("aRow", reg.R10)
	a.LEAQ(operand.Mem{Base: reg.R10, Index: reg.R10, Scale: 2}, reg.R11) // 3 rows
	a.LEAQ(operand.Mem{Base: reg.R10, Index: reg.R10, Scale: 4}, reg.R12) // 5 rows
	a.LEAQ(operand.Mem{Base: reg.R11, Index: reg.R10, Scale: 4}, reg.R13) // 7 rows
	row := func(i, offset int) operand.Mem {
		m := operand.Mem{Base: reg.RAX, Disp: offset}
		if i > 0 {
			m.Index = []reg.GPPhysical{1: reg.R10, 2: reg.R10, 3: reg.R11, 4: reg.R10, 5: reg.R12, 6: reg.R11, 7: reg.R13}[i]
			m.Scale = []uint8{1: 1, 2: 2, 3: 1, 4: 4, 5: 1, 6: 2, 7: 1}[i]
		}
		return m
	}
	sums := func(f func(m operand.Mem, v reg.VecPhysical)) {
		for i := range 2 * rows {
			f(mem(reg.RDI, i*tileBytes/2), zRegisters[i])
		}
	}
	a.Label("part")
	a.loadParam("accumulate", reg.AL)
	a.TESTB(reg.AL, reg.AL)
	a.JZ(operand.LabelRef("fresh"))
	sums(func(m operand.Mem, v reg.VecPhysical) { a.VMOVUPS(m, v) })
	a.JMP(operand.LabelRef("started"))
	a.Label("fresh")
	sums(func(_ operand.Mem, v reg.VecPhysical) { a.VPXORD(v, v, v) })
	a.Label("started")
	a.loadParam("steps", reg.R8)
	a.loadParam("nstep", reg.R9)
	a.Label("step")
	a.MOVLQSX(mem(reg.R8, 0), reg.RAX)
	a.MOVLQSX(mem(reg.R8, 4), reg.RCX)
	a.ADDQ(reg.RSI, reg.RAX)
	a.ADDQ(reg.RBX, reg.RCX)
	a.MOVQ(imm(16/unrolled), reg.RDX)
	a.Label("pairs")
	for k := range unrolled {
		for v := range 2 {
			a.VMOVUPS(mem(reg.RCX, k*tileBytes+v*tileBytes/2), zRegisters[16+v])
		}
		for i := range rows {
			a.VPBROADCASTD(row(i, 4*k), zRegisters[18+i])
			for v := range 2 {
				a.addPairProducts(16+v, 18+i, 2*i+v)
			}
		}
	}
	a.ADDQ(imm(4*unrolled), reg.RAX)
	a.ADDQ(imm(unrolled*tileBytes), reg.RCX)
	a.DECQ(reg.RDX)
	a.JNZ(operand.LabelRef("pairs"))
	a.ADDQ(imm(8), reg.R8)
	a.DECQ(reg.R9)
	a.JNZ(operand.LabelRef("step"))
	sums(func(m operand.Mem, v reg.VecPhysical) { a.VMOVUPS(v, m) })
	a.ADDQ(imm(rows*tileBytes), reg.RDI)
	a.LEAQ(operand.Mem{Base: reg.RSI, Index: reg.R10, Scale: 8}, reg.RSI)
	a.DECQ(parts)
	a.JNZ(operand.LabelRef("part"))
	a.endFunction()
}

// loadBlockPair loads eight floats at low + offset and eight at high + offset into a
// vector.
func (a *assembler) loadBlockPair(low, high reg.GPPhysical, offset, to int) {
	a.VMOVUPS(mem(low, offset), yRegisters[to])
	a.VINSERTF64X4(operand.Imm(1), mem(high, offset), zRegisters[to], zRegisters[to])
}

var bf16Sources = []reg.GPPhysical{reg.RSI, reg.RBX, reg.RCX, reg.RDX}

func (a *assembler) loadSources() {
	for i, name := range []string{"s0", "s1", "s2", "s3"} {
		a.loadParam(name, bf16Sources[i])
	}
}

// bf16PackRows writes BF16.PackRows. Registers 16 to 21 are the constants in norm.
func bf16PackRows(a *assembler) {
	a.beginFunction("bf16PackRowsAVX512", "func(dst *uint16, s0, s1, s2, s3, norm *float32, n, step int)", "is BF16.PackRows.")
	a.loadParam("dst", reg.RDI)
	a.loadSources()
	a.loadParam("norm", reg.R10)
	a.loadParam("n", reg.R8)
	a.loadParam("step", reg.R9)
	s, z := bf16Sources, zRegisters
	loop := func(name string, normalize func(pair int)) {
		a.loop(name, reg.R8, 1, func() {
			for pair := range 2 {
				a.loadBlockPair(s[2*pair], s[2*pair+1], 0, pair)
				normalize(pair)
			}
			a.roundVectors(0, 1, 2)
			a.VMOVUPS(reg.Z2, mem(reg.RDI, 0))
			for _, r := range s {
				a.ADDQ(imm(vector), r)
			}
			a.ADDQ(reg.R9, reg.RDI)
		})
	}
	a.TESTQ(reg.R10, reg.R10)
	a.JNZ(operand.LabelRef("constants"))
	loop("pixel", func(int) {})
	a.JMP(operand.LabelRef("end"))
	a.Label("constants")
	for c := range 3 { // factors, summands and lower bounds
		for pair := range 2 {
			a.VMOVUPS(mem(reg.R10, (6*pair+c)*vector), yRegisters[16+2*c+pair])
			a.VINSERTF64X4(operand.Imm(1), mem(reg.R10, (6*pair+3+c)*vector), z[16+2*c+pair], z[16+2*c+pair])
		}
	}
	loop("normalize", func(pair int) {
		a.VFMADD213PS(z[18+pair], z[16+pair], z[pair])
		a.VMAXPS(z[pair], z[20+pair], z[pair])
	})
	a.Label("end")
	a.endFunction()
}

// wordIndexes writes a constant vector of 32 words, for VPERMW.
func (a *assembler) wordIndexes(name string, index func(i int) int) operand.Mem {
	m := a.StaticGlobal(name)
	a.DataAttributes(attr.RODATA | attr.NOPTR)
	for i := range 32 {
		a.AddDatum(2*i, operand.U16(index(i)))
	}
	return m
}

func bf16PackPairs(a *assembler) {
	a.beginFunction("bf16PackPairsAVX512", "func(dst *uint16, s0, s1, s2, s3 *float32, n int)", "is BF16.PackPairs.")
	a.VMOVUPS(a.wordIndexes("pairWords", func(i int) int { return i/2 + i%2*16 }), reg.Z31)
	a.loadParam("dst", reg.RDI)
	a.loadSources()
	a.loadParam("n", reg.R8)
	s := bf16Sources
	a.loop("pair", reg.R8, 2, func() {
		for v := range 2 {
			a.loadBlockPair(s[2*v], s[2*v+1], 0, 4*v)
			a.loadBlockPair(s[2*v], s[2*v+1], vector, 4*v+1)
			a.roundVectors(4*v, 4*v+1, 4*v+2)
			a.VPERMW(zRegisters[4*v+2], reg.Z31, zRegisters[4*v+3])
			a.VMOVUPS(zRegisters[4*v+3], mem(reg.RDI, v*tileBytes/2))
		}
		for _, r := range s {
			a.ADDQ(imm(2*vector), r)
		}
		a.ADDQ(imm(tileBytes), reg.RDI)
	})
	a.endFunction()
}

// bf16PackTransposed writes BF16.PackTransposed. A row of a tile becomes four pairs of 32 bits.
// The eight pairs with the same index of a tile are gathered, then those of two tiles.
func bf16PackTransposed(a *assembler) {
	a.beginFunction("bf16PackTransposedAVX512", "func(dst *uint16, s0, s1, s2, s3 *float32)", "is BF16.PackTransposed.")
	z := zRegisters
	for half := range 2 {
		m := a.StaticGlobal([]string{"firstPairs", "lastPairs"}[half])
		a.DataAttributes(attr.RODATA | attr.NOPTR)
		for i := range 16 { // row i%8, pair 2·half + i/8
			a.AddDatum(4*i, operand.U32(i%8*4+2*half+i/8))
		}
		a.VMOVUPS(m, z[30+half])
	}
	a.loadParam("dst", reg.RDI)
	a.loadSources()
	for v := range 2 {
		for b := range 2 {
			s := bf16Sources[2*v+b]
			for i := range 4 {
				a.VMOVUPS(mem(s, 2*i*vector), z[i])
			}
			a.roundVectors(0, 1, 4) // rows 0 to 3
			a.roundVectors(2, 3, 5)
			for half := range 2 {
				to := z[8+2*b+half]
				a.VMOVUPS(z[30+half], to)
				a.VPERMI2D(z[5], z[4], to)
			}
		}
		for half := range 2 {
			const lower, upper = 0x44, 0xee // halves of two vectors
			for i, lanes := range []uint64{lower, upper} {
				a.VSHUFI64X2(operand.Imm(lanes), z[10+half], z[8+half], z[6])
				a.VMOVUPS(z[6], mem(reg.RDI, (2*half+i)*tileBytes+v*tileBytes/2))
			}
		}
	}
	a.endFunction()
}

// bf16PackColumns writes BF16.PackColumns. Vector j of a turn gets pixels 4j to 4j+3, channel
// by channel, so that each channel is a quadword; then the 8×8 quadwords are transposed.
func bf16PackColumns(a *assembler) {
	a.beginFunction("bf16PackColumnsAVX512", "func(dst *uint16, src *float32, n, row int)", "is BF16.PackColumns.")
	a.VMOVUPS(a.wordIndexes("columnWords", func(i int) int { return i%4*8 + i/4 }), reg.Z31)
	a.loadParam("dst", reg.RDI)
	a.loadParam("src", reg.RSI)
	a.loadParam("n", reg.R8)
	a.loadParam("row", reg.R10)
	a.LEAQ(operand.Mem{Base: reg.R10, Index: reg.R10, Scale: 2}, reg.R11)
	z := zRegisters
	a.loop("pixels", reg.R8, 32, func() {
		for j := range 8 {
			a.VMOVUPS(mem(reg.RSI, 4*j*vector), z[16])
			a.VMOVUPS(mem(reg.RSI, (4*j+2)*vector), z[17])
			a.roundVectors(16, 17, 18)
			a.VPERMW(z[18], z[31], z[j])
		}
		for j := range 4 { // even channels of two vectors to 8+j, odd ones to 12+j
			a.VPUNPCKLQDQ(z[2*j+1], z[2*j], z[8+j])
			a.VPUNPCKHQDQ(z[2*j+1], z[2*j], z[12+j])
		}
		const even, odd = 0x88, 0xdd // of four lanes of 128 bits: 0 and 2, 1 and 3
		shuffle := func(lanes uint64, first, second, to int) {
			a.VSHUFI64X2(operand.Imm(lanes), z[second], z[first], z[to])
		}
		for parity := range 2 {
			from := 8 + 4*parity
			for i, lanes := range []uint64{even, odd} {
				shuffle(lanes, from, from+1, 16+i)
				shuffle(lanes, from+2, from+3, 18+i)
			}
			shuffle(even, 16, 18, parity)   // channel 0 or 1
			shuffle(even, 17, 19, 2+parity) // 2 or 3
			shuffle(odd, 16, 18, 4+parity)
			shuffle(odd, 17, 19, 6+parity)
		}
		a.MOVQ(reg.RDI, reg.RAX)
		for half := range 2 {
			a.VMOVUPS(z[4*half], mem(reg.RAX, 0))
			a.VMOVUPS(z[4*half+1], indexed(reg.RAX, reg.R10, 0))
			a.VMOVUPS(z[4*half+2], operand.Mem{Base: reg.RAX, Index: reg.R10, Scale: 2})
			a.VMOVUPS(z[4*half+3], indexed(reg.RAX, reg.R11, 0))
			a.LEAQ(operand.Mem{Base: reg.RAX, Index: reg.R10, Scale: 4}, reg.RAX)
		}
		a.ADDQ(imm(32*vector), reg.RSI)
		a.ADDQ(imm(64), reg.RDI)
	})
	a.endFunction()
}

// bf16Unpack writes BF16.Unpack, or BF16.UnpackUncached with stores past the cache. A store
// past the cache may become visible to other cores after later stores. The instructions with
// LOCK with which threads wait for each other order them again (Intel, Software Developer's
// Manual, volume 3, section 13.3.1).
func bf16Unpack(a *assembler, name, field string, store func(ops ...operand.Op)) {
	a.beginFunction(name, "func(dst, src, bias *float32, n, srcRow, dstRow, dstBlock, blocks int)", "is BF16."+field+".")
	a.loadParam("dst", reg.RDI)
	a.loadParam("src", reg.RSI)
	a.loadParam("bias", reg.RBX)
	a.loadParam("srcRow", reg.R8)
	a.loadParam("dstRow", reg.R9)
	a.loadParam("dstBlock", reg.R10)
	a.loadParam("blocks", reg.R11)
	a.loop("block", reg.R11, 1, func() {
		a.VMOVUPS(mem(reg.RBX, 0), reg.Y0)
		a.MOVQ(reg.RDI, reg.RAX)
		a.MOVQ(reg.RSI, reg.RCX)
		a.loadParam("n", reg.RDX)
		a.loop("row", reg.RDX, 1, func() {
			a.VADDPS(mem(reg.RCX, 0), reg.Y0, reg.Y1)
			store(reg.Y1, mem(reg.RAX, 0))
			a.ADDQ(reg.R8, reg.RCX)
			a.ADDQ(reg.R9, reg.RAX)
		})
		a.ADDQ(imm(vector), reg.RSI)
		a.ADDQ(imm(vector), reg.RBX)
		a.ADDQ(reg.R10, reg.RDI)
	})
	a.endFunction()
}
