// Package mpi calls an implementation of MPI, Open MPI or MPICH, through a table of Go
// functions. The processes must have been started by the launcher of that implementation
// (mpirun, or srun with its PMI), which DetectImplementation recognizes.
//
// The implementations have different binary interfaces: handles such as MPI_COMM_WORLD are
// addresses of variables of the library in Open MPI, and fixed integers in MPICH. Open
// hides this difference.
//
// Init, Finalize and every other function must be called on one thread
// (MPI_THREAD_FUNNELED): by one goroutine that has called runtime.LockOSThread. Only
// Version may be called before Init. Operations use MPI_COMM_WORLD, whose errors are
// returned instead of ending the process.
//
// Source: MPI: A Message-Passing Interface Standard, version 3.1. The numbers of MPICH's
// interface are from mpi.h of MPICH 4.0.2, those of Open MPI from mpi.h of 4.1.4.
package mpi

import (
	"unsafe"

	"lockstep/pkg/internal/clib"
)

// DataType is the type of the elements in a buffer.
type DataType int

// The element types.
const (
	Byte DataType = iota
	Float32
	Float64
	dataTypes // number of element types
)

// Request is a nonblocking operation. Until Test returns true, the Request must stay at the same
// address, and the operation's buffer must not be freed or changed. It may be read only if the
// operation is a send.
type Request struct{ handle uint64 }

// Library is the table of MPI's functions. A buffer is passed as an address and a number of
// elements. Functions whose names begin with I start an operation and return; Test completes it.
type Library struct {
	Name clib.LibraryName // clib.OpenMPI or clib.MPICH
	Path string           // path of the library's file

	Version  func() string // the first line of the library's description of itself
	Init     func() error  // waits, without a time-out, until all processes have called it
	Finalize func() error  // also waits for all processes; MPI cannot be used again afterwards
	Rank     func() (int, error)
	Size     func() (int, error)

	// AllocMem allocates memory that the implementation can exchange fastest, for example
	// because it is registered with the network. FreeMem frees it.
	AllocMem func(bytes int) (unsafe.Pointer, error)
	FreeMem  func(unsafe.Pointer) error

	// AllReduce replaces the elements by their sums over all ranks, and waits for the result.
	AllReduce func(b unsafe.Pointer, count int, t DataType) error

	IAllReduce func(r *Request, b unsafe.Pointer, count int, t DataType) error
	IBroadcast func(r *Request, b unsafe.Pointer, count int, t DataType, root int) error
	// IReduceScatter sums the elements of all ranks. Rank i gets counts[i] of the sums, at the
	// beginning of its buffer. counts must not be freed or changed until Test returns true.
	IReduceScatter func(r *Request, b unsafe.Pointer, counts []int32, t DataType) error
	// IAllGather copies elements from every rank to all ranks: from rank i, the counts[i] elements
	// that begin at offsets[i]. counts and offsets must not be freed or changed until Test returns
	// true.
	IAllGather func(r *Request, b unsafe.Pointer, counts, offsets []int32, t DataType) error
	ISend      func(r *Request, b unsafe.Pointer, count int, t DataType, to, tag int) error
	IReceive   func(r *Request, b unsafe.Pointer, count int, t DataType, from, tag int) error
	// Test makes progress on all pending operations and reports whether r is complete.
	Test func(r *Request) (bool, error)
}
