// Package nvrtc compiles CUDA C++ in a notebook: a cell passes the source of a kernel as
// text and gets PTX, the assembly language that the GPU's driver loads.
//
// The compiler is NVIDIA's run-time compiler (libnvrtc). Open searches for it in the same
// places as package engine searches for its libraries. It needs neither a GPU nor a driver
// nor nvcc. gorgonia.org/cu loads and launches the result:
//
//	compiler, err := nvrtc.Open()
//	ptx, err := compiler.PTX(source, 9, 0)
//	module, err := cu.LoadData(ptx)
//	saxpy, err := module.Function("saxpy")
//
// The kernels for training belong to package engine, which compiles them itself.
package nvrtc

import (
	"fmt"
	"strings"

	"lockstep/pkg/internal/clib"
	"lockstep/pkg/internal/clib/nvrtc"
)

// A Compiler is NVRTC, NVIDIA's run-time compiler for CUDA C++, as installed on this machine.
type Compiler struct {
	Path    string // path of the library
	Version string // such as "13.0"

	library *nvrtc.Library
}

// Open finds the compiler. If this machine has no compiler, the error lists the places that
// were searched and describes how to install one.
func Open() (*Compiler, error) { return open(clib.Environment{}) }

func open(env clib.Environment) (*Compiler, error) {
	library, err := nvrtc.Open(clib.NewSearch(env))
	if err != nil {
		return nil, fmt.Errorf("open the CUDA compiler: %w", err)
	}
	major, minor, err := library.Version()
	if err != nil {
		return nil, fmt.Errorf("open the CUDA compiler: %w", err)
	}
	return &Compiler{Path: library.Path, Version: fmt.Sprintf("%d.%d", major, minor), library: library}, nil
}

// String returns the compiler's name, version and path.
func (c *Compiler) String() string { return fmt.Sprintf("NVRTC %s (%s)", c.Version, c.Path) }

// PTX compiles CUDA C++ source for GPUs of compute capability major.minor, such as 9, 0 for an
// H200, and for newer GPUs. options are passed to the compiler, such as "--use_fast_math". If
// the source does not compile, the error contains the compiler's messages with line numbers.
//
// Declare a kernel extern "C" so that it can be found by its name.
func (c *Compiler) PTX(source string, major, minor int, options ...string) (string, error) {
	architecture := fmt.Sprintf("--gpu-architecture=compute_%d%d", major, minor)
	out, err := c.library.Compile(source, "cell.cu", append([]string{architecture}, options...))
	if err != nil {
		return "", err // it already describes what failed
	}
	return strings.TrimRight(string(out.PTX), "\x00"), nil
}
