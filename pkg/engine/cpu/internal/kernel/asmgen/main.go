// Command asmgen writes the assembly of package kernel: for each family of functions a
// file <family>_amd64.s and the Go declarations in <family>_amd64.go. The comments of
// set.go, gemm.go and transforms.go in package kernel define what the functions compute;
// their plain Go twins are in the files *_go.go.
//
// Run it with "go generate lockstep/pkg/engine/cpu/internal/kernel".
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/pass"
	"github.com/mmcloughlin/avo/printer"
	"github.com/mmcloughlin/avo/reg"
)

// families returns the functions that generate each family, by name.
func families() map[string]func(*assembler) {
	return map[string]func(*assembler){
		"gemm":      gemm,
		"gemmwide":  gemmWide,
		"loss":      bothSets(loss),
		"norm":      bothSets(norm),
		"pooling":   pooling,
		"pointwise": bothSets(pointwise),
		"update":    bothSets(update),
		"winograd":  bothSets(winograd),
	}
}

func main() {
	dir := flag.String("dir", ".", "folder to write to")
	flag.Parse()
	if err := generate(*dir); err != nil {
		fmt.Fprintln(os.Stderr, "asmgen:", err)
		os.Exit(1)
	}
}

// generate writes all families to dir.
func generate(dir string) error {
	for name, write := range families() {
		a := &assembler{Context: build.NewContext(), singles: map[string]operand.Mem{}}
		write(a)
		file, err := a.Result()
		if err != nil {
			return fmt.Errorf("generate %s: %w", name, err)
		}
		if err := pass.Compile.Execute(file); err != nil {
			return fmt.Errorf("generate %s: %w", name, err)
		}
		cfg := printer.Config{Name: "avo", Argv: []string{"go", "generate"}, Pkg: "kernel"}
		asm, err1 := printer.NewGoAsm(cfg).Print(file)
		stubs, err2 := printer.NewStubs(cfg).Print(file)
		if err := errors.Join(err1, err2); err != nil {
			return fmt.Errorf("print %s: %w", name, err)
		}
		base := filepath.Join(dir, name+"_amd64")
		if err := errors.Join(os.WriteFile(base+".s", asm, 0o644), os.WriteFile(base+".go", stubs, 0o644)); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
	}
	return nil
}

// assembler is avo's context with the idioms that several families use.
type assembler struct {
	*build.Context
	singles map[string]operand.Mem // constants that have been written already
	wide    bool                   // AVX-512: vectors of sixteen floats, two blocks of eight channels
	tail    *reg.OpmaskVirtual     // wide: the lanes of the last eight floats, where code is written for these
}

// set returns the instruction set in the names of functions.
func (a *assembler) set() string {
	if a.wide {
		return "AVX512"
	}
	return "AVX2"
}

// bytes returns the size of a vector register.
func (a *assembler) bytes() int {
	if a.wide {
		return 2 * vector
	}
	return vector
}

// vec returns a new vector register.
func (a *assembler) vec() reg.VecVirtual {
	if a.wide {
		return a.ZMM()
	}
	return a.YMM()
}

// bothSets writes a family for AVX2 and for AVX-512.
func bothSets(family func(*assembler)) func(*assembler) {
	return func(a *assembler) {
		family(a)
		a.wide = true
		family(a)
	}
}

// function begins a function of a signature, such as "func(x *float32, n int)".
func (a *assembler) function(name, signature, doc string) {
	a.Function(name)
	a.Attributes(attr.NOSPLIT)
	a.Pragma("noescape")
	a.SignatureExpr(signature)
	a.Doc(name + " " + doc)
}

// param loads a parameter into a register.
func (a *assembler) param(name string, r reg.Register) { a.Load(a.Param(name), r) }

// params loads parameters of 64 bits in order and returns their registers.
func (a *assembler) params(names ...string) []reg.GPVirtual {
	regs := make([]reg.GPVirtual, len(names))
	for i, n := range names {
		regs[i] = a.GP64()
		a.param(n, regs[i])
	}
	return regs
}

// zero returns a vector register of zeros.
func (a *assembler) zero() reg.VecVirtual {
	v := a.vec()
	if a.wide {
		a.VPXORD(v, v, v) // AVX512F alone
	} else {
		a.VXORPS(v, v, v)
	}
	return v
}

// read loads a vector, zeros beyond the tail.
func (a *assembler) read(m operand.Mem, v reg.VecVirtual) {
	if a.tail != nil {
		a.VMOVUPS_Z(m, *a.tail, v)
	} else {
		a.VMOVUPS(m, v)
	}
}

// source returns the vector at m as an operand, with zeros beyond the tail.
func (a *assembler) source(m operand.Mem) operand.Op {
	if a.tail == nil {
		return m
	}
	v := a.vec()
	a.read(m, v)
	return v
}

