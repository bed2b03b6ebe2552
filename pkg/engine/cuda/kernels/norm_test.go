package kernels_test

import (
	"math"
	"testing"

	"lockstep/pkg/engine/cuda/kernels"
	"lockstep/pkg/internal/plan"
)

// shapes are maps whose channels and rows fill no vector, no block and no chunk:
// one pixel, channels that need padding, 3 and 5 vectors (no power of two), more
// than 32 vectors (a wide block), more than 64 (several tiles, the last one not
// full), and more rows than one block sums.
func shapes() [][]int {
	return [][]int{{1, 1, 1, 1}, {2, 3, 5, 7}, {1, 17, 9, 6}, {2, 24, 11, 9}, {1, 264, 3, 3}, {1, 520, 2, 3}, {2, 16, 40, 33}}
}

// TestBatchNormTraining compares with engine/reference in float64. x has a mean of
// 30 deviations: sums of squares that are not taken about the mean would lose 10
// bits (30² = 900), seen in float32, whose tolerance is 100 roundings.
func TestBatchNormTraining(t *testing.T) {
	for _, shape := range shapes() {
		if rowsOf(shape) == 1 {
			continue // no variance: the reference divides by 0 as well
		}
		for _, relu := range []bool{false, true} {
			for _, sum := range []bool{false, true} {
				t.Run(name(shape, "relu", relu, "add", sum), func(t *testing.T) {
					eachDevice(t, func(d *device) { batchNormTraining(d, shape, relu, sum) })
				})
			}
		}
	}
}

func batchNormTraining(d *device, shape []int, relu, sum bool) {
	n, c := rowsOf(shape), shape[1]
	x, z := d.normal(d.typ, n*c, 60, 2), d.normal(d.typ, n*c, 0, 1)
	gamma, beta := d.normal(kernels.F32, c, 1, 0.3), d.normal(kernels.F32, c, 0, 1)
	mean, variance := d.normal(kernels.F32, c, 0, 1), d.normal(kernels.F32, c, 3, 0.1)
	padded := kernels.PaddedChannels(c)
	runningMean, runningVar := d.channels("running mean", mean).inOut(), d.channels("running var", variance).inOut()
	savedMean, savedInv, y := d.empty("mean", c), d.empty("invstd", c), d.rows("y", shape, nil)
	a := kernels.BatchNorm{
		Rows: n, Channels: padded, X: d.rows("x", shape, x).m(), Y: y.m(),
		Gamma: d.channels("gamma", gamma).pointer(), Beta: d.channels("beta", beta).pointer(),
		RunningMean: runningMean.pointer(), RunningVar: runningVar.pointer(),
		Mean: savedMean.pointer(), InvStd: savedInv.pointer(),
		Partial: d.flat("partial", kernels.F32, kernels.PartialSumFloats(n, padded), nil).pointer(),
		Epsilon: 1e-5, Momentum: 0.1, ReLU: relu,
	}
	if sum {
		a.Add = d.rows("add", shape, z).m()
	}
	d.run(a.Training(d.typ))

	cs := []int{c}
	want := truth(d.T, plan.OpBatchNorm, plan.KernelAttr{Training: true, ReLU: relu && !sum, Epsilon: 1e-5, Momentum: 0.1},
		[]operand{{shape: shape, values: x}, {shape: cs, values: gamma}, {shape: cs, values: beta}, {shape: cs, values: mean, state: true}, {shape: cs, values: variance, state: true}},
		shape, cs, cs)
	if sum {
		for i := range want[0] {
			want[0][i] += float64(z[i])
			if relu {
				want[0][i] = max(want[0][i], 0)
			}
		}
	}
	// The mean of 60 in float32 is off by up to 60·2⁻²⁴, which is divided by the
	// deviation, 2 or (few rows) much less: 10⁻⁵ of an invstd of up to 10.
	d.near("mean", kernels.F32, savedMean.values(c), want[1], 4*0x1p-24, 0)
	d.near("invstd", kernels.F32, savedInv.values(c), want[2], 100*0x1p-24, 0)
	d.near("running mean", kernels.F32, runningMean.values(c), want[3], 4*0x1p-24, 1e-6)
	d.near("running var", kernels.F32, runningVar.values(c), want[4], 100*0x1p-24, 0)
	largest := 0.0
	for _, v := range want[2] {
		largest = max(largest, v)
	}
	d.near("y", d.typ, d.logical(y), want[0], 100*0x1p-24, 8*60*0x1p-24*largest)
}

