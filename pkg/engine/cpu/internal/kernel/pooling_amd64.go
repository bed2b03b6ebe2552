package kernel

// The functions of Set for max pooling.

//go:noescape
func maxPoolAVX2(x, y, p *float32, index *byte, count, kh, kw, row, step int)

//go:noescape
func maxPoolGradAVX2(index *byte, dy, dx *float32, count, kh, kw, row, step int)