// write stores a vector, without the lanes beyond the tail.
func (a *assembler) write(v reg.VecVirtual, m operand.Mem) { a.VMOVUPS(a.counted(v, m)...) }

// counted returns the operands of an instruction that does not change its destination,
// the last operand, beyond the tail.
func (a *assembler) counted(list ...operand.Op) []operand.Op {
	if a.tail != nil {
		n := len(list) - 1
		list = append(list[:n:n], *a.tail, list[n])
	}
	return list
}

// over writes loops over count floats, a multiple of eight: first with several vectors
// per turn, then with one. body writes the code for vector i of a turn. The loops advance
// the pointers. With AVX-512 the last eight floats may be half a vector, the tail.
func (a *assembler) over(name string, count reg.GPVirtual, several int, pointers []reg.GPVirtual, body func(i int)) {
	floats := a.bytes() / 4
	turn := func(n int) {
		for i := range n {
			body(i)
		}
		for _, p := range pointers {
			a.ADDQ(imm(n*a.bytes()), p)
		}
	}
	if several > 1 {
		a.loop(name+"_many", count, several*floats, func() { turn(several) })
	}
	a.loop(name, count, floats, func() { turn(1) })
	if !a.wide {
		return
	}
	a.TESTQ(count, count)
	a.JZ(operand.LabelRef(name + "_end"))
	mask, bits := a.K(), a.GP32()
	a.MOVL(operand.U32(0xff), bits)
	a.KMOVW(bits, mask)
	a.tail = &mask
	body(0)
	a.tail = nil
	a.Label(name + "_end")
}

// choice is the result of a comparison: a vector of masks with AVX2, a mask register with
// AVX-512.
type choice struct {
	vector reg.VecVirtual
	mask   reg.OpmaskVirtual
}

// less is the predicate of VCMPPS for first < second, which is false for NaN.
const less = 0x11

// below compares first < second. Beyond the tail the result is false.
func (a *assembler) below(first reg.VecVirtual, second operand.Op) (c choice) {
	if !a.wide {
		c.vector = a.YMM()
		a.VCMPPS(operand.Imm(less), second, first, c.vector)
		return c
	}
	c.mask = a.K()
	if a.tail != nil {
		a.VCMPPS(operand.Imm(less), second, first, *a.tail, c.mask)
	} else {
		a.VCMPPS(operand.Imm(less), second, first, c.mask)
	}
	return c
}

// kept returns v where the choice is true, else zero.
func (a *assembler) kept(c choice, v operand.Op) reg.VecVirtual {
	to := a.vec()
	if a.wide {
		a.VMOVUPS_Z(v, c.mask, to)
	} else {
		a.VANDPS(v, c.vector, to)
	}
	return to
}

// either returns yes where the choice is true, else no.
func (a *assembler) either(c choice, yes, no reg.VecVirtual) reg.VecVirtual {
	to := a.vec()
	if a.wide {
		a.VBLENDMPS(yes, no, c.mask, to)
	} else {
		a.VBLENDVPS(c.vector, yes, no, to)
	}
	return to
}

// folded returns v with AVX2, and the sum of the two halves of v with AVX-512.
func (a *assembler) folded(v reg.VecVirtual) reg.Register {
	if !a.wide {
		return v
	}
	sum := a.YMM()
	a.VEXTRACTF64X4(operand.Imm(1), v, sum)
	a.VADDPS(v.AsY(), sum, sum)
	return sum
}

// end returns to Go. It clears the upper halves of the vector registers, since code that
// uses only SSE is slow otherwise.
func (a *assembler) end() {
	a.VZEROUPPER()
	a.RET()
}

// loop writes a loop that runs while count, a register or memory, is at least step, and
// subtracts step from it in each turn. Its labels begin with name.
func (a *assembler) loop(name string, count operand.Op, step int, body func()) {
	a.Label(name)
	a.CMPQ(count, imm(step))
	a.JLT(operand.LabelRef(name + "_done"))
	body()
	a.SUBQ(imm(step), count)
	a.JMP(operand.LabelRef(name))
	a.Label(name + "_done")
}

// mem returns the memory operand at base + offset bytes.
func mem(base reg.Register, offset int) operand.Mem {
	return operand.Mem{Base: base, Disp: offset}
}

// indexed returns the memory operand at base + index + offset bytes.
func indexed(base, index reg.Register, offset int) operand.Mem {
	return operand.Mem{Base: base, Index: index, Scale: 1, Disp: offset}
}

// imm returns a constant operand for additions, subtractions and comparisons.
func imm(n int) operand.Op { return operand.I32(n) }

// vector is the number of bytes of eight floats, a vector register of AVX2.
const vector = 32
