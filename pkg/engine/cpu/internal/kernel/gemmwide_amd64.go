package kernel

// The GEMMFuncs of AVX-512: gemmDeep3x16AVX512 is for tiles of 3 rows of 16 outputs and eight floats per step,
// gemmFlat3x16AVX512 for one float per step.

//go:noescape
func gemmDeep1x8AVX512(x, w, y, bias *float32, rows, steps *int32, wNext, yNext, nstep, tiles int, accumulate bool)

//go:noescape
func gemmFlat1x8AVX512(x, w, y, bias *float32, rows, steps *int32, wNext, yNext, nstep, tiles int, accumulate bool)

//go:noescape
func gemmDeep2x8AVX512(x, w, y, bias *float32, rows, steps *int32, wNext, yNext, nstep, tiles int, accumulate bool)

//go:noescape
func gemmFlat2x8AVX512(x, w, y, bias *float32, rows, steps *int32, wNext, yNext, nstep, tiles int, accumulate bool)

//go:noescape
func gemmDeep3x8AVX512(x, w, y, bias *float32, rows, steps *int32, wNext, yNext, nstep, tiles int, accumulate bool)

//go:noescape
func gemmFlat3x8AVX512(x, w, y, bias *float32, rows, steps *int32, wNext, yNext, nstep, tiles int, accumulate bool)

//go:noescape
func gemmDeep4x8AVX512(x, w, y, bias *float32, rows, steps *int32, wNext, yNext, nstep, tiles int, accumulate bool)

//go:noescape
func gemmFlat4x8AVX512(x, w, y, bias *float32, rows, steps *int32, wNext, yNext, nstep, tiles int, accumulate bool)

//go:noescape
func gemmDeep6x8AVX512(x, w, y, bias *float32, rows, steps *int32, wNext, yNext, nstep, tiles int, accumulate bool)

//go:noescape
func gemmFlat6x8AVX512(x, w, y, bias *float32, rows, steps *int32, wNext, yNext, nstep, tiles int, accumulate bool)

//go:noescape
func gemmDeep8x8AVX512(x, w, y, bias *float32, rows, steps *int32, wNext, yNext, nstep, tiles int, accumulate bool)

//go:noescape
func gemmFlat8x8AVX512(x, w, y, bias *float32, rows, steps *int32, wNext, yNext, nstep, tiles int, accumulate bool)

//go:noescape
func gemmDeep12x8AVX512(x, w, y, bias *float32, rows, steps *int32, wNext, yNext, nstep, tiles int, accumulate bool)

//go:noescape
func gemmFlat12x8AVX512(x, w, y, bias *float32, rows, steps *int32, wNext, yNext, nstep, tiles int, accumulate bool)

//go:noescape
func gemmDeep1x16AVX512(x, w, y, bias *float32, rows, steps *int32, wNext, yNext, nstep, tiles int, accumulate bool)

//go:noescape
func gemmFlat1x16AVX512(x, w, y, bias *float32, rows, steps *int32, wNext, yNext, nstep, tiles int, accumulate bool)

//go:noescape
func gemmDeep2x16AVX512(x, w, y, bias *float32, rows, steps *int32, wNext, yNext, nstep, tiles int, accumulate bool)

//go:noescape
func gemmFlat2x16AVX512(x, w, y, bias *float32, rows, steps *int32, wNext, yNext, nstep, tiles int, accumulate bool)

//go:noescape
func gemmDeep3x16AVX512(x, w, y, bias *float32, rows, steps *int32, wNext, yNext, nstep, tiles int, accumulate bool)

//go:noescape
func gemmFlat3x16AVX512(x, w, y, bias *float32, rows, steps *int32, wNext, yNext, nstep, tiles int, accumulate bool)

//go:noescape
func gemmDeep4x16AVX512(x, w, y, bias *float32, rows, steps *int32, wNext, yNext, nstep, tiles int, accumulate bool)

//go:noescape
func gemmFlat4x16AVX512(x, w, y, bias *float32, rows, steps *int32, wNext, yNext, nstep, tiles int, accumulate bool)

//go:noescape
func gemmDeep6x16AVX512(x, w, y, bias *float32, rows, steps *int32, wNext, yNext, nstep, tiles int, accumulate bool)

//go:noescape
func gemmFlat6x16AVX512(x, w, y, bias *float32, rows, steps *int32, wNext, yNext, nstep, tiles int, accumulate bool)

//go:noescape
func gemmDeep8x16AVX512(x, w, y, bias *float32, rows, steps *int32, wNext, yNext, nstep, tiles int, accumulate bool)

//go:noescape
func gemmFlat8x16AVX512(x, w, y, bias *float32, rows, steps *int32, wNext, yNext, nstep, tiles int, accumulate bool)

//go:noescape
func gemmDeep12x16AVX512(x, w, y, bias *float32, rows, steps *int32, wNext, yNext, nstep, tiles int, accumulate bool)

//go:noescape
func gemmFlat12x16AVX512(x, w, y, bias *float32, rows, steps *int32, wNext, yNext, nstep, tiles int, accumulate bool)

//go:noescape
func gemmDeep1x32AVX512(x, w, y, bias *float32, rows, steps *int32, wNext, yNext, nstep, tiles int, accumulate bool)

//go:noescape
func gemmFlat1x32AVX512(x, w, y, bias *float32, rows, steps *int32, wNext, yNext, nstep, tiles int, accumulate bool)

//go:noescape
func gemmDeep2x32AVX512(x, w, y, bias *float32, rows, steps *int32, wNext, yNext, nstep, tiles int, accumulate bool)

//go:noescape
func gemmFlat2x32AVX512(x, w, y, bias *float32, rows, steps *int32, wNext, yNext, nstep, tiles int, accumulate bool)

//go:noescape
func gemmDeep3x32AVX512(x, w, y, bias *float32, rows, steps *int32, wNext, yNext, nstep, tiles int, accumulate bool)

//go:noescape
func gemmFlat3x32AVX512(x, w, y, bias *float32, rows, steps *int32, wNext, yNext, nstep, tiles int, accumulate bool)

//go:noescape
func gemmDeep4x32AVX512(x, w, y, bias *float32, rows, steps *int32, wNext, yNext, nstep, tiles int, accumulate bool)

//go:noescape
func gemmFlat4x32AVX512(x, w, y, bias *float32, rows, steps *int32, wNext, yNext, nstep, tiles int, accumulate bool)

//go:noescape
func gemmDeep6x32AVX512(x, w, y, bias *float32, rows, steps *int32, wNext, yNext, nstep, tiles int, accumulate bool)

//go:noescape
func gemmFlat6x32AVX512(x, w, y, bias *float32, rows, steps *int32, wNext, yNext, nstep, tiles int, accumulate bool)

//go:noescape
func gemmDeep8x32AVX512(x, w, y, bias *float32, rows, steps *int32, wNext, yNext, nstep, tiles int, accumulate bool)

//go:noescape
func gemmFlat8x32AVX512(x, w, y, bias *float32, rows, steps *int32, wNext, yNext, nstep, tiles int, accumulate bool)

//go:noescape
func gemmDeep12x32AVX512(x, w, y, bias *float32, rows, steps *int32, wNext, yNext, nstep, tiles int, accumulate bool)

//go:noescape
func gemmFlat12x32AVX512(x, w, y, bias *float32, rows, steps *int32, wNext, yNext, nstep, tiles int, accumulate bool)
