package collective

import "unsafe"

// number is the element type of a buffer in host memory. Exported functions have parameters
// of type device.Buffer instead, so that no exported function is generic.
type number interface{ ~float32 | ~float64 }

// asNumbers returns the bytes b as a slice of numbers without copying them. b must be
// aligned for T.
func asNumbers[T number](b []byte) []T {
	if len(b) == 0 {
		return nil
	}
	var v T
	return unsafe.Slice((*T)(unsafe.Pointer(&b[0])), len(b)/int(unsafe.Sizeof(v)))
}

// addTo sets dst = a + b. The loop is unrolled, because one iteration's bookkeeping
// costs as much as an addition, and because slices of a constant length need no
// bounds checks.
func addTo[T number](dst, a, b []T) {
	n := len(dst)
	a, b = a[:n], b[:n]
	i := 0
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
