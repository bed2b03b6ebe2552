package main

import (
	"fmt"
	"math"
	"strings"
)

// assembler writes the functions of one family, such as gemm, and their Go declarations.
type assembler struct {
	functions    strings.Builder // Go assembly
	data         strings.Builder // constants, in Go assembly
	declarations strings.Builder // in Go

	name    string         // of the current function
	params  map[string]int // byte offset of each parameter of the current function
	general int            // number of general registers in use
	vectors int            // number of vector registers in use
}

// register is an index into the general registers that functions may use.
type register int

// String returns the name of r. R16 to R18 and R27 to R31 are left out: the linker, the
// operating system, Go's assembler and Go's runtime use them.
func (r register) String() string {
	if r < 16 {
		return fmt.Sprintf("R%d", int(r))
	}
	return fmt.Sprintf("R%d", int(r)+3)
}

// generalRegisters and vectorRegisters are the numbers of registers that functions may use.
const (
	generalRegisters = 16 + 8
	vectorRegisters  = 32
)

// vector is the number of a vector register.
type vector int

// as returns v as an operand with the given arrangement of lanes, such as "S4" for four
// floats.
func (v vector) as(lanes string) string { return fmt.Sprintf("V%d.%s", int(v), lanes) }

// float returns v as an operand of the loads and stores of scalars and of pairs of registers.
func (v vector) float() string { return fmt.Sprintf("F%d", int(v)) }

// block is a block of eight floats in two adjacent registers, or two times the same four.
type block [2]vector

// blockBytes is the size of a block in memory.
const blockBytes = 32

// imm returns a constant operand.
func imm(n int) string { return fmt.Sprintf("$%d", n) }

// mem returns the operand for the memory at base + offset bytes.
func mem(base register, offset int) string { return fmt.Sprintf("%d(%s)", offset, base) }

// emit writes an instruction that Go's assembler knows.
func (a *assembler) emit(mnemonic string, operands ...any) {
	words := make([]string, len(operands))
	for i, o := range operands {
		words[i] = fmt.Sprint(o)
	}
	a.write(instruction(strings.TrimSpace(mnemonic + " " + strings.Join(words, ", "))))
}

// write writes an instruction.
func (a *assembler) write(i instruction) { fmt.Fprintf(&a.functions, "\t%s\n", i) }

// label writes a label.
func (a *assembler) label(name string) { fmt.Fprintf(&a.functions, "%s:\n", name) }

// comment writes a comment.
func (a *assembler) comment(text string) { fmt.Fprintf(&a.functions, "\t// %s\n", text) }

// beginFunction begins a function with parameters such as "x *float32, n int". Its doc
// comment is name followed by doc.
func (a *assembler) beginFunction(name, parameters, doc string) {
	a.name, a.params, a.general, a.vectors = name, map[string]int{}, 0, 0
	size := 0
	for group := range strings.SplitSeq(parameters, ", ") {
		param, kind, _ := strings.Cut(group, " ")
		a.params[param] = size
		if kind == "bool" {
			size++ // always the last parameter
		} else {
			size += 8
		}
	}
	fmt.Fprintf(&a.declarations, "\n// %s %s\n//\n//go:noescape\nfunc %s(%s)\n", name, doc, name, parameters)
	fmt.Fprintf(&a.functions, "\n// func %s(%s)\nTEXT ·%s(SB), NOSPLIT, $0-%d\n", name, parameters, name, size)
}

// endFunction writes the return to Go.
func (a *assembler) endFunction() { a.emit("RET") }

// param returns the operand for a parameter in memory.
func (a *assembler) param(name string) string {
	offset, ok := a.params[name]
	if !ok {
		panic(fmt.Sprintf("%s has no parameter %s", a.name, name))
	}
	return fmt.Sprintf("%s+%d(FP)", name, offset)
}

// loadParams loads parameters of 64 bits and returns their registers in the same order.
func (a *assembler) loadParams(names ...string) []register {
	regs := make([]register, len(names))
	for i, n := range names {
		regs[i] = a.newRegister()
		a.emit("MOVD", a.param(n), regs[i])
	}
	return regs
}

// newRegister returns a general register that is not in use.
func (a *assembler) newRegister() register {
	if a.general == generalRegisters {
		panic(a.name + " needs more general registers than there are")
	}
	a.general++
	return register(a.general - 1)
}

// newRegisters returns n general registers that are not in use.
func (a *assembler) newRegisters(n int) []register {
	r := make([]register, n)
	for i := range r {
		r[i] = a.newRegister()
	}
	return r
}

// newVector returns a vector register that is not in use.
func (a *assembler) newVector() vector {
	if a.vectors == vectorRegisters {
		panic(a.name + " needs more vector registers than there are")
	}
	a.vectors++
	return vector(a.vectors - 1)
}

// newBlock returns two vector registers that are not in use.
func (a *assembler) newBlock() block { return block{a.newVector(), a.newVector()} }

// scoped calls f, after which the registers that f has taken are free again.
func (a *assembler) scoped(f func()) {
	general, vectors := a.general, a.vectors
	f()
	a.general, a.vectors = general, vectors
}

// loop writes a loop that runs while count is at least step, and subtracts step from count
// in each iteration. Its labels begin with name. Registers that body takes are free after
// the loop.
func (a *assembler) loop(name string, count register, step int, body func()) {
	a.emit("SUBS", imm(step), count)
	a.emit("BLT", name+"_done")
	a.label(name)
	a.scoped(body)
	a.emit("SUBS", imm(step), count)
	a.emit("BGE", name)
	a.label(name + "_done")
	a.emit("ADD", imm(step), count)
}

// loopBlocks writes loops over count floats, a multiple of eight: first with several
// blocks per iteration, then with one. body writes the code for block i of an iteration, and
// advances the pointers.
func (a *assembler) loopBlocks(name string, count register, several int, body func(i int)) {
	if several > 1 {
		a.loop(name+"_many", count, several*8, func() {
			for i := range several {
				a.scoped(func() { body(i) })
			}
		})
	}
	a.loop(name, count, 8, func() { body(0) })
}

// lane is one float of a vector register.
type lane struct {
	vector vector
	index  int
}

// loadConstants adds floats to the file's data and loads them, four to a register. It
// returns their lanes in the same order.
func (a *assembler) loadConstants(values ...float32) []lane {
	symbol := a.name + "Constants<>"
	registers := (len(values) + 3) / 4
	fmt.Fprintln(&a.data)
	for i := range 4 * registers {
		v := float32(0)
		if i < len(values) {
			v = values[i]
		}
		fmt.Fprintf(&a.data, "DATA %s+%d(SB)/4, $0x%08x // %v\n", symbol, 4*i, math.Float32bits(v), v)
	}
	fmt.Fprintf(&a.data, "GLOBL %s(SB), RODATA|NOPTR, $%d\n", symbol, 16*registers)
	var all []lane
	from := a.newRegister()
	a.emit("MOVD", "$"+symbol+"(SB)", from)
	for i := range registers {
		all = append(all, a.loadLanes(from, 16*i)...)
	}
	a.general-- // from is free again
	return all[:len(values)]
}

// loadLanes loads four floats from base + offset bytes into a register and returns its lanes.
func (a *assembler) loadLanes(base register, offset int) []lane {
	v := a.newVector()
	a.emit("FMOVQ", mem(base, offset), v.float())
	return []lane{{v, 0}, {v, 1}, {v, 2}, {v, 3}}
}
