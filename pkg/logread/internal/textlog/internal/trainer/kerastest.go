package trainer

import (
	"math"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/textlog/internal/logline"
	"lockstep/pkg/runs"
)

// Keras' evaluate prints lines that look like lines of an epoch. If a log has
// lines "Epoch N/M", a line of values without an open epoch is an evaluation:
//
//	Epoch 2/2
//	196/196 - 45s - loss: 1.8 - accuracy: 0.35
//	313/313 - 2s - loss: 1.7777 - accuracy: 0.4111
//
// A single evaluation after the epochs is taken as the one on the test set. Two
// other kinds of lines repeat an epoch that already has values: the end of a
// progress bar that is written line by line, whose last step was logged before
// with 0 s left, and the line that adds the values of the validation.

const (
	kerasAbove   = "Keras line before the first \"Epoch N/M\": of an evaluation, or of an epoch whose beginning is missing"
	kerasBetween = "Keras line between epochs: of an evaluation, or of an epoch without its line \"Epoch N/M\""
	kerasAlone   = "Keras evaluation without epochs before it"
	kerasSeveral = "one of several Keras evaluations after the epochs: the log does not show which is the test"
	kerasAgain   = "Keras values of an epoch that a later line repeats"
	kerasBar     = "Keras values of an evaluation that a later line repeats"
)

type kerasEvaluation struct {
	label, line, steps     int
	seconds, loss, correct float64 // correct is the accuracy
	unfinished             bool    // the line is a progress bar with 0 s left
}

// kerasHasNoOpenEpoch reports whether the rank of the current line prints lines "Epoch N/M" but has
// no open epoch. A line of values then does not belong to an epoch.
func kerasHasNoOpenEpoch(log *logline.Log) bool {
	r := kerasStateOf(log.Current).ranks[log.Rank]
	if r == nil {
		return (*kerasLabelsWithEpochs(log))[log.Rank]
	}
	return r.hasNoOpenEpoch()
}

// hasNoOpenEpoch reports whether the rank writes lines "Epoch N/M" and has no open epoch.
func (r *kerasRankState) hasNoOpenEpoch() bool { return r.opened && len(r.open) == 0 }

// removeInferredKerasEpochs is called at the first line "Epoch N/M" of rank r. It removes the epochs that
// were counted by lines of values until then, unless other programs have logged epochs in the same run.
func removeInferredKerasEpochs(log *logline.Log, r *kerasRankState) {
	run := log.Current
	record.PutInMap(kerasLabelsWithEpochs(log), log.Rank, true)
	list := run.Epochs.Find(logline.RankID{Rank: log.Rank})
	if r.opened = true; r.last == 0 || list == nil || run.LinesByFormat[logline.SC21]+run.LinesByFormat[logline.Study]+run.LinesByFormat[logline.Rates] > 0 {
		return
	}
	n := len(list.Epochs)
	if n > 0 {
		log.In.Report.AddIgnoredLines(record.IgnoredLines{Reason: kerasAbove, Lines: int64(n), First: list.Epochs[0].Line})
	}
	log.In.Report.Records -= int64(n)
	log.In.Report.LinesUsed -= int64(n)
	k := kerasStateOf(run)
	for _, e := range list.Epochs {
		if e.Seconds != e.Seconds {
			k.zeros = max(k.zeros-1, 0)
		}
	}
	list.Epochs, list.Index = list.Epochs[:0], nil
	*r = *newKerasRank(true)
	run.HasKerasValues = false
	for _, other := range k.ranks {
		run.HasKerasValues = run.HasKerasValues || other.last > 0
	}
}

// addExtraKerasValues adds the values e of an evaluation, or of a repetition of an epoch. steps and
// bar are as in readKerasTimeAndValues.
func addExtraKerasValues(log *logline.Log, e runs.Epoch, steps int, bar bool) logline.Result {
	run := log.CountLine(logline.Keras)
	k := kerasStateOf(run)
	r := k.findOrAddRank(log)
	validated := e.ValLoss == e.ValLoss || e.ValAccuracy == e.ValAccuracy
	was := run.Epochs.Find(logline.RankID{Rank: log.Rank, Ordinal: r.repeated[r.last]}).Find(r.last)
	switch {
	case was != nil && (bar && r.unfinished > 0 && steps == r.steps || validated && was.ValLoss != was.ValLoss && was.ValAccuracy != was.ValAccuracy):
		r.repeated[r.last]++
		replaceKerasEpoch(log, r, was, e)
		return logline.Used
	case validated && (was == nil || r.again[r.last] == 0): // the line "Epoch N/M" is torn
		to := closeKerasEpoch(log, e.Seconds)
		if to == nil {
			return logline.Unused
		}
		log.AddProblem("values of an epoch without its line \"Epoch N/M\": assigned to epoch %d", to.Epoch)
		e.Epoch, e.Seconds = to.Epoch, to.Seconds
		*to = e
		return logline.Used
	case validated:
		return log.Refuse("values of an epoch without its line \"Epoch N/M\": among the epochs of several ranks, it is unknown which")
	}
	x := kerasEvaluation{label: log.Rank, line: e.Line, steps: steps, seconds: e.Seconds, loss: e.TrainLoss, correct: e.Accuracy, unfinished: bar && e.Seconds == 0}
	if n := len(k.evaluations); bar && n > 0 {
		if last := &k.evaluations[n-1]; last.unfinished && last.label == x.label && last.steps == steps {
			log.In.Report.AddIgnored(last.line, kerasBar)
			*last = x
			return logline.Pending
		}
	}
	k.evaluations = append(k.evaluations, x)
	return logline.Pending
}

