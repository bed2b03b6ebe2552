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

// kernelHead is how the sources begin a kernel: KERNEL for blocks of at most 256
// threads, WIDE for 1024; TYPED adds the element type to a name.
var (
	kernelHead = regexp.MustCompile(`(?m)^(KERNEL|WIDE)\((.*?)\)\(`)
	typedName  = regexp.MustCompile(`TYPED\((\w+)\)`)
)

// Source is the CUDA C++ text that holds the kernels of List(types...): one
// translation unit without any include, in which every kernel begins with
// extern "C" __global__ void. Without types it holds all three; a program that
// computes in one precision compiles faster with that one (and F32, which the
// losses and masks need).
func Source(types ...Type) string {
	if len(types) == 0 {
		types = []Type{F32, F16, BF16}
	}
	var b strings.Builder
	part := func(name, text, suffix string) {
		text = typedName.ReplaceAllString(text, "${1}_"+suffix)
		text = kernelHead.ReplaceAllStringFunc(text, func(head string) string {
			m := kernelHead.FindStringSubmatch(head)
			// Two blocks a multiprocessor at least: without that number the compiler
			// spills registers of some kernels to memory for the sake of a third.
			threads := map[string]int{"KERNEL": blockThreads, "WIDE": columnThreads * columnThreads}[m[1]]
			return fmt.Sprintf("extern \"C\" __global__ void __launch_bounds__(%d, 2) %s(", threads, m[2])
		})
		fmt.Fprintf(&b, "#line 1 %q\n%s\n", name, text)
	}
	part("prelude.cu", prelude, "")
	part("untyped.cu", untypedSource, "")
	part("norms.cu", normsSource, "")
	for _, t := range types {
		// The typed files are written once, for an element type T.
		fmt.Fprintf(&b, "#define T %s\n", map[Type]string{F32: "float", F16: "f16", BF16: "bf16"}[t])
		part("batchnorm.cu", batchNormSource, t.String())
		part("pointwise.cu", pointwiseSource, t.String())
		part("pool.cu", poolSource, t.String())
		part("loss.cu", lossSource, t.String())
		part("classify.cu", classifySource, t.String())
		part("head.cu", headSource, t.String())
		part("optimizer.cu", optimizerSource, t.String())
		part("layout.cu", layoutSource, t.String())
		part("augment.cu", augmentSource, t.String())
		b.WriteString("#undef T\n")
	}
	return b.String()
}
