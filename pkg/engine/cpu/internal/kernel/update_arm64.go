package kernel

// The optimizers of Set.

//go:noescape
func adamNEON(w, grad, m, v, c *float32, n int)

//go:noescape
func momentumNEON(w, grad, buf, c *float32, n int)

//go:noescape
func sgdNEON(w, grad, c *float32, n int)
