// Package stack opens the libraries that a GPU run needs, in the right order, and checks
// that they are compatible. Functions that use GPUs take a *Stack, so that a test can pass
// the simulated machine of package clibtest.
package stack

import (
	"fmt"
	"sync"

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

// Stack contains the open libraries that GPU runs use. Driver, NVRTC, CUDNN and NVTX are never
// nil. If any other library is nil, Missing contains the reason.
type Stack struct {
	Driver   *cuda.Driver
	NVRTC    *nvrtc.Library
	CUDNN    *cudnn.Library
	CublasLt *cublaslt.Library // nil: no matrix products outside cuDNN
	NCCL     *nccl.Library     // nil: ranks exchange through the host
	NVML     *nvml.Library     // nil: utilization, power and energy are not measured
	NVTX     *nvtx.Library     // its functions do nothing if the library is missing
	// CUPTI opens NVIDIA's profiling interface, only on request: it hooks into the driver.
	CUPTI func() (*cupti.Library, error)

	Missing map[clib.LibraryName]error

	// Images caches the machine code that NVRTC has compiled in this process. Engines that are
	// started one after another use the same kernels.
	Images sync.Map
}

// Open opens and checks the libraries and initializes the driver. If the driver, NVRTC or cuDNN
// cannot be used, the error names the first of them and the remedy.
func Open(s *clib.Search) (*Stack, error) {
	st := &Stack{Missing: map[clib.LibraryName]error{}, CUPTI: func() (*cupti.Library, error) { return cupti.Open(s) }}
	var err error
	if st.Driver, err = cuda.Open(s); err != nil {
		return nil, fmt.Errorf("use the GPU: %w", err)
	}
	preferDriverVersion(s, st.Driver)
	if err := st.Driver.Init(); err != nil {
		return nil, fmt.Errorf("use the GPU: %w", err)
	}
	if st.NVRTC, err = nvrtc.Open(s); err != nil {
		return nil, fmt.Errorf("use the GPU: %w", err)
	}
	if st.CUDNN, err = cudnn.Open(s); err != nil {
		return nil, fmt.Errorf("use the GPU: %w", err)
	}
	if st.CublasLt, err = cublaslt.Open(s); err != nil {
		st.CublasLt, st.Missing[clib.CublasLt] = nil, err
	}
	if st.NCCL, err = nccl.Open(s); err != nil {
		st.NCCL, st.Missing[clib.NCCL] = nil, err
	}
	if st.NVML, err = nvml.Open(s); err != nil {
		st.NVML, st.Missing[clib.NVML] = nil, err
	} else if err := st.NVML.Init(); err != nil {
		st.NVML, st.Missing[clib.NVML] = nil, err
	}
	if st.NVTX, err = nvtx.Open(s); err != nil {
		st.Missing[clib.NVTX] = err
	}
	return st, st.Check()
}

// preferDriverVersion makes s prefer libraries for the driver's CUDA version. If this version is
// unknown, it does nothing, because Check returns an error later.
func preferDriverVersion(s *clib.Search, driver *cuda.Driver) {
	if v, err := driver.Version(); err == nil {
		s.PreferCUDA(v / 1000)
	}
}

// Check returns an error if the libraries cannot be used together or the machine has no GPU.
func (st *Stack) Check() error {
	if err := st.Driver.CheckVersion(); err != nil {
		return fmt.Errorf("use the GPU: %w", err)
	}
	if err := st.NVRTC.CheckVersion(); err != nil {
		return fmt.Errorf("use the GPU: %w", err)
	}
	if err := st.CUDNN.CheckVersion(); err != nil {
		return fmt.Errorf("use the GPU: %w", err)
	}
	if st.NCCL != nil {
		if err := st.NCCL.CheckVersion(); err != nil {
			st.NCCL, st.Missing[clib.NCCL] = nil, err
		}
	}
	if err := st.checkMajorVersions(); err != nil {
		return fmt.Errorf("use the GPU: %w", err)
	}
	n, err := st.Driver.DeviceCount()
	if err == nil && n == 0 {
		err = &cuda.Error{Call: "cuDeviceGetCount", Result: cuda.ErrorNoDevice}
	}
	if err != nil {
		return fmt.Errorf("use the GPU: %w", err)
	}
	return nil
}

// checkMajorVersions returns an error if NVRTC's major version is newer than the driver's,
// because the driver would reject NVRTC's PTX.
func (st *Stack) checkMajorVersions() error {
	driver, err := st.Driver.Version()
	if err != nil {
		return err
	}
	major, minor, err := st.NVRTC.Version()
	if err != nil {
		return err
	}
	if major <= driver/1000 {
		return nil
	}
	return &clib.VersionError{
		Library: clib.NVRTC, Path: st.NVRTC.Path, Have: fmt.Sprintf("%d.%d", major, minor),
		Want:   fmt.Sprintf("%d.x, as the driver's CUDA %s,", driver/1000, cuda.FormatVersion(driver)),
		Advice: fmt.Sprintf("install a newer driver, or an NVRTC of CUDA %d, and name its folder in %s", driver/1000, clib.LibraryPathVariable),
	}
}
