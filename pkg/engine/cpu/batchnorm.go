package cpu

import (
	"fmt"
	"math"
	"time"

	"lockstep/pkg/engine/cpu/internal/kernel"
)

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
	return plane / c.channels, plane % c.channels, q * kernel.Lanes, min(chunkPixels, c.pixels-q)
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

// batchNorm normalises by the batch's statistics, or by the running or the saved
// ones. An output that is normalised where it is read only gets its constants here.
func (x *builder) batchNorm(c call, t *tally) ([]task, error) {
	in, gamma, beta, mean, variance, y := c.in[0], c.in[1], c.in[2], c.in[3], c.in[4], c.out[0]
	if err := checkNorm(c, y, []operand{gamma, beta, mean, variance}); err != nil {
		return nil, err
	}
	cut := chunksOf(in)
	var all []task
	norm := c.norm
	stored := norm == nil
	if stored {
		norm = make([]float32, cut.channels*kernel.NormFloats)
	}
	if c.Attr.Training {
		savedMean, savedInv := c.out[1], c.out[2]
		if !savedMean.absentOr(in.Shape[1]) || !savedInv.absentOr(in.Shape[1]) {
			return nil, c.errorf("the saved mean and 1/√(var+ε) must have shape [%d]", in.Shape[1])
		}
		if t == nil {
			t = cut.tally()
			x.needTallies(t.floats())
			all = append(all, x.tallyChunks(in, cut, t))
		}
		all = append(all, x.mergeTally(c, t, norm)...)
	} else {
		all = append(all, task{1, func(*worker, int, int) {
			for j := range in.Shape[1] {
				inv := variance.data[j]
				if !c.Attr.Saved {
					inv = float32(1 / math.Sqrt(float64(inv)+c.Attr.Epsilon))
				}
				kernel.SetBatchNorm(norm, j, gamma.data[j], beta.data[j], mean.data[j], inv, c.Attr.ReLU)
			}
		}})
	}
	if !stored {
		return all, nil
	}
	normalize := x.set.Normalize
	return append(all, task{cut.count(), func(_ *worker, lo, hi int) {
		for i := lo; i < hi; i++ {
			n, channel, first, pixels := cut.at(i)
			from, _ := in.block(n, channel)
			to, _ := y.block(n, channel)
			normalize(&from[first], &to[first], &norm[channel*kernel.NormFloats], pixels)
		}
	}}), nil
}

// tallyChunks takes the statistics of an activation in memory.
func (x *builder) tallyChunks(in operand, cut chunks, t *tally) task {
	return task{cut.count(), func(_ *worker, lo, hi int) {
		for i := lo; i < hi; i++ {
			n, channel, first, pixels := cut.at(i)
			from, _ := in.block(n, channel)
			to := t.begin(x.tallies, n*cut.perPlane+i%cut.perPlane, channel, from[first:])
			x.set.Deviations(&from[first], pixels, &to[0])
		}
	}}
}

// mergeTally makes saved and running statistics and the constants of the
// statistics of a training batch norm's input.
func (x *builder) mergeTally(c call, t *tally, norm []float32) []task {
	in, gamma, beta, mean, variance, savedMean, savedInv := c.in[0], c.in[1], c.in[2], c.in[3], c.in[4], c.out[1], c.out[2]
	channels, all := in.Shape[1], t.channels*kernel.Lanes
	x.needMoments(2 * all)
	own := float64(in.Shape[0] * in.Shape[2] * in.Shape[3])
	total := own
	merge := func() {
		for b := range t.channels {
			m, m2 := t.merge(x.tallies, b)
			copy(x.moments[b*kernel.Lanes:], m[:])
			copy(x.moments[all+b*kernel.Lanes:], m2[:])
		}
	}
	exchange := func() (err error) {
		total, err = x.norms.statistics.Moments(own, x.moments[:channels], x.moments[all:all+channels])
		return err
	}
	return x.joined(c.Name, c.Attr.Sync, merge, exchange, func() {
		unbiased := total / max(1, total-1)
		for j := range all {
			if j >= channels {
				savedMean.set(j, 0)
				savedInv.set(j, 0)
				continue
			}
			m, v := x.moments[j], x.moments[all+j]/total
			inv := float32(1 / math.Sqrt(v+c.Attr.Epsilon))
			savedMean.set(j, float32(m))
			savedInv.set(j, inv)
			mean.data[j] = float32((1-c.Attr.Momentum)*float64(mean.data[j]) + c.Attr.Momentum*m)
			variance.data[j] = float32((1-c.Attr.Momentum)*float64(variance.data[j]) + c.Attr.Momentum*v*unbiased)
			kernel.SetBatchNorm(norm, j, gamma.data[j], beta.data[j], float32(m), inv, c.Attr.ReLU)
		}
	})
}

