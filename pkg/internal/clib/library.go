package clib

import "strings"

// LibraryName is the name of a C library in messages, such as "cuDNN".
type LibraryName string

// The libraries that GPU runs use, in the order in which they must be opened. cuDNN's run-time
// compiled engines need NVRTC, and its matrix engines need cuBLASLt.
const (
	CUDA      LibraryName = "CUDA driver"
	NVJitLink LibraryName = "nvJitLink"
	NVRTC     LibraryName = "NVRTC"
	CublasLt  LibraryName = "cuBLASLt"
	Cublas    LibraryName = "cuBLAS"
	CUDNN     LibraryName = "cuDNN"
	NCCL      LibraryName = "NCCL"
	NVML      LibraryName = "NVML"
	NVTX      LibraryName = "NVTX"
	CUPTI     LibraryName = "CUPTI"
)

// The implementations of MPI. Processes that mpirun has started use one of them.
const (
	OpenMPI LibraryName = "Open MPI"
	MPICH   LibraryName = "MPICH"
)

type searchSpec struct {
	sonames    []string      // file names, newest version first; the first one that is found is used
	needs      []LibraryName // libraries to open first, if they are found
	companions string        // pattern of files in its folder that the library opens by their plain names
	toolkit    bool          // cuDNN opens this library too, in the version that it was built for
	system     bool          // not NVIDIA's: only the loader's path and the system folders contain it
	advice     string        // the remedy if the library is missing
}

const (
	driverAdvice  = "it comes with NVIDIA's driver: install driver 525 or newer (580 for CUDA 13), or run on a node that has a GPU"
	toolkitAdvice = "it comes with the CUDA toolkit and with PyTorch's CUDA wheels (pip install %s): install it, load the cluster's module, or name its folder in LOCKSTEP_CUDA_PATH"
)

// searchSpecFor describes how to find library n. The result has no sonames if n is unknown.
func searchSpecFor(n LibraryName) searchSpec {
	wheel := func(name string) string { return strings.Replace(toolkitAdvice, "%s", name, 1) }
	switch n {
	case CUDA:
		return searchSpec{sonames: []string{"libcuda.so.1"}, advice: driverAdvice}
	case NVML:
		return searchSpec{sonames: []string{"libnvidia-ml.so.1"}, advice: driverAdvice}
	case NVJitLink:
		return searchSpec{sonames: []string{"libnvJitLink.so.13", "libnvJitLink.so.12"}, toolkit: true, advice: wheel("nvidia-nvjitlink")}
	case NVRTC:
		return searchSpec{
			sonames:    []string{"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2"},
			needs:      []LibraryName{NVJitLink},
			companions: "libnvrtc-builtins.so.*",
			toolkit:    true,
			advice:     wheel("nvidia-cuda-nvrtc"),
		}
	case CublasLt:
		return searchSpec{sonames: []string{"libcublasLt.so.13", "libcublasLt.so.12"}, toolkit: true, advice: wheel("nvidia-cublas")}
	case Cublas:
		return searchSpec{sonames: []string{"libcublas.so.13", "libcublas.so.12"}, needs: []LibraryName{CublasLt}, toolkit: true, advice: wheel("nvidia-cublas")}
	case CUDNN:
		return searchSpec{
			sonames: []string{"libcudnn.so.9", "libcudnn.so.8"}, // 8 is opened only to report that it is too old
			needs:   []LibraryName{NVJitLink, NVRTC, CublasLt, Cublas},
			advice:  wheel("nvidia-cudnn-cu13"),
		}
	case NCCL:
		return searchSpec{sonames: []string{"libnccl.so.2"}, advice: wheel("nvidia-nccl-cu13")}
	case NVTX:
		return searchSpec{sonames: []string{"libnvtx3interop.so.1", "libnvToolsExt.so.1"}, advice: wheel("nvidia-nvtx")}
	case CUPTI:
		return searchSpec{sonames: []string{"libcupti.so.13", "libcupti.so.12"}, advice: wheel("nvidia-cuda-cupti")}
	case OpenMPI:
		return searchSpec{sonames: []string{"libmpi.so.40"}, system: true, advice: "install it (on Debian and Ubuntu: apt install openmpi-bin) or load the cluster's module for it"}
	case MPICH:
		// libmpi.so.12 is the name of the MPICH ABI, which Intel MPI and MVAPICH have too.
		return searchSpec{sonames: []string{"libmpich.so.12", "libmpi.so.12"}, system: true, advice: "install it (on Debian and Ubuntu: apt install mpich) or load the cluster's module for it"}
	}
	return searchSpec{}
}

// Library is an open library.
type Library struct {
	Name   LibraryName
	Path   string // path of the file
	handle uintptr
	lookup func(handle uintptr, symbol string) (uintptr, error)
}

// Symbol returns the address of a function, or a *SymbolError if the library lacks it.
func (l *Library) Symbol(name string) (uintptr, error) {
	p, err := l.lookup(l.handle, name)
	if err != nil || p == 0 {
		return 0, &SymbolError{Library: l.Name, Path: l.Path, Symbols: []string{name}}
	}
	return p, nil
}
