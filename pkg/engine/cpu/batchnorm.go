package cpu

import "math"

// chunkPixels is the number of pixels whose statistics are taken at once: their
// eight channels stay in the first-level cache for the second look.
const chunkPixels = 512

// chunks cuts the pixels of an activation in pieces: every image's channel
// blocks, and each of their planes in chunks of chunkPixels.
type chunks struct {
	images, channels, pixels int // channels in blocks, pixels of a plane
	perPlane                 int
}

// chunksOf is how the activation o is cut.
func chunksOf(o operand) chunks {
	pixels := o.Shape[2] * o.Shape[3]
	return chunks{o.Shape[0], blocks(o.Shape[1]), pixels, ceilDiv(pixels, chunkPixels)}
}

// count is the number of chunks.
func (c chunks) count() int { return c.images * c.channels * c.perPlane }

// at is where chunk i begins (in floats), its channel block and its pixels.
func (c chunks) at(i int) (start, channel, pixels int) {
	plane, q := i/c.perPlane, i%c.perPlane*chunkPixels
	return (plane*c.pixels + q) * lanes, plane % c.channels, min(chunkPixels, c.pixels-q)
}

// normBlocks is the number of blocks of eight constants that a channel block's
// elementwise pass reads.
const normBlocks = 4

// batchNorm normalises by the batch's statistics, or by the running ones.
func (x *executable) batchNorm(c call) ([]task, error) {
	in, gamma, beta, mean, variance, y := c.in[0], c.in[1], c.in[2], c.in[3], c.in[4], c.out[0]
	if err := checkNorm(c, y, []operand{gamma, beta, mean, variance}); err != nil {
		return nil, err
	}
	cut := chunksOf(in)
	params := make([]float32, cut.channels*normBlocks*lanes)
	normalize := x.engine.kernels.normalize
	if c.Attr.ReLU {
		normalize = x.engine.kernels.normalizeReLU
	}
	apply := task{cut.count(), func(_ *worker, lo, hi int) {
		for i := lo; i < hi; i++ {
			start, channel, pixels := cut.at(i)
			normalize(&in.data[start], &y.data[start], &params[channel*normBlocks*lanes], pixels)
		}
	}}
	if !c.Attr.Training {
		return []task{{1, func(*worker, int, int) {
			for j := range in.Shape[1] {
				inv := 1 / math.Sqrt(float64(variance.data[j])+c.Attr.Epsilon)
				setNorm(params, j, mean.data[j], float32(float64(gamma.data[j])*inv), beta.data[j])
			}
		}}, apply}, nil
	}
	savedMean, savedInv := c.out[1], c.out[2]
	if !savedMean.absentOr(in.Shape[1]) || !savedInv.absentOr(in.Shape[1]) {
		return nil, c.errorf("the saved mean and 1/√(var+ε) must have shape [%d]", in.Shape[1])
	}
	x.needShared(cut.count() * 2 * lanes)
	moments := task{cut.count(), func(_ *worker, lo, hi int) {
		for i := lo; i < hi; i++ {
			start, _, pixels := cut.at(i)
			x.engine.kernels.moments(&in.data[start], pixels, &x.shared[i*2*lanes])
		}
	}}
	total := float64(cut.images * cut.pixels)
	unbiased := total / max(1, total-1)
	merge := task{cut.channels, func(_ *worker, lo, hi int) {
		for b := lo; b < hi; b++ {
			m, m2 := mergeMoments(cut, b, x.shared)
			for l := range lanes {
				j, v := b*lanes+l, m2[l]/total
				if j >= in.Shape[1] {
					savedMean.set(j, 0)
					savedInv.set(j, 0)
					continue
				}
				inv := 1 / math.Sqrt(v+c.Attr.Epsilon)
				savedMean.set(j, float32(m[l]))
				savedInv.set(j, float32(inv))
				mean.data[j] = float32((1-c.Attr.Momentum)*float64(mean.data[j]) + c.Attr.Momentum*m[l])
				variance.data[j] = float32((1-c.Attr.Momentum)*float64(variance.data[j]) + c.Attr.Momentum*v*unbiased)
				setNorm(params, j, float32(m[l]), float32(float64(gamma.data[j])*inv), beta.data[j])
			}
		}
	}}
	return []task{moments, merge, apply}, nil
}

// checkNorm checks what a batch norm's forward and backward have in common: an
// activation of the first input's shape, and vectors of its channels.
func checkNorm(c call, like operand, vectors []operand) error {
	s := c.in[0].Shape
	if c.in[0].layout != activationLayout || !like.is(s[0], s[1], s[2], s[3]) {
		return c.errorf("it takes activations [n,c,h,w] of one shape")
	}
	for _, v := range vectors {
		if !v.vector(s[1]) {
			return c.errorf("scale, shift and statistics must have shape [%d]", s[1])
		}
	}
	return nil
}

// setNorm writes channel j's constants for the normalising kernel.
func setNorm(params []float32, j int, v ...float32) {
	for i, f := range v {
		params[(j/lanes*normBlocks+i)*lanes+j%lanes] = f
	}
}

