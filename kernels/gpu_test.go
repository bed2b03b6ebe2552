package kernels

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// gpuKernel builds a kernel with gorgonia.org/cu and what the notebook of the
// first GPU kernel imports. Most of it is compiled already when the ordinary
// kernel is, so the test waits for that one.
func gpuKernel(t *testing.T) string {
	t.Helper()
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		t.Skip("gorgonia.org/cu can be linked on linux/amd64 only")
	}
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("no gcc on this machine")
	}
	kernelDir(t)
	dir, err := filepath.Abs(filepath.Join(".build", "gpu"))
	if err != nil {
		t.Fatal(err)
	}
	out, err := goRun("./build", "-tags", "nvgpu", "-kernel", "-o", dir,
		"-packages", "lockstep/pkg/notebook,lockstep/pkg/nvrtc,gonum.org/v1/gonum/blas/blas32")
	if err != nil {
		t.Fatalf("%s -tags nvgpu: %v\n%s", buildCommand, err, out)
	}
	return dir
}

// notebookCells are the cells with code of a notebook.
func notebookCells(t *testing.T, path string) []string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var nb struct {
		Cells []struct {
			Type   string   `json:"cell_type"`
			Source []string `json:"source"`
		} `json:"cells"`
	}
	if err := json.Unmarshal(text, &nb); err != nil {
		t.Fatal(err)
	}
	var code []string
	for _, c := range nb.Cells {
		if c.Type == "code" {
			code = append(code, strings.Join(c.Source, ""))
		}
	}
	return code
}

// The ordinary kernel, which is built without gorgonia.org/cu, runs the notebook
// from top to bottom, and its cells say what they left out and why.
func TestFirstGPUKernelWithoutCu(t *testing.T) {
	code := notebookCells(t, filepath.Join("..", "notebooks", "first-gpu-kernel.ipynb"))
	var shown strings.Builder
	for i, a := range drive(t, append(cells(code...), step{Execute: "cu.StreamCreate()"})...) {
		if i == len(code) {
			if !strings.Contains(a.Reply.Value, "go run ./kernels/build -tags nvgpu") {
				t.Errorf("a function that the stand-in lacks fails with %q", a.Reply.Value)
			}
			continue
		}
		if a.Reply.Status != "ok" {
			t.Errorf("cell\n%s\nfails: %s", code[i], a.Reply.Value)
		}
		for _, m := range a.Messages {
			shown.WriteString(m.Content.Text)
		}
	}
	for _, want := range []string{
		"There is no GPU that can be used here: this kernel was built without gorgonia.org/cu (to use it: run \"go run ./kernels/build -tags nvgpu\"",
		"left out: free and total memory", "left out: load the kernel", "left out: saxpy over 16 million numbers", "gonum, one core",
	} {
		if !strings.Contains(shown.String(), want) {
			t.Errorf("the notebook does not say %q:\n%s", want, shown.String())
		}
	}
}

// The notebook runs from top to bottom on a machine without a GPU, where every
// part of it that needs one says so, and with a driver that runs its kernel on
// the CPU, where the result is checked.
func TestFirstGPUKernel(t *testing.T) {
	dir := gpuKernel(t)
	code := notebookCells(t, filepath.Join("..", "notebooks", "first-gpu-kernel.ipynb"))
	// Debian's compiler, where environment/test has fetched it.
	nvrtc, err := filepath.Abs(filepath.Join("..", "environment", ".cache", "nvrtc", "lib"))
	if err != nil {
		t.Fatal(err)
	}
	if os.Getenv("LOCKSTEP_CUDA_PATH") == "" {
		t.Setenv("LOCKSTEP_CUDA_PATH", nvrtc)
	}
	run := func(t *testing.T) string {
		t.Helper()
		answers, _ := driveKernel(t, dir, cells(code...)...)
		var shown strings.Builder
		for i, a := range answers {
			if a.Reply.Status != "ok" {
				t.Errorf("cell\n%s\nfails: %s", code[i], a.Reply.Value)
			}
			for _, m := range a.Messages {
				shown.WriteString(m.Content.Text)
			}
		}
		return shown.String()
	}
	t.Run("no driver", func(t *testing.T) {
		t.Setenv("LD_LIBRARY_PATH", "")
		shown := run(t)
		if strings.Contains(shown, "driver for CUDA") {
			t.Skip("this machine has a GPU")
		}
		for _, want := range []string{
			"There is no GPU that can be used here: NoDevice", "left out: name, memory", "left out: free and total memory",
			"left out: load the kernel", "left out: saxpy over 16 million numbers", "left out: the comparison",
			"gonum, one core", "left out: NoDevice",
		} {
			if !strings.Contains(shown, want) {
				t.Errorf("the notebook does not say %q:\n%s", want, shown)
			}
		}
	})
	t.Run("pretended driver", func(t *testing.T) {
		if _, err := os.Stat(filepath.Join(nvrtc, "libnvrtc.so.11.2")); err != nil {
			t.Skip("no NVRTC on this machine: environment/test fetches Debian's (package libnvrtc11.2, non-free)")
		}
		lib := t.TempDir()
		out, err := exec.Command("gcc", "-O2", "-shared", "-fPIC", "-o", filepath.Join(lib, "libcuda.so.1"), filepath.Join("build", "testdata", "driver.c")).CombinedOutput()
		if err != nil {
			t.Fatalf("gcc: %v\n%s", err, out)
		}
		t.Setenv("LD_LIBRARY_PATH", lib)
		shown := run(t)
		shown = strings.Join(strings.Fields(shown), " ") // the table is lined up
		for _, want := range []string{
			"driver for CUDA 12.8, devices: 2", "Pretence A: compute capability 8.0, 7 multiprocessors", "3.0 of 8.0 GiB are free", ".entry saxpy(",
			// 3*i + 2*i for the first i
			"first results: [0 5 10 15 20] sum of differences: 0", "GPU, the kernel alone 0.50 ",
		} {
			if !strings.Contains(shown, want) {
				t.Errorf("the notebook does not show %q:\n%s", want, shown)
			}
		}
	})
}
