package kernel

// The functions of Winograd.

//go:noescape
func winogradInputNEON(x, v, tmp *float32, row, plane, ld, step, blocks int)

//go:noescape
func winogradNormInputNEON(x, v, tmp, p *float32, row, plane, ld, step, blocks int)

//go:noescape
func winogradGradientNEON(x, v, tmp *float32, row, plane, ld, step, blocks int)

//go:noescape
func winogradOutputNEON(m, y, bias, tmp *float32, ld, row, plane, biasStep, blocks int)

//go:noescape
func winogradWeightsNEON(w, u, tmp *float32, ld int)

//go:noescape
func winogradWeightGradientNEON(d, dw, tmp *float32, ld int)
