package kernel

// NewPlainGoAVX512KernelSet returns the plain Go version of the AVX-512 Set, which has larger
// tiles and another layout of weights than the AVX2 Set. Tests use it on processors without
// AVX-512.
func NewPlainGoAVX512KernelSet() *Set {
	k := newPlainGoKernelSet()
	k.Vector, k.GEMM = 2*Lanes, newGoGEMM(12, 4, true)
	k.Winograd.WeightPair, k.Winograd.WeightGradientPair = goWinogradWeightPair, goWinogradWeightGradientPair
	return k
}

// newPlainGoKernelSet returns the plain Go version of the AVX2 Set, for every processor.
func newPlainGoKernelSet() *Set {
	return &Set{
		Name: "go", Vector: Lanes, GEMM: newGoGEMM(6, 2, false), Winograd: newGoWinogradTransforms(), Transpose: goTranspose, Spread: goCopyStrided,
		Deviations: goSumDeviations, Normalize: goNormalize, NormSums: goSumNormGradients, NormGrad: goNormGrad,
		CopyBox: goCopyPixelBox, NormalizeBox: newPixelBoxNormalizer(goNormalize),
		Sums: goSumPixels, MaxPool: goMaxPool, MaxPoolGrad: goMaxPoolGrad,
		BCE: goBCE, BCEGrad: goBCEGrad, Exp: goExp, Leaky: goLeakyReLU, TanhGrad: goTanhGrad, Distances: goSumAbsDifferences, Signs: goScaledDifferenceSigns,
		Add: goAdd, ReLU: goReLU, ReLUGrad: goReLUGrad, Adam: goAdam, Momentum: goMomentum, SGD: goSGD,
	}
}
