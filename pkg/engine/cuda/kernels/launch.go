package kernels

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Pointer is an address in the device's memory. 0 means that an optional tensor is absent.
type Pointer uint64

// Type is the element type of activations.
type Type uint8

// Element types of activations.
const (
	F32 Type = iota
	F16
	BF16
)

// String returns the suffix of t in the names of kernels, such as "bf16".
func (t Type) String() string {
	switch t {
	case F32:
		return "f32"
	case F16:
		return "f16"
	case BF16:
		return "bf16"
	}
	return fmt.Sprintf("type%d", uint8(t))
}

// Bytes returns the size of an element in bytes.
func (t Type) Bytes() int {
	if t == F32 {
		return 4
	}
	return 2
}

// Padded returns the number of channels that an activation of c logical channels has in
// memory.
func Padded(c int) int { return (c + 7) &^ 7 }

// Map is a channels-last activation in memory: element (row, channel) is at Data +
// (row·Pitch + channel)·Type.Bytes(). The zero Map is an absent one.
type Map struct {
	Data  Pointer
	Pitch int // elements from one row to the next, a multiple of 8
}

// Channels returns the map that starts at channel offset (a multiple of 8) of m, such as an
// operand of a concatenation.
func (m Map) Channels(t Type, offset int) Map {
	m.Data += Pointer(offset * t.Bytes())
	return m
}

// Launch contains the arguments of cuLaunchKernel for one kernel. Args is passed as
// CU_LAUNCH_PARAM_BUFFER_POINTER.
type Launch struct {
	Kernel      string // name of the function in the module
	Grid, Block [3]uint32
	Shared      uint32 // dynamic shared memory, bytes
	Args        []byte
}

// Kind is the C type of a kernel's parameter.
type Kind uint8

// The kinds of parameters.
const (
	KindPointer Kind = iota // 8 bytes
	KindInt64               // long long, 8 bytes
	KindInt32               // int, 4 bytes
	KindFloat32             // float, 4 bytes
)

// Bytes returns the size of a parameter, which is also its alignment, in bytes.
func (k Kind) Bytes() int {
	if k == KindPointer || k == KindInt64 {
		return 8
	}
	return 4
}

// String returns k as it is written in the registry.
func (k Kind) String() string {
	return [...]string{"pointer", "int64", "int32", "float32"}[k]
}

// Param is a parameter of a kernel.
type Param struct {
	Name string
	Kind Kind
}

// Kernel describes one function of the module.
type Kernel struct {
	Name   string
	Params []Param
}

// Offsets returns the offset of each parameter in the packed arguments, and their total
// size: the layout of a C struct without the padding at its end.
func (k Kernel) Offsets() (offsets []int, size int) {
	for _, p := range k.Params {
		b := p.Kind.Bytes()
		size = (size + b - 1) &^ (b - 1)
		offsets = append(offsets, size)
		size += b
	}
	return offsets, size
}

// Args packs arguments like the fields of a C struct. The zero value is empty.
type Args struct {
	data  []byte
	kinds []Kind
}

func (a *Args) align(k Kind) {
	for len(a.data)%k.Bytes() != 0 {
		a.data = append(a.data, 0)
	}
	a.kinds = append(a.kinds, k)
}

// Pointer appends a device address.
func (a *Args) Pointer(p Pointer) {
	a.align(KindPointer)
	a.data = binary.LittleEndian.AppendUint64(a.data, uint64(p))
}

// Int64 appends a long long.
func (a *Args) Int64(v int64) {
	a.align(KindInt64)
	a.data = binary.LittleEndian.AppendUint64(a.data, uint64(v))
}

// Int32 appends an int.
func (a *Args) Int32(v int32) {
	a.align(KindInt32)
	a.data = binary.LittleEndian.AppendUint32(a.data, uint32(v))
}

// Float32 appends a float.
func (a *Args) Float32(v float32) {
	a.align(KindFloat32)
	a.data = binary.LittleEndian.AppendUint32(a.data, math.Float32bits(v))
}

// Bytes returns the packed arguments.
func (a *Args) Bytes() []byte { return a.data }

// wide marks an argument that the kernel takes as long long.
type wide int64

// pack lays out values as k wants them: Pointer, wide, int (a 32-bit int),
// float32 or bool (an int of 0 or 1).
func (k Kernel) pack(values ...any) ([]byte, error) {
	var a Args
	for i, v := range values {
		switch v := v.(type) {
		case Pointer:
			a.Pointer(v)
		case wide:
			a.Int64(int64(v))
		case int:
			if v < math.MinInt32 || v > math.MaxInt32 {
				return nil, fmt.Errorf("launch %s: argument %d is %d, more than 32 bits hold", k.Name, i, v)
			}
			a.Int32(int32(v))
		case float64:
			a.Float32(float32(v))
		case bool:
			if v {
				a.Int32(1)
			} else {
				a.Int32(0)
			}
		default:
			return nil, fmt.Errorf("launch %s: argument %d is a %T", k.Name, i, v)
		}
	}
	if len(a.kinds) != len(k.Params) {
		return nil, fmt.Errorf("launch %s: %d arguments, want %d", k.Name, len(a.kinds), len(k.Params))
	}
	for i, p := range k.Params {
		if a.kinds[i] != p.Kind {
			return nil, fmt.Errorf("launch %s: argument %d (%s) is %s, want %s", k.Name, i, p.Name, a.kinds[i], p.Kind)
		}
	}
	return a.Bytes(), nil
}
