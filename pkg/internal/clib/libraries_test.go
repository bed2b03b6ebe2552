//go:build amd64 || arm64

package clib_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lockstep/pkg/internal/clib"
	"lockstep/pkg/internal/clib/cublaslt"
	"lockstep/pkg/internal/clib/cuda"
	"lockstep/pkg/internal/clib/cudnn"
	"lockstep/pkg/internal/clib/cupti"
	"lockstep/pkg/internal/clib/nccl"
	"lockstep/pkg/internal/clib/nvml"
	"lockstep/pkg/internal/clib/nvrtc"
	"lockstep/pkg/internal/clib/nvtx"
)

// installed returns a search for the libraries of this machine and those that environment/test
// has fetched: NVIDIA's compiler, and libraries of its driver, which report that there is no
// GPU.
func installed(t *testing.T) *clib.Search {
	cache, err := filepath.Abs("../../../environment/.cache")
	check(t, err)
	return clib.NewSearch(clib.Environment{Getenv: func(name string) string {
		value := os.Getenv(name)
		if name == clib.LibraryPathVariable && value == "" {
			return filepath.Join(cache, "driver", "lib") + ":" + filepath.Join(cache, "nvrtc", "lib")
		}
		return value
	}})
}

// opened skips the test if its library is missing or cannot be used.
func opened(t *testing.T, err error) {
	t.Helper()
	var missing *clib.NotFoundError
	var old *clib.VersionError
	switch {
	case errors.As(err, &missing):
		t.Skipf("no %s on this machine", missing.Library)
	case errors.As(err, &old):
		t.Skipf("no %s on this machine that can be used: %v", old.Library, err)
	}
	check(t, err)
}

// TestRealLibraries checks that the libraries of this machine have all functions of the tables.
// It calls those that work without a device, and checks the errors of the others if there is no
// device.
func TestRealLibraries(t *testing.T) {
	s := installed(t)
	t.Run("driver", func(t *testing.T) {
		d, err := cuda.Open(s)
		opened(t, err)
		version, err := d.Version()
		check(t, err)
		t.Logf("%s: CUDA %s", d.Path, cuda.FormatVersion(version))
		if err := d.Init(); err == nil {
			return // a GPU: what its calls do is for gpu selftest to say
		}
		_, err = d.MemAlloc(1 << 20)
		if !errors.Is(err, cuda.ErrorNotInitialized) {
			t.Errorf("memory of no device: %v", err)
		}
		if _, err := d.EventElapsed(0, 0); err == nil {
			t.Error("events of no device have a time between them")
		}
		if err := d.LaunchKernel(0, cuda.Dim3{1, 1, 1}, cuda.Dim3{1, 1, 1}, 0, 0, nil); err == nil {
			t.Error("a kernel of no device can be launched")
		}
	})
	t.Run("NVML", func(t *testing.T) {
		l, err := nvml.Open(s)
		opened(t, err)
		if err := l.Init(); err == nil {
			check(t, l.Shutdown())
		} else if _, err := l.DeviceCount(); !errors.Is(err, nvml.Uninitialized) {
			t.Errorf("devices without a driver: %v", err)
		}
	})
	t.Run("NVRTC", func(t *testing.T) {
		l, err := nvrtc.Open(s)
		opened(t, err)
		if known, err := l.Architectures(); err != nil || len(known) == 0 {
			t.Errorf("architectures %v, %v", known, err)
		}
	})
	t.Run("cuDNN", func(t *testing.T) {
		l, err := cudnn.Open(s)
		opened(t, err)
		t.Logf("%s: cuDNN %s", l.Path, cudnn.FormatVersion(l.Version()))
	})
	t.Run("cuBLASLt", func(t *testing.T) {
		l, err := cublaslt.Open(s)
		opened(t, err)
		t.Logf("%s: cuBLASLt %s", l.Path, cublaslt.FormatVersion(l.Version()))
	})
	t.Run("NCCL", func(t *testing.T) {
		l, err := nccl.Open(s)
		opened(t, err)
		if text := l.ErrorString(nccl.InvalidUsage); !strings.Contains(text, "usage") {
			t.Errorf("it says %q of an invalid usage", text)
		}
	})
	t.Run("NVTX", func(t *testing.T) {
		l, err := nvtx.Open(s)
		opened(t, err)
		l.Push("a range that nobody watches")
		l.Pop()
	})
	t.Run("CUPTI", func(t *testing.T) {
		l, err := cupti.Open(s)
		opened(t, err)
		version, err := l.Version()
		check(t, err)
		t.Logf("%s: CUPTI %d", l.Path, version)
	})
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
