package kernel

// The GEMMFuncs of AVX2: gemmDeep3x16 is for tiles of 3 rows of 16 outputs and eight floats per step,
// gemmFlat3x16 for one float per step.

//go:noescape
func gemmDeep1x8(x, w, y, bias *float32, rows, steps *int32, wNext, yNext, nstep, tiles int, accumulate bool)

//go:noescape
func gemmFlat1x8(x, w, y, bias *float32, rows, steps *int32, wNext, yNext, nstep, tiles int, accumulate bool)

//go:noescape
func gemmDeep2x8(x, w, y, bias *float32, rows, steps *int32, wNext, yNext, nstep, tiles int, accumulate bool)

//go:noescape
func gemmFlat2x8(x, w, y, bias *float32, rows, steps *int32, wNext, yNext, nstep, tiles int, accumulate bool)

//go:noescape
func gemmDeep3x8(x, w, y, bias *float32, rows, steps *int32, wNext, yNext, nstep, tiles int, accumulate bool)

//go:noescape
func gemmFlat3x8(x, w, y, bias *float32, rows, steps *int32, wNext, yNext, nstep, tiles int, accumulate bool)

//go:noescape
func gemmDeep4x8(x, w, y, bias *float32, rows, steps *int32, wNext, yNext, nstep, tiles int, accumulate bool)

//go:noescape
func gemmFlat4x8(x, w, y, bias *float32, rows, steps *int32, wNext, yNext, nstep, tiles int, accumulate bool)

//go:noescape
func gemmDeep5x8(x, w, y, bias *float32, rows, steps *int32, wNext, yNext, nstep, tiles int, accumulate bool)

//go:noescape
func gemmFlat5x8(x, w, y, bias *float32, rows, steps *int32, wNext, yNext, nstep, tiles int, accumulate bool)

//go:noescape
func gemmDeep6x8(x, w, y, bias *float32, rows, steps *int32, wNext, yNext, nstep, tiles int, accumulate bool)

//go:noescape
func gemmFlat6x8(x, w, y, bias *float32, rows, steps *int32, wNext, yNext, nstep, tiles int, accumulate bool)

//go:noescape
func gemmDeep1x16(x, w, y, bias *float32, rows, steps *int32, wNext, yNext, nstep, tiles int, accumulate bool)

//go:noescape
func gemmFlat1x16(x, w, y, bias *float32, rows, steps *int32, wNext, yNext, nstep, tiles int, accumulate bool)

//go:noescape
func gemmDeep2x16(x, w, y, bias *float32, rows, steps *int32, wNext, yNext, nstep, tiles int, accumulate bool)

//go:noescape
func gemmFlat2x16(x, w, y, bias *float32, rows, steps *int32, wNext, yNext, nstep, tiles int, accumulate bool)

//go:noescape
func gemmDeep3x16(x, w, y, bias *float32, rows, steps *int32, wNext, yNext, nstep, tiles int, accumulate bool)

//go:noescape
func gemmFlat3x16(x, w, y, bias *float32, rows, steps *int32, wNext, yNext, nstep, tiles int, accumulate bool)

//go:noescape
func gemmDeep4x16(x, w, y, bias *float32, rows, steps *int32, wNext, yNext, nstep, tiles int, accumulate bool)

//go:noescape
func gemmFlat4x16(x, w, y, bias *float32, rows, steps *int32, wNext, yNext, nstep, tiles int, accumulate bool)

//go:noescape
func gemmDeep5x16(x, w, y, bias *float32, rows, steps *int32, wNext, yNext, nstep, tiles int, accumulate bool)

//go:noescape
func gemmFlat5x16(x, w, y, bias *float32, rows, steps *int32, wNext, yNext, nstep, tiles int, accumulate bool)

//go:noescape
func gemmDeep6x16(x, w, y, bias *float32, rows, steps *int32, wNext, yNext, nstep, tiles int, accumulate bool)

//go:noescape
func gemmFlat6x16(x, w, y, bias *float32, rows, steps *int32, wNext, yNext, nstep, tiles int, accumulate bool)
