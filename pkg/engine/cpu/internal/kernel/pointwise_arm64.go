package kernel

// The elementwise functions of Set, and those that move weights.

//go:noescape
func addNEON(a, b, y *float32, n int)

//go:noescape
func reluNEON(x, y *float32, n int)

//go:noescape
func reluGradNEON(y, dy, dx *float32, n int)

//go:noescape
func leakyNEON(a, b, y, slope *float32, n int)

//go:noescape
func tanhGradNEON(y, dy, dx *float32, n int)

//go:noescape
func distancesNEON(a, b, out *float32, n int)

//go:noescape
func signsNEON(a, b, y, scale *float32, n int)

//go:noescape
func transposeNEON(dst, src *float32, stride int)

//go:noescape
func spreadNEON(dst, src *float32, stride, n int)
