package kernel

// NewPlainGoAVX512Set returns the plain Go version of the AVX-512 Set, which has larger
// tiles and another layout of weights than the AVX2 Set. Tests use it on processors without
// AVX-512.
func NewPlainGoAVX512Set() *Set {
	k := newPlainGoSet()
	k.Vector, k.GEMM = 2*Lanes, newGoGEMM(12, 4, true)
	k.Winograd.WeightPair, k.Winograd.WeightGradientPair = goWinogradWeightPair, goWinogradWeightGradientPair
	return k
}

// newPlainGoSet returns the plain Go version of the AVX2 Set, for every processor.
func newPlainGoSet() *Set {
	return &Set{
		Name: "go", Vector: Lanes, GEMM: newGoGEMM(6, 2, false), Winograd: newGoWinograd(), Transpose: goTranspose, Spread: goCopyStrided,
		Deviations: goSumDeviations, Normalize: goNormalize, NormSums: goSumNormGradients, NormGrad: goNormGrad,
		CopyBox: goCopyBox, NormalizeBox: newNormalizeBox(goNormalize),
		Sums: goSumPixels, MaxPool: goMaxPool, MaxPoolGrad: goMaxPoolGrad,
		BCE: goBCE, BCEGrad: goBCEGrad, Exp: goExp, Leaky: goLeakyReLU, TanhGrad: goTanhGrad, Distances: goSumAbsDifferences, Signs: goScaledDifferenceSigns,
		Add: goAdd, ReLU: goReLU, ReLUGrad: goReLUGrad, Adam: goAdam, Momentum: goMomentum, SGD: goSGD,
	}
}
