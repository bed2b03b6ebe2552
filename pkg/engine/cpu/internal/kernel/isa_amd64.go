package kernel

import "github.com/klauspost/cpuid/v2"

// assemblyKernelSets returns the Sets with assembly that this processor supports, the best first.
func assemblyKernelSets() []*Set {
	if !cpuid.CPU.Supports(cpuid.AVX2, cpuid.FMA3) {
		return nil
	}
	if !cpuid.CPU.Supports(cpuid.AVX512F, cpuid.AVX512VL, cpuid.AVX512BW, cpuid.AVX512DQ) {
		return []*Set{newAVX2KernelSet()}
	}
	return []*Set{newAVX512KernelSet(), newAVX2KernelSet()}
}

func newAVX2KernelSet() *Set {
	return &Set{
		Name: "avx2", Vector: Lanes, GEMM: GEMM{Rows: 6, Blocks: 2, Deep: deepGEMMFuncsAVX2(), Flat: flatGEMMFuncsAVX2()}, Transpose: transposeAVX2, Spread: spreadAVX2,
		Winograd: WinogradTransforms{
			Input: winogradInputAVX2, NormInput: winogradNormInputAVX2, Gradient: winogradGradientAVX2, Output: winogradOutputAVX2,
			Weights: winogradWeightsAVX2, WeightGradient: winogradWeightGradientAVX2,
		},
		Deviations: deviationsAVX2, Normalize: normalizeAVX2, NormSums: normSumsAVX2, NormGrad: normGradAVX2,
		CopyBox:      func(x, y *float32, b PixelBox) { copyBoxAVX2(x, y, &b.Pixels) },
		NormalizeBox: func(x, y, p *float32, b PixelBox) { normalizeBoxAVX2(x, y, p, &b.Pixels) },
		Sums:         sumsAVX2, MaxPool: maxPoolAVX2, MaxPoolGrad: maxPoolGradAVX2,
		Add: addAVX2, ReLU: reluAVX2, ReLUGrad: reluGradAVX2,
		BCE: bceAVX2, BCEGrad: bceGradAVX2, Exp: expAVX2,
		Leaky: leakyAVX2, TanhGrad: tanhGradAVX2, Distances: distancesAVX2, Signs: signsAVX2,
		Adam: adamAVX2, Momentum: momentumAVX2, SGD: sgdAVX2,
	}
}

// newAVX512KernelSet returns the Set for AVX-512 (F, VL, BW and DQ). For pooling, boxes, Transpose
// and Spread it uses the AVX2 functions.
func newAVX512KernelSet() *Set {
	k := newAVX2KernelSet()
	k.Name, k.Vector = "avx512", 2*Lanes
	k.GEMM = GEMM{Rows: 12, Blocks: 4, Interleaved: true, Deep: deepGEMMFuncsAVX512(), Flat: flatGEMMFuncsAVX512()}
	k.Winograd = WinogradTransforms{
		Input: winogradInputAVX512, NormInput: winogradNormInputAVX512, Gradient: winogradGradientAVX512, Output: winogradOutputAVX512,
		Weights: winogradWeightsAVX2, WeightGradient: winogradWeightGradientAVX2,
		WeightPair: winogradWeightsPairAVX512, WeightGradientPair: winogradWeightGradientPairAVX512,
	}
	k.Deviations, k.Normalize, k.NormSums, k.NormGrad, k.Sums = deviationsAVX512, normalizeAVX512, normSumsAVX512, normGradAVX512, sumsAVX512
	k.Add, k.ReLU, k.ReLUGrad, k.Leaky, k.TanhGrad = addAVX512, reluAVX512, reluGradAVX512, leakyAVX512, tanhGradAVX512
	k.Distances, k.Signs, k.BCE, k.BCEGrad, k.Exp = distancesAVX512, signsAVX512, bceAVX512, bceGradAVX512, expAVX512
	k.Adam, k.Momentum, k.SGD = adamAVX512, momentumAVX512, sgdAVX512
	return k
}

func deepGEMMFuncsAVX2() [MaxBlocks + 1][maxRows + 1]GEMMFunc {
	return [MaxBlocks + 1][maxRows + 1]GEMMFunc{
		1: {1: gemmDeep1x8, 2: gemmDeep2x8, 3: gemmDeep3x8, 4: gemmDeep4x8, 5: gemmDeep5x8, 6: gemmDeep6x8},
		2: {1: gemmDeep1x16, 2: gemmDeep2x16, 3: gemmDeep3x16, 4: gemmDeep4x16, 5: gemmDeep5x16, 6: gemmDeep6x16},
	}
}

func flatGEMMFuncsAVX2() [MaxBlocks + 1][maxRows + 1]GEMMFunc {
	return [MaxBlocks + 1][maxRows + 1]GEMMFunc{
		1: {1: gemmFlat1x8, 2: gemmFlat2x8, 3: gemmFlat3x8, 4: gemmFlat4x8, 5: gemmFlat5x8, 6: gemmFlat6x8},
		2: {1: gemmFlat1x16, 2: gemmFlat2x16, 3: gemmFlat3x16, 4: gemmFlat4x16, 5: gemmFlat5x16, 6: gemmFlat6x16},
	}
}

func deepGEMMFuncsAVX512() [MaxBlocks + 1][maxRows + 1]GEMMFunc {
	return [MaxBlocks + 1][maxRows + 1]GEMMFunc{
		1: {1: gemmDeep1x8AVX512, 2: gemmDeep2x8AVX512, 3: gemmDeep3x8AVX512, 4: gemmDeep4x8AVX512, 6: gemmDeep6x8AVX512, 8: gemmDeep8x8AVX512, 12: gemmDeep12x8AVX512},
		2: {1: gemmDeep1x16AVX512, 2: gemmDeep2x16AVX512, 3: gemmDeep3x16AVX512, 4: gemmDeep4x16AVX512, 6: gemmDeep6x16AVX512, 8: gemmDeep8x16AVX512, 12: gemmDeep12x16AVX512},
		4: {1: gemmDeep1x32AVX512, 2: gemmDeep2x32AVX512, 3: gemmDeep3x32AVX512, 4: gemmDeep4x32AVX512, 6: gemmDeep6x32AVX512, 8: gemmDeep8x32AVX512, 12: gemmDeep12x32AVX512},
	}
}

func flatGEMMFuncsAVX512() [MaxBlocks + 1][maxRows + 1]GEMMFunc {
	return [MaxBlocks + 1][maxRows + 1]GEMMFunc{
		1: {1: gemmFlat1x8AVX512, 2: gemmFlat2x8AVX512, 3: gemmFlat3x8AVX512, 4: gemmFlat4x8AVX512, 6: gemmFlat6x8AVX512, 8: gemmFlat8x8AVX512, 12: gemmFlat12x8AVX512},
		2: {1: gemmFlat1x16AVX512, 2: gemmFlat2x16AVX512, 3: gemmFlat3x16AVX512, 4: gemmFlat4x16AVX512, 6: gemmFlat6x16AVX512, 8: gemmFlat8x16AVX512, 12: gemmFlat12x16AVX512},
		4: {1: gemmFlat1x32AVX512, 2: gemmFlat2x32AVX512, 3: gemmFlat3x32AVX512, 4: gemmFlat4x32AVX512, 6: gemmFlat6x32AVX512, 8: gemmFlat8x32AVX512, 12: gemmFlat12x32AVX512},
	}
}
