package cuda

import (
	"encoding/binary"
	"math"
)

// Args packs the arguments of a kernel for LaunchKernel. Each argument is aligned to its size.
// The zero value is empty. Reset removes all arguments but keeps the memory.
type Args struct{ buf []byte }

// Bytes returns the packed arguments.
func (a *Args) Bytes() []byte { return a.buf }

func (a *Args) align(n int) {
	for len(a.buf)%n != 0 {
		a.buf = append(a.buf, 0)
	}
}

func (a *Args) appendUint32(v uint32) *Args {
	a.align(4)
	a.buf = binary.LittleEndian.AppendUint32(a.buf, v)
	return a
}

func (a *Args) appendUint64(v uint64) *Args {
	a.align(8)
	a.buf = binary.LittleEndian.AppendUint64(a.buf, v)
	return a
}

// Ptr appends an argument for a pointer parameter.
func (a *Args) Ptr(v Ptr) *Args { return a.appendUint64(uint64(v)) }

// Int32 appends an argument of the C type int.
func (a *Args) Int32(v int32) *Args { return a.appendUint32(uint32(v)) }

// Uint32 appends an argument of the C type unsigned int.
func (a *Args) Uint32(v uint32) *Args { return a.appendUint32(v) }

// Int64 appends an argument of the C type long long.
func (a *Args) Int64(v int64) *Args { return a.appendUint64(uint64(v)) }

// Float32 appends an argument of the C type float.
func (a *Args) Float32(v float32) *Args { return a.appendUint32(math.Float32bits(v)) }
