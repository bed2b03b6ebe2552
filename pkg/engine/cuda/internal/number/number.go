// Package number converts between Go's numbers and the fp32, bf16 and fp16 numbers in GPU
// memory, converts between the types of packages device and kernels, and compares results.
package number

import (
	"encoding/binary"
	"math"

	"lockstep/pkg/engine/cuda/kernels"
	"lockstep/pkg/internal/device"
)

// Decode converts elements of type typ, little-endian as in GPU memory, to float32.
func Decode(typ device.ElementType, src []byte) []float32 {
	dst := make([]float32, len(src)/typ.Size())
	for i := range dst {
		switch typ {
		case device.F16, device.BF16:
			dst[i] = typ.FromBits(binary.LittleEndian.Uint16(src[2*i:]))
		default:
			dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
		}
	}
	return dst
}

// Encode converts values to elements of type typ, little-endian as in GPU memory. It is the
// inverse of Decode.
func Encode(typ device.ElementType, src []float32) []byte {
	dst := make([]byte, 0, len(src)*typ.Size())
	for _, f := range src {
		switch typ {
		case device.F16, device.BF16:
			dst = binary.LittleEndian.AppendUint16(dst, typ.Bits(f))
		default:
			dst = binary.LittleEndian.AppendUint32(dst, math.Float32bits(f))
		}
	}
	return dst
}

// ActivationType returns the element type of activations in the given precision, a value of
// engine.Options.Precision. It returns F32 for precisions other than bf16 and fp16.
func ActivationType(precision string) device.ElementType {
	switch precision {
	case "bf16":
		return device.BF16
	case "fp16":
		return device.F16
	}
	return device.F32
}

// KernelType converts t to the type of package kernels.
func KernelType(t device.ElementType) kernels.ElementType {
	switch t {
	case device.F16:
		return kernels.F16
	case device.BF16:
		return kernels.BF16
	}
	return kernels.F32
}

// DeviceType converts t to the type of package device.
func DeviceType(t kernels.ElementType) device.ElementType {
	switch t {
	case kernels.F16:
		return device.F16
	case kernels.BF16:
		return device.BF16
	}
	return device.F32
}

// ToFloat64 converts v to float64.
func ToFloat64(v []float32) []float64 {
	w := make([]float64, len(v))
	for i := range v {
		w[i] = float64(v[i])
	}
	return w
}

// CosineSimilarity returns the cosine of the angle between a and b.
func CosineSimilarity(a, b []float64) float64 {
	var dot, aa, bb float64
	for i := range a {
		dot, aa, bb = dot+a[i]*b[i], aa+a[i]*a[i], bb+b[i]*b[i]
	}
	return dot / math.Sqrt(aa*bb)
}

// CountDifferences counts the elements whose bits differ between a and b.
func CountDifferences(a, b []float64) (n int) {
	for i := range a {
		if math.Float64bits(a[i]) != math.Float64bits(b[i]) {
			n++
		}
	}
	return n
}
