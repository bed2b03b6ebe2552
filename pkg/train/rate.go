package train

import "fmt"

// rate is how fast a worker computed samples in so many seconds.
type rate struct {
	samples float64 // a second
	// flops are floating-point operations a second, by the network's own number of
	// them: an effective rate, which an algorithm with fewer operations
	// (Winograd's) makes larger than what the processor does, and activations that
	// are recomputed do not.
	flops float64
	// peak is flops as a part of the engine's measured peak, 0 where there is none.
	peak float64
}

// rateOf is the rate of one worker's samples.
func (t *Trainer) rateOf(samples int, seconds float64) rate {
	if !(seconds > 0) {
		return rate{}
	}
	r := rate{samples: float64(samples) / seconds}
	r.flops = r.samples * float64(t.train.Program().StepFLOPs()) / float64(t.cfg.Batch)
	if t.peak > 0 {
		r.peak = r.flops / t.peak
	}
	return r
}

// rateLine is an effective rate and its part of the peak, for a worker.
func (t *Trainer) rateLine(r rate) string {
	s := fmt.Sprintf("effective %.4g GFLOP/s a worker", r.flops/1e9)
	if t.peak > 0 {
		s += fmt.Sprintf(", %.1f %% of the measured peak of %.4g GFLOP/s", 100*r.peak, t.peak/1e9)
	}
	return s
}
