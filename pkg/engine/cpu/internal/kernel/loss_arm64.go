package kernel

// The functions of Set for losses.

//go:noescape
func bceNEON(z, t, out *float32, n int)

//go:noescape
func bceGradNEON(z, t, dz, scale *float32, n int)

//go:noescape
func expNEON(x, y *float32, n int)
