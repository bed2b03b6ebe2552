package kernels_test

import (
	"encoding/binary"
	"math"
	"strings"
	"testing"

	"lockstep/pkg/engine/cuda/kernels"
	"lockstep/pkg/internal/plan"
)

// worker is one of those that share a batch: some of its images.
type worker struct {
	shape  []int
	lo, hi int // elements of the whole batch
	norm   kernels.BatchNorm
	grad   kernels.BatchNormGrad
	vector *tensor
}

// meet adds the workers' vectors up, as an exchange does, in the order of the workers.
func meet(workers []*worker) {
	total := make([]float64, len(workers[0].vector.mem.Bytes())/8)
	for _, w := range workers {
		for i := range total {
			total[i] += math.Float64frombits(binary.LittleEndian.Uint64(w.vector.mem.Bytes()[8*i:]))
		}
	}
	for _, w := range workers {
		for i, v := range total {
			binary.LittleEndian.PutUint64(w.vector.mem.Bytes()[8*i:], math.Float64bits(v))
		}
	}
}

// TestSynchronisedBatchNorm: three workers with 1, 2 and the other images compute what
// engine/reference does in float64 with all of them. x has a mean of 30 deviations: see
// TestBatchNormTraining, whose tolerances are these.
func TestSynchronisedBatchNorm(t *testing.T) {
	for _, shape := range [][]int{{4, 1, 1, 1}, {5, 17, 9, 6}, {4, 264, 3, 3}, {6, 16, 20, 33}} {
		for _, sums := range []bool{false, true} {
			t.Run(name(shape, "sums", sums), func(t *testing.T) {
				eachDevice(t, func(d *device) { synchronisedBatchNorm(d, shape, sums) })
			})
		}
	}
}

// synchronisedBatchNorm checks both passes; with sums, the moments are made of Σ x and
// Σ x², as cuDNN leaves them.
func synchronisedBatchNorm(d *device, shape []int, sums bool) {
	n, c := rowsOf(shape), shape[1]
	padded, cs, image := kernels.PaddedChannels(c), []int{c}, elements(shape[1:])
	shift := 60.0
	if sums {
		shift = 1 // the sums of squares are in float32
	}
	x, dy := d.normal(d.typ, n*c, shift, 2), d.normal(d.typ, n*c, 0.1, 1)
	gamma, beta := d.normal(kernels.F32, c, 1, 0.3), d.normal(kernels.F32, c, 0, 1)
	mean, variance := d.normal(kernels.F32, c, 0, 1), d.normal(kernels.F32, c, 3, 0.1)
	var workers []*worker
	for _, images := range [][2]int{{0, 1}, {1, 3}, {3, shape[0]}} {
		w := &worker{shape: append([]int{images[1] - images[0]}, shape[1:]...), lo: images[0] * image, hi: images[1] * image}
		rows := rowsOf(w.shape)
		w.norm = kernels.BatchNorm{
			Rows: rows, Channels: padded, X: d.rows("x", w.shape, x[w.lo:w.hi]).m(), Y: d.rows("y", w.shape, nil).m(),
			Gamma: d.channels("gamma", gamma).pointer(), Beta: d.channels("beta", beta).pointer(),
			RunningMean: d.channels("running mean", mean).inOut().pointer(), RunningVar: d.channels("running var", variance).inOut().pointer(),
			Mean: d.empty("mean", c).pointer(), InvStd: d.empty("invstd", c).pointer(),
			Partial: d.flat("partial", kernels.F32, kernels.PartialSumFloats(rows, padded), nil).pointer(),
			Epsilon: 1e-5, Momentum: 0.1,
		}
		w.grad = kernels.BatchNormGrad{
			Rows: rows, Channels: padded, X: w.norm.X, DY: d.rows("dy", w.shape, dy[w.lo:w.hi]).m(), DX: d.rows("dx", w.shape, nil).m(),
			Mean: w.norm.Mean, InvStd: w.norm.InvStd, Gamma: w.norm.Gamma, Beta: w.norm.Beta,
			DGamma: d.empty("dgamma", c).pointer(), DBeta: d.empty("dbeta", c).pointer(), Partial: w.norm.Partial,
		}
		w.vector = d.alloc("vector", 8*kernels.NormVectorLength(padded))
		workers = append(workers, w)
	}
	for _, w := range workers {
		if !sums {
			d.run(w.norm.Moments(d.typ, w.vector.pointer()))
			continue
		}
		sum, square := make([]float32, c), make([]float32, c)
		for i, v := range x[w.lo:w.hi] {
			k := i / (image / c) % c
			sum[k] += v
			square[k] += v * v
		}
		d.run(w.norm.MomentsFromSums(d.channels("sum", sum).pointer(), d.channels("square", square).pointer(), w.vector.pointer()))
	}
	meet(workers)
	for _, w := range workers {
		d.run(w.norm.StatisticsFromVector(w.vector.pointer()))
		d.run(w.norm.Apply(d.typ))
		d.run(w.grad.ReduceToVector(d.typ, w.vector.pointer()))
	}
	meet(workers)
	room := d.flat("room", kernels.F32, 2*padded, nil).pointer()
	for _, w := range workers {
		d.run(w.grad.ApplyFromVector(d.typ, w.vector.pointer(), room))
	}

	attr := plan.KernelAttr{Training: true, Epsilon: 1e-5, Momentum: 0.1}
	want := truth(d.T, plan.OpBatchNorm, attr,
		[]operand{{shape: shape, values: x}, {shape: cs, values: gamma}, {shape: cs, values: beta}, {shape: cs, values: mean, state: true}, {shape: cs, values: variance, state: true}},
		shape, cs, cs)
	back := truth(d.T, plan.OpBatchNormBackward, attr,
		[]operand{{shape: shape, values: x}, {shape: cs, values: gamma}, {shape: cs, values: float32s(want[1])}, {shape: cs, values: float32s(want[2])}, {shape: shape, values: dy}},
		shape, cs, cs)
	largest := 0.0
	for _, v := range want[2] {
		largest = max(largest, v)
	}
	loose := 0.0
	if sums {
		loose = float64(n) * 0x1p-24 // of the test's own sums
	}
	dgamma, dbeta := make([]float64, c), make([]float64, c)
	for _, w := range workers {
		at := func(p kernels.Pointer) *tensor { return d.tensorAt(p) }
		d.near("mean", kernels.F32, at(w.norm.Mean).values(c), want[1], 4*0x1p-24+loose, loose)
		d.near("invstd", kernels.F32, at(w.norm.InvStd).values(c), want[2], 100*0x1p-24+loose, loose)
		d.near("running mean", kernels.F32, at(w.norm.RunningMean).values(c), want[3], 4*0x1p-24, 1e-6+loose)
		d.near("running var", kernels.F32, at(w.norm.RunningVar).values(c), want[4], 100*0x1p-24+loose, loose)
		d.near("y", d.typ, d.logical(d.mapAt(w.norm.Y)), want[0][w.lo:w.hi], 100*0x1p-24, (8*60*0x1p-24+loose)*largest)
		d.near("dx", d.typ, d.logical(d.mapAt(w.grad.DX)), back[0][w.lo:w.hi], 100*0x1p-24, (8*60*0x1p-24+loose)*largest)
		for k := range c {
			dgamma[k] += at(w.grad.DGamma).values(c)[k]
			dbeta[k] += at(w.grad.DBeta).values(c)[k]
		}
	}
	d.near("Σ dgamma", kernels.F32, dgamma, back[1], 0, float64(n)*(60*0x1p-24+loose)*largest)
	d.near("Σ dbeta", kernels.F32, dbeta, back[2], 0, float64(n)*0x1p-24)
}

