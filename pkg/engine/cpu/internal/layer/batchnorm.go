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

// planeChunks divides the pixels of an activation: the plane of each channel block and
// image is divided into chunks of workspace.MaxChunkPixels pixels.
type planeChunks struct {
	images   int
	channels int // in blocks
	pixels   int // of a plane
	perPlane int // chunks
}

// newPlaneChunks returns the chunks of activation o.
func newPlaneChunks(o tensor.Operand) planeChunks {
	pixels := o.Shape[2] * o.Shape[3]
	return planeChunks{o.Shape[0], tensor.ChannelBlocks(o.Shape[1]), pixels, tensor.CeilDiv(pixels, workspace.MaxChunkPixels)}
}

// count returns the number of chunks.
func (c planeChunks) count() int { return c.images * c.channels * c.perPlane }

// chunkAt returns the position of chunk i: its image, its channel block, the index of its
// first float in the plane, and its number of pixels.
func (c planeChunks) chunkAt(i int) (image, channel, first, pixels int) {
	plane, q := i/c.perPlane, i%c.perPlane*workspace.MaxChunkPixels
	return plane / c.channels, plane % c.channels, q * lanes, min(workspace.MaxChunkPixels, c.pixels-q)
}

// newStatistics returns Statistics for all pixels, with one part per image and chunk of a
// plane.
func (c planeChunks) newStatistics() *workspace.Statistics {
	s := &workspace.Statistics{Channels: c.channels}
	for range c.images {
		for q := range c.perPlane {
			s.Pixels = append(s.Pixels, min(workspace.MaxChunkPixels, c.pixels-q*workspace.MaxChunkPixels))
		}
	}
	return s
}

// buildBatchNorm returns the tasks of a batch norm. In training it uses the statistics of
// the batch: s if the previous operation computes them, else its own. Otherwise it uses
// running or saved statistics. If the output is not stored, the tasks only compute the
// constants with which its readers normalize the input.
func (x *Builder) buildBatchNorm(c Operation, s *workspace.Statistics) ([]threads.Task, error) {
	in, gamma, beta, mean, variance, y := c.Inputs[0], c.Inputs[1], c.Inputs[2], c.Inputs[3], c.Inputs[4], c.Outputs[0]
	if err := checkNormOperands(c, y, []tensor.Operand{gamma, beta, mean, variance}); err != nil {
		return nil, err
	}
	cut := newPlaneChunks(in)
	var all []threads.Task
	norm := c.Norm
	stored := norm == nil
	if stored {
		norm = make([]float32, cut.channels*kernel.NormFloats)
	}
	if c.Attr.Training {
		savedMean, savedInv := c.Outputs[1], c.Outputs[2]
		if !savedMean.IsAbsentOrVector(in.Shape[1]) || !savedInv.IsAbsentOrVector(in.Shape[1]) {
			return nil, c.errorf("the saved mean and 1/√(var+ε) must have shape [%d]", in.Shape[1])
		}
		if s == nil {
			s = cut.newStatistics()
			x.ReserveStatistics(s.Size())
			all = append(all, x.newStatisticsTask(in, cut, s))
		}
		all = append(all, x.newStatisticsMergeTasks(c, s, norm)...)
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
			n, channel, first, pixels := cut.chunkAt(i)
			from, _ := in.Block(n, channel)
			to, _ := y.Block(n, channel)
			normalize(&from[first], &to[first], &norm[channel*kernel.NormFloats], pixels)
		}
	}}), nil
}

// newStatisticsTask returns the task that computes the statistics s of a stored activation.
func (x *Builder) newStatisticsTask(in tensor.Operand, cut planeChunks, s *workspace.Statistics) threads.Task {
	return threads.Task{Items: cut.count(), Run: func(_ *threads.Worker, lo, hi int) {
		for i := lo; i < hi; i++ {
			n, channel, first, pixels := cut.chunkAt(i)
			from, _ := in.Block(n, channel)
			to := s.Begin(x.Partial, n*cut.perPlane+i%cut.perPlane, channel, from[first:])
			x.Set.Deviations(&from[first], pixels, &to[0])
		}
	}}
}

