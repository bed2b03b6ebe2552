package textlog

import (
	"bytes"
	"math"
	"slices"

	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/scan"
	"lockstep/pkg/runs"
)

// benchy (github.com/romerojosh/benchy) measures the loader alone (IO), the
// training on data that is already in memory (SYNTHETIC), and both (FULL), in
// samples per second of all ranks together. The number after +/- is the
// standard deviation over the trials (NumPy's, of the population).
//
//	BENCHY::SUMMARY::IO average trial throughput: 89.177 +/- 1.011
//	BENCHY::SUMMARY:: SYNTHETIC average trial throughput: 376.537 +/- 0.604
//	BENCHY::FULL_0::Trial Throughput: 90.1
//	BENCHY::IO_WARMUP_0::Iteration Throughput: 88.3

// readBenchy reads lines that begin with "BENCHY::".
func (t *textLog) readBenchy(m []byte) lineResult {
	c := scan.Cursor{Rest: m}
	c.Expect("BENCHY::")
	if c.Accept("SUMMARY::") {
		return t.readBenchySummary(c, m)
	}
	name, after, ok := bytes.Cut(c.Rest, []byte("::"))
	if !ok || len(name) > 100 {
		return idle
	}
	c.Rest = bytes.TrimLeft(after, " ")
	if !c.Accept("Trial Throughput: ") || bytes.Contains(name, []byte("WARMUP")) {
		return idle // a single iteration, or the warm-up
	}
	v := c.ReadFloat()
	if c.Failed {
		t.in.AddProblem(t.l.Number, "expected a throughput, got %.80q", m)
		return unused
	}
	if i := bytes.LastIndexByte(name, '_'); i > 0 {
		name = name[:i]
	}
	if !isTrialName(name) {
		return idle
	}
	t.countLine(formatBenchy)
	tr := t.findOrAddTrial(string(name))
	tr.Rates = append(tr.Rates, v)
	t.in.Report.Records++
	return used
}

// isTrialName reports whether b is the name of one of benchy's measurements.
func isTrialName(b []byte) bool {
	return string(b) == "IO" || string(b) == "SYNTHETIC" || string(b) == "FULL"
}

// readBenchySummary reads the line m, which summarizes a measurement. c is the
// rest of the line after "BENCHY::SUMMARY::".
func (t *textLog) readBenchySummary(c scan.Cursor, m []byte) lineResult {
	c.SkipBlanks()
	name, after, _ := bytes.Cut(c.Rest, []byte(" "))
	c.Rest = after
	c.Expect("average ")
	c.Accept("trial ")
	rate := c.Expect("throughput: ").ReadFloat()
	spread := math.NaN()
	if c.SkipBlanks(); c.Accept("+/- ") {
		spread = c.ReadFloat()
	}
	if !c.IsComplete() || !isTrialName(name) {
		t.in.AddProblem(t.l.Number, "expected \"BENCHY::SUMMARY::IO average trial throughput: R +/- D\", got %.80q", m)
		return unused
	}
	if old := t.cur.trials[string(name)]; old != nil && old.Line > 0 {
		t.beginRun() // each run has one summary
	}
	t.countLine(formatBenchy)
	tr := t.findOrAddTrial(string(name))
	tr.Rate, tr.Spread, tr.Line = rate, spread, t.l.Number
	t.in.Report.Records++
	return used
}

// finishTrials sets the rate of each trial without a summary to the mean of its
// single rates, and sorts the trials.
func finishTrials(trials []runs.Trial, report *record.Report) {
	for i := range trials {
		if tr := &trials[i]; math.IsNaN(tr.Rate) && len(tr.Rates) > 0 {
			tr.Rate, tr.Spread = record.MeanAndSpread(tr.Rates)
			report.AddAssumption("%s: the mean of %d trials, since the log has no summary", tr.Name, len(tr.Rates))
		}
	}
	slices.SortStableFunc(trials, func(a, b runs.Trial) int { return trialPosition(a.Name) - trialPosition(b.Name) })
}

// trialPosition returns the position of a measurement in the sorted list of
// trials, or -1 if the name is unknown.
func trialPosition(name string) int { return slices.Index([]string{"IO", "SYNTHETIC", "FULL"}, name) }
