// Package clibtest simulates a machine with GPUs in the host's memory, behind the
// same tables that the real libraries fill, so that what runs on a GPU can be
// tested where there is none.
//
// It is strict where a GPU is silent: memory is not cleared but filled with NaN
// patterns, every allocation has guards on both sides, a launch whose arguments
// point outside an allocation is an error that names it, cuDNN's descriptors are
// checked, and a call from a thread without a context fails.
//
// It is late where a GPU may be late: what is enqueued runs only when something
// waits for it, stream by stream, so that two streams meet nowhere but at the
// events that order them. A missing event gives wrong numbers every time.
//
// Kernels are run by an Executor; convolutions are computed in plain Go. Time is
// counted, not measured.
//
// A Machine belongs to one rank. Ranks that exchange by NCCL are machines that
// share a Network.
package clibtest
