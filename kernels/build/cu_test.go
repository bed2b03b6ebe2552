package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestGPURegistrationIsCurrent(t *testing.T) {
	b, err := newBuild(t.Context(), options{})
	if err != nil {
		t.Fatal(err)
	}
	want, err := registerGPU(t.Context(), b.goTool)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(b.dir, gpuRegistration))
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Errorf("%s is not what \"go run ./kernels/build -cu\" writes", gpuRegistration)
	}
	// The names that a first GPU program needs.
	for _, name := range []string{"Version", "NumDevices", "GetDevice", "LoadData", "MemAlloc", "MemcpyHtoD", "MemcpyDtoH", "NewContext"} {
		if !strings.Contains(string(got), `"`+name+`":`) {
			t.Errorf("gorgonia.org/cu has no %s for a cell", name)
		}
	}
	if !strings.HasPrefix(strings.SplitN(string(got), "\n\n", 2)[1], "//go:build nvgpu\n") {
		t.Error("the registration is not behind the tag nvgpu")
	}
}

// The registration compiles where it can. "go vet" runs cgo and the compiler's
// type checker, but not the linker, so that headers are enough.
func TestGPURegistrationCompiles(t *testing.T) {
	flags, err := cudaFlags()
	if err != nil {
		t.Skipf("CUDA headers: %v", err)
	}
	b, err := newBuild(t.Context(), options{tags: gpuTag})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "vet", "-tags", gpuTag, "./kernels/cu")
	cmd.Dir, cmd.Env = b.dir, append(b.env, "CGO_CFLAGS="+flags)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("go vet -tags %s ./kernels/cu: %v\n%s", gpuTag, err, out)
	}
}
