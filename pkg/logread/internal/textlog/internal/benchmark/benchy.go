package benchmark

import (
	"bytes"
	"math"

	"lockstep/pkg/logread/internal/scan"
	"lockstep/pkg/logread/internal/textlog/internal/logline"
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
func Benchy() logline.Format {
	return logline.Format{Name: "benchy", Rules: []logline.Rule{
		{Prefix: "BENCHY::", Read: readBenchy, EndsWithValue: true},
	}}
}

func readBenchy(log *logline.Log, m []byte) logline.Result {
	c := scan.Cursor{Rest: m}
	c.Expect("BENCHY::")
	if c.Accept("SUMMARY::") {
		return readBenchySummary(log, c, m)
	}
	name, after, ok := bytes.Cut(c.Rest, []byte("::"))
	if !ok || len(name) > 100 {
		return logline.Idle
	}
	c.Rest = bytes.TrimLeft(after, " ")
	if !c.Accept("Trial Throughput: ") || bytes.Contains(name, []byte("WARMUP")) {
		return logline.Idle // a single iteration, or the warm-up
	}
	v := c.ReadFloat()
	if c.Failed {
		return log.Refuse("expected a throughput, got %.80q", m)
	}
	if i := bytes.LastIndexByte(name, '_'); i > 0 {
		name = name[:i]
	}
	if !isTrialName(name) {
		return logline.Idle
	}
	log.CountLine(logline.Benchy)
	tr := log.FindOrAddTrial(string(name))
	tr.Rates = append(tr.Rates, v)
	log.In.Report.Records++
	return logline.Used
}

func isTrialName(b []byte) bool {
	return string(b) == "IO" || string(b) == "SYNTHETIC" || string(b) == "FULL"
}

// readBenchySummary reads the summary m of a measurement. c is the rest after "BENCHY::SUMMARY::".
func readBenchySummary(log *logline.Log, c scan.Cursor, m []byte) logline.Result {
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
		return log.Refuse("expected \"BENCHY::SUMMARY::IO average trial throughput: R +/- D\", got %.80q", m)
	}
	if old := log.Current.Trials[string(name)]; old != nil && old.Line > 0 {
		log.BeginRun() // each run has one summary
	}
	log.CountLine(logline.Benchy)
	tr := log.FindOrAddTrial(string(name))
	tr.Rate, tr.Spread, tr.Line = rate, spread, log.Lines.Number
	log.In.Report.Records++
	return logline.Used
}
