package textlog

import (
	"math"

	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/scan"
	"lockstep/pkg/runs"
)

// One line per rank and epoch, as programs under srun -l write it:
//
//	0: 2018-10-07 20:36:09,348 INFO Train samples 32768 time 1442.17s rate 22.7212 samples/s
//
// Samples and rate are the rank's own. The run's samples and rate are their
// sums, and the time of an epoch is that of its slowest rank. The n-th line of
// a rank is for epoch n.

// rate reads a line of any rank.
func (t *textLog) rate(m []byte) verdict {
	c := scan.Cursor{Rest: m}
	samples := c.Expect("Train samples ").Count()
	seconds := c.Expect(" time ").Float()
	rate := c.Expect("s rate ").Float()
	c.Expect(" samples/s")
	if !c.Complete() {
		t.in.Problem(t.l.Number, "expected \"Train samples N time Ss rate R samples/s\", got %.80q", m)
		return unused
	}
	t.rateOf(samples, seconds, rate)
	t.usual = formRates
	return used
}

// rateLine reads the line that b begins with, for usualLines.
func (t *textLog) rateLine(b []byte) (int, verdict) {
	k := 0
	for b[k] == ' ' && k < 8 {
		k++
	}
	rank, n := scan.ShortCount(b[k:])
	if k += n; n == 0 || rank > record.MaxWorkers || !scan.HasPrefix(b[k:], ": ") {
		return 0, unknown
	}
	k += len(": ")
	s := b[k : k+stampBytes]
	if !wholeStamp(s) {
		return 0, unknown
	}
	m := b[k+stampBytes:]
	if !scan.HasPrefix(m, " INFO Tr") || !scan.HasPrefix(m[8:], "ain samples ") {
		return 0, unknown
	}
	at := len(" INFO Train samples ")
	samples, n := scan.ShortCount(m[at:])
	if at += n; n == 0 || !scan.HasPrefix(m[at:], " time ") {
		return 0, unknown
	}
	at += len(" time ")
	seconds, n := scan.Decimal(m[at:])
	if at += n; n == 0 || !scan.HasPrefix(m[at:], "s rate ") {
		return 0, unknown
	}
	at += len("s rate ")
	rate, n := scan.Decimal(m[at:])
	if at += n; n == 0 || !scan.HasPrefix(m[at:], " samples/s\n") {
		return 0, unknown
	}
	at += len(" samples/s\n")
	t.rank, t.stamp = rank, s
	t.rateOf(samples, seconds, rate)
	return len(b) - len(m) + at, used
}

// rateOf adds an epoch of the current line's rank.
func (t *textLog) rateOf(samples int, seconds, rate float64) {
	run := t.form(formRates)
	run.sumRates = true
	n := 1
	if last := t.last(); last != nil {
		n = last.Epoch + 1
	}
	e := t.epoch(n, 0)
	e.Seconds, e.SamplesPerSecond, e.Samples = t.validSeconds(seconds), rate, samples
	if off := math.Abs(float64(samples)/seconds - rate); off > 0.01*rate {
		t.in.Problem(t.l.Number, "%d samples in %g s are not %g samples/s; both are kept as the log has them", samples, seconds, rate)
	}
}

// trial sets the run's trial SYNTHETIC.
func (r *textRun) trial(rate, spread float64) {
	r.trials["SYNTHETIC"] = &runs.Trial{Name: "SYNTHETIC", Rate: rate, Spread: spread}
}