// newStatisticsMergeTasks returns the tasks that merge the statistics s of a batch norm's
// input. They write the saved mean and 1/√(var+ε), the running statistics, and the
// constants norm with which the output is computed.
func (x *Builder) newStatisticsMergeTasks(c Operation, s *workspace.Statistics, norm []float32) []threads.Task {
	in, gamma, beta, mean, variance, savedMean, savedInv := c.Inputs[0], c.Inputs[1], c.Inputs[2], c.Inputs[3], c.Inputs[4], c.Outputs[1], c.Outputs[2]
	channels, all := in.Shape[1], s.Channels*lanes
	x.ReserveMoments(2 * all)
	own := float64(in.Shape[0] * in.Shape[2] * in.Shape[3])
	total := own
	merge := func() {
		for b := range s.Channels {
			m, m2 := s.Merge(x.Partial, b)
			copy(x.Moments[b*lanes:], m[:])
			copy(x.Moments[all+b*lanes:], m2[:])
		}
	}
	exchange := func() (err error) {
		total, err = x.norms.Statistics.CombineMoments(own, x.Moments[:channels], x.Moments[all:all+channels])
		return err
	}
	return x.newExchangeTasks(c.Name, c.Attr.Sync, merge, exchange, func() {
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

// newExchangeTasks returns the tasks that run merge, which writes the sums of a layer to
// x.Moments, and finish, which reads them. If sync is set, exchange runs between them and
// adds the sums of the other workers. One thread runs all tasks, because waking the others
// would take longer.
func (x *Builder) newExchangeTasks(layer string, sync bool, merge func(), exchange func() error, finish func()) []threads.Task {
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
			x.norms.OnWait(start)
		}},
		{Items: 1, Run: func(*threads.Worker, int, int) { finish() }},
	}
}

// checkNormOperands checks the operands that a batch norm and its gradient have in common:
// activation must have the shape of the first input, and vectors must have one element per
// channel.
func checkNormOperands(c Operation, activation tensor.Operand, vectors []tensor.Operand) error {
	s := c.Inputs[0].Shape
	if c.Inputs[0].Layout != tensor.ActivationLayout || !activation.IsActivation(s[0], s[1], s[2], s[3]) {
		return c.errorf("want activations [n,c,h,w] of the same shape")
	}
	for _, v := range vectors {
		if !v.IsVector(s[1]) {
			return c.errorf("scale, shift and statistics must have shape [%d]", s[1])
		}
	}
	return nil
}

// buildBatchNormGradient returns the tasks of the gradient of a batch norm in training
// (Ioffe and Szegedy, arXiv:1502.03167, section 3). With x̂ = (x−mean)/σ and m pixels,
//
//	dβ = Σ dy, dγ = Σ dy·x̂, dx = γ/σ · (dy − dβ/m − x̂·dγ/m).
//
// If a ReLU is fused in, dy is replaced by 0 unless γ·x̂ + β > 0, which is computed again
// from x. In a synchronized batch norm, dx uses the sums and the number m of all workers.
func (x *Builder) buildBatchNormGradient(c Operation) ([]threads.Task, error) {
	in, gamma, mean, inv, dy, y, beta := c.Inputs[0], c.Inputs[1], c.Inputs[2], c.Inputs[3], c.Inputs[4], c.Inputs[5], c.Inputs[6]
	dx, dgamma, dbeta := c.Outputs[0], c.Outputs[1], c.Outputs[2]
	if err := checkNormOperands(c, dy, []tensor.Operand{gamma, mean, inv}); err != nil {
		return nil, err
	}
	s := in.Shape
	if !dgamma.IsAbsentOrVector(s[1]) || !dbeta.IsAbsentOrVector(s[1]) {
		return nil, c.errorf("the gradients of scale and shift must have shape [%d]", s[1])
	}
	if (dx.IsPresent() && !dx.IsActivation(s[0], s[1], s[2], s[3])) || (c.Attr.ReLU && (!y.IsPresent() || !y.IsActivation(s[0], s[1], s[2], s[3]))) {
		return nil, c.errorf("dx must have the shape of x, and so must y if a ReLU is fused in")
	}
	if c.Attr.ReLU && (!beta.IsPresent() || !beta.IsVector(s[1])) {
		return nil, c.errorf("with a fused ReLU this engine also needs the shift, of shape [%d]", s[1])
	}
	cut := newPlaneChunks(in)
	norm, params := make([]float32, cut.channels*kernel.NormFloats), make([]float32, cut.channels*kernel.NormGradFloats)
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
	x.ReserveShared(cut.count() * 2 * lanes)
	sums := threads.Task{Items: cut.count(), Run: func(_ *threads.Worker, lo, hi int) {
		for i := lo; i < hi; i++ {
			n, channel, first, pixels := cut.chunkAt(i)
			from, _ := in.Block(n, channel)
			g, _ := dy.Block(n, channel)
			k.NormSums(&from[first], &g[first], &norm[channel*kernel.NormFloats], &mean.Data[channel*lanes], &x.Shared[i*2*lanes], pixels)
		}
	}}
	merged := x.newGradientMergeTasks(c, cut, params)
	if !dx.IsPresent() {
		return append([]threads.Task{constants, sums}, merged...), nil
	}
	return append(append([]threads.Task{constants, sums}, merged...), threads.Task{Items: cut.count(), Run: func(_ *threads.Worker, lo, hi int) {
		for i := lo; i < hi; i++ {
			n, channel, first, pixels := cut.chunkAt(i)
			from, _ := in.Block(n, channel)
			g, _ := dy.Block(n, channel)
			to, _ := dx.Block(n, channel)
			k.NormGrad(&from[first], &g[first], &to[first], &norm[channel*kernel.NormFloats], &params[channel*kernel.NormGradFloats], pixels)
		}
	}}), nil
}

