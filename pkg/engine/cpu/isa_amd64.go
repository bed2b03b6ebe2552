package cpu

import "github.com/klauspost/cpuid/v2"

// assemblySets returns the instruction sets that there is assembly for and this
// processor has, the best first.
func assemblySets() []*kernels {
	if !cpuid.CPU.Supports(cpuid.AVX2, cpuid.FMA3) {
		return nil
	}
	if !cpuid.CPU.Supports(cpuid.AVX512F, cpuid.AVX512VL, cpuid.AVX512BW, cpuid.AVX512DQ) {
		return []*kernels{avx2Kernels()}
	}
	return []*kernels{avx512Kernels(), avx2Kernels()}
}

// avx2Kernels returns the kernels for AVX2 and FMA.
func avx2Kernels() *kernels {
	return &kernels{
		name: "avx2", vector: lanes, gemm: gemmSet{rows: 6, blocks: 2, deep: gemmDeepAVX2(), flat: gemmFlatAVX2()}, transpose: transposeAVX2, spread: spreadAVX2,
		winograd: winogradKernels{
			input: winogradInputAVX2, normInput: winogradNormInputAVX2, gradient: winogradGradientAVX2, output: winogradOutputAVX2,
			weights: winogradWeightsAVX2, weightGradient: winogradWeightGradientAVX2,
		},
		deviations: deviationsAVX2, normalize: normalizeAVX2, normSums: normSumsAVX2, normGrad: normGradAVX2,
		sums: sumsAVX2, maxPool: maxPoolAVX2, maxPoolGrad: maxPoolGradAVX2,
		add: addAVX2, relu: reluAVX2, reluGrad: reluGradAVX2,
		bce: bceAVX2, bceGrad: bceGradAVX2,
		leaky: leakyAVX2, tanhGrad: tanhGradAVX2, distances: distancesAVX2, signs: signsAVX2,
		adam: adamAVX2, momentum: momentumAVX2, sgd: sgdAVX2,
	}
}

// avx512Kernels returns the kernels for AVX-512 (F, VL, BW and DQ). Those that it
// does not name are AVX2's: pooling, and what lays weights out anew.
func avx512Kernels() *kernels {
	k := avx2Kernels()
	k.name, k.vector = "avx512", 2*lanes
	k.gemm = gemmSet{rows: 12, blocks: 4, joined: true, deep: gemmDeepAVX512(), flat: gemmFlatAVX512()}
	k.winograd = winogradKernels{
		input: winogradInputAVX512, normInput: winogradNormInputAVX512, gradient: winogradGradientAVX512, output: winogradOutputAVX512,
		weights: winogradWeightsAVX2, weightGradient: winogradWeightGradientAVX2,
		weightPair: winogradWeightsPairAVX512, weightGradientPair: winogradWeightGradientPairAVX512,
	}
	k.deviations, k.normalize, k.normSums, k.normGrad, k.sums = deviationsAVX512, normalizeAVX512, normSumsAVX512, normGradAVX512, sumsAVX512
	k.add, k.relu, k.reluGrad, k.leaky, k.tanhGrad = addAVX512, reluAVX512, reluGradAVX512, leakyAVX512, tanhGradAVX512
	k.distances, k.signs, k.bce, k.bceGrad = distancesAVX512, signsAVX512, bceAVX512, bceGradAVX512
	k.adam, k.momentum, k.sgd = adamAVX512, momentumAVX512, sgdAVX512
	return k
}

// The matrix kernel for every shape of tile, by the blocks of outputs and the rows.
func gemmDeepAVX2() [maxBlocks + 1][maxRows + 1]gemmFunc {
	return [maxBlocks + 1][maxRows + 1]gemmFunc{
		1: {1: gemmDeep1x8, 2: gemmDeep2x8, 3: gemmDeep3x8, 4: gemmDeep4x8, 5: gemmDeep5x8, 6: gemmDeep6x8},
		2: {1: gemmDeep1x16, 2: gemmDeep2x16, 3: gemmDeep3x16, 4: gemmDeep4x16, 5: gemmDeep5x16, 6: gemmDeep6x16},
	}
}

