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

func families() map[string]func(*assembler) {
	return map[string]func(*assembler){
		"bf16":      bf16,
		"gemm":      gemm,
		"gemmwide":  gemmWide,
		"loss":      forBothSets(loss),
		"norm":      forBothSets(norm),
		"pooling":   pooling,
		"pointwise": forBothSets(pointwise),
		"update":    forBothSets(update),
		"winograd":  forBothSets(winograd),
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

func generate(dir string) error {
	for name, write := range families() {
		a := &assembler{Context: build.NewContext(), constantVectors: map[string]operand.Mem{}}
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
	constantVectors map[string]operand.Mem // constants that have been written already
	wide            bool                   // AVX-512: vectors of sixteen floats, two blocks of eight channels
	tail            *reg.OpmaskVirtual     // wide: the lanes of the last eight floats, where code is written for these
}

func (a *assembler) setName() string {
	if a.wide {
		return "AVX512"
	}
	return "AVX2"
}

func (a *assembler) vectorBytes() int {
	if a.wide {
		return 2 * vector
	}
	return vector
}

func (a *assembler) newVector() reg.VecVirtual {
	if a.wide {
		return a.ZMM()
	}
	return a.YMM()
}

// forBothSets returns a function that writes a family for AVX2 and for AVX-512.
func forBothSets(family func(*assembler)) func(*assembler) {
	return func(a *assembler) {
		family(a)
		a.wide = true
		family(a)
	}
}

// beginFunction begins a function with the doc comment name + doc. signature is like
// "func(x *float32, n int)".
func (a *assembler) beginFunction(name, signature, doc string) {
	a.Function(name)
	a.Attributes(attr.NOSPLIT)
	a.Pragma("noescape")
	a.SignatureExpr(signature)
	a.Doc(name + " " + doc)
}

func (a *assembler) loadParam(name string, r reg.Register) { a.Load(a.Param(name), r) }

func (a *assembler) loadParams(names ...string) []reg.GPVirtual {
	regs := make([]reg.GPVirtual, len(names))
	for i, n := range names {
		regs[i] = a.GP64()
		a.loadParam(n, regs[i])
	}
	return regs
}

func (a *assembler) newZero() reg.VecVirtual {
	v := a.newVector()
	if a.wide {
		a.VPXORD(v, v, v) // AVX512F alone
	} else {
		a.VXORPS(v, v, v)
	}
	return v
}

// loadVector loads a vector, with zeros beyond the tail.
func (a *assembler) loadVector(m operand.Mem, v reg.VecVirtual) {
	if a.tail != nil {
		a.VMOVUPS_Z(m, *a.tail, v)
	} else {
		a.VMOVUPS(m, v)
	}
}

// loadOperand returns the vector at m as an operand, with zeros beyond the tail.
func (a *assembler) loadOperand(m operand.Mem) operand.Op {
	if a.tail == nil {
		return m
	}
	v := a.newVector()
	a.loadVector(m, v)
	return v
}

// storeVector stores a vector, without the lanes beyond the tail.
func (a *assembler) storeVector(v reg.VecVirtual, m operand.Mem) { a.VMOVUPS(a.maskTail(v, m)...) }

// maskTail returns the operands of an instruction that must not change its destination, the
// last operand, beyond the tail.
func (a *assembler) maskTail(list ...operand.Op) []operand.Op {
	if a.tail != nil {
		n := len(list) - 1
		list = append(list[:n:n], *a.tail, list[n])
	}
	return list
}

// loopVectors writes loops over count floats, a multiple of eight: first with several
// vectors per turn, then with one. body writes the code for vector i of a turn. The loops
// advance the pointers. With AVX-512 the last eight floats may be half a vector, which is
// called the tail.
func (a *assembler) loopVectors(name string, count reg.GPVirtual, several int, pointers []reg.GPVirtual, body func(i int)) {
	floats := a.vectorBytes() / 4
	turn := func(n int) {
		for i := range n {
			body(i)
		}
		for _, p := range pointers {
			a.ADDQ(imm(n*a.vectorBytes()), p)
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

// comparison is the result of comparing two vectors: a vector of masks with AVX2, a mask
// register with AVX-512.
type comparison struct {
	vector reg.VecVirtual
	mask   reg.OpmaskVirtual
}

// less is the predicate of VCMPPS for first < second; it is false for NaN.
const less = 0x11

// compareLess compares each lane; beyond the tail the result is false.
func (a *assembler) compareLess(first reg.VecVirtual, second operand.Op) (c comparison) {
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

// selectOrZero returns v where c is true, else zero.
func (a *assembler) selectOrZero(c comparison, v operand.Op) reg.VecVirtual {
	to := a.newVector()
	if a.wide {
		a.VMOVUPS_Z(v, c.mask, to)
	} else {
		a.VANDPS(v, c.vector, to)
	}
	return to
}

// selectEither returns yes where c is true, else no.
func (a *assembler) selectEither(c comparison, yes, no reg.VecVirtual) reg.VecVirtual {
	to := a.newVector()
	if a.wide {
		a.VBLENDMPS(yes, no, c.mask, to)
	} else {
		a.VBLENDVPS(c.vector, yes, no, to)
	}
	return to
}

// addHalves returns v with AVX2, and the sum of the two halves of v with AVX-512.
func (a *assembler) addHalves(v reg.VecVirtual) reg.Register {
	if !a.wide {
		return v
	}
	sum := a.YMM()
	a.VEXTRACTF64X4(operand.Imm(1), v, sum)
	a.VADDPS(v.AsY(), sum, sum)
	return sum
}

// endFunction writes the return to Go. It clears the upper halves of the vector registers,
// since code that uses only SSE is slow otherwise.
func (a *assembler) endFunction() {
	a.VZEROUPPER()
	a.RET()
}

// loop writes a loop that runs while count, a register or memory, is at least step, and
// subtracts step from count in each turn. Its labels begin with name.
func (a *assembler) loop(name string, count operand.Op, step int, body func()) {
	a.Label(name)
	a.CMPQ(count, imm(step))
	a.JLT(operand.LabelRef(name + "_done"))
	body()
	a.SUBQ(imm(step), count)
	a.JMP(operand.LabelRef(name))
	a.Label(name + "_done")
}

func mem(base reg.Register, offset int) operand.Mem {
	return operand.Mem{Base: base, Disp: offset}
}

func indexed(base, index reg.Register, offset int) operand.Mem {
	return operand.Mem{Base: base, Index: index, Scale: 1, Disp: offset}
}

func imm(n int) operand.Op { return operand.I32(n) }

// vector is the size in bytes of eight floats, a vector register of AVX2.
const vector = 32
