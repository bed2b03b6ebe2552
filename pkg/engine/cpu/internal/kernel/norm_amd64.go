package kernel

// The functions of Set for batch norm, sums and boxes.

//go:noescape
func deviationsAVX2(x *float32, pixels int, out *float32)

//go:noescape
func normalizeAVX2(x, y, p *float32, pixels int)

//go:noescape
func normSumsAVX2(x, dy, p, mean, out *float32, pixels int)

//go:noescape
func normGradAVX2(x, dy, dx, p, q *float32, pixels int)

//go:noescape
func sumsAVX2(x *float32, pixels int, out *float32)

//go:noescape
func copyBoxAVX2(x, y *float32, b *int)

//go:noescape
func normalizeBoxAVX2(x, y, p *float32, b *int)

//go:noescape
func deviationsAVX512(x *float32, pixels int, out *float32)

//go:noescape
func normalizeAVX512(x, y, p *float32, pixels int)

//go:noescape
func normSumsAVX512(x, dy, p, mean, out *float32, pixels int)

//go:noescape
func normGradAVX512(x, dy, dx, p, q *float32, pixels int)

//go:noescape
func sumsAVX512(x *float32, pixels int, out *float32)
