package cpu

import "math"

// chunkPixels is the number of pixels that are added up in float32 before the
// sum goes on in float64.
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

// at is chunk i: its image, channel block, first float of the plane, and pixels.
func (c chunks) at(i int) (image, channel, first, pixels int) {
	plane, q := i/c.perPlane, i%c.perPlane*chunkPixels
	return plane / c.channels, plane % c.channels, q * lanes, min(chunkPixels, c.pixels-q)
}

// tally is the statistics of all pixels, a part for each chunk of a plane.
func (c chunks) tally() *tally {
	t := &tally{channels: c.channels}
	for range c.images {
		for q := range c.perPlane {
			t.pixels = append(t.pixels, min(chunkPixels, c.pixels-q*chunkPixels))
		}
	}
	return t
}

// batchNorm normalises by the batch's statistics, or by the running ones. An
// output that is normalised where it is read only gets its constants here.
func (x *executable) batchNorm(c call) ([]task, error) {
	in, gamma, beta, mean, variance, y := c.in[0], c.in[1], c.in[2], c.in[3], c.in[4], c.out[0]
	if err := checkNorm(c, y, []operand{gamma, beta, mean, variance}); err != nil {
		return nil, err
	}
	cut := chunksOf(in)
	var all []task
	norm := x.origins[y.id].norm
	stored := norm == nil
	if stored {
		norm = make([]float32, cut.channels*normFloats)
	}
	if c.Attr.Training {
		savedMean, savedInv := c.out[1], c.out[2]
		if !savedMean.absentOr(in.Shape[1]) || !savedInv.absentOr(in.Shape[1]) {
			return nil, c.errorf("the saved mean and 1/√(var+ε) must have shape [%d]", in.Shape[1])
		}
		t := c.tally
		if t == nil {
			t = cut.tally()
			x.needTallies(t.floats())
			all = append(all, x.tallyChunks(in, cut, t))
		}
		all = append(all, x.mergeTally(c, t, norm))
	} else {
		all = append(all, task{1, func(*worker, int, int) {
			for j := range in.Shape[1] {
				inv := 1 / math.Sqrt(float64(variance.data[j])+c.Attr.Epsilon)
				setNormOf(norm, j, gamma.data[j], beta.data[j], mean.data[j], float32(inv), c.Attr.ReLU)
			}
		}})
	}
	if !stored {
		return all, nil
	}
	normalize := x.engine.kernels.normalize
	return append(all, task{cut.count(), func(_ *worker, lo, hi int) {
		for i := lo; i < hi; i++ {
			n, channel, first, pixels := cut.at(i)
			from, _ := in.block(n, channel)
			to, _ := y.block(n, channel)
			normalize(&from[first], &to[first], &norm[channel*normFloats], pixels)
		}
	}}), nil
}

// tallyChunks takes the statistics of an activation in memory.
func (x *executable) tallyChunks(in operand, cut chunks, t *tally) task {
	return task{cut.count(), func(_ *worker, lo, hi int) {
		for i := lo; i < hi; i++ {
			n, channel, first, pixels := cut.at(i)
			from, _ := in.block(n, channel)
			to := t.begin(x.tallies, n*cut.perPlane+i%cut.perPlane, channel, from[first:])
			x.engine.kernels.deviations(&from[first], pixels, &to[0])
		}
	}}
}