func TestBatchNormInference(t *testing.T) {
	for _, shape := range shapes() {
		for _, relu := range []bool{false, true} {
			t.Run(name(shape, "relu", relu), func(t *testing.T) {
				eachDevice(t, func(d *device) {
					n, c := rowsOf(shape), shape[1]
					x := d.normal(d.typ, n*c, 1, 2)
					gamma, beta := d.normal(kernels.F32, c, 1, 0.3), d.normal(kernels.F32, c, 0, 1)
					mean, variance := d.normal(kernels.F32, c, 1, 1), d.normal(kernels.F32, c, 3, 0.1)
					y := d.rows("y", shape, nil)
					d.run(kernels.BatchNorm{
						Rows: n, Channels: kernels.PaddedChannels(c), X: d.rows("x", shape, x).m(), Y: y.m(),
						Gamma: d.channels("gamma", gamma).pointer(), Beta: d.channels("beta", beta).pointer(),
						RunningMean: d.channels("running mean", mean).pointer(), RunningVar: d.channels("running var", variance).pointer(),
						Epsilon: 1e-5, ReLU: relu,
					}.Inference(d.typ))
					cs := []int{c}
					want := truth(d.T, plan.OpBatchNorm, plan.KernelAttr{ReLU: relu, Epsilon: 1e-5},
						[]operand{{shape: shape, values: x}, {shape: cs, values: gamma}, {shape: cs, values: beta}, {shape: cs, values: mean, state: true}, {shape: cs, values: variance, state: true}}, shape)
					d.near("y", d.typ, d.logical(y), want[0], 8*0x1p-24, 16*0x1p-24)
				})
			})
		}
	}
}

// TestBatchNormBackward runs the forward pass for the statistics and y, then the
// backward pass in every form, dx in place of dy among them.
func TestBatchNormBackward(t *testing.T) {
	for _, shape := range shapes() {
		if rowsOf(shape) == 1 {
			continue
		}
		for _, mask := range []kernels.ReLUMask{kernels.MaskNone, kernels.MaskRecompute, kernels.MaskOutput} {
			for _, extra := range []bool{false, true} {
				t.Run(name(shape, "mask", mask, "extra", extra), func(t *testing.T) {
					eachDevice(t, func(d *device) { batchNormBackward(d, shape, mask, extra) })
				})
			}
		}
	}
}

