// Package weights reads and writes tensors in the safetensors format
// (https://huggingface.co/docs/safetensors). Checkpoints store parameters, the running
// statistics of batch norm and the optimizer's state in this format, bit for bit, so that
// other programs can read them.
//
// A file consists of 8 bytes with the length of the header (little-endian), the header in
// JSON (name → dtype, shape, data_offsets; and strings under __metadata__), and the
// values, little-endian in row-major order. F32 and F64 are read and written. F16 and
// BF16 are read as F32, and integers and BOOL as F64; both conversions are exact. Write
// adds a CRC-32C of each tensor and one of the metadata to the metadata.
package weights

import (
	"fmt"
	"math"
)

// Tensor is a named array. Its values are in F32 or in F64. If the tensor has no values,
// both may be nil; Write then uses the type F32.
type Tensor struct {
	Name  string
	Shape []int // empty: a scalar
	F32   []float32
	F64   []float64
}

// FromFloat64s returns a tensor with the values v, stored as F32 if asF32 is true,
// otherwise as F64. It returns an error if float32 cannot represent a value exactly, because
// checkpoints must be restored bit for bit.
func FromFloat64s(name string, shape []int, v []float64, asF32 bool) (Tensor, error) {
	t := Tensor{Name: name, Shape: shape}
	if !asF32 {
		t.F64 = v
		if v == nil {
			t.F64 = []float64{}
		}
		return t, t.validate()
	}
	t.F32 = make([]float32, len(v))
	for i, x := range v {
		t.F32[i] = float32(x)
		if float64(t.F32[i]) != x && !math.IsNaN(x) {
			return Tensor{}, fmt.Errorf("store tensor %s as F32: value %g at index %d cannot be represented exactly: store it as F64", name, x, i)
		}
	}
	return t, t.validate()
}

// DType returns the safetensors data type of the values, "F32" or "F64".
func (t Tensor) DType() string {
	if t.F64 != nil {
		return "F64"
	}
	return "F32"
}

// Len returns the number of values.
func (t Tensor) Len() int { return len(t.F32) + len(t.F64) }

// Float64s returns the values as float64, which represents both types exactly. For an F64
// tensor it returns the tensor's slice, not a copy.
func (t Tensor) Float64s() []float64 {
	if t.F64 != nil {
		return t.F64
	}
	v := make([]float64, len(t.F32))
	for i, x := range t.F32 {
		v[i] = float64(x)
	}
	return v
}

func (t Tensor) bytesPerValue() int {
	if t.F64 != nil {
		return 8
	}
	return 4
}

// validate checks the name of t, and that the number of values matches the shape.
func (t Tensor) validate() error {
	if t.Name == "" || t.Name == metadataKey {
		return fmt.Errorf("invalid tensor name %q", t.Name)
	}
	if t.F32 != nil && t.F64 != nil {
		return fmt.Errorf("tensor %s has both F32 and F64 values: set one", t.Name)
	}
	n, err := valueCount(t.Shape)
	if err != nil {
		return fmt.Errorf("tensor %s: %w", t.Name, err)
	}
	if n != int64(t.Len()) {
		return fmt.Errorf("tensor %s has %d values, but shape %v needs %d", t.Name, t.Len(), t.Shape, n)
	}
	return nil
}

// valueCount returns the number of values in a tensor of the given shape. It returns an error if
// a dimension is negative or the number is too large.
func valueCount(shape []int) (int64, error) {
	n := int64(1)
	for _, d := range shape {
		if d < 0 {
			return 0, fmt.Errorf("shape %v has a negative dimension", shape)
		}
		if d > 0 && n > math.MaxInt64/8/int64(d) {
			return 0, fmt.Errorf("shape %v is too large", shape)
		}
		n *= int64(d)
	}
	return n, nil
}

// File is the content of a safetensors file.
type File struct {
	Tensors  []Tensor // in the order of their data
	Metadata map[string]string
}

// Tensor returns the tensor with the given name.
func (f *File) Tensor(name string) (Tensor, error) {
	for _, t := range f.Tensors {
		if t.Name == name {
			return t, nil
		}
	}
	return Tensor{}, fmt.Errorf("unknown tensor %s: the file has %d tensors, none with this name", name, len(f.Tensors))
}
