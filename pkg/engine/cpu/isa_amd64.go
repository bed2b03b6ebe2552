package cpu

import "github.com/klauspost/cpuid/v2"

// assemblyKernels are the kernels in assembly, nil where this processor lacks
// the instructions.
func assemblyKernels() *kernels {
	if !cpuid.CPU.Supports(cpuid.AVX2, cpuid.FMA3) {
		return nil
	}
	return &kernels{
		name: "avx2", gemm: assemblyGemmSet(), transpose: transposeAVX2,
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

// assemblyGemmSet is the matrix kernel for every shape of tile.
func assemblyGemmSet() gemmSet {
	return gemmSet{
		deep: [3][maxRows + 1]gemmFunc{
			1: {1: gemmDeep1x8, 2: gemmDeep2x8, 3: gemmDeep3x8, 4: gemmDeep4x8, 5: gemmDeep5x8, 6: gemmDeep6x8},
			2: {1: gemmDeep1x16, 2: gemmDeep2x16, 3: gemmDeep3x16, 4: gemmDeep4x16, 5: gemmDeep5x16, 6: gemmDeep6x16},
		},
		flat: [3][maxRows + 1]gemmFunc{
			1: {1: gemmFlat1x8, 2: gemmFlat2x8, 3: gemmFlat3x8, 4: gemmFlat4x8, 5: gemmFlat5x8, 6: gemmFlat6x8},
			2: {1: gemmFlat1x16, 2: gemmFlat2x16, 3: gemmFlat3x16, 4: gemmFlat4x16, 5: gemmFlat5x16, 6: gemmFlat6x16},
		},
	}
}
