package kernel

// The functions of BF16.

//go:noescape
func bf16MultiplyAVX512(c *float32, a, b *uint16, steps *int32, nstep, aRow, tiles int, accumulate bool)

//go:noescape
func bf16MultiplyAMX(c *float32, a, b *uint16, steps *int32, nstep, aRow, tiles int, accumulate bool)

//go:noescape
func bf16PackRowsAVX512(dst *uint16, s0, s1, s2, s3, norm *float32, n, step int)

//go:noescape
func bf16PackPairsAVX512(dst *uint16, s0, s1, s2, s3 *float32, n int)

//go:noescape
func bf16PackTransposedAVX512(dst *uint16, s0, s1, s2, s3 *float32)

//go:noescape
func bf16PackColumnsAVX512(dst *uint16, src *float32, n, row int)

//go:noescape
func bf16UnpackAVX512(dst, src, bias *float32, n, srcRow, dstRow, dstBlock, blocks int)

//go:noescape
func bf16UnpackUncachedAVX512(dst, src, bias *float32, n, srcRow, dstRow, dstBlock, blocks int)
