package train

import "fmt"

// throughput is the training speed of one worker.
type throughput struct {
	samples float64 // per second
	// flops is the effective number of floating-point operations per second, by the definition of
	// the network: an algorithm that needs fewer (Winograd) does not decrease it, and recomputed
	// activations do not increase it.
	flops float64
	// fractionOfPeak is flops divided by the engine's measured peak; 0: the peak is unknown.
	fractionOfPeak float64
}

// throughputOf returns the speed of one worker for the given number of samples in seconds. It is
// zero unless seconds is positive.
func (t *Trainer) throughputOf(samples int, seconds float64) throughput {
	if !(seconds > 0) {
		return throughput{}
	}
	r := throughput{samples: float64(samples) / seconds}
	r.flops = r.samples * float64(t.stepFLOPs) / float64(t.cfg.Batch)
	if t.peak > 0 {
		r.fractionOfPeak = r.flops / t.peak
	}
	return r
}

// formatThroughput formats r for out.log: the effective FLOP/s, and the percentage of the peak if
// that is known.
func (t *Trainer) formatThroughput(r throughput) string {
	s := fmt.Sprintf("effective %.4g GFLOP/s a worker", r.flops/1e9)
	if t.peak > 0 {
		s += fmt.Sprintf(", %.1f %% of the measured peak of %.4g GFLOP/s", 100*r.fractionOfPeak, t.peak/1e9)
	}
	return s
}