func gemmFlatAVX2() [maxBlocks + 1][maxRows + 1]gemmFunc {
	return [maxBlocks + 1][maxRows + 1]gemmFunc{
		1: {1: gemmFlat1x8, 2: gemmFlat2x8, 3: gemmFlat3x8, 4: gemmFlat4x8, 5: gemmFlat5x8, 6: gemmFlat6x8},
		2: {1: gemmFlat1x16, 2: gemmFlat2x16, 3: gemmFlat3x16, 4: gemmFlat4x16, 5: gemmFlat5x16, 6: gemmFlat6x16},
	}
}

func gemmDeepAVX512() [maxBlocks + 1][maxRows + 1]gemmFunc {
	return [maxBlocks + 1][maxRows + 1]gemmFunc{
		1: {
			1: gemmDeep1x8AVX512, 2: gemmDeep2x8AVX512, 3: gemmDeep3x8AVX512, 4: gemmDeep4x8AVX512, 5: gemmDeep5x8AVX512, 6: gemmDeep6x8AVX512,
			7: gemmDeep7x8AVX512, 8: gemmDeep8x8AVX512, 9: gemmDeep9x8AVX512, 10: gemmDeep10x8AVX512, 11: gemmDeep11x8AVX512, 12: gemmDeep12x8AVX512,
		},
		2: {
			1: gemmDeep1x16AVX512, 2: gemmDeep2x16AVX512, 3: gemmDeep3x16AVX512, 4: gemmDeep4x16AVX512, 5: gemmDeep5x16AVX512, 6: gemmDeep6x16AVX512,
			7: gemmDeep7x16AVX512, 8: gemmDeep8x16AVX512, 9: gemmDeep9x16AVX512, 10: gemmDeep10x16AVX512, 11: gemmDeep11x16AVX512, 12: gemmDeep12x16AVX512,
		},
		4: {
			1: gemmDeep1x32AVX512, 2: gemmDeep2x32AVX512, 3: gemmDeep3x32AVX512, 4: gemmDeep4x32AVX512, 5: gemmDeep5x32AVX512, 6: gemmDeep6x32AVX512,
			7: gemmDeep7x32AVX512, 8: gemmDeep8x32AVX512, 9: gemmDeep9x32AVX512, 10: gemmDeep10x32AVX512, 11: gemmDeep11x32AVX512, 12: gemmDeep12x32AVX512,
		},
	}
}

func gemmFlatAVX512() [maxBlocks + 1][maxRows + 1]gemmFunc {
	return [maxBlocks + 1][maxRows + 1]gemmFunc{
		1: {
			1: gemmFlat1x8AVX512, 2: gemmFlat2x8AVX512, 3: gemmFlat3x8AVX512, 4: gemmFlat4x8AVX512, 5: gemmFlat5x8AVX512, 6: gemmFlat6x8AVX512,
			7: gemmFlat7x8AVX512, 8: gemmFlat8x8AVX512, 9: gemmFlat9x8AVX512, 10: gemmFlat10x8AVX512, 11: gemmFlat11x8AVX512, 12: gemmFlat12x8AVX512,
		},
		2: {
			1: gemmFlat1x16AVX512, 2: gemmFlat2x16AVX512, 3: gemmFlat3x16AVX512, 4: gemmFlat4x16AVX512, 5: gemmFlat5x16AVX512, 6: gemmFlat6x16AVX512,
			7: gemmFlat7x16AVX512, 8: gemmFlat8x16AVX512, 9: gemmFlat9x16AVX512, 10: gemmFlat10x16AVX512, 11: gemmFlat11x16AVX512, 12: gemmFlat12x16AVX512,
		},
		4: {
			1: gemmFlat1x32AVX512, 2: gemmFlat2x32AVX512, 3: gemmFlat3x32AVX512, 4: gemmFlat4x32AVX512, 5: gemmFlat5x32AVX512, 6: gemmFlat6x32AVX512,
			7: gemmFlat7x32AVX512, 8: gemmFlat8x32AVX512, 9: gemmFlat9x32AVX512, 10: gemmFlat10x32AVX512, 11: gemmFlat11x32AVX512, 12: gemmFlat12x32AVX512,
		},
	}
}
