package layer

import (
	"fmt"
	"math"
	"time"

	"lockstep/pkg/engine/cpu/internal/kernel"
	"lockstep/pkg/engine/cpu/internal/tensor"
	"lockstep/pkg/engine/cpu/internal/threads"
	"lockstep/pkg/engine/cpu/internal/workspace"
)

// chunks cuts the pixels of an activation in pieces: every image's channel
// blocks, and each of their planes in chunks of chunkPixels.
type chunks struct {
	images, channels, pixels int // channels in blocks, pixels of a plane
	perPlane                 int
}

// chunksOf is how the activation o is cut.
func chunksOf(o tensor.Operand) chunks {
	pixels := o.Shape[2] * o.Shape[3]
	return chunks{o.Shape[0], tensor.Blocks(o.Shape[1]), pixels, tensor.CeilDiv(pixels, workspace.ChunkPixels)}
}

// count is the number of chunks.
func (c chunks) count() int { return c.images * c.channels * c.perPlane }

// at is chunk i: its image, channel block, first float of the plane, and pixels.
func (c chunks) at(i int) (image, channel, first, pixels int) {
	plane, q := i/c.perPlane, i%c.perPlane*workspace.ChunkPixels
	return plane / c.channels, plane % c.channels, q * lanes, min(workspace.ChunkPixels, c.pixels-q)
}

// tally is the statistics of all pixels, a part for each chunk of a plane.
func (c chunks) tally() *workspace.Tally {
	t := &workspace.Tally{Channels: c.channels}
	for range c.images {
		for q := range c.perPlane {
			t.Pixels = append(t.Pixels, min(workspace.ChunkPixels, c.pixels-q*workspace.ChunkPixels))
		}
	}
	return t
}

// batchNorm normalises by the batch's statistics, or by the running or the saved
// ones. An output that is normalised where it is read only gets its constants here.
func (x *Builder) batchNorm(c Call, t *workspace.Tally) ([]threads.Task, error) {
	in, gamma, beta, mean, variance, y := c.Inputs[0], c.Inputs[1], c.Inputs[2], c.Inputs[3], c.Inputs[4], c.Outputs[0]
	if err := checkNorm(c, y, []tensor.Operand{gamma, beta, mean, variance}); err != nil {
		return nil, err
	}
	cut := chunksOf(in)
	var all []threads.Task
	norm := c.Norm
	stored := norm == nil
	if stored {
		norm = make([]float32, cut.channels*kernel.NormFloats)
	}
	if c.Attr.Training {
		savedMean, savedInv := c.Outputs[1], c.Outputs[2]
		if !savedMean.AbsentOr(in.Shape[1]) || !savedInv.AbsentOr(in.Shape[1]) {
			return nil, c.errorf("the saved mean and 1/√(var+ε) must have shape [%d]", in.Shape[1])
		}
		if t == nil {
			t = cut.tally()
			x.NeedTallies(t.Size())
			all = append(all, x.tallyChunks(in, cut, t))
		}
		all = append(all, x.mergeTally(c, t, norm)...)
	} else {
		all = append(all, threads.Task{Items: 1, Run: func(*threads.Worker, int, int) {
			for j := range in.Shape[1] {
				inv := variance.Data[j]
				if !c.Attr.Saved {
					inv = float32(1 / math.Sqrt(float64(inv)+c.Attr.Epsilon))
				}
				kernel.SetBatchNorm(norm, j, gamma.Data[j], beta.Data[j], mean.Data[j], inv, c.Attr.ReLU)
			}
		}})
	}
	if !stored {
		return all, nil
	}
	normalize := x.Set.Normalize
	return append(all, threads.Task{Items: cut.count(), Run: func(_ *threads.Worker, lo, hi int) {
		for i := lo; i < hi; i++ {
			n, channel, first, pixels := cut.at(i)
			from, _ := in.Block(n, channel)
			to, _ := y.Block(n, channel)
			normalize(&from[first], &to[first], &norm[channel*kernel.NormFloats], pixels)
		}
	}}), nil
}

// tallyChunks takes the statistics of an activation in memory.
func (x *Builder) tallyChunks(in tensor.Operand, cut chunks, t *workspace.Tally) threads.Task {
	return threads.Task{Items: cut.count(), Run: func(_ *threads.Worker, lo, hi int) {
		for i := lo; i < hi; i++ {
			n, channel, first, pixels := cut.at(i)
			from, _ := in.Block(n, channel)
			to := t.Begin(x.Tallies, n*cut.perPlane+i%cut.perPlane, channel, from[first:])
			x.Set.Deviations(&from[first], pixels, &to[0])
		}
	}}
}

