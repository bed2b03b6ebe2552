// Package cu lets a cell of a kernel built with "-tags nvgpu" import
// gorgonia.org/cu, with which a student programs a GPU by hand. Without the tag
// the package is empty: gorgonia.org/cu needs cgo, a C compiler and CUDA's
// headers.
//
// The tag must not be called "cuda". That name switches files of gorgonia
// itself on, which do not compile.
package cu
