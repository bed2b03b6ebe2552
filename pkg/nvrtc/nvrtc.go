// Package nvrtc compiles CUDA C++ in a notebook: a cell holds the source of a
// kernel as text and gets PTX, the assembly that the GPU's driver loads.
//
// The compiler is NVIDIA's run-time compiler (libnvrtc). It is looked for when
// Open is called, where package engine looks for its libraries too, and needs
// neither a GPU nor a driver nor nvcc. What it makes is loaded and launched with
// gorgonia.org/cu:
//
//	compiler, err := nvrtc.Open()
//	ptx, err := compiler.PTX(source, 9, 0)
//	module, err := cu.LoadData(ptx)
//	saxpy, err := module.Function("saxpy")
//
// Kernels for training come with package engine, which compiles its own.
package nvrtc

import (
	"fmt"
	"strings"

	"lockstep/pkg/internal/clib"
	"lockstep/pkg/internal/clib/nvrtc"
)

// A Compiler is the run-time compiler of this machine.
type Compiler struct {
	Path    string // the library's file
	Version string // "13.0"

	library *nvrtc.Library
}

// Open finds the compiler. The error of a machine that has none lists where it
// was looked for, and how to get it.
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

// String names the compiler, its version and its file.
func (c *Compiler) String() string { return fmt.Sprintf("NVRTC %s (%s)", c.Version, c.Path) }

// PTX compiles a source for GPUs of a compute capability, such as 9, 0 for an
// H200, and newer ones. Options are those of the compiler, such as
// "--use_fast_math". The error of a source that does not compile holds the
// compiler's messages, with their lines.
//
// A kernel that shall be found by its name is declared extern "C".
func (c *Compiler) PTX(source string, major, minor int, options ...string) (string, error) {
	architecture := fmt.Sprintf("--gpu-architecture=compute_%d%d", major, minor)
	out, err := c.library.Compile(source, "cell.cu", append([]string{architecture}, options...))
	if err != nil {
		return "", err // it says what failed already
	}
	return strings.TrimRight(string(out.PTX), "\x00"), nil
}
