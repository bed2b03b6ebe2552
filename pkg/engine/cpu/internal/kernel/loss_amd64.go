package kernel

// The functions of Set for losses.

//go:noescape
func bceAVX2(z, t, out *float32, n int)

//go:noescape
func bceGradAVX2(z, t, dz, scale *float32, n int)

//go:noescape
func expAVX2(x, y *float32, n int)

//go:noescape
func bceAVX512(z, t, out *float32, n int)

//go:noescape
func bceGradAVX512(z, t, dz, scale *float32, n int)

//go:noescape
func expAVX512(x, y *float32, n int)
