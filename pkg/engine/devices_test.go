package engine

import (
	"encoding/json"
	"io/fs"
	"runtime"
	"strings"
	"testing"

	"lockstep/pkg/internal/clib"
	"lockstep/pkg/internal/clib/clibtest"
	"lockstep/pkg/internal/clib/stack"
)

// A machine without any library: the CPU is listed, and one remark says why there
// is no GPU and another where libraries were looked for, each folder once.
func TestDevicesWithoutGPU(t *testing.T) {
	if !clib.Supported {
		t.Skip("no C library can be opened on this system")
	}
	dir := t.TempDir()
	nothing := func(string) (uintptr, error) { return 0, fs.ErrNotExist }
	search := clib.NewSearch(clib.Environment{
		Getenv: func(name string) string { return map[string]string{clib.LibraryPathVariable: dir}[name] },
		System: []string{}, Open: nothing,
	})
	m := newMachine(stack.Probe(search))
	if len(m.Devices) != 1 || m.Devices[0].Kind != "cpu" || m.Devices[0].Units != runtime.NumCPU() || m.Devices[0].MemoryBytes < 1<<20 {
		t.Errorf("devices: %+v", m.Devices)
	}
	for _, want := range []string{"CUDA driver not found (libcuda.so.1)", "install driver 525 or newer"} {
		if !strings.Contains(m.NoGPU, want) {
			t.Errorf("NoGPU %q lacks %q", m.NoGPU, want)
		}
	}
	text := m.String()
	if n := strings.Count(text, dir); n != 1 {
		t.Errorf("the folder stands %d times in\n%s", n, text)
	}
	for _, want := range []string{"cpu", "NCCL", "not usable", "no GPU can be used: ", "looked for libraries in " + clib.LibraryPathVariable} {
		if !strings.Contains(text, want) || !strings.Contains(m.HTML(), want) {
			t.Errorf("%q is not shown in\n%s", want, text)
		}
	}
	raw, err := json.Marshal(m)
	if err != nil || !strings.Contains(string(raw), `"no_gpu":"CUDA driver not found`) {
		t.Errorf("%s, %v", raw, err)
	}
}

func TestDevicesWithGPU(t *testing.T) {
	st, err := clibtest.New(clibtest.Options{Name: "NVIDIA <H200>", Devices: 2, Memory: 141 << 30}).OpenStack()
	if err != nil {
		t.Fatal(err)
	}
	m := newMachine(st.Report())
	if m.NoGPU != "" || len(m.Devices) != 3 {
		t.Fatalf("%+v", m)
	}
	want := Device{
		Name: "NVIDIA <H200>", Kind: "cuda", Index: 1, MemoryBytes: 141 << 30, Units: 132, Compute: "9.0",
		Driver: "CUDA 13.0, driver 580.82.07", BusID: "0000:02:00.0",
	}
	if m.Devices[2] != want {
		t.Errorf("%+v\nwant %+v", m.Devices[2], want)
	}
	text := m.String()
	for _, want := range []string{"cuda:1", "141.0 GiB", "9.19.0", "2.28.9"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not shown in\n%s", want, text)
		}
	}
	if !strings.Contains(m.HTML(), "NVIDIA &lt;H200&gt;") {
		t.Error("names are not escaped")
	}
}

// A machine with a GPU and an NCCL that needs a missing library: a remark says so. Without a GPU, the
// reason why it cannot be used is not repeated.
func TestDevicesWithBrokenLibrary(t *testing.T) {
	st, err := clibtest.New(clibtest.Options{}).OpenStack()
	if err != nil {
		t.Fatal(err)
	}
	broken := func(n clib.LibraryName) error {
		return &clib.NotFoundError{Library: n, Advice: "install it", Broken: []clib.UnloadableFile{{Path: "/opt/lib.so", Reason: "libfabric.so.1: cannot open shared object file: No such file or directory"}}}
	}
	const problem = "found but not loadable: /opt/lib.so: libfabric.so.1: cannot open shared object file: No such file or directory: install the missing library"
	st.NCCL, st.Missing[clib.NCCL] = nil, broken(clib.NCCL)
	m := newMachine(st.Report())
	if want := "\nNCCL cannot be used: " + problem; m.NoGPU != "" || strings.Count(m.String(), want) != 1 || strings.Contains(m.String(), "install it") {
		t.Errorf("got\n%s\nwant %q", m, want)
	}
	m = newMachine(&stack.Report{Libraries: []stack.Library{{Name: clib.CUDA, Problem: broken(clib.CUDA)}}, Problem: broken(clib.CUDA)})
	if want := "\nno GPU can be used: CUDA driver " + problem; !strings.Contains(m.String(), want) || strings.Count(m.String(), "libfabric") != 1 {
		t.Errorf("got\n%s\nwant once %q", m, want)
	}
}

// An old driver is named as the reason, with its version and what to do.
func TestDevicesWithLibrariesThatDoNotFit(t *testing.T) {
	f := clibtest.New(clibtest.Options{})
	st, err := f.OpenStack()
	if err != nil {
		t.Fatal(err)
	}
	st.Driver.Version = func() (int, error) { return 12040, nil }
	m := newMachine(st.Report())
	if !strings.Contains(m.NoGPU, "NVRTC") || !strings.Contains(m.NoGPU, "12.x, as the driver's CUDA 12.4") {
		t.Errorf("NoGPU %q", m.NoGPU)
	}
}
