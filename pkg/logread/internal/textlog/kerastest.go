package textlog

import (
	"math"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/runs"
)

// Keras' evaluate prints lines that look like those of an epoch. If a log has
// lines "Epoch N/M", each of them opens an epoch, so that a line of values
// without an open epoch is an evaluation:
//
//	Epoch 2/2
//	196/196 - 45s - loss: 1.8 - accuracy: 0.35
//	313/313 - 2s - loss: 1.7777 - accuracy: 0.4111
//
// It is the evaluation on the test set if it is the only one after the epochs.
// But two kinds of lines repeat an epoch that already has values: the end of a
// progress bar that is written line by line, whose last step came before with 0
// s left, and the line with the values of the validation.

// Reasons for ignoring lines of Keras.
const (
	kerasAbove   = "of Keras, above the first line \"Epoch N/M\": of an evaluation, or of an epoch whose beginning is missing"
	kerasBetween = "of Keras, between epochs: of an evaluation, or of an epoch without its line \"Epoch N/M\""
	kerasAlone   = "an evaluation of Keras's without epochs above it"
	kerasSeveral = "of several evaluations of Keras's behind the epochs: the log does not say which is the test's"
	kerasAgain   = "of Keras's values of an epoch, which stand again below"
	kerasBar     = "of Keras's values of an evaluation, which stand again below"
)

// kerasEvaluation is an evaluation after the epochs.
type kerasEvaluation struct {
	label, line, steps     int
	seconds, loss, correct float64
	unfinished             bool // the line is a bar with 0 s left
}

// kerasOrphan reports whether a line of values would belong to no epoch.
func (t *textLog) kerasOrphan() bool {
	k := &t.cur.keras
	r := k.cur
	if r == nil || k.label != t.rank {
		if r = k.ranks[t.rank]; r == nil {
			return k.labels[t.rank]
		}
	}
	return r.orphan()
}

// orphan is kerasOrphan for the rank's next line of values.
func (r *kerasRank) orphan() bool { return r.opened && r.first == len(r.open) }

// kerasFirst is called at the first line "Epoch N/M" of a label. The lines
// above it that were counted as epochs are removed, unless other programs have
// logged epochs in the same run.
func (t *textLog) kerasFirst(r *kerasRank) {
	run := t.cur
	if run.keras.labels == nil {
		run.keras.labels = map[int]bool{}
	}
	run.keras.labels[t.rank] = true
	tr := run.tracks.find(trackID{t.rank, 0})
	if r.opened = true; r.last == 0 || tr == nil || run.forms[formSC21]+run.forms[formStudy]+run.forms[formRates]+run.forms[formMLPerf]+run.forms[formDLL] > 0 {
		return
	}
	n := len(tr.Epochs)
	if n > 0 {
		t.in.Report.IgnoreLines(record.Ignored{Reason: kerasAbove, Lines: int64(n), First: tr.Epochs[0].Line})
	}
	t.in.Report.Records -= int64(n)
	t.in.Report.LinesUsed -= int64(n)
	for _, e := range tr.Epochs {
		if e.Seconds != e.Seconds {
			run.keras.zeros = max(run.keras.zeros-1, 0)
		}
	}
	tr.Epochs, tr.Index = tr.Epochs[:0], nil
	*r = kerasRank{opened: true}
}

// kerasBelow reads a line of values, parsed into e, without an open epoch. bar
// reports whether it is a bar of Keras 3.
func (t *textLog) kerasBelow(e runs.Epoch, steps int, bar bool) verdict {
	run := t.form(formKeras)
	r := run.keras.rank(t.rank)
	validated := e.ValLoss == e.ValLoss || e.ValAccuracy == e.ValAccuracy
	var was *runs.Epoch
	if tr := run.tracks.find(trackID{t.rank, r.again.count(r.last)}); tr != nil {
		was = tr.Find(r.last)
	}
	switch {
	case was != nil && (bar && r.unfinished > 0 && steps == r.steps || validated && was.ValLoss != was.ValLoss && was.ValAccuracy != was.ValAccuracy):
		r.again.add(r.last)
		t.kerasReplace(r, was, e)
		return used
	case validated && (was == nil || r.count.count(r.last) == 1): // the line "Epoch N/M" is torn
		to := t.kerasValues(e.Seconds)
		if to == nil {
			return unused
		}
		t.in.Problem(t.l.Number, "the values of an epoch without its line \"Epoch N/M\": taken for epoch %d", to.Epoch)
		e.Epoch, e.Seconds = to.Epoch, to.Seconds
		*to = e
		return used
	case validated:
		t.in.Problem(t.l.Number, "the values of an epoch without its line \"Epoch N/M\": which it was cannot be told among those of several ranks")
		return unused
	}
	x := kerasEvaluation{label: t.rank, line: e.Line, steps: steps, seconds: e.Seconds, loss: e.TrainLoss, correct: e.Accuracy, unfinished: bar && e.Seconds == 0}
	if n := len(run.keras.behind); bar && n > 0 {
		if last := &run.keras.behind[n-1]; last.unfinished && last.label == x.label && last.steps == steps {
			t.in.Report.Ignore(last.line, kerasBar)
			*last = x
			return pending
		}
	}
	run.keras.behind = append(run.keras.behind, x)
	return pending
}

// kerasReplace replaces the values of an epoch by those of a line that repeats
// them.
func (t *textLog) kerasReplace(r *kerasRank, was *runs.Epoch, e runs.Epoch) {
	if was.Seconds != was.Seconds && r.unfinished > 0 {
		r.unfinished--
		t.cur.keras.zeros--
	}
	t.in.Report.LinesUsed--
	t.in.Report.Ignore(was.Line, kerasAgain)
	e.Epoch = was.Epoch
	e.Seconds = t.kerasEpochSeconds(e.Seconds)
	*was = e
}

// kerasEpochSeconds returns an epoch's time, or NaN if Keras has rounded it to 0 s.
func (t *textLog) kerasEpochSeconds(seconds float64) float64 {
	if seconds == 0 {
		t.cur.keras.zeros++
		return math.NaN()
	}
	return t.validSeconds(seconds)
}

// ignoreEvaluations ignores the evaluations so far.
func (k *kerasState) ignoreEvaluations(report *record.Report, reason string) {
	for _, x := range k.behind {
		report.Ignore(x.line, reason)
	}
	k.behind = k.behind[:0]
}

// finishKeras makes the evaluation after the epochs the test of the run.
func (r *textRun) finishKeras(report *record.Report) {
	k := &r.keras
	if k.zeros > 0 {
		report.Problem(r.line, "%s of 0 s: Keras rounds to whole seconds; their time is not used", english.Count(k.zeros, "epoch"))
	}
	all := k.behind
	switch {
	case len(all) == 0:
		return
	case len(r.tracks.all) == 0:
		k.ignoreEvaluations(report, kerasAlone)
		return
	case len(all) > 1 && !k.oneEach():
		k.ignoreEvaluations(report, kerasSeveral)
		return
	}
	test := r.test()
	var loss, correct record.Mean
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
	report.Assume("the test is the evaluation in line %d, the only one behind the epochs", all[0].line)
}

// oneEach reports whether each rank with epochs has evaluated once, in equally
// many steps.
func (k *kerasState) oneEach() bool {
	of := map[int]int{}
	for _, x := range k.behind {
		of[x.label]++
		if x.steps != k.behind[0].steps {
			return false
		}
	}
	for label, r := range k.ranks {
		if r.last > 0 && of[label] != r.count.count(r.last) || r.last == 0 && of[label] > 0 {
			return false
		}
	}
	return true
}
