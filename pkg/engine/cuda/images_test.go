package cuda

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"lockstep/pkg/engine/cuda/kernels"
	"lockstep/pkg/internal/clib/clibtest"
	"lockstep/pkg/internal/clib/nvrtc"
	"lockstep/pkg/internal/clib/stack"
)

// TestCompiledOnce: engines of one process that want the same kernels have them compiled
// once; another precision compiles only what it has beside them.
func TestCompiledOnce(t *testing.T) {
	m := clibtest.New(clibtest.Options{})
	libraries, err := m.OpenStack()
	if err != nil {
		t.Fatal(err)
	}
	compiled := func(precision string) int {
		t.Helper()
		m.ResetCalls()
		e, err := NewWithLibraries(libraries, noEnvironment, gpuOptions(precision), 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		return strings.Count(strings.Join(m.Calls(), "\n"), "nvrtcCompileProgram")
	}
	all := len(kernels.Units(kernels.F32, kernels.BF16))
	if n := compiled("bf16"); n != all {
		t.Errorf("%d units are compiled, there are %d", n, all)
	}
	if n := compiled("bf16"); n != 0 {
		t.Errorf("a second engine compiles %d units", n)
	}
	// Those of fp16, and the optimisers, which are one unit with all types.
	if n := compiled("fp16"); n == 0 || n >= all-len(kernels.Units(kernels.F32))/2 {
		t.Errorf("another precision compiles %d of %d units", n, all)
	}
}

// countingCompiler gives the source back as machine code.
func countingCompiler(t *testing.T) (s *stack.Stack, compiled func() int) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "libnvrtc.so.13")
	if err := os.WriteFile(file, []byte("a library"), 0o600); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	n := 0
	library := &nvrtc.Library{
		Path: file, Version: func() (int, int, error) { return 13, 0, nil },
		Architectures: func() ([]int, error) { return []int{75, 80, 90}, nil },
		Compile: func(source, name string, options []string) (nvrtc.CompiledProgram, error) {
			mu.Lock()
			defer mu.Unlock()
			n++
			if options[0] == "--gpu-architecture=sm_121" {
				return nvrtc.CompiledProgram{}, &nvrtc.CompileError{Name: name, Result: nvrtc.ErrorInvalidOption}
			}
			if strings.Contains(source, "mistake") {
				return nvrtc.CompiledProgram{}, &nvrtc.CompileError{Name: name, Result: nvrtc.ErrorCompilation, Log: "line 1"}
			}
			return nvrtc.CompiledProgram{PTX: []byte(options[0] + " " + source)}, nil
		},
	}
	return &stack.Stack{NVRTC: library}, func() int {
		mu.Lock()
		defer mu.Unlock()
		defer func() { n = 0 }()
		return n
	}
}

// TestImagesAreKept: the next process finds what was compiled, by compiler, device and
// source; what is damaged, or cannot be written, is compiled again.
func TestImagesAreKept(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "below")
	units := []kernels.Unit{{Name: "a.cu", Source: "a"}, {Name: "b.cu", Source: "b"}}
	s, compiled := countingCompiler(t)
	images := func(folder string, capability int) [][]byte {
		t.Helper()
		c, err := newKernelCompiler(&stack.Stack{NVRTC: s.NVRTC}, folder) // another process
		if err != nil {
			t.Fatal(err)
		}
		list, err := c.compile(units, capability)
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	want := images(folder, 90)
	if n := compiled(); n != 2 || string(want[1]) != "--gpu-architecture=sm_90 b" {
		t.Fatalf("%d units are compiled: %q", n, want)
	}
	again := images(folder, 90)
	if n := compiled(); n != 0 || !bytes.Equal(again[0], want[0]) || !bytes.Equal(again[1], want[1]) {
		t.Errorf("%d units are compiled again: %q", n, again)
	}
	if images(folder, 80); compiled() != 2 {
		t.Error("another device has the same machine code")
	}
	// A device that the compiler does not know gets PTX of the newest that it does.
	if got := images(folder, 121); string(got[0]) != "--gpu-architecture=compute_90 a" {
		t.Errorf("a newer device gets %q", got)
	}
	compiled()
	files, err := filepath.Glob(filepath.Join(folder, "*"))
	if err != nil || len(files) != 6 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, damage := range []string{"", "short", strings.Repeat("x", 200)} {
		for _, f := range files {
			if err := os.WriteFile(f, []byte(damage), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		got := images(folder, 90)
		if n := compiled(); n != 2 || !bytes.Equal(got[0], want[0]) {
			t.Errorf("%q is taken for an image: %d compiled, %q", damage, n, got)
		}
		if images(folder, 90); compiled() != 0 {
			t.Errorf("after %q the file is not written anew", damage)
		}
	}
	if images(filepath.Join(files[0], "no folder"), 90); compiled() != 2 {
		t.Error("without a folder nothing is compiled")
	}
	// Another library of that name is another compiler.
	if err := os.WriteFile(s.NVRTC.Path, []byte("another library"), 0o600); err != nil {
		t.Fatal(err)
	}
	if images(folder, 90); compiled() != 2 {
		t.Error("another compiler's machine code is taken")
	}
	c, err := newKernelCompiler(s, folder)
	if err != nil {
		t.Fatal(err)
	}
	var mistake *nvrtc.CompileError
	if _, err := c.compile([]kernels.Unit{{Name: "c.cu", Source: "c"}, {Name: "d.cu", Source: "a mistake"}}, 90); !errors.As(err, &mistake) || mistake.Name != "d.cu" {
		t.Errorf("a mistake: %v", err)
	}
}