// mergeMoments joins the chunks' means and sums of squared distances of a
// channel block (Chan, Golub and LeVeque, Updating Formulae and a Pairwise
// Algorithm for Computing Sample Variances, 1979, equation 2.1).
func mergeMoments(cut chunks, channel int, parts []float32) (mean, m2 [lanes]float64) {
	var n float64
	for img := range cut.images {
		for q := range cut.perPlane {
			i := (img*cut.channels+channel)*cut.perPlane + q
			_, _, pixels := cut.at(i)
			k := float64(pixels)
			for l := range lanes {
				d := float64(parts[i*2*lanes+l]) - mean[l]
				mean[l] += d * k / (n + k)
				m2[l] += float64(parts[(i*2+1)*lanes+l]) + d*d*n*k/(n+k)
			}
			n += k
		}
	}
	return mean, m2
}

// batchNormGradient is the gradient of a training batch norm (Ioffe and
// Szegedy, arXiv:1502.03167, section 3): with x̂ = (x−mean)/σ and m pixels,
// dβ = Σ dy, dγ = Σ dy·x̂, dx = γ/σ · (dy − dβ/m − x̂·dγ/m).
func (x *executable) batchNormGradient(c call) ([]task, error) {
	in, gamma, mean, inv, dy, y := c.in[0], c.in[1], c.in[2], c.in[3], c.in[4], c.in[5]
	dx, dgamma, dbeta := c.out[0], c.out[1], c.out[2]
	if err := checkNorm(c, dy, []operand{gamma, mean, inv}); err != nil {
		return nil, err
	}
	s := in.Shape
	if !dgamma.absentOr(s[1]) || !dbeta.absentOr(s[1]) {
		return nil, c.errorf("the gradients of scale and shift must have shape [%d]", s[1])
	}
	if (dx.present() && !dx.is(s[0], s[1], s[2], s[3])) || (c.Attr.ReLU && (!y.present() || !y.is(s[0], s[1], s[2], s[3]))) {
		return nil, c.errorf("dx, and y where a ReLU is fused in, must have the shape of x")
	}
	cut := chunksOf(in)
	params := make([]float32, cut.channels*normBlocks*lanes)
	k := x.engine.kernels
	normSums, normGrad := k.normSums, k.normGrad
	if c.Attr.ReLU {
		normSums, normGrad = k.normSumsReLU, k.normGradReLU
	} else {
		y = in // not read
	}
	x.needShared(cut.count() * 2 * lanes)
	sums := task{cut.count(), func(_ *worker, lo, hi int) {
		for i := lo; i < hi; i++ {
			start, channel, pixels := cut.at(i)
			normSums(&in.data[start], &dy.data[start], &y.data[start], &mean.data[channel*lanes], &x.shared[i*2*lanes], pixels)
		}
	}}
	total := float64(cut.images * cut.pixels)
	merge := task{cut.channels, func(_ *worker, lo, hi int) {
		for b := lo; b < hi; b++ {
			sum, dot := addPairs(cut, b, x.shared)
			for l := range lanes {
				j := b*lanes + l
				if j >= s[1] {
					dgamma.set(j, 0)
					dbeta.set(j, 0)
					continue
				}
				inverse := float64(inv.data[j])
				dg := dot[l] * inverse
				dgamma.set(j, float32(dg))
				dbeta.set(j, float32(sum[l]))
				a := float64(gamma.data[j]) * inverse
				setNorm(params, j, float32(a), float32(-a*inverse*dg/total), mean.data[j], float32(-a*sum[l]/total))
			}
		}
	}}
	if !dx.present() {
		return []task{sums, merge}, nil
	}
	apply := task{cut.count(), func(_ *worker, lo, hi int) {
		for i := lo; i < hi; i++ {
			start, channel, pixels := cut.at(i)
			normGrad(&in.data[start], &dy.data[start], &y.data[start], &dx.data[start], &params[channel*normBlocks*lanes], pixels)
		}
	}}
	return []task{sums, merge, apply}, nil
}

// addPairs adds the chunks' two sums of a channel block.
func addPairs(cut chunks, channel int, parts []float32) (a, b [lanes]float64) {
	for img := range cut.images {
		for q := range cut.perPlane {
			i := (img*cut.channels+channel)*cut.perPlane + q
			for l := range lanes {
				a[l] += float64(parts[i*2*lanes+l])
				b[l] += float64(parts[(i*2+1)*lanes+l])
			}
		}
	}
	return a, b
}

// biasGradient is db[k] = Σ over n, h, w of dy.
func (x *executable) biasGradient(c call) ([]task, error) {
	dy, db := c.in[0], c.out[0]
	if dy.layout != activationLayout || !db.vector(dy.Shape[1]) {
		return nil, c.errorf("it takes dy [n,k,h,w] and writes [k]")
	}
	cut := chunksOf(dy)
	x.needShared(cut.count() * 2 * lanes)
	sums := task{cut.count(), func(_ *worker, lo, hi int) {
		for i := lo; i < hi; i++ {
			start, _, pixels := cut.at(i)
			x.engine.kernels.sums(&dy.data[start], pixels, &x.shared[i*2*lanes])
		}
	}}
	merge := task{cut.channels, func(_ *worker, lo, hi int) {
		for b := lo; b < hi; b++ {
			sum, _ := addPairs(cut, b, x.shared)
			for l := range lanes {
				db.data[b*lanes+l] = float32(sum[l])
			}
		}
	}}
	return []task{sums, merge}, nil
}
