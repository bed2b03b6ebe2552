package kernels

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Pointer is an address in device memory. 0 means that an optional operand is absent.
type Pointer uint64

// ElementType is the element type of activations.
type ElementType uint8

// Element types of activations.
const (
	F32 ElementType = iota
	F16
	BF16
)

// String returns the suffix of kernel names for t, such as "bf16".
func (t ElementType) String() string {
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
func (t ElementType) Bytes() int {
	if t == F32 {
		return 4
	}
	return 2
}

// PaddedChannels rounds c, the number of logical channels, up to a multiple of 8.
func PaddedChannels(c int) int { return (c + 7) &^ 7 }

// FeatureMap is a channels-last activation in device memory: element (row, channel) is at
// address Data + (row·Pitch + channel)·ElementType.Bytes(). The zero FeatureMap means that
// an optional map is absent.
type FeatureMap struct {
	Data  Pointer
	Pitch int // elements from one row to the next, a multiple of 8
}

// Channels returns the part of m that starts at channel offset, for example an operand of a
// concatenation. offset must be a multiple of 8.
func (m FeatureMap) Channels(t ElementType, offset int) FeatureMap {
	m.Data += Pointer(offset * t.Bytes())
	return m
}

// Launch contains the arguments of cuLaunchKernel for one kernel. Args are passed as
// CU_LAUNCH_PARAM_BUFFER_POINTER.
type Launch struct {
	Kernel      string // name of the function in the module
	Grid, Block [3]uint32
	Shared      uint32 // dynamic shared memory, bytes
	Args        []byte
}

// ParamKind is the C type of a kernel parameter.
type ParamKind uint8

// Kinds of parameters. kernelSignature.newKernel depends on their order.
const (
	KindPointer ParamKind = iota // 8 bytes
	KindInt64                    // long long, 8 bytes
	KindInt32                    // int, 4 bytes
	KindFloat32                  // float, 4 bytes
)

// Bytes returns the size of a parameter in bytes, which is also its alignment.
func (k ParamKind) Bytes() int {
	if k == KindPointer || k == KindInt64 {
		return 8
	}
	return 4
}

// String returns the name of k for error messages.
func (k ParamKind) String() string {
	return [...]string{"pointer", "int64", "int32", "float32"}[k]
}

// Param is a parameter of a kernel.
type Param struct {
	Name string
	Kind ParamKind
}

// Kernel describes the signature of a kernel.
type Kernel struct {
	Name   string
	Params []Param
}

// Offsets returns the offset of each parameter in the packed arguments, and the total size
// of the arguments, in bytes. The layout is the same as for a C struct without padding at
// its end.
func (k Kernel) Offsets() (offsets []int, size int) {
	for _, p := range k.Params {
		b := p.Kind.Bytes()
		size = (size + b - 1) &^ (b - 1)
		offsets = append(offsets, size)
		size += b
	}
	return offsets, size
}

// Args packs kernel arguments like the fields of a C struct. The zero value is empty.
type Args struct {
	data  []byte
	kinds []ParamKind
}

func (a *Args) align(k ParamKind) {
	for len(a.data)%k.Bytes() != 0 {
		a.data = append(a.data, 0)
	}
	a.kinds = append(a.kinds, k)
}

// AppendPointer appends a device address.
func (a *Args) AppendPointer(p Pointer) {
	a.align(KindPointer)
	a.data = binary.LittleEndian.AppendUint64(a.data, uint64(p))
}

// AppendInt64 appends a long long.
func (a *Args) AppendInt64(v int64) {
	a.align(KindInt64)
	a.data = binary.LittleEndian.AppendUint64(a.data, uint64(v))
}

// AppendInt32 appends an int.
func (a *Args) AppendInt32(v int32) {
	a.align(KindInt32)
	a.data = binary.LittleEndian.AppendUint32(a.data, uint32(v))
}

// AppendFloat32 appends a float.
func (a *Args) AppendFloat32(v float32) {
	a.align(KindFloat32)
	a.data = binary.LittleEndian.AppendUint32(a.data, math.Float32bits(v))
}

// Bytes returns the packed arguments.
func (a *Args) Bytes() []byte { return a.data }

// int64Arg marks an argument whose parameter has the C type long long.
type int64Arg int64

// packArgs packs values as the arguments of k and checks their number and kinds. Values
// must have type Pointer, int64Arg, int (for a 32-bit int), float64 (for a float) or bool
// (for an int of 0 or 1).
func (k Kernel) packArgs(values ...any) ([]byte, error) {
	var a Args
	for i, v := range values {
		switch v := v.(type) {
		case Pointer:
			a.AppendPointer(v)
		case int64Arg:
			a.AppendInt64(int64(v))
		case int:
			if v < math.MinInt32 || v > math.MaxInt32 {
				return nil, fmt.Errorf("launch %s: argument %d is %d, which does not fit in 32 bits", k.Name, i, v)
			}
			a.AppendInt32(int32(v))
		case float64:
			a.AppendFloat32(float32(v))
		case bool:
			if v {
				a.AppendInt32(1)
			} else {
				a.AppendInt32(0)
			}
		default:
			return nil, fmt.Errorf("launch %s: argument %d has unsupported type %T", k.Name, i, v)
		}
	}
	if len(a.kinds) != len(k.Params) {
		return nil, fmt.Errorf("launch %s: got %d arguments, want %d", k.Name, len(a.kinds), len(k.Params))
	}
	for i, p := range k.Params {
		if a.kinds[i] != p.Kind {
			return nil, fmt.Errorf("launch %s: argument %d (%s) is %s, want %s", k.Name, i, p.Name, a.kinds[i], p.Kind)
		}
	}
	return a.Bytes(), nil
}