// tensorAt is the tensor at an address.
func (d *device) tensorAt(p kernels.Pointer) *tensor {
	d.Helper()
	for _, x := range d.memory {
		if x.pointer() == p {
			return x
		}
	}
	d.Fatalf("there is no tensor at %#x", uint64(p))
	return nil
}

// mapAt is the map m.
func (d *device) mapAt(m kernels.FeatureMap) *tensor {
	d.Helper()
	for _, x := range d.memory {
		if x.shape != nil && x.m() == m {
			return x
		}
	}
	d.Fatalf("there is no map at %#x", uint64(m.Data))
	return nil
}

// TestSynchronisedBatchNormErrors checks the errors for invalid arguments.
func TestSynchronisedBatchNormErrors(t *testing.T) {
	m := kernels.FeatureMap{Data: 1 << 12, Pitch: 8}
	norm := kernels.BatchNorm{Rows: 4, Channels: 8, X: m, Y: m, Gamma: 16, Beta: 16, RunningMean: 16, RunningVar: 16, Mean: 16, InvStd: 16, Partial: 16}
	grad := kernels.BatchNormGrad{Rows: 4, Channels: 8, X: m, DY: m, DX: m, Gamma: 16, Beta: 16, Mean: 16, InvStd: 16, DGamma: 16, DBeta: 16, Partial: 16}
	odd, without := norm, grad
	odd.Channels = 9
	without.DX = kernels.FeatureMap{}
	for want, call := range map[string]func() ([]kernels.Launch, error){
		"vector is absent":                  func() ([]kernels.Launch, error) { return norm.Moments(kernels.F32, 0) },
		"vector at 0x8":                     func() ([]kernels.Launch, error) { return norm.StatisticsFromVector(8) },
		"first sums is absent":              func() ([]kernels.Launch, error) { return norm.MomentsFromSums(0, 16, 16) },
		"9 channels":                        func() ([]kernels.Launch, error) { return odd.StatisticsFromVector(16) },
		"scratch is absent":                 func() ([]kernels.Launch, error) { return grad.ApplyFromVector(kernels.F32, 16, 0) },
		"dx is absent, so no exchange":      func() ([]kernels.Launch, error) { return without.ApplyFromVector(kernels.F32, 16, 16) },
		"statistics of a worker: vector at": func() ([]kernels.Launch, error) { return grad.ReduceToVector(kernels.F32, 4) },
	} {
		if _, err := call(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q: %v", want, err)
		}
	}
}
