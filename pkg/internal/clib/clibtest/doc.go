// Package clibtest simulates a machine with GPUs in host memory. It fills the tables that
// otherwise contain the functions of the real libraries, so that GPU code can be tested on
// a machine without a GPU.
//
// It is strict where a GPU does not report errors. New memory is filled with NaN patterns,
// not zeros. Every allocation has guards on both sides. A launch with an argument that
// points outside an allocation returns an error that names it. cuDNN's descriptors are
// checked. A call from a thread without a context fails.
//
// It runs work as late as a GPU might: enqueued work runs only when a call waits for it,
// stream by stream, so that two streams are ordered only by events. If an event is missing,
// the results are wrong every time.
//
// Kernels are run by an Executor; convolutions are computed in plain Go. Time is counted,
// not measured.
//
// A Machine belongs to one rank. Ranks that exchange by NCCL use machines that share a
// Network.
package clibtest
