package record

import (
	"math"

	"lockstep/pkg/runs"
)

// TakeDifferences replaces the seconds of epochs, which are times since the start, by the times of the
// epochs: the differences, divided by the number of epochs if some are not listed. A time that is smaller
// than the one before shows that the clock started again. maybeResumed is set if the epochs may be those
// of a resumed run, whose clock starts with them.
func TakeDifferences(epochs []runs.Epoch, maybeResumed bool, report *Report) {
	last, lastEpoch := 0.0, 0
	if len(epochs) > 0 && maybeResumed {
		lastEpoch = epochs[0].Epoch - 1
	}
	for i := range epochs {
		e := &epochs[i]
		v, n := e.Seconds, e.Epoch-lastEpoch
		if math.IsNaN(v) {
			continue
		}
		if v < last {
			report.AddAssumption("the time starts again in line %d: the run was resumed", e.Line)
			last = 0
		}
		switch {
		case lastEpoch == 0 && i+1 < len(epochs) && n > epochs[i+1].Epoch-e.Epoch: // more epochs than between other lines
			report.AddAssumptionOnce("epoch %d has no time: the log does not show when the clock started", e.Epoch)
			e.Seconds = math.NaN()
		default:
			if n > 1 {
				report.AddAssumptionOnce("the time of an epoch is that of the epochs up to it, divided by their number: not each epoch is listed")
			}
			e.Seconds = (v - last) / float64(max(n, 1))
		}
		last, lastEpoch = v, e.Epoch
	}
}
