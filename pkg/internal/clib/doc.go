// Package clib finds C libraries at run time, opens them, and calls into them
// without cgo, so that one binary runs on a laptop and on a GPU node.
//
// A Search contains the places to search and the libraries that were found. It searches
// when Open is called, not before. Each library has a separate package below this one
// (cuda, nvrtc, cudnn, cublaslt, nccl, nvml, nvtx, cupti, mpi) with a table of Go functions.
// Open fills the table from the library; package clibtest, which simulates a machine with
// GPUs in host memory, fills it with simulated functions. Package stack opens and checks
// everything that a GPU run needs.
//
// A library is searched in this order:
//
//  1. LOCKSTEP_CUDA_PATH, a list of folders separated by colons, and lib and lib64 below each
//  2. the loader's own path by the plain name (LD_LIBRARY_PATH, which cluster modules set, and ld.so.conf)
//  3. CUDA_HOME and CUDA_PATH: lib64, lib
//  4. CONDA_PREFIX/lib
//  5. the site-packages of VIRTUAL_ENV and of python3: nvidia/cu13/lib, nvidia/*/lib, torch/lib
//  6. the usual system folders
//
// MPI is searched in 2 and 6 only.
//
// The libraries that cuDNN needs (NVRTC, cuBLAS) are searched first in the place where
// cuDNN was found, then on the loader's path, since they must belong to the CUDA version
// that cuDNN was built with.
//
// If a library is missing, Open returns a NotFoundError that lists the places; programs
// that run on the CPU go on without it. If a library is installed but cannot be loaded, for example
// because a library that it needs is missing, the error has its path and the loader's reason.
//
// The numbers, structures and signatures of the packages below are copied from NVIDIA's
// headers. TestHeaders compares all of them with the headers of the machine on which it
// runs, and TestRealLibraries looks up every function in its libraries. Package mpi has
// tests of its own with the real libraries.
//
// All these packages use unsafe, because C functions need addresses. Two rules keep that
// safe. C may use a Go address only during one call (Call keeps the memory that its
// arguments point to alive and on the heap). Memory that C uses after the call (staging
// buffers, kernel results) is allocated by C.
package clib
