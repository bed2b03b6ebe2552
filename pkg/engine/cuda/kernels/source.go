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

// kernelHead is how the sources begin a kernel: KERNEL for blocks of at most 256
// threads, WIDE for 1024; TYPED adds the element type to a name.
var (
	kernelHead = regexp.MustCompile(`(?m)^(KERNEL|WIDE)\((.*?)\)\(`)
	typedName  = regexp.MustCompile(`TYPED\((\w+)\)`)
)

// file is a part of the text behind the prelude.
type file struct{ name, text string }

// untypedFiles are written out once, typedFiles for each element type T. What is in
// front of another one may be used by it: the optimisers need the norms.
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

// part writes a file out for an element type, "" for none.
func (f file) part(suffix string) string {
	text := typedName.ReplaceAllString(f.text, "${1}_"+suffix)
	text = kernelHead.ReplaceAllStringFunc(text, func(head string) string {
		m := kernelHead.FindStringSubmatch(head)
		// Two blocks a multiprocessor at least: without that number the compiler
		// spills registers of some kernels to memory for the sake of a third.
		threads := map[string]int{"KERNEL": blockThreads, "WIDE": columnThreads * columnThreads}[m[1]]
		return fmt.Sprintf("extern \"C\" __global__ void __launch_bounds__(%d, 2) %s(", threads, m[2])
	})
	return fmt.Sprintf("#line 1 %q\n%s\n", f.name, text)
}

// of writes files out for an element type.
func (t Type) of(files ...file) string {
	var b strings.Builder
	fmt.Fprintf(&b, "#define T %s\n", map[Type]string{F32: "float", F16: "f16", BF16: "bf16"}[t])
	for _, f := range files {
		b.WriteString(f.part(t.String()))
	}
	b.WriteString("#undef T\n")
	return b.String()
}

// begin is what every text begins with.
func begin() string { return file{"prelude.cu", prelude}.part("") }

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
	b.WriteString(begin())
	for _, f := range untypedFiles() {
		b.WriteString(f.part(""))
	}
	for _, t := range types {
		b.WriteString(t.of(typedFiles()...))
	}
	return b.String()
}

// Unit is a translation unit of its own.
type Unit struct {
	Name   string // "batchnorm_bf16.cu"
	Source string
}

// Units hold the kernels of List(types...) in pieces, each of them once: a compiler
// that takes them side by side is done sooner than with Source.
func Units(types ...Type) []Unit {
	if len(types) == 0 {
		types = []Type{F32, F16, BF16}
	}
	var all []Unit
	rules := "" // the optimisers of all types, with the norms before them
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
