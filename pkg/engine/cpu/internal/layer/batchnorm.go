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

// buildBatchNorm builds a batch norm. In training it uses the statistics of the batch: s if the
// previous operation computes them, otherwise it computes its own. Outside training it uses
// running or saved statistics. If the output is not stored, the tasks only compute the
// constants with which the readers of the output normalize the input.
func (x *Builder) buildBatchNorm(c Operation, s *workspace.ChannelStatistics) ([]threads.Task, error) {
	in, gamma, beta, mean, variance, y := c.Inputs[0], c.Inputs[1], c.Inputs[2], c.Inputs[3], c.Inputs[4], c.Outputs[0]
	if err := checkBatchNormOperands(c, y, []tensor.Operand{gamma, beta, mean, variance}); err != nil {
		return nil, err
	}
	cut := newPlaneChunks(in)
	var all []threads.Task
	norm := c.Norm
	stored := norm == nil
	if stored {
		norm = make([]float32, cut.channels*kernel.NormConstantFloats)
	}
	if c.Attr.Training {
		savedMean, savedInv := c.Outputs[1], c.Outputs[2]
		if !savedMean.IsAbsentOrVector(in.Shape[1]) || !savedInv.IsAbsentOrVector(in.Shape[1]) {
			return nil, c.errorf("the saved mean and 1/√(var+ε) must have shape [%d]", in.Shape[1])
		}
		all = x.newNormStatisticsTasks(c, s, cut, norm)
	} else {
		all = append(all, threads.Task{Items: 1, Run: func(*threads.Worker, int, int) {
			for j := range in.Shape[1] {
				inv := variance.Data[j]
				if !c.Attr.Saved {
					inv = float32(1 / math.Sqrt(float64(inv)+c.Attr.Epsilon))
				}
				kernel.SetBatchNormConstants(norm, j, gamma.Data[j], beta.Data[j], mean.Data[j], inv, c.Attr.ReLU)
			}
		}})
	}
	if !stored {
		return all, nil
	}
	return append(all, cut.newChunkTask(func(i int) {
		n, channel, first, pixels := cut.chunkAt(i)
		from, _ := in.ChannelBlock(n, channel)
		to, _ := y.ChannelBlock(n, channel)
		x.Set.Normalize(&from[first], &to[first], &norm[channel*kernel.NormConstantFloats], pixels)
	})), nil
}

// newNormStatisticsTasks returns the tasks that compute the statistics of a batch norm's input; if
// s is not nil, the previous operation computes them. The tasks then write the saved mean and
// 1/√(var+ε), the running statistics, and the constants norm for Set.Normalize.
func (x *Builder) newNormStatisticsTasks(c Operation, s *workspace.ChannelStatistics, cut planeChunks, norm []float32) []threads.Task {
	in := c.Inputs[0]
	own := s == nil
	if own {
		s = cut.newStatistics()
		x.ReserveStatistics(s.PartialSumFloats())
	}
	m := x.newNormStatisticsReduction(c, s, norm)
	if !own {
		return x.newReductionTasks(m)
	}
	images := cut.imagesPerStatisticsPart()
	compute := func(part, channel int) {
		n, at := part/cut.perPlane*images, part%cut.perPlane*workspace.MaxFloat32SumPixels*lanes
		for i := n; i < min(n+images, cut.images); i++ {
			from, _ := in.ChannelBlock(i, channel)
			to := x.Partial[s.PartSumsOffset(part, channel):]
			if i == n {
				to = s.BeginPartSums(x.Partial, part, channel, from[at:])
			}
			x.Set.Deviations(&from[at], min(workspace.MaxFloat32SumPixels, cut.pixels-at/lanes), &to[0])
		}
	}
	parts := len(s.Pixels)
	task, ok := cut.newChannelTask(x.Threads, func(lo, hi int) {
		for part := range parts {
			for channel := lo; channel < hi; channel++ {
				compute(part, channel)
			}
		}
		m.mergeAndFinish(lo, hi)
	})
	if ok && !m.sync {
		return []threads.Task{task}
	}
	return append([]threads.Task{{Items: parts * cut.channels, Run: func(_ *threads.Worker, lo, hi int) {
		for i := lo; i < hi; i++ {
			compute(i/cut.channels, i%cut.channels)
		}
	}}}, x.newReductionTasks(m)...)
}

// batchNormReduction computes the results of a batch norm, or of its gradient, from sums over parts
// of the pixels. merge adds up the sums of a channel block and writes the totals to
// Workspace.Moments; finish reads them. If sync is set, exchange is called in between and adds
// the sums of the other workers.
type batchNormReduction struct {
	layer    string
	sync     bool
	channels int // in blocks
	merge    func(channel int)
	exchange func() error
	finish   func(channel int)
}

func (m *batchNormReduction) mergeAndFinish(lo, hi int) {
	for channel := lo; channel < hi; channel++ {
		m.merge(channel)
		m.finish(channel)
	}
}

