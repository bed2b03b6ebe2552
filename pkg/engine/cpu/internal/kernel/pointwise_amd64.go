package kernel

// The elementwise functions of Set, and those that move weights.

//go:noescape
func addAVX2(a, b, y *float32, n int)

//go:noescape
func reluAVX2(x, y *float32, n int)

//go:noescape
func reluGradAVX2(y, dy, dx *float32, n int)

//go:noescape
func leakyAVX2(a, b, y, slope *float32, n int)

//go:noescape
func tanhGradAVX2(y, dy, dx *float32, n int)

//go:noescape
func distancesAVX2(a, b, out *float32, n int)

//go:noescape
func signsAVX2(a, b, y, scale *float32, n int)

//go:noescape
func transposeAVX2(dst, src *float32, stride int)

//go:noescape
func spreadAVX2(dst, src *float32, stride, n int)

//go:noescape
func addAVX512(a, b, y *float32, n int)

//go:noescape
func reluAVX512(x, y *float32, n int)

//go:noescape
func reluGradAVX512(y, dy, dx *float32, n int)

//go:noescape
func leakyAVX512(a, b, y, slope *float32, n int)

//go:noescape
func tanhGradAVX512(y, dy, dx *float32, n int)

//go:noescape
func distancesAVX512(a, b, out *float32, n int)

//go:noescape
func signsAVX512(a, b, y, scale *float32, n int)
