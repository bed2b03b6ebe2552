package textlog

import (
	"bytes"
	"math"

	"lockstep/pkg/logread/internal/scan"
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

// Benchy returns the format of benchy.
func Benchy() format {
	return format{name: "benchy", lines: []lineRule{
		{prefix: "BENCHY::", read: (*textLog).readBenchy, endsWithValue: true},
	}}
}

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