// newGradientMergeTasks returns the tasks that compute dγ and dβ from the sums of the
// chunks, and from dγ and dβ the constants params with which kernel.Set.NormGrad computes
// dx.
func (x *Builder) newGradientMergeTasks(c Operation, cut planeChunks, params []float32) []threads.Task {
	gamma, mean, inv, dgamma, dbeta := c.Inputs[1], c.Inputs[2], c.Inputs[3], c.Outputs[1], c.Outputs[2]
	channels, all := c.Inputs[0].Shape[1], cut.channels*lanes
	x.ReserveMoments(2 * all)
	own := float64(cut.images * cut.pixels)
	total := own
	merge := func() {
		for b := range cut.channels {
			sum, dot := sumChunkPairs(cut, b, x.Shared)
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
		total, err = x.norms.Statistics.CombineSums(own, x.Moments[:channels], x.Moments[all:all+channels])
		return err
	}
	return x.newExchangeTasks(c.Name, c.Attr.Sync && c.Outputs[0].IsPresent(), merge, exchange, func() {
		for j := range channels {
			p, l := params[j/lanes*kernel.NormGradFloats:], j%lanes
			inverse := float64(inv.Data[j])
			a := float64(gamma.Data[j]) * inverse
			p[l], p[lanes+l], p[2*lanes+l], p[3*lanes+l] = float32(a), float32(-a*inverse*x.Moments[j]/total), mean.Data[j], float32(-a*x.Moments[all+j]/total)
		}
	})
}

// sumChunkPairs returns, for each lane of a channel block, the totals of the two sums that
// parts contains for each chunk.
func sumChunkPairs(cut planeChunks, channel int, parts []float32) (a, b [lanes]float64) {
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

// buildBiasGradient returns the tasks that compute db[k] = Σ dy[n,k,h,w] over n, h and w.
func (x *Builder) buildBiasGradient(c Operation) ([]threads.Task, error) {
	dy, db := c.Inputs[0], c.Outputs[0]
	if dy.Layout != tensor.ActivationLayout || !db.IsVector(dy.Shape[1]) {
		return nil, c.errorf("want dy [n,k,h,w] and a result [k]")
	}
	cut := newPlaneChunks(dy)
	x.ReserveShared(cut.count() * 2 * lanes)
	sums := threads.Task{Items: cut.count(), Run: func(_ *threads.Worker, lo, hi int) {
		for i := lo; i < hi; i++ {
			n, channel, first, pixels := cut.chunkAt(i)
			g, _ := dy.Block(n, channel)
			x.Set.Sums(&g[first], pixels, &x.Shared[i*2*lanes])
		}
	}}
	merge := threads.Task{Items: 1, Run: func(*threads.Worker, int, int) {
		for b := range cut.channels {
			sum, _ := sumChunkPairs(cut, b, x.Shared)
			for l := range lanes {
				db.Data[b*lanes+l] = float32(sum[l])
			}
		}
	}}
	return []threads.Task{sums, merge}, nil
}
