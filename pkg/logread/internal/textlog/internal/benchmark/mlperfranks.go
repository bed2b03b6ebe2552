package benchmark

import (
	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/scan"
	"lockstep/pkg/logread/internal/textlog/internal/logline"
)

// All ranks of a run with MLPerf's logging may print the same lines, so those of one rank suffice.
// But another rank than the one that starts the run may evaluate or stop it:
//
//	0: :::MLLOG {…, "key": "run_start", …}
//	56: :::MLLOG {…, "key": "eval_accuracy", "value": 0.75, "metadata": {"epoch_num": 1}}
//	56: :::MLLOG {…, "key": "run_stop", "metadata": {"status": "success"}}

// otherRankReason is the reason for ignoring a line whose values another rank has logged too.
const otherRankReason = "MLLOG line whose values another rank has logged too"

// mlperfOtherRanks contains what ranks other than the selected one have logged. These values are
// used only if the selected rank has not logged them.
type mlperfOtherRanks struct {
	stop        float64 // last run_stop in ms; 0 if there is none
	stopRank    int
	result      string
	evaluations []mlperfEvaluation // of the rank that evaluated first
	lines       int64              // number of lines with such values
	first       int                // number of the first of these lines
}

type mlperfEvaluation struct {
	rank  int
	key   string
	value float64
	line  mlperfLine // without texts
}

// selectMLPerfRun handles a run_start line. If the current run has stopped, it begins a new run.
// Otherwise it selects the rank of the line as the one whose values are used, unless the run has
// already started or has values.
func selectMLPerfRun(log *logline.Log) {
	s := mlperfStateOf(log.Current)
	switch {
	case s.stop > 0 || s.others.stop > 0 || log.Current.Closed:
		log.BeginRun()
	case s.start == 0 && s.label != 0 && log.Current.Epochs.IsEmpty() && len(log.Current.Curves.All) == 0:
		s.label = log.Rank + 2
	}
}

// addOtherMLPerfRank adds line v, which was written by a rank other than the selected one. Its
// values are used only if the selected rank has not logged them.
func addOtherMLPerfRank(log *logline.Log, v mlperfLine) logline.Result {
	o := &mlperfStateOf(log.Current).others
	switch string(v.key) {
	case "run_stop":
		if v.time > o.stop {
			o.stop, o.stopRank, o.result = v.time, log.Rank, string(v.status[:min(len(v.status), 100)])
		}
	case "eval_accuracy", "eval_error", "eval_loss":
		x, ok := scan.ParseJSONFloat(v.value)
		if !ok {
			return logline.Idle
		}
		if len(o.evaluations) == 0 || o.evaluations[0].rank == log.Rank {
			e := mlperfEvaluation{rank: log.Rank, key: string(v.key), value: x, line: v}
			e.line.key, e.line.value, e.line.status = nil, nil, nil
			o.evaluations = append(o.evaluations, e)
		}
	default:
		return logline.Idle
	}
	if o.lines++; o.lines == 1 {
		o.first = log.Lines.Number
	}
	return logline.Pending
}

// useOtherMLPerfRanks adds to the run what only other ranks have logged.
func useOtherMLPerfRanks(r *logline.Run, report *record.Report) {
	s, o := mlperfStateOf(r), &mlperfStateOf(r).others
	taken := int64(0)
	if s.stop == 0 && o.stop > 0 {
		s.stop, s.result = o.stop, o.result
		report.AddAssumption("the run ends with run_stop of rank %d, since the rank that started it did not log one", o.stopRank)
		taken++
	}
	own := map[string]bool{} // evaluations that the rank itself has logged
	for _, c := range r.Curves.All {
		own[c.Name] = true
	}
	for _, e := range o.evaluations {
		if own[e.key] {
			continue
		}
		c := r.Curves.FindOrAdd([]byte(e.key), -1, true)
		if c == nil {
			continue
		}
		if c.Points == 0 {
			report.AddAssumption("%s is that of rank %d, since the rank that started the run did not log it", e.key, e.rank)
		}
		c.AddPoint(e.line.evaluationStep(), e.value, e.line.time/1000)
		if epoch, ok := mlperfEpochNumber(e.line); ok {
			setMLPerfQuality(r, e.key, epoch, e.value)
		}
		taken++
	}
	report.Records += taken
	report.LinesUsed += taken
	if rest := o.lines - taken; rest > 0 {
		report.AddIgnoredLines(record.IgnoredLines{Reason: otherRankReason, Lines: rest, First: o.first})
	}
}
