package kernel

// The GEMMFuncs of NEON: gemmDeep3x16NEON is for tiles of 3 rows of 16 outputs and eight floats per step,
// gemmFlat3x16NEON for one float per step.

//go:noescape
func gemmDeep1x8NEON(x, w, y, bias *float32, rows, steps *int32, wNext, yNext, nstep, tiles int, accumulate bool)

//go:noescape
func gemmFlat1x8NEON(x, w, y, bias *float32, rows, steps *int32, wNext, yNext, nstep, tiles int, accumulate bool)

//go:noescape
func gemmDeep2x8NEON(x, w, y, bias *float32, rows, steps *int32, wNext, yNext, nstep, tiles int, accumulate bool)

//go:noescape
func gemmFlat2x8NEON(x, w, y, bias *float32, rows, steps *int32, wNext, yNext, nstep, tiles int, accumulate bool)

//go:noescape
func gemmDeep3x8NEON(x, w, y, bias *float32, rows, steps *int32, wNext, yNext, nstep, tiles int, accumulate bool)

//go:noescape
func gemmFlat3x8NEON(x, w, y, bias *float32, rows, steps *int32, wNext, yNext, nstep, tiles int, accumulate bool)

//go:noescape
func gemmDeep4x8NEON(x, w, y, bias *float32, rows, steps *int32, wNext, yNext, nstep, tiles int, accumulate bool)

//go:noescape
func gemmFlat4x8NEON(x, w, y, bias *float32, rows, steps *int32, wNext, yNext, nstep, tiles int, accumulate bool)

//go:noescape
func gemmDeep5x8NEON(x, w, y, bias *float32, rows, steps *int32, wNext, yNext, nstep, tiles int, accumulate bool)

//go:noescape
func gemmFlat5x8NEON(x, w, y, bias *float32, rows, steps *int32, wNext, yNext, nstep, tiles int, accumulate bool)

//go:noescape
func gemmDeep6x8NEON(x, w, y, bias *float32, rows, steps *int32, wNext, yNext, nstep, tiles int, accumulate bool)

//go:noescape
func gemmFlat6x8NEON(x, w, y, bias *float32, rows, steps *int32, wNext, yNext, nstep, tiles int, accumulate bool)

//go:noescape
func gemmDeep1x16NEON(x, w, y, bias *float32, rows, steps *int32, wNext, yNext, nstep, tiles int, accumulate bool)

//go:noescape
func gemmFlat1x16NEON(x, w, y, bias *float32, rows, steps *int32, wNext, yNext, nstep, tiles int, accumulate bool)

//go:noescape
func gemmDeep2x16NEON(x, w, y, bias *float32, rows, steps *int32, wNext, yNext, nstep, tiles int, accumulate bool)

//go:noescape
func gemmFlat2x16NEON(x, w, y, bias *float32, rows, steps *int32, wNext, yNext, nstep, tiles int, accumulate bool)

//go:noescape
func gemmDeep3x16NEON(x, w, y, bias *float32, rows, steps *int32, wNext, yNext, nstep, tiles int, accumulate bool)

//go:noescape
func gemmFlat3x16NEON(x, w, y, bias *float32, rows, steps *int32, wNext, yNext, nstep, tiles int, accumulate bool)

//go:noescape
func gemmDeep4x16NEON(x, w, y, bias *float32, rows, steps *int32, wNext, yNext, nstep, tiles int, accumulate bool)

//go:noescape
func gemmFlat4x16NEON(x, w, y, bias *float32, rows, steps *int32, wNext, yNext, nstep, tiles int, accumulate bool)

//go:noescape
func gemmDeep5x16NEON(x, w, y, bias *float32, rows, steps *int32, wNext, yNext, nstep, tiles int, accumulate bool)

//go:noescape
func gemmFlat5x16NEON(x, w, y, bias *float32, rows, steps *int32, wNext, yNext, nstep, tiles int, accumulate bool)

//go:noescape
func gemmDeep6x16NEON(x, w, y, bias *float32, rows, steps *int32, wNext, yNext, nstep, tiles int, accumulate bool)

//go:noescape
func gemmFlat6x16NEON(x, w, y, bias *float32, rows, steps *int32, wNext, yNext, nstep, tiles int, accumulate bool)