// mergeTally makes saved and running statistics and the constants of the
// statistics of a training batch norm's input.
func (x *Builder) mergeTally(c Call, t *workspace.Tally, norm []float32) []threads.Task {
	in, gamma, beta, mean, variance, savedMean, savedInv := c.Inputs[0], c.Inputs[1], c.Inputs[2], c.Inputs[3], c.Inputs[4], c.Outputs[1], c.Outputs[2]
	channels, all := in.Shape[1], t.Channels*lanes
	x.NeedMoments(2 * all)
	own := float64(in.Shape[0] * in.Shape[2] * in.Shape[3])
	total := own
	merge := func() {
		for b := range t.Channels {
			m, m2 := t.Merge(x.Tallies, b)
			copy(x.Moments[b*lanes:], m[:])
			copy(x.Moments[all+b*lanes:], m2[:])
		}
	}
	exchange := func() (err error) {
		total, err = x.norms.Statistics.Moments(own, x.Moments[:channels], x.Moments[all:all+channels])
		return err
	}
	return x.joined(c.Name, c.Attr.Sync, merge, exchange, func() {
		unbiased := total / max(1, total-1)
		for j := range all {
			if j >= channels {
				savedMean.Set(j, 0)
				savedInv.Set(j, 0)
				continue
			}
			m, v := x.Moments[j], x.Moments[all+j]/total
			inv := float32(1 / math.Sqrt(v+c.Attr.Epsilon))
			savedMean.Set(j, float32(m))
			savedInv.Set(j, inv)
			mean.Data[j] = float32((1-c.Attr.Momentum)*float64(mean.Data[j]) + c.Attr.Momentum*m)
			variance.Data[j] = float32((1-c.Attr.Momentum)*float64(variance.Data[j]) + c.Attr.Momentum*v*unbiased)
			kernel.SetBatchNorm(norm, j, gamma.Data[j], beta.Data[j], float32(m), inv, c.Attr.ReLU)
		}
	})
}

// joined is merge, which leaves a layer's statistics in x.moments, and finish,
// which goes on from these; with sync, between them, the exchange that joins them
// with those of the other workers. All of it is one thread's: waking the others
// takes longer.
func (x *Builder) joined(layer string, sync bool, merge func(), exchange func() error, finish func()) []threads.Task {
	if !sync {
		return []threads.Task{{Items: 1, Run: func(*threads.Worker, int, int) {
			merge()
			finish()
		}}}
	}
	return []threads.Task{
		{Items: 1, Run: func(*threads.Worker, int, int) { merge() }},
		{Items: 0, Run: func(*threads.Worker, int, int) {
			start := time.Now()
			if err := exchange(); err != nil {
				x.norms.Failed = fmt.Errorf("batch norm %s: %w", layer, err)
			}
			x.norms.Waited(start)
		}},
		{Items: 1, Run: func(*threads.Worker, int, int) { finish() }},
	}
}

