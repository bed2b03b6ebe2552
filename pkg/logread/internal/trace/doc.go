// Package trace reads traces in Chrome's format, as PyTorch's profiler, Horovod's
// timeline and this project's engines write them, into the spans of a run.
//
// A trace has millions of events, so it is scanned once (trace.go), one event at
// a time, in bounded memory. Each event gets a class from its category and name
// (event.go). The kinds of spans are assigned at the end of the file (spans.go), because
// they depend on all of it: if there are events of a device, operators on the host only
// launch work and do not count as computation.
//
// The traces of a folder belong to the ranks of one run. [Join] merges them into one
// part.
package trace
