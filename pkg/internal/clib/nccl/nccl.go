// Package nccl is NVIDIA's collective communication library (libnccl.so.2) as a
// table of Go functions: sums over the GPUs of one machine or of many.
//
// Rank 0 makes a UniqueID and sends it to the others; then every rank calls
// CommInit at the same time, each in a goroutine that holds its thread with its
// device's context current. A collective returns when it is enqueued on the
// stream; it may be captured in a CUDA graph.
//
// Source: NCCL documentation, version 2.28. Every number was compared with nccl.h of
// 2.28.9 and 2.30.7.
package nccl

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"

	"lockstep/pkg/internal/clib/cuda"
)

// Comm is a communicator: this rank's end of a group of GPUs.
type Comm uintptr

// UniqueID names a group before it exists. It is made by one rank and carried to
// the others, as bytes or as text (base64), by the rendezvous.
type UniqueID [128]byte

// MarshalBinary gives the 128 bytes.
func (id UniqueID) MarshalBinary() ([]byte, error) { return append([]byte(nil), id[:]...), nil }

// UnmarshalBinary takes the 128 bytes.
func (id *UniqueID) UnmarshalBinary(b []byte) error {
	if len(b) != len(id) {
		return fmt.Errorf("read NCCL id: it has %d bytes, want %d", len(b), len(id))
	}
	copy(id[:], b)
	return nil
}

// MarshalText writes the id as one word, for JSON and environment variables.
func (id UniqueID) MarshalText() ([]byte, error) {
	return base64.StdEncoding.AppendEncode(nil, id[:]), nil
}

// UnmarshalText reads what MarshalText wrote.
func (id *UniqueID) UnmarshalText(text []byte) error {
	b, err := base64.StdEncoding.DecodeString(string(text))
	if err != nil {
		return fmt.Errorf("read NCCL id: %w", err)
	}
	return id.UnmarshalBinary(b)
}

// IsZero says whether the id was never set.
func (id UniqueID) IsZero() bool { return id == UniqueID{} }

// String is short: enough to see in a log whether two ranks hold the same id. The
// id holds an address of the machine that made it, so it is not printed whole.
func (id UniqueID) String() string {
	var sum [4]byte
	for i, b := range id {
		sum[i%4] = sum[i%4]*31 + b
	}
	return "nccl-" + hex.EncodeToString(sum[:])
}

// DataType is ncclDataType_t.
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

// Size is the bytes of one element.
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

// ReduceOp is ncclRedOp_t.
type ReduceOp int32

// The reductions.
const (
	Sum  ReduceOp = 0
	Prod ReduceOp = 1
	Max  ReduceOp = 2
	Min  ReduceOp = 3
	Avg  ReduceOp = 4
)

// Library is NCCL. Counts are elements. The handle of a failed call can be asked
// for more with LastError.
type Library struct {
	Path string

	Version     func() (int, error) // 22809 is 2.28.9
	GetUniqueID func() (UniqueID, error)
	// CommInit joins the group that id names; it blocks until all ranks have, for ever without one.
	CommInit func(ranks, rank int, id UniqueID) (Comm, error)
	// CommDestroy ends a communicator whose work is done. It returns after all graphs that
	// captured a collective of it are destroyed.
	CommDestroy func(Comm) error
	// CommAbort, which any thread may call, ends the kernels that wait for other ranks. Like
	// CommDestroy it returns only after the graphs are destroyed: nobody who is to destroy
	// these may wait for it.
	CommAbort   func(Comm) error
	AsyncError  func(Comm) error // what went wrong since, nil when nothing did
	LastError   func(Comm) string
	GroupStart  func() error
	GroupEnd    func() error
	AllReduce   func(send, recv cuda.Ptr, count int64, t DataType, op ReduceOp, c Comm, s cuda.Stream) error
	Broadcast   func(send, recv cuda.Ptr, count int64, t DataType, root int, c Comm, s cuda.Stream) error
	ErrorString func(Result) string
}