func batchNormBackward(d *device, shape []int, mask kernels.ReLUMask, extra bool) {
	n, c := rowsOf(shape), shape[1]
	padded, cs := kernels.PaddedChannels(c), []int{c}
	x, dy, acc := d.normal(d.typ, n*c, 0.5, 1), d.normal(d.typ, n*c, 0.1, 1), d.normal(d.typ, n*c, 0, 1)
	gamma, beta := d.normal(kernels.F32, c, 1, 0.3), d.normal(kernels.F32, c, 0, 1)
	xMap, y := d.rows("x", shape, x), d.rows("y", shape, nil)
	mean, invstd := d.empty("mean", c), d.empty("invstd", c)
	gammaP, betaP := d.channels("gamma", gamma).pointer(), d.channels("beta", beta).pointer()
	partial := d.flat("partial", kernels.F32, kernels.PartialSumFloats(n, padded), nil).pointer()
	zero := make([]float32, c)
	d.run(kernels.BatchNorm{
		Rows: n, Channels: padded, X: xMap.m(), Y: y.m(), Gamma: gammaP, Beta: betaP,
		RunningMean: d.channels("running mean", zero).inOut().pointer(), RunningVar: d.channels("running var", zero).inOut().pointer(),
		Mean: mean.pointer(), InvStd: invstd.pointer(), Partial: partial, Epsilon: 1e-3, Momentum: 0.1, ReLU: mask != kernels.MaskNone,
	}.Training(d.typ))

	dyMap, dgamma, dbeta := d.rows("dy", shape, dy), d.empty("dgamma", c), d.empty("dbeta", c)
	a := kernels.BatchNormGrad{
		Rows: n, Channels: padded, X: xMap.m(), DY: dyMap.m(), Mean: mean.pointer(), InvStd: invstd.pointer(),
		Gamma: gammaP, Beta: betaP, DGamma: dgamma.pointer(), DBeta: dbeta.pointer(), Partial: partial, Mask: mask,
	}
	if mask == kernels.MaskOutput {
		a.Y = y.m()
	}
	dx, dadd := dyMap, (*tensor)(nil)
	if extra {
		dx, dadd = d.rows("dx", shape, nil), d.rows("dadd", shape, nil)
		a.Acc, a.DAdd = d.rows("acc", shape, acc).m(), dadd.m()
	} else {
		dyMap.inOut()
	}
	a.DX = dx.m()
	d.run(a.Launches(d.typ))

	yValues := float32s(d.logical(y))
	in := []operand{
		{shape: shape, values: x},
		{shape: cs, values: gamma},
		{shape: cs, values: float32s(mean.values(c))},
		{shape: cs, values: float32s(invstd.values(c))},
		{shape: shape, values: dy},
	}
	if mask != kernels.MaskNone {
		in = append(in, operand{shape: shape, values: yValues})
	}
	want := truth(d.T, plan.OpBatchNormBackward, plan.KernelAttr{Training: true, ReLU: mask != kernels.MaskNone, Epsilon: 1e-3}, in, shape, cs, cs)
	masked := int64Arg(dy)
	for i := range masked {
		if mask != kernels.MaskNone && yValues[i] <= 0 {
			masked[i] = 0
		}
		if extra {
			want[0][i] += float64(acc[i])
		}
	}
	// A sum of n products of about 1 in float32, in short runs: n·2⁻²⁴ at most.
	sum := 4e-6 + float64(n)*0x1p-24
	d.near("dgamma", kernels.F32, dgamma.values(c), want[1], 1e-6, sum)
	d.near("dbeta", kernels.F32, dbeta.values(c), want[2], 1e-6, sum)
	steepest := 1.0
	for _, v := range invstd.values(c) {
		steepest = max(steepest, v)
	}
	d.near("dx", d.typ, d.logical(dx), want[0], 32*0x1p-24, 64*0x1p-24*steepest)
	if extra {
		d.near("dadd", d.typ, d.logical(dadd), masked, 0, 0)
	}
}

// TestBatchNormExtremes: a constant channel has variance 0 and no NaN; a NaN in one
// channel stays in it; a huge mean does not make a variance negative.
func TestBatchNormExtremes(t *testing.T) {
	eachDevice(t, func(d *device) {
		shape := []int{3, 4, 9, 13}
		n, c := rowsOf(shape), 4
		x := d.normal(d.typ, n*c, 0, 1)
		for i := range x {
			switch i / (9 * 13) % 4 {
			case 0:
				x[i] = 5
			case 1:
				x[i] = round(d.typ, 60000)
			case 2:
				if i%50 == 0 {
					x[i] = float32(math.NaN())
				}
			}
		}
		ones, zero := []float32{1, 1, 1, 1}, make([]float32, c)
		y, mean, invstd := d.rows("y", shape, nil), d.empty("mean", c), d.empty("invstd", c)
		d.run(kernels.BatchNorm{
			Rows: n, Channels: 8, X: d.rows("x", shape, x).m(), Y: y.m(),
			Gamma: d.channels("gamma", ones).pointer(), Beta: d.channels("beta", zero).pointer(),
			RunningMean: d.channels("running mean", zero).inOut().pointer(), RunningVar: d.channels("running var", ones).inOut().pointer(),
			Mean: mean.pointer(), InvStd: invstd.pointer(), Partial: d.flat("partial", kernels.F32, kernels.PartialSumFloats(n, 8), nil).pointer(),
			Epsilon: 1e-5, Momentum: 0.1, ReLU: true,
		}.Training(d.typ))
		got := d.logical(y)
		for i, v := range got {
			channel := i / (9 * 13) % 4
			if (channel == 2) != math.IsNaN(v) || channel < 2 && v != 0 {
				d.Fatalf("value %d, channel %d, is %g", i, channel, v)
			}
		}
		// 1/√ε, the variance being exactly 0.
		d.near("invstd", kernels.F32, invstd.values(2), []float64{1 / math.Sqrt(1e-5), 1 / math.Sqrt(1e-5)}, 1e-6, 0)
	})
}
