package kernel

// The functions of Winograd.

//go:noescape
func winogradInputAVX2(x, v, tmp *float32, row, plane, ld, step, blocks int)

//go:noescape
func winogradNormInputAVX2(x, v, tmp, p *float32, row, plane, ld, step, blocks int)

//go:noescape
func winogradGradientAVX2(x, v, tmp *float32, row, plane, ld, step, blocks int)

//go:noescape
func winogradOutputAVX2(m, y, bias, tmp *float32, ld, row, plane, biasStep, blocks int)

//go:noescape
func winogradWeightsAVX2(w, u, tmp *float32, ld int)

//go:noescape
func winogradWeightGradientAVX2(d, dw, tmp *float32, ld int)

//go:noescape
func winogradInputAVX512(x, v, tmp *float32, row, plane, ld, step, blocks int)

//go:noescape
func winogradNormInputAVX512(x, v, tmp, p *float32, row, plane, ld, step, blocks int)

//go:noescape
func winogradGradientAVX512(x, v, tmp *float32, row, plane, ld, step, blocks int)

//go:noescape
func winogradOutputAVX512(m, y, bias, tmp *float32, ld, row, plane, biasStep, blocks int)

//go:noescape
func winogradWeightsPairAVX512(w, u, tmp *float32, next, ld, row int)

//go:noescape
func winogradWeightGradientPairAVX512(d, dw, tmp *float32, next, ld, row int)