// checkNorm checks what a batch norm's forward and backward have in common: an
// activation of the first input's shape, and vectors of its channels.
func checkNorm(c Call, like tensor.Operand, vectors []tensor.Operand) error {
	s := c.Inputs[0].Shape
	if c.Inputs[0].Layout != tensor.ActivationLayout || !like.IsActivation(s[0], s[1], s[2], s[3]) {
		return c.errorf("it takes activations [n,c,h,w] of one shape")
	}
	for _, v := range vectors {
		if !v.IsVector(s[1]) {
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
func (x *Builder) batchNormGradient(c Call) ([]threads.Task, error) {
	in, gamma, mean, inv, dy, y, beta := c.Inputs[0], c.Inputs[1], c.Inputs[2], c.Inputs[3], c.Inputs[4], c.Inputs[5], c.Inputs[6]
	dx, dgamma, dbeta := c.Outputs[0], c.Outputs[1], c.Outputs[2]
	if err := checkNorm(c, dy, []tensor.Operand{gamma, mean, inv}); err != nil {
		return nil, err
	}
	s := in.Shape
	if !dgamma.AbsentOr(s[1]) || !dbeta.AbsentOr(s[1]) {
		return nil, c.errorf("the gradients of scale and shift must have shape [%d]", s[1])
	}
	if (dx.Present() && !dx.IsActivation(s[0], s[1], s[2], s[3])) || (c.Attr.ReLU && (!y.Present() || !y.IsActivation(s[0], s[1], s[2], s[3]))) {
		return nil, c.errorf("dx, and y where a ReLU is fused in, must have the shape of x")
	}
	if c.Attr.ReLU && (!beta.Present() || !beta.IsVector(s[1])) {
		return nil, c.errorf("where a ReLU is fused in this engine needs the shift too, of shape [%d]", s[1])
	}
	cut := chunksOf(in)
	norm, params := make([]float32, cut.channels*kernel.NormFloats), make([]float32, cut.channels*kernel.GradFloats)
	constants := threads.Task{Items: 1, Run: func(*threads.Worker, int, int) {
		for j := range s[1] {
			if c.Attr.ReLU {
				kernel.SetBatchNorm(norm, j, gamma.Data[j], beta.Data[j], mean.Data[j], inv.Data[j], true)
			} else {
				kernel.SetNorm(norm, j, 1, 0, float32(math.Inf(-1)))
			}
		}
	}}
	k := x.Set
	x.NeedShared(cut.count() * 2 * lanes)
	sums := threads.Task{Items: cut.count(), Run: func(_ *threads.Worker, lo, hi int) {
		for i := lo; i < hi; i++ {
			n, channel, first, pixels := cut.at(i)
			from, _ := in.Block(n, channel)
			g, _ := dy.Block(n, channel)
			k.NormSums(&from[first], &g[first], &norm[channel*kernel.NormFloats], &mean.Data[channel*lanes], &x.Shared[i*2*lanes], pixels)
		}
	}}
	merged := x.mergeGradient(c, cut, params)
	if !dx.Present() {
		return append([]threads.Task{constants, sums}, merged...), nil
	}
	return append(append([]threads.Task{constants, sums}, merged...), threads.Task{Items: cut.count(), Run: func(_ *threads.Worker, lo, hi int) {
		for i := lo; i < hi; i++ {
			n, channel, first, pixels := cut.at(i)
			from, _ := in.Block(n, channel)
			g, _ := dy.Block(n, channel)
			to, _ := dx.Block(n, channel)
			k.NormGrad(&from[first], &g[first], &to[first], &norm[channel*kernel.NormFloats], &params[channel*kernel.GradFloats], pixels)
		}
	}}), nil
}

// mergeGradient makes dγ and dβ of the chunks' sums, and params, the constants
// that make dx, of these.
func (x *Builder) mergeGradient(c Call, cut chunks, params []float32) []threads.Task {
	gamma, mean, inv, dgamma, dbeta := c.Inputs[1], c.Inputs[2], c.Inputs[3], c.Outputs[1], c.Outputs[2]
	channels, all := c.Inputs[0].Shape[1], cut.channels*lanes
	x.NeedMoments(2 * all)
	own := float64(cut.images * cut.pixels)
	total := own
	merge := func() {
		for b := range cut.channels {
			sum, dot := addPairs(cut, b, x.Shared)
			for l := range lanes {
				j := b*lanes + l
				dg, db := 0.0, 0.0
				if j < channels {
					dg, db = dot[l]*float64(inv.Data[j]), sum[l]
				}
				dgamma.Set(j, float32(dg))
				dbeta.Set(j, float32(db))
				x.Moments[j], x.Moments[all+j] = dg, db
			}
		}
	}
	exchange := func() (err error) {
		total, err = x.norms.Statistics.Sums(own, x.Moments[:channels], x.Moments[all:all+channels])
		return err
	}
	return x.joined(c.Name, c.Attr.Sync && c.Outputs[0].Present(), merge, exchange, func() {
		for j := range channels {
			p, l := params[j/lanes*kernel.GradFloats:], j%lanes
			inverse := float64(inv.Data[j])
			a := float64(gamma.Data[j]) * inverse
			p[l], p[lanes+l], p[2*lanes+l], p[3*lanes+l] = float32(a), float32(-a*inverse*x.Moments[j]/total), mean.Data[j], float32(-a*x.Moments[all+j]/total)
		}
	})
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
func (x *Builder) biasGradient(c Call) ([]threads.Task, error) {
	dy, db := c.Inputs[0], c.Outputs[0]
	if dy.Layout != tensor.ActivationLayout || !db.IsVector(dy.Shape[1]) {
		return nil, c.errorf("it takes dy [n,k,h,w] and writes [k]")
	}
	cut := chunksOf(dy)
	x.NeedShared(cut.count() * 2 * lanes)
	sums := threads.Task{Items: cut.count(), Run: func(_ *threads.Worker, lo, hi int) {
		for i := lo; i < hi; i++ {
			n, channel, first, pixels := cut.at(i)
			g, _ := dy.Block(n, channel)
			x.Set.Sums(&g[first], pixels, &x.Shared[i*2*lanes])
		}
	}}
	merge := threads.Task{Items: 1, Run: func(*threads.Worker, int, int) {
		for b := range cut.channels {
			sum, _ := addPairs(cut, b, x.Shared)
			for l := range lanes {
				db.Data[b*lanes+l] = float32(sum[l])
			}
		}
	}}
	return []threads.Task{sums, merge}, nil
}
