package logread

import (
	"math"

	"lockstep/pkg/runs"
)

// A line a rank and epoch, as programs under srun -l write it:
//
//	0: 2018-10-07 20:36:09,348 INFO Train samples 32768 time 1442.17s rate 22.7212 samples/s
//
// Samples and rate are the rank's own: the run's are their sums, and its epoch
// took as long as its slowest rank. Each rank's n-th line is of its epoch n.

func (t *textLog) rate(m []byte) verdict {
	c := cursor{b: m}
	samples := c.lit("Train samples ").count()
	seconds := c.lit(" time ").num()
	rate := c.lit("s rate ").num()
	c.lit(" samples/s")
	if !c.end() {
		t.in.problem(t.l.number, "expected \"Train samples N time Ss rate R samples/s\", got %.80q", m)
		return unused
	}
	run := t.form(formRates)
	run.sums = true
	n := 1
	if last := t.last(); last != nil {
		n = last.Epoch + 1
	}
	e := t.epoch(n, 0)
	e.Seconds, e.SamplesPerSecond, e.Samples = t.took(seconds), rate, samples
	if off := math.Abs(float64(samples)/seconds - rate); off > 0.01*rate {
		t.in.problem(t.l.number, "%d samples in %g s are not %g samples/s; both are kept as the log has them", samples, seconds, rate)
	}
	return used
}

// trial sets the run's trial SYNTHETIC.
func (r *textRun) trial(rate, spread float64) {
	r.trials["SYNTHETIC"] = &runs.Trial{Name: "SYNTHETIC", Rate: rate, Spread: spread}
}
