package textlog

import (
	"math"

	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/scan"
	"lockstep/pkg/runs"
)

// Some programs under srun -l write one line per rank and epoch:
//
//	0: 2018-10-07 20:36:09,348 INFO Train samples 32768 time 1442.17s rate 22.7212 samples/s
//
// Samples and rate are those of one rank. The run's samples and rate are their
// sums, and the time of an epoch is that of its slowest rank. The n-th line of
// a rank describes epoch n.

// readRankRate reads the line "Train samples", which contains the samples, time
// and rate of one rank.
func (t *textLog) readRankRate(m []byte) lineResult {
	c := scan.Cursor{Rest: m}
	samples := c.Expect("Train samples ").ReadInteger()
	seconds := c.Expect(" time ").ReadFloat()
	rate := c.Expect("s rate ").ReadFloat()
	c.Expect(" samples/s")
	if !c.IsComplete() {
		t.in.AddProblem(t.l.Number, "expected \"Train samples N time Ss rate R samples/s\", got %.80q", m)
		return unused
	}
	t.addRate(samples, seconds, rate)
	t.repeating = formatRates
	return used
}

// readFastRateLine is the fast path of readRankRate, called by parseLinesFast.
func (t *textLog) readFastRateLine(b []byte) (int, lineResult) {
	k := 0
	for b[k] == ' ' && k < 8 {
		k++
	}
	rank, n := scan.ParseShortInteger(b[k:])
	if k += n; n == 0 || rank > record.MaxWorkers || !scan.HasPrefix(b[k:], ": ") {
		return 0, unknown
	}
	k += len(": ")
	s := b[k : k+stampBytes]
	if !isFullStamp(s) {
		return 0, unknown
	}
	m := b[k+stampBytes:]
	if !scan.HasPrefix(m, " INFO Tr") || !scan.HasPrefix(m[8:], "ain samples ") {
		return 0, unknown
	}
	at := len(" INFO Train samples ")
	samples, n := scan.ParseShortInteger(m[at:])
	if at += n; n == 0 || !scan.HasPrefix(m[at:], " time ") {
		return 0, unknown
	}
	at += len(" time ")
	seconds, n := scan.ParseDecimal(m[at:])
	if at += n; n == 0 || !scan.HasPrefix(m[at:], "s rate ") {
		return 0, unknown
	}
	at += len("s rate ")
	rate, n := scan.ParseDecimal(m[at:])
	if at += n; n == 0 || !scan.HasPrefix(m[at:], " samples/s\n") {
		return 0, unknown
	}
	at += len(" samples/s\n")
	t.rank, t.stamp = rank, s
	t.addRate(samples, seconds, rate)
	return len(b) - len(m) + at, used
}

// addRate adds an epoch with the given values to the rank of the current line.
// rate is in samples per second.
func (t *textLog) addRate(samples int, seconds, rate float64) {
	run := t.countLine(formatRates)
	run.sumRates = true
	n := 1
	if last := t.lastEpoch(); last != nil {
		n = last.Epoch + 1
	}
	e := t.findOrAddEpoch(n, 0)
	e.Seconds, e.SamplesPerSecond, e.Samples = t.checkSeconds(seconds), rate, samples
	if off := math.Abs(float64(samples)/seconds - rate); off > 0.01*rate {
		t.in.AddProblem(t.l.Number, "got %d samples in %g s but %g samples/s; both are kept as logged", samples, seconds, rate)
	}
}

// setSyntheticTrial sets the run's trial named SYNTHETIC.
func (r *textRun) setSyntheticTrial(rate, spread float64) {
	r.trials["SYNTHETIC"] = &runs.Trial{Name: "SYNTHETIC", Rate: rate, Spread: spread}
}
