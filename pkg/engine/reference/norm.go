package reference

import "math"

// batchNorm: y = gamma·(x − mean)·invstd + beta per channel.
func (c *call[T]) batchNorm() {
	x, gamma, beta, runningMean, runningVar := c.in[0], c.in[1], c.in[2], c.in[3], c.in[4]
	y := c.out[0]
	eachChannel(c.inShape[0], func(k int, parts [][2]int) {
		mean, variance := float64(runningMean[k]), float64(runningVar[k])
		if c.attr.Training {
			var m float64
			mean, variance, m = moments(x, parts)
			a := c.attr.Momentum
			runningMean[k] = T((1-a)*float64(runningMean[k]) + a*mean)
			runningVar[k] = T((1-a)*float64(runningVar[k]) + a*variance*m/(m-1))
		}
		invstd := 1 / math.Sqrt(variance+c.attr.Epsilon)
		if c.attr.Training {
			c.out[1][k], c.out[2][k] = T(mean), T(invstd)
		}
		scale := T(invstd) * gamma[k]
		for _, p := range parts {
			for i := p[0]; i < p[1]; i++ {
				v := (x[i]-T(mean))*scale + beta[k]
				if c.attr.ReLU && v < 0 {
					v = 0
				}
				y[i] = v
			}
		}
	})
}

// moments are mean and biased variance of the ranges of x, and how many
// elements they hold. Two passes: the variance is of differences to the mean.
func moments[T number](x []T, parts [][2]int) (mean, variance, m float64) {
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
			variance += d * d
		}
	}
	return mean, variance / m, m
}

// batchNormBackward: with x̂ = (x − mean)·invstd and m values a channel,
// dbeta = Σ dy, dgamma = Σ dy·x̂ and
// dx = gamma·invstd·(dy − dbeta/m − x̂·dgamma/m)
// (Ioffe and Szegedy 2015, section 3).
func (c *call[T]) batchNormBackward() {
	x, gamma, mean, invstd, dy := c.in[0], c.in[1], c.in[2], c.in[3], c.in[4]
	arriving := func(i int) T { return dy[i] }
	if c.attr.ReLU {
		y := c.in[5]
		arriving = func(i int) T {
			if y[i] > 0 {
				return dy[i]
			}
			return 0
		}
	}
	eachChannel(c.inShape[0], func(k int, parts [][2]int) {
		var dgamma, dbeta, m float64
		for _, p := range parts {
			for i := p[0]; i < p[1]; i++ {
				d := float64(arriving(i))
				dbeta += d
				dgamma += d * float64((x[i]-mean[k])*invstd[k])
			}
			m += float64(p[1] - p[0])
		}
		for i, v := range []float64{dgamma, dbeta} {
			if c.out[1+i] != nil {
				c.out[1+i][k] = T(v)
			}
		}
		dx := c.out[0]
		if dx == nil {
			return // The input needs no gradient.
		}
		scale, meanD, meanDX := gamma[k]*invstd[k], T(dbeta/m), T(dgamma/m)
		for _, p := range parts {
			for i := p[0]; i < p[1]; i++ {
				dx[i] = scale * (arriving(i) - meanD - (x[i]-mean[k])*invstd[k]*meanDX)
			}
		}
	})
}
