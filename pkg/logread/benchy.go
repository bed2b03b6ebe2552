package logread

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"

	"lockstep/pkg/runs"
)

// benchy (github.com/romerojosh/benchy) measures the loader alone (IO), the
// training on data that is there already (SYNTHETIC) and both (FULL), in
// samples a second of all ranks together; ± is the standard deviation over the
// trials (NumPy's, of the population).
//
//	BENCHY::SUMMARY::IO average trial throughput: 89.177 +/- 1.011
//	BENCHY::SUMMARY:: SYNTHETIC average trial throughput: 376.537 +/- 0.604
//	BENCHY::FULL_0::Trial Throughput: 90.1
//	BENCHY::IO_WARMUP_0::Iteration Throughput: 88.3

func (t *textLog) benchy(m []byte) verdict {
	c := cursor{b: m}
	c.lit("BENCHY::")
	if c.opt("SUMMARY::") {
		return t.benchySummary(c, m)
	}
	name, after, ok := bytes.Cut(c.b, []byte("::"))
	if !ok || len(name) > 100 {
		return idle
	}
	c.b = bytes.TrimLeft(after, " ")
	if !c.opt("Trial Throughput: ") || bytes.Contains(name, []byte("WARMUP")) {
		return idle // single iterations, and the warm-up
	}
	v := c.num()
	if c.failed {
		t.in.problem(t.l.number, "expected a throughput, got %.80q", m)
		return unused
	}
	if i := bytes.LastIndexByte(name, '_'); i > 0 {
		name = name[:i]
	}
	if !trialName(name) {
		return idle
	}
	t.form(formBenchy)
	tr := t.trial(string(name))
	tr.Rates = append(tr.Rates, v)
	t.in.report.Records++
	return used
}

// trialName says whether benchy measures something of this name.
func trialName(b []byte) bool {
	return string(b) == "IO" || string(b) == "SYNTHETIC" || string(b) == "FULL"
}

func (t *textLog) benchySummary(c cursor, m []byte) verdict {
	c.blank()
	name, after, _ := bytes.Cut(c.b, []byte(" "))
	c.b = after
	c.lit("average ")
	c.opt("trial ")
	rate := c.lit("throughput: ").num()
	spread := nan()
	if c.blank(); c.opt("+/- ") {
		spread = c.num()
	}
	if !c.end() || !trialName(name) {
		t.in.problem(t.l.number, "expected \"BENCHY::SUMMARY::IO average trial throughput: R +/- D\", got %.80q", m)
		return unused
	}
	if old := t.cur.trials[string(name)]; old != nil && old.Line > 0 {
		t.begin() // each run is summarised once
	}
	t.form(formBenchy)
	tr := t.trial(string(name))
	tr.Rate, tr.Spread, tr.Line = rate, spread, t.l.number
	t.in.report.Records++
	return used
}

// benchyKind is benchy's JSON file.
const benchyKind = "benchy JSON"

func isBenchyJSON(_ string, head []byte) bool {
	return bytes.HasPrefix(bytes.TrimLeft(head, " \t\r\n"), []byte("{")) && bytes.Contains(head, []byte(`"nranks"`)) &&
		(bytes.Contains(head, []byte(`"IO"`)) || bytes.Contains(head, []byte(`"SYNTHETIC"`)) || bytes.Contains(head, []byte(`"FULL"`)))
}

// maxDocument bounds a JSON or YAML document, which is held in memory.
const maxDocument = 256 << 20

// document reads the whole of a document.
func document(in *input) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(in.r, maxDocument+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", in.path, err)
	}
	if len(text) > maxDocument {
		return nil, fmt.Errorf("the document is longer than %d bytes", maxDocument)
	}
	return text, nil
}

// readBenchyJSON reads {"nranks": N, "IO": {"trial_throughput": [...], …}, …}.
func readBenchyJSON(_ context.Context, in *input) ([]*part, error) {
	text, err := document(in)
	if err != nil {
		return nil, err
	}
	type trials struct {
		Throughput []float64 `json:"trial_throughput"`
	}
	var v struct {
		Ranks     int     `json:"nranks"`
		IO        *trials `json:"IO"`
		Synthetic *trials `json:"SYNTHETIC"`
		Full      *trials `json:"FULL"`
	}
	if err := json.Unmarshal(text, &v); err != nil {
		in.problem(lineOf(text, err), "%v", err)
		return nil, nil
	}
	var run runs.Run
	if whole(float64(v.Ranks)) {
		run.Info.Workers = v.Ranks
	}
	for _, c := range []struct {
		name string
		t    *trials
	}{{"IO", v.IO}, {"SYNTHETIC", v.Synthetic}, {"FULL", v.Full}} {
		if c.t == nil {
			continue
		}
		if len(c.t.Throughput) == 0 {
			in.problem(0, "%s holds no trial_throughput", c.name)
			continue
		}
		rate, spread := meanAndSpread(c.t.Throughput)
		run.Trials = append(run.Trials, runs.Trial{Name: c.name, Rate: rate, Spread: spread, Rates: c.t.Throughput})
		in.report.Records++
	}
	if len(run.Trials) == 0 {
		in.problem(0, "no throughput of IO, SYNTHETIC or FULL")
		return nil, nil
	}
	return []*part{{run: run, role: principal}}, nil
}

// meanAndSpread are the mean and the standard deviation of the population.
func meanAndSpread(v []float64) (mean, spread float64) {
	for _, x := range v {
		mean += x / float64(len(v))
	}
	for _, x := range v {
		spread += (x - mean) * (x - mean) / float64(len(v))
	}
	return mean, math.Sqrt(spread)
}

// finishTrials gives the trials whose summary did not come the mean of theirs.
func finishTrials(trials []runs.Trial, report *Report) {
	for i := range trials {
		if tr := &trials[i]; math.IsNaN(tr.Rate) && len(tr.Rates) > 0 {
			tr.Rate, tr.Spread = meanAndSpread(tr.Rates)
			report.assume("%s: the mean of %d trials, for the log has no summary", tr.Name, len(tr.Rates))
		}
	}
	slices.SortStableFunc(trials, func(a, b runs.Trial) int { return trialOrder(a.Name) - trialOrder(b.Name) })
}

func trialOrder(name string) int { return slices.Index([]string{"IO", "SYNTHETIC", "FULL"}, name) }
