package nvrtc

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lockstep/pkg/internal/clib"
)

// fetched is the folder to which environment/test fetches Debian's NVRTC.
const fetched = "../../environment/.cache/nvrtc/lib"

func compiler(t *testing.T) *Compiler {
	t.Helper()
	folder, err := filepath.Abs(fetched)
	if err != nil {
		t.Fatal(err)
	}
	c, err := open(clib.Environment{Getenv: func(name string) string {
		value := os.Getenv(name)
		if name == clib.LibraryPathVariable && value == "" {
			return folder
		}
		return value
	}})
	var missing *clib.NotFoundError
	if errors.As(err, &missing) {
		t.Skip("no NVRTC on this machine: environment/test fetches Debian's (package libnvrtc11.2, non-free)")
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}

const saxpy = `extern "C" __global__ void saxpy(long long n, float a, const float *x, float *y) {
	long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
	if (i < n) y[i] = a * x[i] + y[i];
}`

func TestPTX(t *testing.T) {
	c := compiler(t)
	ptx, err := c.PTX(saxpy, 8, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{".target sm_80", ".visible .entry saxpy(", "fma.rn.f32"} {
		if !strings.Contains(ptx, want) {
			t.Errorf("the assembly has no %s:\n%s", want, ptx)
		}
	}
	if strings.Contains(ptx, "\x00") {
		t.Error("the assembly holds a zero byte")
	}
	// Options reach the compiler: without it, multiply and add stay apart.
	if ptx, err = c.PTX(saxpy, 8, 0, "--fmad=false"); err != nil || strings.Contains(ptx, "fma.rn.f32") {
		t.Errorf("--fmad=false has no effect: %v", err)
	}
	if !strings.HasPrefix(c.String(), "NVRTC "+c.Version+" (") || !strings.Contains(c.String(), "libnvrtc") {
		t.Errorf("the compiler is %s", c)
	}
}

func TestPTXOfABrokenSource(t *testing.T) {
	_, err := compiler(t).PTX("__global__ void f() {\n\tint x = y;\n}", 8, 0)
	if err == nil {
		t.Fatal("a source that does not compile gives no error")
	}
	for _, want := range []string{"cell.cu(2)", `identifier "y" is undefined`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error is %q, want %q in it", err, want)
		}
	}
}

// TestOpenWithoutCompiler checks that the error lists the places that were searched.
func TestOpenWithoutCompiler(t *testing.T) {
	if !clib.Supported {
		t.Skip("no C library can be opened on this system")
	}
	dir := t.TempDir()
	_, err := open(clib.Environment{
		Getenv: func(name string) string { return map[string]string{clib.LibraryPathVariable: dir}[name] },
		System: []string{},
		Open:   func(string) (uintptr, error) { return 0, fs.ErrNotExist },
	})
	var missing *clib.NotFoundError
	if !errors.As(err, &missing) {
		t.Fatalf("error is %v, want that nothing was found", err)
	}
	for _, want := range []string{"open the CUDA compiler", "NVRTC", dir} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error is %q, want %q in it", err, want)
		}
	}
}
