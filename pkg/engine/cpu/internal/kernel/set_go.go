package kernel

// WideGo returns the plain Go twins of the AVX-512 assembly. They differ from the
// other plain Go functions in the shape of the matrix kernel's tiles and in the
// layout of its weights. Tests use them on processors without AVX-512.
func WideGo() *Set {
	k := plainGo()
	k.Vector, k.GEMM = 2*Lanes, goGemmSet(12, 4, true)
	k.Winograd.WeightPair, k.Winograd.WeightGradientPair = goWinogradWeightPair, goWinogradWeightGradientPair
	return k
}

// plainGo returns the plain Go twins of the AVX2 assembly, which every processor
// can run.
func plainGo() *Set {
	return &Set{
		Name: "go", Vector: Lanes, GEMM: goGemmSet(6, 2, false), Winograd: goWinograd(), Transpose: goTranspose, Spread: goSpread,
		Deviations: goDeviations, Normalize: goNormalize, NormSums: goNormSums, NormGrad: goNormGrad,
		Sums: goSums, MaxPool: goMaxPool, MaxPoolGrad: goMaxPoolGrad,
		BCE: goBCE, BCEGrad: goBCEGrad, Leaky: goLeaky, TanhGrad: goTanhGrad, Distances: goDistances, Signs: goSigns,
		Add: goAdd, ReLU: goReLU, ReLUGrad: goReLUGrad, Adam: goAdam, Momentum: goMomentum, SGD: goSGD,
	}
}
