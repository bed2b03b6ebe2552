package kernel

// assemblyKernelSets returns the Set for NEON, which every arm64 processor that Go supports has.
func assemblyKernelSets() []*Set { return []*Set{newNEONKernelSet()} }

// newNEONKernelSet returns the Set for NEON. Its tiles and its order of summation are the same as for
// AVX2.
func newNEONKernelSet() *Set {
	return &Set{
		Name: "neon", Vector: Lanes, GEMM: GEMM{Rows: 6, Blocks: 2, Deep: deepGEMMFuncsNEON(), Flat: flatGEMMFuncsNEON()}, Transpose: transposeNEON, Spread: spreadNEON,
		Winograd: WinogradTransforms{
			Input: winogradInputNEON, NormInput: winogradNormInputNEON, Gradient: winogradGradientNEON, Output: winogradOutputNEON,
			Weights: winogradWeightsNEON, WeightGradient: winogradWeightGradientNEON,
		},
		Deviations: deviationsNEON, Normalize: normalizeNEON, NormSums: normSumsNEON, NormGrad: normGradNEON,
		CopyBox: goCopyPixelBox, NormalizeBox: newPixelBoxNormalizer(normalizeNEON),
		Sums: sumsNEON, MaxPool: maxPoolNEON, MaxPoolGrad: maxPoolGradNEON,
		Add: addNEON, ReLU: reluNEON, ReLUGrad: reluGradNEON,
		BCE: bceNEON, BCEGrad: bceGradNEON, Exp: expNEON,
		Leaky: leakyNEON, TanhGrad: tanhGradNEON, Distances: distancesNEON, Signs: signsNEON,
		Adam: adamNEON, Momentum: momentumNEON, SGD: sgdNEON,
	}
}

func deepGEMMFuncsNEON() [MaxBlocks + 1][maxRows + 1]GEMMFunc {
	return [MaxBlocks + 1][maxRows + 1]GEMMFunc{
		1: {1: gemmDeep1x8NEON, 2: gemmDeep2x8NEON, 3: gemmDeep3x8NEON, 4: gemmDeep4x8NEON, 5: gemmDeep5x8NEON, 6: gemmDeep6x8NEON},
		2: {1: gemmDeep1x16NEON, 2: gemmDeep2x16NEON, 3: gemmDeep3x16NEON, 4: gemmDeep4x16NEON, 5: gemmDeep5x16NEON, 6: gemmDeep6x16NEON},
	}
}

func flatGEMMFuncsNEON() [MaxBlocks + 1][maxRows + 1]GEMMFunc {
	return [MaxBlocks + 1][maxRows + 1]GEMMFunc{
		1: {1: gemmFlat1x8NEON, 2: gemmFlat2x8NEON, 3: gemmFlat3x8NEON, 4: gemmFlat4x8NEON, 5: gemmFlat5x8NEON, 6: gemmFlat6x8NEON},
		2: {1: gemmFlat1x16NEON, 2: gemmFlat2x16NEON, 3: gemmFlat3x16NEON, 4: gemmFlat4x16NEON, 5: gemmFlat5x16NEON, 6: gemmFlat6x16NEON},
	}
}
