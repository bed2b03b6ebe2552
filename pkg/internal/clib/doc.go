// Package clib finds C libraries at run time, opens them, and calls into them
// without cgo, so that one binary runs on a laptop and on a GPU node.
//
// A Search holds where to look and what was found; nothing is looked for before
// Open is called. Each library has a package of its own below this one (cuda,
// nvrtc, cudnn, cublaslt, nccl, nvml, nvtx, cupti) whose table of Go functions is
// filled by Open, or by package clibtest, which simulates a GPU machine in host
// memory. Package stack opens and checks all that a GPU run needs.
//
// The order in which a library is looked for:
//
//  1. LOCKSTEP_CUDA_PATH, a list of folders separated by colons, and lib and lib64 below each
//  2. the loader's own path by the plain name (LD_LIBRARY_PATH, which cluster modules set, and ld.so.conf)
//  3. CUDA_HOME and CUDA_PATH: lib64, lib
//  4. CONDA_PREFIX/lib
//  5. the site-packages of VIRTUAL_ENV and of python3: nvidia/cu13/lib, nvidia/*/lib, torch/lib
//  6. the usual system folders
//
// What cuDNN needs (NVRTC, cuBLAS) is looked for where cuDNN itself lies before the
// loader's path, since it must be of the CUDA version that cuDNN was built with.
//
// A library that is not there is an ordinary error (NotFoundError) that lists
// where it was looked for; what runs on the CPU goes on without it.
//
// The numbers, structures and signatures of the packages below are those of NVIDIA's
// headers. TestHeaders compares all of them with the headers of the machine it runs on,
// TestRealLibraries asks its libraries for every function.
//
// unsafe is used throughout below: C takes addresses. Two rules keep it sound. A
// Go address is given to C for the length of one call only (Call keeps what its
// arguments point to alive and on the heap); memory that C works on after the call
// (staging buffers, kernel results) is allocated by C.
package clib