// mergeTally makes saved and running statistics and the constants of the
// statistics of a training batch norm's input. It is one worker's: waking the
// others takes longer.
func (x *executable) mergeTally(c call, t *tally, norm []float32) task {
	in, gamma, beta, mean, variance, savedMean, savedInv := c.in[0], c.in[1], c.in[2], c.in[3], c.in[4], c.out[1], c.out[2]
	total := float64(in.Shape[0] * in.Shape[2] * in.Shape[3])
	unbiased := total / max(1, total-1)
	return task{1, func(*worker, int, int) {
		for b := range t.channels {
			m, m2 := t.merge(x.tallies, b)
			for l := range lanes {
				j, v := b*lanes+l, m2[l]/total
				if j >= in.Shape[1] {
					savedMean.set(j, 0)
					savedInv.set(j, 0)
					continue
				}
				inv := float32(1 / math.Sqrt(v+c.Attr.Epsilon))
				savedMean.set(j, float32(m[l]))
				savedInv.set(j, inv)
				mean.data[j] = float32((1-c.Attr.Momentum)*float64(mean.data[j]) + c.Attr.Momentum*m[l])
				variance.data[j] = float32((1-c.Attr.Momentum)*float64(variance.data[j]) + c.Attr.Momentum*v*unbiased)
				setNormOf(norm, j, gamma.data[j], beta.data[j], float32(m[l]), inv, c.Attr.ReLU)
			}
		}
	}}
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

// gradBlocks is the number of blocks of eight constants, beside those that
// normalise, that a channel block's gradient takes.
const gradBlocks = 4

// batchNormGradient is the gradient of a training batch norm (Ioffe and
// Szegedy, arXiv:1502.03167, section 3): with x̂ = (x−mean)/σ and m pixels,
// dβ = Σ dy, dγ = Σ dy·x̂, dx = γ/σ · (dy − dβ/m − x̂·dγ/m). Where a ReLU is
// fused in, dy counts where γ·x̂ + β > 0, which is computed again from x.
func (x *executable) batchNormGradient(c call) ([]task, error) {
	in, gamma, mean, inv, dy, y, beta := c.in[0], c.in[1], c.in[2], c.in[3], c.in[4], c.in[5], c.in[6]
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
	if c.Attr.ReLU && (!beta.present() || !beta.vector(s[1])) {
		return nil, c.errorf("where a ReLU is fused in this engine needs the shift too, of shape [%d]", s[1])
	}
	cut := chunksOf(in)
	norm, params := make([]float32, cut.channels*normFloats), make([]float32, cut.channels*gradBlocks*lanes)
	constants := task{1, func(*worker, int, int) {
		for j := range s[1] {
			if c.Attr.ReLU {
				setNormOf(norm, j, gamma.data[j], beta.data[j], mean.data[j], inv.data[j], true)
			} else {
				setNorm(norm, j, 1, 0, float32(math.Inf(-1)))
			}
		}
	}}
	k := x.engine.kernels
	x.needShared(cut.count() * 2 * lanes)
	sums := task{cut.count(), func(_ *worker, lo, hi int) {
		for i := lo; i < hi; i++ {
			n, channel, first, pixels := cut.at(i)
			from, _ := in.block(n, channel)
			g, _ := dy.block(n, channel)
			k.normSums(&from[first], &g[first], &norm[channel*normFloats], &mean.data[channel*lanes], &x.shared[i*2*lanes], pixels)
		}
	}}
	total := float64(cut.images * cut.pixels)
	merge := task{1, func(*worker, int, int) {
		for b := range cut.channels {
			sum, dot := addPairs(cut, b, x.shared)
			p := params[b*gradBlocks*lanes:]
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
				p[l], p[lanes+l], p[2*lanes+l], p[3*lanes+l] = float32(a), float32(-a*inverse*dg/total), mean.data[j], float32(-a*sum[l]/total)
			}
		}
	}}
	if !dx.present() {
		return []task{constants, sums, merge}, nil
	}
	return []task{constants, sums, merge, {cut.count(), func(_ *worker, lo, hi int) {
		for i := lo; i < hi; i++ {
			n, channel, first, pixels := cut.at(i)
			from, _ := in.block(n, channel)
			g, _ := dy.block(n, channel)
			to, _ := dx.block(n, channel)
			k.normGrad(&from[first], &g[first], &to[first], &norm[channel*normFloats], &params[channel*gradBlocks*lanes], pixels)
		}
	}}}, nil
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
			n, channel, first, pixels := cut.at(i)
			g, _ := dy.block(n, channel)
			x.engine.kernels.sums(&g[first], pixels, &x.shared[i*2*lanes])
		}
	}}
	merge := task{1, func(*worker, int, int) {
		for b := range cut.channels {
			sum, _ := addPairs(cut, b, x.shared)
			for l := range lanes {
				db.data[b*lanes+l] = float32(sum[l])
			}
		}
	}}
	return []task{sums, merge}, nil
}
