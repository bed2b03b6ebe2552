// Package numbers converts between bytes and numbers without copying them, and adds numbers.
package numbers

import "unsafe"

// Number is the element type of a buffer in host memory. Exported functions have parameters
// of type device.Buffer instead, so that no exported function is generic.
type Number interface{ ~float32 | ~float64 }

// ReinterpretBytes returns the bytes b as a slice of numbers without copying them. b must be
// aligned for T.
func ReinterpretBytes[T Number](b []byte) []T {
	if len(b) == 0 {
		return nil
	}
	var v T
	return unsafe.Slice((*T)(unsafe.Pointer(&b[0])), len(b)/int(unsafe.Sizeof(v)))
}

// AsBytes returns the numbers v as bytes without copying them.
func AsBytes[T Number](v []T) []byte {
	if len(v) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&v[0])), len(v)*int(unsafe.Sizeof(v[0])))
}

// AllocateAligned allocates n > 0 bytes that are aligned for 64-bit numbers and atomic
// fields.
func AllocateAligned(n int) []byte {
	words := make([]uint64, (n+7)/8)
	return unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), n)
}

// Add sets dst = a + b. Without vector instructions the loop is unrolled, because bookkeeping
// costs as much as an addition, and slices of a constant length need no bounds checks.
func Add[T Number](dst, a, b []T) {
	n := len(dst)
	a, b = a[:n], b[:n]
	i := addVectors(dst, a, b)
	for ; i+8 <= n; i += 8 {
		d, x, y := dst[i:i+8:i+8], a[i:i+8:i+8], b[i:i+8:i+8]
		d[0] = x[0] + y[0]
		d[1] = x[1] + y[1]
		d[2] = x[2] + y[2]
		d[3] = x[3] + y[3]
		d[4] = x[4] + y[4]
		d[5] = x[5] + y[5]
		d[6] = x[6] + y[6]
		d[7] = x[7] + y[7]
	}
	for ; i < n; i++ {
		dst[i] = a[i] + b[i]
	}
}