func (x *Builder) newNormStatisticsReduction(c Operation, s *workspace.ChannelStatistics, norm []float32) batchNormReduction {
	in, gamma, beta, mean, variance, savedMean, savedInv := c.Inputs[0], c.Inputs[1], c.Inputs[2], c.Inputs[3], c.Inputs[4], c.Outputs[1], c.Outputs[2]
	channels, all := in.Shape[1], s.Channels*lanes
	x.ReserveNormMoments(2 * all)
	own := float64(in.Shape[0] * in.Shape[2] * in.Shape[3])
	total := own
	return batchNormReduction{
		layer: c.Name, sync: c.Attr.Sync, channels: s.Channels,
		merge: func(b int) {
			m, m2 := s.MergePartSums(x.Partial, b)
			copy(x.Moments[b*lanes:], m[:])
			copy(x.Moments[all+b*lanes:], m2[:])
		},
		exchange: func() (err error) {
			total, err = x.norms.Statistics.CombineMoments(own, x.Moments[:channels], x.Moments[all:all+channels])
			return err
		},
		finish: func(b int) {
			unbiased := total / max(1, total-1)
			for j := b * lanes; j < (b+1)*lanes; j++ {
				if j >= channels {
					savedMean.SetElement(j, 0)
					savedInv.SetElement(j, 0)
					continue
				}
				m, v := x.Moments[j], x.Moments[all+j]/total
				inv := float32(1 / math.Sqrt(v+c.Attr.Epsilon))
				savedMean.SetElement(j, float32(m))
				savedInv.SetElement(j, inv)
				mean.Data[j] = float32((1-c.Attr.Momentum)*float64(mean.Data[j]) + c.Attr.Momentum*m)
				variance.Data[j] = float32((1-c.Attr.Momentum)*float64(variance.Data[j]) + c.Attr.Momentum*v*unbiased)
				kernel.SetBatchNormConstants(norm, j, gamma.Data[j], beta.Data[j], float32(m), inv, c.Attr.ReLU)
			}
		},
	}
}

// newReductionTasks returns the tasks that run m for all channel blocks. One thread runs them,
// because waking the others would take longer.
func (x *Builder) newReductionTasks(m batchNormReduction) []threads.Task {
	if !m.sync {
		return []threads.Task{{Items: 1, Run: func(*threads.Worker, int, int) {
			m.mergeAndFinish(0, m.channels)
		}}}
	}
	forEach := func(f func(channel int)) threads.Task {
		return threads.Task{Items: 1, Run: func(*threads.Worker, int, int) {
			for b := range m.channels {
				f(b)
			}
		}}
	}
	return []threads.Task{forEach(m.merge), {Items: 0, Run: func(*threads.Worker, int, int) {
		start := time.Now()
		if err := m.exchange(); err != nil {
			x.norms.Failed = fmt.Errorf("batch norm %s: %w", m.layer, err)
		}
		x.norms.OnWait(start)
	}}, forEach(m.finish)}
}

