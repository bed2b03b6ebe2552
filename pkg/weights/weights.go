// Package weights reads and writes tensors in the safetensors format
// (https://huggingface.co/docs/safetensors): checkpoints keep parameters, the
// statistics of batch normalisation and the optimiser's slots in it, bit for
// bit, and other programs read them.
//
// A file is 8 bytes with the length of the header (little-endian), the header
// in JSON (name → dtype, shape, data_offsets; and strings under __metadata__),
// and the values, little-endian in row-major order. F32 and F64 are read and
// written; F16 and BF16 are read as F32, whole numbers and BOOL as F64, which
// hold them exactly. Write puts a CRC-32C of each tensor and one of the metadata
// among the strings.
package weights

import (
	"fmt"
	"math"
)

// Tensor is named values of one type: exactly one of F32 and F64 is set, or
// neither where the tensor has no values (it is then written as F32).
type Tensor struct {
	Name  string
	Shape []int // empty: one value
	F32   []float32
	F64   []float64
}

// FromFloat64s is a tensor of v, stored as F64, or as F32 where v came from
// float32. Storing a value as F32 that float32 does not hold exactly is an
// error: a checkpoint must come back bit for bit.
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
			return Tensor{}, fmt.Errorf("store tensor %s as F32: value %g at %d needs F64", name, x, i)
		}
	}
	return t, t.validate()
}

// DType is "F32" or "F64".
func (t Tensor) DType() string {
	if t.F64 != nil {
		return "F64"
	}
	return "F32"
}

// Len is the number of values.
func (t Tensor) Len() int { return len(t.F32) + len(t.F64) }

// Float64s is the values as float64, which holds either type exactly. It is
// the tensor's own slice where the type is F64.
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

// width is the bytes of a value.
func (t Tensor) width() int {
	if t.F64 != nil {
		return 8
	}
	return 4
}

func (t Tensor) validate() error {
	if t.Name == "" || t.Name == metadataKey {
		return fmt.Errorf("tensor name %q is not allowed", t.Name)
	}
	if t.F32 != nil && t.F64 != nil {
		return fmt.Errorf("tensor %s has both F32 and F64 values: set one", t.Name)
	}
	n, err := count(t.Shape)
	if err != nil {
		return fmt.Errorf("tensor %s: %w", t.Name, err)
	}
	if n != int64(t.Len()) {
		return fmt.Errorf("tensor %s has %d values, its shape %v holds %d", t.Name, t.Len(), t.Shape, n)
	}
	return nil
}

// count is the number of values of a shape.
func count(shape []int) (int64, error) {
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

// File is what a file holds.
type File struct {
	Tensors  []Tensor // in the order of their data
	Metadata map[string]string
}

// Tensor is the tensor of that name.
func (f *File) Tensor(name string) (Tensor, error) {
	for _, t := range f.Tensors {
		if t.Name == name {
			return t, nil
		}
	}
	return Tensor{}, fmt.Errorf("the file has no tensor %s (it has %d others)", name, len(f.Tensors))
}
