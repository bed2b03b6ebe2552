package kernel

// Set contains the inner loops for one instruction set. If a function has a parameter pixels,
// its pointers point to that number of blocks of eight channels. Functions that compute sums
// keep eight separate sums, one per lane.
type Set struct {
	Name     string
	Vector   int // floats of a vector of the transforms: 8 (two registers of NEON) or 16
	GEMM     GEMM
	Winograd WinogradTransforms
	BF16     *BF16Kernels // nil if the precision is fp32

	// Transpose writes the columns of an 8×8 tile as rows, stride bytes apart.
	Transpose func(dst, src *float32, stride int)
	// Spread copies n blocks of eight floats to places stride bytes apart.
	Spread func(dst, src *float32, stride, n int)

	// Deviations adds Σ (x − out[0]) to out[1] and Σ (x − out[0])² to out[2]. out consists
	// of three blocks (DeviationSumFloats floats).
	Deviations func(x *float32, pixels int, out *float32)
	// Normalize computes y = max(x·p[0] + p[1], p[2]), where p consists of three blocks of
	// constants (see SetNormConstants). NaN stays NaN.
	Normalize func(x, y, p *float32, pixels int)
	// CopyBox copies the pixels that b describes from x to y. NormalizeBox also normalizes them
	// with the constants p, which are NormConstantFloats for each plane.
	CopyBox      func(x, y *float32, b PixelBox)
	NormalizeBox func(x, y, p *float32, b PixelBox)
	// NormSums writes a block of Σ dy and a block of Σ dy·(x − mean) to out. The sums
	// include only pixels where x·p[0] + p[1] > p[2].
	NormSums func(x, dy, p, mean, out *float32, pixels int)
	// NormGrad computes dx = q[0]·dy + q[1]·(x − q[2]) + q[3], with dy replaced by 0 unless
	// x·p[0] + p[1] > p[2]. dx and dy may be the same memory.
	NormGrad func(x, dy, dx, p, q *float32, pixels int)
	// Sums writes the sum over all pixels, one per channel, to out.
	Sums func(x *float32, pixels int, out *float32)

	// MaxPool writes a row of count output pixels to y: the maxima of max(x·p[0] + p[1],
	// p[2]) over windows of kh×kw pixels. row is the distance in bytes between the rows of
	// a window, and step the distance between successive windows. MaxPool also writes the
	// index of each maximum in its window to index, one byte per channel. If elements are
	// equal, the first one is the maximum.
	MaxPool func(x, y, p *float32, index *byte, count, kh, kw, row, step int)
	// MaxPoolGrad adds each element of dy to the element of dx that index selects, see MaxPool.
	MaxPoolGrad func(index *byte, dy, dx *float32, count, kh, kw, row, step int)

	// The following functions process n floats, a multiple of eight.

	// Add computes y = a + b. ReLU computes y = max(x, 0). ReLUGrad computes dx = dy where
	// y > 0, else 0.
	Add      func(a, b, y *float32, n int)
	ReLU     func(x, y *float32, n int)
	ReLUGrad func(y, dy, dx *float32, n int)
	// Leaky computes y = b where a > 0, else slope·b. With a = b it is the leaky ReLU, with
	// b = dy its gradient.
	Leaky func(a, b, y, slope *float32, n int)
	// TanhGrad computes dx = dy·(1 − y²).
	TanhGrad func(y, dy, dx *float32, n int)
	// Distances writes eight sums of |a − b|, one per lane, to out. Signs computes y =
	// scale·sign(a − b).
	Distances func(a, b, out *float32, n int)
	Signs     func(a, b, y, scale *float32, n int)
	// BCE writes eight sums of max(z,0) − z·t + log(1+e^−|z|), one per lane, to out.
	// BCEGrad computes dz = scale·(1/(1+e^−z) − t).
	BCE     func(z, t, out *float32, n int)
	BCEGrad func(z, t, dz, scale *float32, n int)
	// Exp computes y = e^−|x|. Where |x| is greater than 87, y = e^−87.
	Exp func(x, y *float32, n int)
	// Adam performs one step of Adam. The constants c are weight decay, β1, 1−β1, β2, 1−β2,
	// 1/√(1−β2^t), ε and lr/(1−β1^t), where t is the number of the step.
	Adam func(w, g, m, v, c *float32, n int)
	// Momentum performs one step of gradient descent with momentum. The constants c are
	// weight decay, momentum and lr. SGD performs one step without momentum; it reads the
	// same constants but needs no buffer.
	Momentum func(w, g, buf, c *float32, n int)
	SGD      func(w, g, c *float32, n int)
}
