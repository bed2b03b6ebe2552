package kernels

import (
	_ "embed"
	"fmt"
	"regexp"
	"strings"
)

//go:embed source/prelude.cu
var prelude string

//go:embed source/untyped.cu
var untypedSource string

//go:embed source/norms.cu
var normsSource string

//go:embed source/syncnorm.cu
var syncNormSource string

//go:embed source/batchnorm.cu
var batchNormSource string

//go:embed source/pointwise.cu
var pointwiseSource string

//go:embed source/pool.cu
var poolSource string

//go:embed source/loss.cu
var lossSource string

//go:embed source/classify.cu
var classifySource string

//go:embed source/head.cu
var headSource string

//go:embed source/optimizer.cu
var optimizerSource string

//go:embed source/layout.cu
var layoutSource string

//go:embed source/augment.cu
var augmentSource string

// kernelHead matches the macro that begins a kernel: KERNEL for blocks of at most 256
// threads, WIDE for 1024. typedName matches TYPED, which appends the element type to a
// name.
var (
	kernelHead = regexp.MustCompile(`(?m)^(KERNEL|WIDE)\((.*?)\)\(`)
	typedName  = regexp.MustCompile(`TYPED\((\w+)\)`)
)

// file is a source file that follows the prelude.
type file struct{ name, text string }

// untypedFiles lists the files that occur once, typedFiles those that are repeated for each
// element type T. A file may use those before it: the optimizers need the norms.
func untypedFiles() []file {
	return []file{{"untyped.cu", untypedSource}, {"syncnorm.cu", syncNormSource}, {"norms.cu", normsSource}}
}

func typedFiles() []file {
	return []file{
		{"batchnorm.cu", batchNormSource},
		{"pointwise.cu", pointwiseSource},
		{"pool.cu", poolSource},
		{"loss.cu", lossSource},
		{"classify.cu", classifySource},
		{"head.cu", headSource},
		{"layout.cu", layoutSource},
		{"augment.cu", augmentSource},
		{"optimizer.cu", optimizerSource},
	}
}

// part returns the text of a file for the element type with the given suffix, or "" for an
// untyped file.
func (f file) part(suffix string) string {
	text := typedName.ReplaceAllString(f.text, "${1}_"+suffix)
	text = kernelHead.ReplaceAllStringFunc(text, func(head string) string {
		m := kernelHead.FindStringSubmatch(head)
		// Request at least two blocks per multiprocessor: otherwise the compiler limits the
		// registers of some kernels to fit a third block, and spills them to memory.
		threads := map[string]int{"KERNEL": blockThreads, "WIDE": columnThreads * columnThreads}[m[1]]
		return fmt.Sprintf("extern \"C\" __global__ void __launch_bounds__(%d, 2) %s(", threads, m[2])
	})
	return fmt.Sprintf("#line 1 %q\n%s\n", f.name, text)
}

// of returns the text of files for t.
func (t Type) of(files ...file) string {
	var b strings.Builder
	fmt.Fprintf(&b, "#define T %s\n", map[Type]string{F32: "float", F16: "f16", BF16: "bf16"}[t])
	for _, f := range files {
		b.WriteString(f.part(t.String()))
	}
	b.WriteString("#undef T\n")
	return b.String()
}

// begin returns the beginning of every translation unit.
func begin() string { return file{"prelude.cu", prelude}.part("") }

// Source returns the CUDA C++ source of the kernels in List(types...): one translation unit
// without includes, in which every kernel begins with extern "C" __global__ void. Without
// types it contains all three. A program that computes in one precision compiles faster
// with that type alone (and F32, which losses and masks need).
func Source(types ...Type) string {
	if len(types) == 0 {
		types = []Type{F32, F16, BF16}
	}
	var b strings.Builder
	b.WriteString(begin())
	for _, f := range untypedFiles() {
		b.WriteString(f.part(""))
	}
	for _, t := range types {
		b.WriteString(t.of(typedFiles()...))
	}
	return b.String()
}

// Unit is one translation unit.
type Unit struct {
	Name   string // "batchnorm_bf16.cu"
	Source string
}

// Units returns the source of the kernels in List(types...) as several units that can be
// compiled in parallel, which is faster than compiling Source. Each kernel is in one unit.
func Units(types ...Type) []Unit {
	if len(types) == 0 {
		types = []Type{F32, F16, BF16}
	}
	var all []Unit
	rules := "" // the optimizers of all types, after the norms that they use
	for _, f := range untypedFiles() {
		if f.name == "norms.cu" {
			rules = begin() + f.part("")
			continue
		}
		all = append(all, Unit{f.name, begin() + f.part("")})
	}
	for _, t := range types {
		for _, f := range typedFiles() {
			if f.name == "optimizer.cu" {
				rules += t.of(f)
				continue
			}
			all = append(all, Unit{strings.TrimSuffix(f.name, ".cu") + "_" + t.String() + ".cu", begin() + t.of(f)})
		}
	}
	return append(all, Unit{"optimizer.cu", rules})
}
