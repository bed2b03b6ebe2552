package kernel

// Sizes of Winograd's algorithm F(4×4,3×3) (Lavin and Gray, Fast Algorithms for
// Convolutional Neural Networks, arXiv:1509.09308, 2015).
const (
	TileSide  = 4                     // side of a tile of outputs
	PatchSide = TileSide + 2          // side of the patch of inputs that a tile depends on
	Points    = PatchSide * PatchSide // products per tile and channel; the direct algorithm computes 144
	Taps      = 9                     // weights of the 3×3 window
)

// WinogradTransforms contains the transforms M·d·Mᵀ of squares d, with constant matrices M. The
// elements of d are vectors of eight channels. All distances are in bytes. tmp is scratch
// memory for 36 vectors of Set.Vector floats. If Set.Vector is sixteen, the transforms
// process two blocks at a time, and step must be 32.
type WinogradTransforms struct {
	// Input transforms a 6×6 patch of the inputs, for each channel block. plane is the
	// distance between blocks, and row the distance between the rows of a patch. Input
	// writes point p of block b to v + p·ld + b·step. Gradient does the same for 4×4
	// gradients of outputs. NormInput is like Input, but first normalizes the inputs of each
	// block with its constants for Set.Normalize.
	Input, Gradient func(x, v, tmp *float32, row, plane, ld, step, blocks int)
	NormInput       func(x, v, tmp, p *float32, row, plane, ld, step, blocks int)
	// Output transforms the sums of products back to 4×4 outputs, and adds the eight biases
	// at bias + b·biasStep. It reads point p of block b at m + p·ld + 32·b.
	Output func(m, y, bias, tmp *float32, ld, row, plane, biasStep, blocks int)
	// Weights transforms a tile [3][3][8][8] of weights. It writes the eight vectors of
	// point p to u + p·ld. WeightGradient transforms sums of products in this layout back
	// to a tile of weight gradients.
	Weights, WeightGradient func(from, to, tmp *float32, ld int)
	// WeightPair and WeightGradientPair are like Weights and WeightGradient, for two tiles of
	// weights that are next bytes apart. They interleave the points of both tiles in vectors of
	// sixteen floats, row bytes apart. Both functions are nil unless GEMM.Interleaved is set.
	WeightPair, WeightGradientPair func(from, to, tmp *float32, next, ld, row int)
}
