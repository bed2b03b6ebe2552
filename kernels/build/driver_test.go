package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// gpuBuild describes a build with gorgonia.org/cu and makes its driver.
func gpuBuild(t *testing.T) *build {
	t.Helper()
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		t.Skip("gorgonia.org/cu can be linked on linux/amd64 only")
	}
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("no gcc on this machine")
	}
	b, err := newBuild(t.Context(), options{tags: gpuTag})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.driver.write(t.Context()); err != nil {
		t.Fatal(err)
	}
	return b
}

// gcc compiles a file of testdata.
func gcc(t *testing.T, source, output string, args ...string) {
	t.Helper()
	args = append([]string{"-O1", "-o", output, filepath.Join("testdata", source)}, args...)
	if out, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
		t.Fatalf("gcc %s: %v\n%s", source, err, out)
	}
}

// pretend makes a driver for the loader to find, and returns its folder.
func pretend(t *testing.T, args ...string) string {
	t.Helper()
	dir := t.TempDir()
	gcc(t, "driver.c", filepath.Join(dir, "libcuda.so.1"), append([]string{"-shared", "-fPIC"}, args...)...)
	return dir
}

// execute runs a program where the loader looks into dir first.
func execute(t *testing.T, program, dir string) (output string, code int) {
	t.Helper()
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+dir)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// hasDriver reports whether this machine has a driver of its own.
func hasDriver() bool {
	for _, pattern := range []string{"/usr/lib/*/libcuda.so.1", "/usr/lib64/libcuda.so.1", "/usr/local/nvidia/lib64/libcuda.so.1", "/usr/lib/wsl/lib/libcuda.so.1"} {
		if found, _ := filepath.Glob(pattern); len(found) > 0 {
			return true
		}
	}
	return false
}

// The library alone: every kind of argument reaches the driver, and without a
// driver no call does harm.
func TestDriverPassesCallsOn(t *testing.T) {
	b := gpuBuild(t)
	program := filepath.Join(t.TempDir(), "calls")
	gcc(t, "calls.c", program, "-I"+b.driver.dir, "-L"+b.driver.dir, "-lcuda", "-ldl", "-Wno-deprecated-declarations")

	const withDriver = `before 100
init 0
count 0 2
launch 0x1 2 3 4 5 6 7 8 0x9 0xa 0xb
launched 700
bias 0x1 0.5
biased 0
absent 801
`
	if got, code := execute(t, program, pretend(t)); got != withDriver || code != 0 {
		t.Errorf("with a driver it ends with %d and prints\n%swant\n%s", code, got, withDriver)
	}
	// 803: the driver's library and the kernel's module do not belong together.
	const broken = "before 100\ninit 0\ncount 803 -1\nlaunched 803\nbiased 803\nabsent 803\n"
	if got, code := execute(t, program, pretend(t, "-DINIT=803")); got != broken || code != 0 {
		t.Errorf("with a driver that fails it ends with %d and prints\n%swant\n%s", code, got, broken)
	}
	if hasDriver() {
		return
	}
	const without = "before 100\ninit 0\ncount 100 -1\nlaunched 100\nbiased 100\nabsent 100\n"
	if got, code := execute(t, program, ""); got != without || code != 0 {
		t.Errorf("without a driver it ends with %d and prints\n%swant\n%s", code, got, without)
	}
}

// gorgonia.org/cu itself, unchanged, in the smallest program that imports it.
func TestCuStartsWithoutDriver(t *testing.T) {
	b := gpuBuild(t)
	program := filepath.Join(t.TempDir(), "cu")
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-tags", b.tags, "-o", program, "./kernels/cu")
	cmd.Dir, cmd.Env = b.dir, b.env
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	const devices = "driver 12080, 2 devices\n0: Pretence A, 8589934592 bytes\n1: Pretence B, 17179869184 bytes\n"
	if got, code := execute(t, program, pretend(t)); got != devices || code != 0 {
		t.Errorf("with a driver it ends with %d and prints\n%swant\n%s", code, got, devices)
	}
	if got, code := execute(t, program, pretend(t, "-DINIT=803")); got != "no GPU can be used here: SystemDriverMismatch\n" || code != 3 {
		t.Errorf("with a driver that fails it ends with %d and prints\n%s", code, got)
	}
	if hasDriver() {
		return
	}
	if got, code := execute(t, program, ""); got != "no GPU can be used here: NoDevice\n" || code != 3 {
		t.Errorf("without a driver it ends with %d and prints\n%s", code, got)
	}
}

func TestDriverSymbols(t *testing.T) {
	got := parseHeaderSymbols("#define cuMemAlloc cuMemAlloc_v2\nCUresult cuInit(unsigned int Flags);\nCUresult cuMemAlloc(CUdeviceptr* p, size_t n);\n" +
		"__attribute__((deprecated)) CUresult cuOld(int x);\nCUresult\ncuTwoLines(int x);\ntypedef CUresult (*cuPointer)(void);\n")
	if want := []string{"cuInit", "cuMemAlloc_v2", "cuOld", "cuTwoLines"}; !slices.Equal(got, want) {
		t.Errorf("symbols are %v, want %v", got, want)
	}
	source := string(generateDriverSource(got))
	for _, want := range []string{"\t\"cuMemAlloc_v2\",\n", "enum { count = 3 };", "JUMP(cuMemAlloc_v2, 0)\n", "JUMP(cuTwoLines, 2)\n"} {
		if !strings.Contains(source, want) {
			t.Errorf("the source has no %q", want)
		}
	}
	if strings.Contains(source, "JUMP(cuInit") {
		t.Error("cuInit jumps to the driver")
	}
}

// Text that is not the interface the recipe knows is refused.
func TestDriverHeaderRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"CUresult cuInit(unsigned int Flags);\n": `has no line "typedef uint32_t cuuint32_t;"`,
		"typedef uint32_t cuuint32_t;\n":         "does not declare cuDeviceTotalMem",
	} {
		if _, err := convertHeader(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want %q in it", err, want)
		}
	}
}
