// Package trace reads traces in Chrome's format, as PyTorch's profiler, Horovod's
// timeline and this project's engines write them, into the spans of a run.
//
// A trace has millions of events, so it is scanned once (scanner.go), one event at
// a time, in bounded memory. Each event gets a class from its category and name
// (class.go). When the whole file is known, the class gives the kind of the span
// (spans.go): where a device computes, operators on the host only hand over work
// and do not count as computing.
//
// The traces of a folder are those of one run's ranks. [Join] makes one part of
// them.
package trace
