// Package clibtest simulates a machine with GPUs in host memory. It fills the tables that
// otherwise contain the functions of the real libraries, so that GPU code can be tested on
// a machine without a GPU.
//
// It is strict where a GPU does not report errors. New memory is filled with NaN patterns,
// not zeros. Every allocation has guard bytes on both sides. A launch with an argument that
// points outside all allocations returns an error that names the argument. cuDNN's
// descriptors are checked. A call from a thread without a context fails.
//
// It runs work as late as a GPU might: enqueued work runs only when a call waits for it,
// stream by stream, so that two streams are ordered only by events. If an event is missing,
// the results are wrong every time.
//
// Kernels are run by an Executor; convolutions are computed in plain Go. The machine's clock
// adds up an assumed duration of each operation.
//
// A Machine belongs to one rank. Ranks that exchange data through NCCL use machines that
// share an NCCLNetwork.
//
// All libraries of a machine share its memory, streams, clock and lock, so this is one
// package, although it is a large one. Each file simulates one library or one part of it:
// driver.go, memory.go, copies.go, streams.go, capture.go and kernels.go the CUDA driver
// (kernels.go also NVRTC), dnn*.go cuDNN, lt.go cuBLASLt, and nccl.go, nvml.go and cupti.go
// the libraries of these names.
package clibtest
