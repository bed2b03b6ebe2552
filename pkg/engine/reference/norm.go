package reference

import (
	"math"

	"lockstep/pkg/engine"
)

// batchNorm computes y = gamma·(x − mean)·invstd + beta for each channel, followed by a
// ReLU if Attr.ReLU is set.
func (c *kernelCall[T]) batchNorm(s *engine.NormExchange) error {
	x, gamma, beta, y := c.in[0], c.in[1], c.in[2], c.out[0]
	mean, invstd, err := c.batchNormStatistics(s)
	if err != nil {
		return err
	}
	forEachChannel(c.inShape[0], func(k int, parts [][2]int) {
		scale := invstd[k] * gamma[k]
		for _, p := range parts {
			for i := p[0]; i < p[1]; i++ {
				v := (x[i]-mean[k])*scale + beta[k]
				if c.attr.ReLU && v < 0 {
					v = 0
				}
				y[i] = v
			}
		}
	})
	return nil
}

// batchNormStatistics returns the mean and 1/√(var+ε) of each channel. If Attr.Saved is set, they
// are the saved values. If Attr.Training is set, they are the statistics of the batch;
// batchNormStatistics then also saves them and updates the running statistics. Otherwise they are
// the running statistics.
func (c *kernelCall[T]) batchNormStatistics(s *engine.NormExchange) (mean, invstd []T, err error) {
	if c.attr.Saved {
		return c.in[3], c.in[4], nil
	}
	runningMean, runningVar := c.in[3], c.in[4]
	if !c.attr.Training {
		invstd = make([]T, len(runningVar))
		for k, v := range runningVar {
			invstd[k] = T(1 / math.Sqrt(float64(v)+c.attr.Epsilon))
		}
		return runningMean, invstd, nil
	}
	means, squares := make([]float64, len(runningMean)), make([]float64, len(runningMean))
	var m float64
	forEachChannel(c.inShape[0], func(k int, parts [][2]int) {
		means[k], squares[k], m = moments(c.in[0], parts)
	})
	if c.attr.Sync {
		if m, err = s.CombineMoments(m, means, squares); err != nil {
			return nil, nil, err
		}
	}
	mean, invstd = c.out[1], c.out[2]
	a := c.attr.Momentum
	for k := range means {
		variance := squares[k] / m
		runningMean[k] = T((1-a)*float64(runningMean[k]) + a*means[k])
		runningVar[k] = T((1-a)*float64(runningVar[k]) + a*variance*m/(m-1))
		mean[k], invstd[k] = T(means[k]), T(1/math.Sqrt(variance+c.attr.Epsilon))
	}
	return mean, invstd, nil
}

// moments returns the mean of the given ranges of x, the sum of squared differences from
// the mean, and the number m of elements. It makes two passes to avoid cancellation.
func moments[T number](x []T, parts [][2]int) (mean, squares, m float64) {
	for _, p := range parts {
		for _, v := range x[p[0]:p[1]] {
			mean += float64(v)
		}
		m += float64(p[1] - p[0])
	}
	mean /= m
	for _, p := range parts {
		for _, v := range x[p[0]:p[1]] {
			d := float64(v) - mean
			squares += d * d
		}
	}
	return mean, squares, m
}

// batchNormBackward computes, with x̂ = (x − mean)·invstd and m values per channel, dbeta =
// Σ dy, dgamma = Σ dy·x̂ and dx = gamma·invstd·(dy − dbeta/m − x̂·dgamma/m) (Ioffe and
// Szegedy 2015, section 3). If Attr.Sync is set, the sums and m in dx are over all workers.
func (c *kernelCall[T]) batchNormBackward(s *engine.NormExchange) error {
	x, gamma, mean, invstd, dy := c.in[0], c.in[1], c.in[2], c.in[3], c.in[4]
	maskedGradient := func(i int) T { return dy[i] }
	if c.attr.ReLU {
		y := c.in[5]
		maskedGradient = func(i int) T {
			if y[i] > 0 {
				return dy[i]
			}
			return 0
		}
	}
	dgamma, dbeta := make([]float64, len(gamma)), make([]float64, len(gamma))
	var m float64
	forEachChannel(c.inShape[0], func(k int, parts [][2]int) {
		m = 0
		for _, p := range parts {
			for i := p[0]; i < p[1]; i++ {
				d := float64(maskedGradient(i))
				dbeta[k] += d
				dgamma[k] += d * float64((x[i]-mean[k])*invstd[k])
			}
			m += float64(p[1] - p[0])
		}
	})
	for i, sums := range [][]float64{dgamma, dbeta} {
		if c.out[1+i] != nil {
			for k, v := range sums {
				c.out[1+i][k] = T(v)
			}
		}
	}
	dx := c.out[0]
	if dx == nil {
		return nil // the input needs no gradient
	}
	if c.attr.Sync {
		var err error
		if m, err = s.CombineSums(m, dgamma, dbeta); err != nil {
			return err
		}
	}
	forEachChannel(c.inShape[0], func(k int, parts [][2]int) {
		scale, meanD, meanDX := gamma[k]*invstd[k], T(dbeta[k]/m), T(dgamma[k]/m)
		for _, p := range parts {
			for i := p[0]; i < p[1]; i++ {
				dx[i] = scale * (maskedGradient(i) - meanD - (x[i]-mean[k])*invstd[k]*meanDX)
			}
		}
	})
	return nil
}