// checkBatchNormOperands checks that activation has the shape of the first input and that
// vectors have one element per channel.
func checkBatchNormOperands(c Operation, activation tensor.Operand, vectors []tensor.Operand) error {
	s := c.Inputs[0].Shape
	if c.Inputs[0].Layout != tensor.ActivationLayout || !activation.HasActivationShape(s[0], s[1], s[2], s[3]) {
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
	if err := checkBatchNormOperands(c, dy, []tensor.Operand{gamma, mean, inv}); err != nil {
		return nil, err
	}
	s := in.Shape
	if !dgamma.IsAbsentOrVector(s[1]) || !dbeta.IsAbsentOrVector(s[1]) {
		return nil, c.errorf("the gradients of scale and shift must have shape [%d]", s[1])
	}
	if (dx.IsPresent() && !dx.HasActivationShape(s[0], s[1], s[2], s[3])) || (c.Attr.ReLU && (!y.IsPresent() || !y.HasActivationShape(s[0], s[1], s[2], s[3]))) {
		return nil, c.errorf("dx must have the shape of x, and so must y if a ReLU is fused in")
	}
	if c.Attr.ReLU && (!beta.IsPresent() || !beta.IsVector(s[1])) {
		return nil, c.errorf("with a fused ReLU this engine also needs the shift, of shape [%d]", s[1])
	}
	cut := newPlaneChunks(in)
	norm, params := make([]float32, cut.channels*kernel.NormConstantFloats), make([]float32, cut.channels*kernel.NormGradConstantFloats)
	setConstants := func(lo, hi int) {
		for j := lo * lanes; j < min(hi*lanes, s[1]); j++ {
			if c.Attr.ReLU {
				kernel.SetBatchNormConstants(norm, j, gamma.Data[j], beta.Data[j], mean.Data[j], inv.Data[j], true)
			} else {
				kernel.SetNormConstants(norm, j, 1, 0, float32(math.Inf(-1)))
			}
		}
	}
	k := x.Set
	x.ReserveSharedScratch(cut.count() * 2 * lanes)
	computeSums := func(i int) {
		n, channel, first, pixels := cut.chunkAt(i)
		from, _ := in.ChannelBlock(n, channel)
		g, _ := dy.ChannelBlock(n, channel)
		k.NormSums(&from[first], &g[first], &norm[channel*kernel.NormConstantFloats], &mean.Data[channel*lanes], &x.Shared[i*2*lanes], pixels)
	}
	computeGradient := func(i int) {
		n, channel, first, pixels := cut.chunkAt(i)
		from, _ := in.ChannelBlock(n, channel)
		g, _ := dy.ChannelBlock(n, channel)
		to, _ := dx.ChannelBlock(n, channel)
		k.NormGrad(&from[first], &g[first], &to[first], &norm[channel*kernel.NormConstantFloats], &params[channel*kernel.NormGradConstantFloats], pixels)
	}
	m := x.newNormGradientReduction(c, cut, params)
	task, ok := cut.newChannelTask(x.Threads, func(lo, hi int) {
		setConstants(lo, hi)
		cut.forEachChunk(lo, hi, computeSums)
		m.mergeAndFinish(lo, hi)
		if dx.IsPresent() {
			cut.forEachChunk(lo, hi, computeGradient)
		}
	})
	if ok && !m.sync {
		return []threads.Task{task}, nil
	}
	all := []threads.Task{{Items: 1, Run: func(*threads.Worker, int, int) { setConstants(0, cut.channels) }}, cut.newChunkTask(computeSums)}
	all = append(all, x.newReductionTasks(m)...)
	if dx.IsPresent() {
		all = append(all, cut.newChunkTask(computeGradient))
	}
	return all, nil
}

// newNormGradientReduction computes dγ and dβ from the sums over chunks. From dγ and dβ it computes
// params, the constants for kernel.Set.NormGrad.
func (x *Builder) newNormGradientReduction(c Operation, cut planeChunks, params []float32) batchNormReduction {
	gamma, mean, inv, dgamma, dbeta := c.Inputs[1], c.Inputs[2], c.Inputs[3], c.Outputs[1], c.Outputs[2]
	channels, all := c.Inputs[0].Shape[1], cut.channels*lanes
	x.ReserveNormMoments(2 * all)
	own := float64(cut.images * cut.pixels)
	total := own
	return batchNormReduction{
		layer: c.Name, sync: c.Attr.Sync && c.Outputs[0].IsPresent(), channels: cut.channels,
		merge: func(b int) {
			sum, dot := sumChunkPairs(cut, b, x.Shared)
			for l := range lanes {
				j := b*lanes + l
				dg, db := 0.0, 0.0
				if j < channels {
					dg, db = dot[l]*float64(inv.Data[j]), sum[l]
				}
				dgamma.SetElement(j, float32(dg))
				dbeta.SetElement(j, float32(db))
				x.Moments[j], x.Moments[all+j] = dg, db
			}
		},
		exchange: func() (err error) {
			total, err = x.norms.Statistics.CombineSums(own, x.Moments[:channels], x.Moments[all:all+channels])
			return err
		},
		finish: func(b int) {
			for j := b * lanes; j < min((b+1)*lanes, channels); j++ {
				p, l := params[b*kernel.NormGradConstantFloats:], j%lanes
				inverse := float64(inv.Data[j])
				a := float64(gamma.Data[j]) * inverse
				p[l], p[lanes+l], p[2*lanes+l], p[3*lanes+l] = float32(a), float32(-a*inverse*x.Moments[j]/total), mean.Data[j], float32(-a*x.Moments[all+j]/total)
			}
		},
	}
}

// buildBiasGradient returns the tasks that compute db[k] = Σ dy[n,k,h,w] over n, h and w.
func (x *Builder) buildBiasGradient(c Operation) ([]threads.Task, error) {
	dy, db := c.Inputs[0], c.Outputs[0]
	if dy.Layout != tensor.ActivationLayout || !db.IsVector(dy.Shape[1]) {
		return nil, c.errorf("want dy [n,k,h,w] and a result [k]")
	}
	cut := newPlaneChunks(dy)
	x.ReserveSharedScratch(cut.count() * 2 * lanes)
	computeSums := func(i int) {
		n, channel, first, pixels := cut.chunkAt(i)
		g, _ := dy.ChannelBlock(n, channel)
		x.Set.Sums(&g[first], pixels, &x.Shared[i*2*lanes])
	}
	merge := func(lo, hi int) {
		for b := lo; b < hi; b++ {
			sum, _ := sumChunkPairs(cut, b, x.Shared)
			for l := range lanes {
				db.Data[b*lanes+l] = float32(sum[l])
			}
		}
	}
	task, ok := cut.newChannelTask(x.Threads, func(lo, hi int) {
		cut.forEachChunk(lo, hi, computeSums)
		merge(lo, hi)
	})
	if ok {
		return []threads.Task{task}, nil
	}
	return []threads.Task{cut.newChunkTask(computeSums), {Items: 1, Run: func(*threads.Worker, int, int) { merge(0, cut.channels) }}}, nil
}
