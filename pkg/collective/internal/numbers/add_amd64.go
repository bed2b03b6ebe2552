package numbers

// addFloat32 sets dst = a + b for n floats. n must be a multiple of 16.
//
//go:noescape
func addFloat32(dst, a, b *float32, n int)

// addVectors adds as many of the first numbers as vector instructions can, and returns their number.
func addVectors[T Number](dst, a, b []T) int {
	d, ok := any(dst).([]float32)
	n := len(dst) &^ 15
	if !ok || n == 0 {
		return 0
	}
	addFloat32(&d[0], &any(a).([]float32)[0], &any(b).([]float32)[0], n)
	return n
}
