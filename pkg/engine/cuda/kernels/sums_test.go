package kernels_test

import (
	"math"
	"testing"

	"lockstep/pkg/engine/cuda/kernels"
)

// TestStatisticsOfSums: the mean, 1/√(var+ε) and the running statistics of sums, by
// their definitions.
func TestStatisticsOfSums(t *testing.T) {
	const rows, epsilon, momentum = 1000, 1e-5, 0.1
	for _, channels := range []int{1, 24, 2048} {
		t.Run(name(channels), func(t *testing.T) {
			eachDevice(t, func(d *device) {
				padded := kernels.PaddedChannels(channels)
				mean, deviation := d.normal(kernels.F32, channels, 0, 1), d.normal(kernels.F32, channels, 0, 1)
				sum, square := make([]float32, channels), make([]float32, channels)
				for i := range sum {
					sum[i] = rows * mean[i]
					square[i] = rows * (mean[i]*mean[i] + deviation[i]*deviation[i])
				}
				rm, rv := d.normal(kernels.F32, channels, 0, 1), d.normal(kernels.F32, channels, 2, 0.1)
				runningMean, runningVar := d.channels("running mean", rm).inOut(), d.channels("running variance", rv).inOut()
				m, invstd := d.empty("mean", channels), d.empty("invstd", channels)
				d.run(kernels.BatchNorm{
					Rows: rows, Channels: padded, Mean: m.pointer(), InvStd: invstd.pointer(),
					RunningMean: runningMean.pointer(), RunningVar: runningVar.pointer(), Epsilon: epsilon, Momentum: momentum,
				}.StatisticsFromSums(d.channels("sum", sum).pointer(), d.channels("square", square).pointer()))
				wantMean, wantInvstd, wantRM, wantRV := make([]float64, channels), make([]float64, channels), make([]float64, channels), make([]float64, channels)
				for i := range sum {
					a := float64(sum[i]) / rows
					v := max(float64(square[i])/rows-a*a, 0)
					wantMean[i], wantInvstd[i] = a, 1/math.Sqrt(v+epsilon)
					wantRM[i] = (1-momentum)*float64(rm[i]) + momentum*a
					wantRV[i] = (1-momentum)*float64(rv[i]) + momentum*v*rows/(rows-1)
				}
				d.near("mean", kernels.F32, m.values(channels), wantMean, 1e-6, 0)
				d.near("invstd", kernels.F32, invstd.values(channels), wantInvstd, 1e-6, 0)
				d.near("running mean", kernels.F32, runningMean.values(channels), wantRM, 1e-6, 1e-7)
				d.near("running variance", kernels.F32, runningVar.values(channels), wantRV, 1e-6, 1e-7)
			})
		})
	}
}
