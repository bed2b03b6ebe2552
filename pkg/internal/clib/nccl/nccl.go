// Package nccl calls NVIDIA's collective communication library (libnccl.so.2) through a
// table of Go functions. It computes sums over the GPUs of one or several machines.
//
// Rank 0 creates a UniqueID and sends it to the other ranks. Then all ranks call CommInit
// at the same time, each in a goroutine that is locked to its thread and has made its
// device's context current. A collective returns when it has been enqueued in the stream.
// It may be captured in a CUDA graph.
//
// Source: NCCL documentation, version 2.28. Every number was compared with nccl.h of 2.28.9
// and 2.30.7.
package nccl

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"

	"lockstep/pkg/internal/clib/cuda"
)

// Comm is a communicator: one rank's membership in a group of GPUs.
type Comm uintptr

// UniqueID identifies a group of ranks that is to be created. One rank creates the ID and sends
// it to the other ranks, as bytes or as base64 text.
type UniqueID [128]byte

// MarshalBinary returns the 128 bytes of id.
func (id UniqueID) MarshalBinary() ([]byte, error) { return append([]byte(nil), id[:]...), nil }

// UnmarshalBinary sets id from 128 bytes.
func (id *UniqueID) UnmarshalBinary(b []byte) error {
	if len(b) != len(id) {
		return fmt.Errorf("read NCCL ID: got %d bytes, want %d", len(b), len(id))
	}
	copy(id[:], b)
	return nil
}

// MarshalText encodes id in base64, for JSON and environment variables.
func (id UniqueID) MarshalText() ([]byte, error) {
	return base64.StdEncoding.AppendEncode(nil, id[:]), nil
}

// UnmarshalText decodes the result of MarshalText.
func (id *UniqueID) UnmarshalText(text []byte) error {
	b, err := base64.StdEncoding.DecodeString(string(text))
	if err != nil {
		return fmt.Errorf("read NCCL ID: %w", err)
	}
	return id.UnmarshalBinary(b)
}

// IsZero reports whether id is not set.
func (id UniqueID) IsZero() bool { return id == UniqueID{} }

// String returns a short form of id, which shows in a log whether two ranks have the same ID.
// The complete ID contains an address of the machine that created it, so it is not printed.
func (id UniqueID) String() string {
	var sum [4]byte
	for i, b := range id {
		sum[i%4] = sum[i%4]*31 + b
	}
	return "nccl-" + hex.EncodeToString(sum[:])
}

// DataType is the type of a buffer's elements (ncclDataType_t).
type DataType int32

// The element types.
const (
	Int8     DataType = 0
	Uint8    DataType = 1
	Int32    DataType = 2
	Uint32   DataType = 3
	Int64    DataType = 4
	Uint64   DataType = 5
	Float16  DataType = 6
	Float32  DataType = 7
	Float64  DataType = 8
	BFloat16 DataType = 9
)

// Size returns the size of an element in bytes.
func (t DataType) Size() int64 {
	switch t {
	case Int8, Uint8:
		return 1
	case Float16, BFloat16:
		return 2
	case Int64, Uint64, Float64:
		return 8
	}
	return 4
}

// ReduceOp selects how a collective combines elements (ncclRedOp_t).
type ReduceOp int32

// Reductions.
const (
	Sum  ReduceOp = 0
	Prod ReduceOp = 1
	Max  ReduceOp = 2
	Min  ReduceOp = 3
	Avg  ReduceOp = 4
)

// Library is the table of NCCL's functions. Counts are numbers of elements. After a failed
// call, LastError describes the error.
type Library struct {
	Path string

	Version     func() (int, error) // 22809 for 2.28.9
	GetUniqueID func() (UniqueID, error)
	// CommInit joins the group id. It blocks, without a time-out, until all ranks have
	// joined.
	CommInit func(ranks, rank int, id UniqueID) (Comm, error)
	// CommDestroy ends a communicator after its work is done. It blocks until all graphs
	// that captured one of its collectives are destroyed.
	CommDestroy func(Comm) error
	// CommAbort ends the kernels that wait for other ranks. Any thread may call it. Like
	// CommDestroy, it blocks until the graphs are destroyed, so the code that destroys the
	// graphs must not wait for CommAbort.
	CommAbort   func(Comm) error
	AsyncError  func(Comm) error // the error of an asynchronous operation, or nil
	LastError   func(Comm) string
	GroupStart  func() error
	GroupEnd    func() error
	AllReduce   func(send, recv cuda.Ptr, count int64, t DataType, op ReduceOp, c Comm, s cuda.Stream) error
	Broadcast   func(send, recv cuda.Ptr, count int64, t DataType, root int, c Comm, s cuda.Stream) error
	ErrorString func(Result) string
}
