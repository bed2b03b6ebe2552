package cpu

import (
	"slices"
	"time"

	"lockstep/pkg/engine/cpu/internal/kernel"
	"lockstep/pkg/engine/cpu/internal/threads"
)

// Settings of the measurement by PeakFLOPS.
const (
	peakTries   = 5
	peakTime    = 4 * time.Millisecond // duration of a try
	peakWeights = 4096                 // number of weights; they fill half of a first-level cache
	peakTiles   = 16                   // tiles per call, all with the same rows
)

// PeakFLOPS measures the speed of the engine's matrix kernel on all threads together, with
// operands in the cache, in floating-point operations per second. Only algorithms that need
// fewer operations, such as Winograd's, can exceed it. The measurement takes about 20 ms. It
// consists of several tries, each the median of its calls, and the best try counts, so that
// interruptions do not lower the result. Do not call Step meanwhile.
func (e *Engine) PeakFLOPS() float64 {
	const depth = kernel.Lanes
	set := &e.kernels.GEMM
	rows, outputs := set.Rows, set.Blocks*kernel.Lanes
	peakSteps := peakWeights / (depth * outputs)
	call := float64(2 * rows * outputs * depth * peakSteps * peakTiles) // operations
	gemm := set.Deep[set.Blocks][rows]
	count := e.threads.Size
	median := make([]time.Duration, count) // of a call
	measure := threads.Task{Items: count, Run: func(_ *threads.Worker, lo, hi int) {
		for thread := lo; thread < hi; thread++ {
			x, w, y := kernel.NewAlignedFloats(rows*depth*peakSteps), kernel.NewAlignedFloats(depth*outputs*peakSteps), kernel.NewAlignedFloats(rows*outputs)
			bias := kernel.NewAlignedFloats(outputs)
			var steps, list []int32
			for s := range peakSteps {
				steps = append(steps, int32(s*4*depth), int32(s*4*depth*kernel.Lanes))
			}
			for range peakTiles {
				for i := range rows {
					list = append(list, int32(i*4*depth*peakSteps))
				}
				for i := range rows {
					list = append(list, int32(i*4*outputs))
				}
			}
			took := make([]time.Duration, 0, 1<<12)
			begin := time.Now()
			for before := time.Duration(0); before < peakTime && len(took) < cap(took); {
				gemm(&x[0], &w[0], &y[0], &bias[0], &list[0], &steps[0], 4*depth*kernel.Lanes*peakSteps, 4*kernel.Lanes, peakSteps, peakTiles, false)
				now := time.Since(begin)
				took = append(took, now-before)
				before = now
			}
			slices.Sort(took)
			median[thread] = took[len(took)/2]
		}
	}}
	best := 0.0
	workers := make([]threads.Worker, count)
	for range peakTries {
		e.threads.Run(measure, workers)
		all := 0.0
		for _, m := range median {
			all += call / m.Seconds()
		}
		best = max(best, all)
	}
	return best
}
