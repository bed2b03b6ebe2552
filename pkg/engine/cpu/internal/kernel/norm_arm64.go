package kernel

// The functions of Set for batch norm, sums and boxes.

//go:noescape
func deviationsNEON(x *float32, pixels int, out *float32)

//go:noescape
func normalizeNEON(x, y, p *float32, pixels int)

//go:noescape
func normSumsNEON(x, dy, p, mean, out *float32, pixels int)

//go:noescape
func normGradNEON(x, dy, dx, p, q *float32, pixels int)

//go:noescape
func sumsNEON(x *float32, pixels int, out *float32)
