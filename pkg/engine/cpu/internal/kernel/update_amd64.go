package kernel

// The optimizers of Set.

//go:noescape
func adamAVX2(w, grad, m, v, c *float32, n int)

//go:noescape
func momentumAVX2(w, grad, buf, c *float32, n int)

//go:noescape
func sgdAVX2(w, grad, c *float32, n int)

//go:noescape
func adamAVX512(w, grad, m, v, c *float32, n int)

//go:noescape
func momentumAVX512(w, grad, buf, c *float32, n int)

//go:noescape
func sgdAVX512(w, grad, c *float32, n int)
