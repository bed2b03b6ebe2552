package train

import "fmt"

// rate is the speed of one worker.
type rate struct {
	samples float64 // per second
	// flops is the effective number of floating-point operations per second. It counts the
	// operations that the network defines: not fewer for an algorithm that saves some
	// (Winograd), and not more if activations are recomputed.
	flops float64
	// peak is flops as a fraction of the engine's measured peak; 0 if that is unknown.
	peak float64
}

// rateOf returns the speed of one worker that computed samples in the given seconds. It is
// zero unless seconds is positive.
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

// rateLine formats the effective FLOP rate of one worker and, if known, its fraction of the
// peak.
func (t *Trainer) rateLine(r rate) string {
	s := fmt.Sprintf("effective %.4g GFLOP/s a worker", r.flops/1e9)
	if t.peak > 0 {
		s += fmt.Sprintf(", %.1f %% of the measured peak of %.4g GFLOP/s", 100*r.peak, t.peak/1e9)
	}
	return s
}