// joined is merge, which leaves a layer's statistics in x.moments, and finish,
// which goes on from these; with sync, between them, the exchange that joins them
// with those of the other workers. All of it is one thread's: waking the others
// takes longer.
func (x *builder) joined(layer string, sync bool, merge func(), exchange func() error, finish func()) []task {
	if !sync {
		return []task{{1, func(*worker, int, int) {
			merge()
			finish()
		}}}
	}
	return []task{
		{1, func(*worker, int, int) { merge() }},
		{0, func(*worker, int, int) {
			start := time.Now()
			if err := exchange(); err != nil {
				x.norms.failed = fmt.Errorf("batch norm %s: %w", layer, err)
			}
			x.norms.waited(start)
		}},
		{1, func(*worker, int, int) { finish() }},
	}
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

// batchNormGradient is the gradient of a training batch norm (Ioffe and
// Szegedy, arXiv:1502.03167, section 3): with x̂ = (x−mean)/σ and m pixels,
// dβ = Σ dy, dγ = Σ dy·x̂, dx = γ/σ · (dy − dβ/m − x̂·dγ/m). Where a ReLU is
// fused in, dy counts where γ·x̂ + β > 0, which is computed again from x. In a
// synchronised one the sums and m behind dx are those over all workers.
func (x *builder) batchNormGradient(c call) ([]task, error) {
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
	norm, params := make([]float32, cut.channels*kernel.NormFloats), make([]float32, cut.channels*kernel.GradFloats)
	constants := task{1, func(*worker, int, int) {
		for j := range s[1] {
			if c.Attr.ReLU {
				kernel.SetBatchNorm(norm, j, gamma.data[j], beta.data[j], mean.data[j], inv.data[j], true)
			} else {
				kernel.SetNorm(norm, j, 1, 0, float32(math.Inf(-1)))
			}
		}
	}}
	k := x.set
	x.needShared(cut.count() * 2 * kernel.Lanes)
	sums := task{cut.count(), func(_ *worker, lo, hi int) {
		for i := lo; i < hi; i++ {
			n, channel, first, pixels := cut.at(i)
			from, _ := in.block(n, channel)
			g, _ := dy.block(n, channel)
			k.NormSums(&from[first], &g[first], &norm[channel*kernel.NormFloats], &mean.data[channel*kernel.Lanes], &x.shared[i*2*kernel.Lanes], pixels)
		}
	}}
	merged := x.mergeGradient(c, cut, params)
	if !dx.present() {
		return append([]task{constants, sums}, merged...), nil
	}
	return append(append([]task{constants, sums}, merged...), task{cut.count(), func(_ *worker, lo, hi int) {
		for i := lo; i < hi; i++ {
			n, channel, first, pixels := cut.at(i)
			from, _ := in.block(n, channel)
			g, _ := dy.block(n, channel)
			to, _ := dx.block(n, channel)
			k.NormGrad(&from[first], &g[first], &to[first], &norm[channel*kernel.NormFloats], &params[channel*kernel.GradFloats], pixels)
		}
	}}), nil
}

// mergeGradient makes dγ and dβ of the chunks' sums, and params, the constants
// that make dx, of these.
func (x *builder) mergeGradient(c call, cut chunks, params []float32) []task {
	gamma, mean, inv, dgamma, dbeta := c.in[1], c.in[2], c.in[3], c.out[1], c.out[2]
	channels, all := c.in[0].Shape[1], cut.channels*kernel.Lanes
	x.needMoments(2 * all)
	own := float64(cut.images * cut.pixels)
	total := own
	merge := func() {
		for b := range cut.channels {
			sum, dot := addPairs(cut, b, x.shared)
			for l := range kernel.Lanes {
				j := b*kernel.Lanes + l
				dg, db := 0.0, 0.0
				if j < channels {
					dg, db = dot[l]*float64(inv.data[j]), sum[l]
				}
				dgamma.set(j, float32(dg))
				dbeta.set(j, float32(db))
				x.moments[j], x.moments[all+j] = dg, db
			}
		}
	}
	exchange := func() (err error) {
		total, err = x.norms.statistics.Sums(own, x.moments[:channels], x.moments[all:all+channels])
		return err
	}
	return x.joined(c.Name, c.Attr.Sync && c.out[0].present(), merge, exchange, func() {
		for j := range channels {
			p, l := params[j/kernel.Lanes*kernel.GradFloats:], j%kernel.Lanes
			inverse := float64(inv.data[j])
			a := float64(gamma.data[j]) * inverse
			p[l], p[kernel.Lanes+l], p[2*kernel.Lanes+l], p[3*kernel.Lanes+l] = float32(a), float32(-a*inverse*x.moments[j]/total), mean.data[j], float32(-a*x.moments[all+j]/total)
		}
	})
}

// addPairs adds the chunks' two sums of a channel block.
func addPairs(cut chunks, channel int, parts []float32) (a, b [kernel.Lanes]float64) {
	for img := range cut.images {
		for q := range cut.perPlane {
			i := (img*cut.channels+channel)*cut.perPlane + q
			for l := range kernel.Lanes {
				a[l] += float64(parts[i*2*kernel.Lanes+l])
				b[l] += float64(parts[(i*2+1)*kernel.Lanes+l])
			}
		}
	}
	return a, b
}

// biasGradient is db[k] = Σ over n, h, w of dy.
func (x *builder) biasGradient(c call) ([]task, error) {
	dy, db := c.in[0], c.out[0]
	if dy.layout != activationLayout || !db.vector(dy.Shape[1]) {
		return nil, c.errorf("it takes dy [n,k,h,w] and writes [k]")
	}
	cut := chunksOf(dy)
	x.needShared(cut.count() * 2 * kernel.Lanes)
	sums := task{cut.count(), func(_ *worker, lo, hi int) {
		for i := lo; i < hi; i++ {
			n, channel, first, pixels := cut.at(i)
			g, _ := dy.block(n, channel)
			x.set.Sums(&g[first], pixels, &x.shared[i*2*kernel.Lanes])
		}
	}}
	merge := task{1, func(*worker, int, int) {
		for b := range cut.channels {
			sum, _ := addPairs(cut, b, x.shared)
			for l := range kernel.Lanes {
				db.data[b*kernel.Lanes+l] = float32(sum[l])
			}
		}
	}}
	return []task{sums, merge}, nil
}