// replaceKerasEpoch replaces the epoch old by the values of a later line that repeats it.
func replaceKerasEpoch(log *logline.Log, r *kerasRankState, old *runs.Epoch, updated runs.Epoch) {
	if old.Seconds != old.Seconds && r.unfinished > 0 {
		r.unfinished--
		kerasStateOf(log.Current).zeros--
	}
	log.In.Report.LinesUsed--
	log.In.Report.AddIgnored(old.Line, kerasAgain)
	updated.Epoch = old.Epoch
	updated.Seconds = kerasSecondsOrNaN(log, updated.Seconds)
	*old = updated
}

// kerasSecondsOrNaN returns seconds, or NaN if it is not a valid duration of an epoch. It also
// returns NaN for 0, to which Keras rounds short durations, and counts these epochs.
func kerasSecondsOrNaN(log *logline.Log, seconds float64) float64 {
	if seconds == 0 {
		kerasStateOf(log.Current).zeros++
		return math.NaN()
	}
	return log.EpochSecondsOrNaN(seconds)
}

// ignoreEvaluations removes the evaluations so far and reports their lines as ignored.
func (k *kerasState) ignoreEvaluations(report *record.Report, reason string) {
	for _, x := range k.evaluations {
		report.AddIgnored(x.line, reason)
	}
	k.evaluations = k.evaluations[:0]
}

// setPlannedEpochs adds the M of "Epoch N/M" to the settings of the run. It does not if the
// settings already contain it, if templates read the lines of the run, or if the line is "Epoch
// 1/1", which comes from a loop of unknown length.
func setPlannedEpochs(r *logline.Run) {
	planned := 0
	for _, rank := range kerasStateOf(r).ranks {
		planned = max(planned, rank.total)
	}
	if planned < 2 || r.Epochs.IsEmpty() || r.LinesByFormat[logline.UserTemplates] > 0 {
		return
	}
	if _, has := r.Run.Info.Config["epochs"]; !has {
		record.SetConfigValue(&r.Run.Info, "epochs", float64(planned))
	}
}

// finishKeras turns the evaluation after the epochs into the test of the run.
func finishKeras(r *logline.Run, report *record.Report) {
	k := kerasStateOf(r)
	setPlannedEpochs(r)
	if k.zeros > 0 {
		report.AddProblem(r.Line, "got %s of 0 s: Keras rounds to full seconds; their times are not used", english.FormatCount(k.zeros, "epoch"))
	}
	all := k.evaluations
	switch {
	case len(all) == 0:
		return
	case r.Epochs.IsEmpty():
		k.ignoreEvaluations(report, kerasAlone)
		return
	case len(all) > 1 && !k.hasOneEvaluationPerRank():
		k.ignoreEvaluations(report, kerasSeveral)
		return
	}
	test := findOrAddTest(r)
	var loss, correct record.MeanIgnoringNaN
	for _, x := range all {
		loss.Add(x.loss)
		correct.Add(x.correct)
		test.Seconds = max(x.seconds, test.Seconds)
		if test.Seconds != test.Seconds {
			test.Seconds = x.seconds
		}
	}
	test.Loss = loss.Value()
	if correct.N > 0 {
		test.Accuracy = correct.Value()
	}
	report.LinesUsed += int64(len(all))
	report.AddAssumption("the test is the evaluation in line %d, the only one after the epochs", all[0].line)
}

// hasOneEvaluationPerRank reports whether each rank with epochs has evaluated once, all in the same
// number of steps.
func (k *kerasState) hasOneEvaluationPerRank() bool {
	of := map[int]int{}
	for _, x := range k.evaluations {
		of[x.label]++
		if x.steps != k.evaluations[0].steps {
			return false
		}
	}
	for label, r := range k.ranks {
		if r.last > 0 && of[label] != 1+r.again[r.last] || r.last == 0 && of[label] > 0 {
			return false
		}
	}
	return true
}
