package kernels

import (
	_ "embed"
	"fmt"
	"regexp"
	"strings"
	"sync"
)

//go:embed source/prelude.cu
var preludeSource string

//go:embed source/untyped.cu
var untypedSource string

//go:embed source/norms.cu
var layerwiseNormsSource string

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
var headConvolutionSource string

//go:embed source/optimizer.cu
var optimizerSource string

//go:embed source/layout.cu
var layoutSource string

//go:embed source/augment.cu
var augmentSource string

// kernelMacro matches the macro that begins a kernel: KERNEL for blocks of at most 256
// threads, WIDE for blocks of at most 1024. typedMacro matches TYPED, which appends the
// element type to a name.
var (
	kernelMacro = regexp.MustCompile(`(?m)^(KERNEL|WIDE)\((.*?)\)\(`)
	typedMacro  = regexp.MustCompile(`TYPED\((\w+)\)`)
)

// sourceFile is a CUDA source file. It is compiled after the prelude.
type sourceFile struct{ name, text string }

func untypedFiles() []sourceFile {
	return []sourceFile{{"untyped.cu", untypedSource}, {"syncnorm.cu", syncNormSource}, {"norms.cu", layerwiseNormsSource}}
}

// typedFiles returns the files that are compiled for each element type. A file may use the
// files before it and the untyped files.
func typedFiles() []sourceFile {
	return []sourceFile{
		{"batchnorm.cu", batchNormSource},
		{"pointwise.cu", pointwiseSource},
		{"pool.cu", poolSource},
		{"loss.cu", lossSource},
		{"classify.cu", classifySource},
		{"head.cu", headConvolutionSource},
		{"layout.cu", layoutSource},
		{"augment.cu", augmentSource},
		{"optimizer.cu", optimizerSource},
	}
}

// expandMacros expands the macros in f and appends suffix to the kernel names. suffix is "" for
// a file that does not depend on the element type.
func (f sourceFile) expandMacros(suffix string) string {
	text := typedMacro.ReplaceAllString(f.text, "${1}_"+suffix)
	text = kernelMacro.ReplaceAllStringFunc(text, func(head string) string {
		m := kernelMacro.FindStringSubmatch(head)
		// Request at least two blocks per multiprocessor. Without this bound the compiler
		// limits the registers of some kernels to fit a third block, and spills to memory.
		threads := map[string]int{"KERNEL": blockThreads, "WIDE": columnSumBlockSide * columnSumBlockSide}[m[1]]
		return fmt.Sprintf("extern \"C\" __global__ void __launch_bounds__(%d, 2) %s(", threads, m[2])
	})
	return fmt.Sprintf("#line 1 %q\n%s\n", f.name, text)
}

func (t ElementType) expandFiles(files ...sourceFile) string {
	var b strings.Builder
	fmt.Fprintf(&b, "#define T %s\n", map[ElementType]string{F32: "float", F16: "f16", BF16: "bf16"}[t])
	for _, f := range files {
		b.WriteString(f.expandMacros(t.String()))
	}
	b.WriteString("#undef T\n")
	return b.String()
}

var expandedPrelude = sync.OnceValue(func() string { return sourceFile{"prelude.cu", preludeSource}.expandMacros("") })

// Source returns the CUDA C++ source of the kernels in ListKernels(types...) as one translation
// unit without includes. Every kernel begins with extern "C" __global__ void. Without types,
// Source contains the kernels for all types. For speed, compile only the type of activations
// and F32, which losses and masks need.
func Source(types ...ElementType) string {
	if len(types) == 0 {
		types = []ElementType{F32, F16, BF16}
	}
	var b strings.Builder
	b.WriteString(expandedPrelude())
	for _, f := range untypedFiles() {
		b.WriteString(f.expandMacros(""))
	}
	for _, t := range types {
		b.WriteString(t.expandFiles(typedFiles()...))
	}
	return b.String()
}

// Unit is a translation unit that contains some of the kernels.
type Unit struct {
	Name   string // "batchnorm_bf16.cu"
	Source string
}

// Units divides the kernels in ListKernels(types...) into translation units that can be
// compiled in parallel.
func Units(types ...ElementType) []Unit {
	if len(types) == 0 {
		types = []ElementType{F32, F16, BF16}
	}
	var all []Unit
	rules := "" // the optimizers of all types, after the norms that they use
	for _, f := range untypedFiles() {
		if f.name == "norms.cu" {
			rules = expandedPrelude() + f.expandMacros("")
			continue
		}
		all = append(all, Unit{f.name, expandedPrelude() + f.expandMacros("")})
	}
	for _, t := range types {
		for _, f := range typedFiles() {
			if f.name == "optimizer.cu" {
				rules += t.expandFiles(f)
				continue
			}
			all = append(all, Unit{strings.TrimSuffix(f.name, ".cu") + "_" + t.String() + ".cu", expandedPrelude() + t.expandFiles(f)})
		}
	}
	return append(all, Unit{"optimizer.cu", rules})
}
