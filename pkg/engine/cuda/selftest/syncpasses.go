package selftest

import (
	"encoding/binary"
	"math"

	"lockstep/pkg/engine/cuda/internal/number"
	"lockstep/pkg/engine/cuda/kernels"
	driver "lockstep/pkg/internal/clib/cuda"
	"lockstep/pkg/internal/device"
)

func syncNormChecks(t *tester) []launchCheck {
	return []launchCheck{{"batch norm of 2 workers' rows", "200 and 137 rows of 24 channels", t.errorBoundWithoutTensorCores(4), measureSyncNormMismatch}}
}

// measureSyncNormMismatch normalizes the rows of two workers with the statistics of all
// rows and computes the gradients. The second worker gets its sums directly, as if cuDNN
// had computed them.
func measureSyncNormMismatch(p *sandbox) float64 {
	const channels, epsilon, momentum = 24, 1e-5, 0.1
	rows := [2]int{200, 137}
	all := rows[0] + rows[1]
	x, dy := p.randomNumbers(all*channels), p.randomNumbers(all*channels)
	for i := range x {
		x[i] += 3
	}
	x = p.roundToPrecision(x)
	vector := func() kernels.Pointer { return p.newNaNOutput(8 * kernels.NormVectorLength(channels)) }
	filled := func(v float32) kernels.Pointer {
		list := make([]float32, channels)
		for i := range list {
			list[i] = v
		}
		return p.uploadInOut(number.Encode(device.F32, list))
	}
	var norms [2]kernels.BatchNorm
	var grads [2]kernels.BatchNormGrad
	var vectors [2]kernels.Pointer
	from := 0
	for i, n := range rows {
		part := func(v []float32) kernels.FeatureMap {
			return kernels.FeatureMap{Data: p.uploadRounded(v[from*channels:][:n*channels]), Pitch: channels}
		}
		result := func() kernels.FeatureMap {
			return kernels.FeatureMap{Data: p.newNaNOutput(n * channels * p.low.Size()), Pitch: channels}
		}
		norms[i] = kernels.BatchNorm{
			Rows: n, Channels: channels, X: part(x), Y: result(), Gamma: filled(1.5), Beta: filled(0.25), RunningMean: filled(0.5), RunningVar: filled(2),
			Mean: filled(0), InvStd: filled(0), Partial: p.newNaNOutput(4 * kernels.PartialSumFloats(n, channels)), Epsilon: epsilon, Momentum: momentum,
		}
		grads[i] = kernels.BatchNormGrad{
			Rows: n, Channels: channels, X: norms[i].X, DY: part(dy), DX: result(), Mean: norms[i].Mean, InvStd: norms[i].InvStd,
			Gamma: norms[i].Gamma, Beta: norms[i].Beta, DGamma: filled(0), DBeta: filled(0), Partial: norms[i].Partial,
		}
		vectors[i] = vector()
		from += n
	}
	var sum, square [channels]float64
	for i, v := range x[rows[0]*channels:] {
		sum[i%channels] += float64(v)
		square[i%channels] += float64(v) * float64(v)
	}
	p.launch(norms[0].Moments(p.typ, vectors[0]))
	p.launch(norms[1].MomentsFromSums(p.uploadFloat32(toFloat32(sum[:])), p.uploadFloat32(toFloat32(square[:])), vectors[1]))
	p.sumWorkerVectors(vectors[:], kernels.NormVectorLength(channels))
	for i := range norms {
		p.launch(norms[i].StatisticsFromVector(vectors[i]))
		p.launch(norms[i].Apply(p.typ))
		p.launch(grads[i].ReduceToVector(p.typ, vectors[i]))
	}
	p.sumWorkerVectors(vectors[:], kernels.NormVectorLength(channels))
	for i := range grads {
		p.launch(grads[i].ApplyFromVector(p.typ, vectors[i], p.newNaNOutput(4*2*channels)))
	}
	return p.twoWorkerMismatch(norms, grads, number.ToFloat64(x), number.ToFloat64(dy))
}

func toFloat32(v []float64) []float32 {
	w := make([]float32, len(v))
	for i := range v {
		w[i] = float32(v[i])
	}
	return w
}

// sumWorkerVectors replaces vectors of n float64 elements by their sum, as an exchange does.
func (p *sandbox) sumWorkerVectors(vectors []kernels.Pointer, n int) {
	total := make([]float64, n)
	for _, v := range vectors {
		for i, b := 0, p.readBytes(v, 8*n); i < n; i++ {
			total[i] += math.Float64frombits(binary.LittleEndian.Uint64(b[8*i:]))
		}
	}
	var data []byte
	for _, v := range total {
		data = binary.LittleEndian.AppendUint64(data, math.Float64bits(v))
	}
	for _, v := range vectors {
		if p.err == nil {
			p.err = p.gpu.Write(driver.Ptr(v), data)
		}
	}
}

func (p *sandbox) twoWorkerMismatch(norms [2]kernels.BatchNorm, grads [2]kernels.BatchNormGrad, x, dy []float64) float64 {
	c := norms[0].Channels
	n := float64(len(x) / c)
	mean, inv, a, b := make([]float64, c), make([]float64, c), make([]float64, c), make([]float64, c)
	runningMean, runningVar := make([]float64, c), make([]float64, c)
	for i, v := range x {
		mean[i%c] += v / n
	}
	for i, v := range x {
		d := v - mean[i%c]
		inv[i%c] += d * d
	}
	const momentum = 0.1 // the same as in measureSyncNormMismatch, like the 0.5, 2, 1.5 and 0.25 below
	for k := range c {
		runningMean[k], runningVar[k] = (1-momentum)*0.5+momentum*mean[k], (1-momentum)*2+momentum*inv[k]/(n-1)
		inv[k] = 1 / math.Sqrt(inv[k]/n+norms[0].Epsilon)
	}
	y, dx := make([]float64, len(x)), make([]float64, len(x))
	for i, v := range x {
		y[i] = 1.5*(v-mean[i%c])*inv[i%c] + 0.25
		a[i%c] += dy[i] / n
		b[i%c] += dy[i] * (v - mean[i%c]) * inv[i%c] / n
	}
	for i, v := range x {
		dx[i] = 1.5 * inv[i%c] * (dy[i] - a[i%c] - (v-mean[i%c])*inv[i%c]*b[i%c])
	}
	worst, from := 0.0, 0
	for i := range norms {
		size := norms[i].Rows * c
		worst = max(worst,
			maxRelativeError(p.readElements(norms[i].Y.Data, p.low, size), y[from:][:size]), maxRelativeError(p.readElements(grads[i].DX.Data, p.low, size), dx[from:][:size]),
			maxRelativeError(p.readElements(norms[i].RunningMean, device.F32, c), runningMean), maxRelativeError(p.readElements(norms[i].RunningVar, device.F32, c), runningVar))
		from += size
	}
	return worst
}
