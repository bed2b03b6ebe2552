package trainer

import (
	"bytes"

	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/template"
	"lockstep/pkg/logread/internal/textlog/internal/logline"
)

// Keras, with verbose=2 (one line per epoch) or the end of the progress bar of
// verbose=1:
//
//	Epoch 1/5
//	196/196 - 49s - loss: 2.0408 - accuracy: 0.2506
//	196/196 - 24s - loss: 2.0245 - accuracy: 0.2561 - 24s/epoch - 121ms/step
//	 - 89s - loss: 1.9173 - acc: 0.2980 - val_loss: 1.6662 - val_acc: 0.4036
//	196/196 - 49s - 245ms/step - accuracy: 0.2506 - loss: 2.0408
//	196/196 [==============================] - 49s 245ms/step - loss: 2.0408 - accuracy: 0.2506
//	196/196 ━━━━━━━━━━━━━━━━━━━━ 49s 245ms/step - accuracy: 0.2506 - loss: 2.0408
//
// The last form is written by Keras 3, usually in color.
//
// The lines of several ranks are interleaved. Each rank writes "Epoch N/M" before that epoch's
// values, so a line of values belongs to the rank's open epoch that was opened first. Without an
// open epoch, it is an evaluation (kerastest.go).

type kerasState struct {
	ranks map[int]*kerasRankState // by label
	// evaluations contains the evaluations after the last epoch.
	evaluations []kerasEvaluation
	zeros       int // number of epochs with a time of 0 s
}

// Keras returns the format of Keras.
func Keras() logline.Format {
	return logline.Format{Name: "Keras log", Finish: finishKeras, EndsWithValue: containsKerasLoss, Rules: []logline.Rule{
		{Templates: []string{"Epoch {epoch}/{epochs}"}, Use: beginKerasEpoch, MayBeOther: true},
		{First: "-", Read: readKerasDashLine},
		{First: "0123456789", Read: readKerasSummary},
	}}
}

func kerasStateOf(r *logline.Run) *kerasState {
	return logline.FormatState[kerasState](&r.States, logline.Keras)
}

// kerasRankState is the state of the ranks that write with the same label. Without labels, all ranks
// share one kerasRankState.
type kerasRankState struct {
	opened bool // a line "Epoch N/M" has this label
	// writers is the number of ranks with this label, counted by the lines "Epoch N/M" per epoch.
	// begun is the highest N so far, and times the number of lines with it.
	writers, begun, times int
	// loops is the number of lines "Epoch 1/1", and atOnce the number of these before the first values.
	loops, atOnce int
	open          []int       // epochs without values, in the order of their lines "Epoch N/M"
	last          int         // number of the last epoch with values
	total         int         // number of epochs in the last line "Epoch N/M"
	again         map[int]int // number of lines of values per epoch, after a line of that or a later epoch
	repeated      map[int]int // number of lines that repeat the values, per epoch
	// unfinished is the number of epochs whose values come from a progress bar with 0 s left, and
	// steps the number of steps in the last one.
	unfinished, steps int
}

func newKerasRank(opened bool) *kerasRankState {
	return &kerasRankState{opened: opened, again: map[int]int{}, repeated: map[int]int{}}
}

func kerasLabelsWithEpochs(log *logline.Log) *map[int]bool {
	return logline.FormatState[map[int]bool](&log.States, logline.Keras)
}

func (k *kerasState) findOrAddRank(log *logline.Log) *kerasRankState {
	r := k.ranks[log.Rank]
	if r == nil {
		r = newKerasRank((*kerasLabelsWithEpochs(log))[log.Rank])
		record.PutInMap(&k.ranks, log.Rank, r)
	}
	return r
}

// closeEpoch closes the open epoch to which the next values belong, and returns its number. If the
// log has no lines "Epoch N/M", the number is that of the line of values.
func (r *kerasRankState) closeEpoch() int {
	n := r.last + 1
	if len(r.open) > 0 {
		n, r.open = r.open[0], r.open[1:]
	}
	r.last = max(r.last, n)
	return n
}

// maxOpenEpochs limits the open epochs, and the repetitions of one epoch, and so the memory that a
// damaged log can take. An epoch is open from its line "Epoch N/M" until its values have been read.
const maxOpenEpochs = 1 << 16

func containsKerasLoss(m []byte) bool { return bytes.Contains(m, []byte("s - loss: ")) }

// beginKerasEpoch opens an epoch: its number and the number of all epochs. Epoch 1 begins a run if
// it follows a later epoch, an evaluation, or another program's epochs.
func beginKerasEpoch(log *logline.Log, v []template.Value) logline.Result {
	n, total := int(v[0].Number), int(v[1].Number)
	if n < 1 || total < n || total >= 1<<31 {
		return logline.Unknown
	}
	k := kerasStateOf(log.Current)
	r := k.findOrAddRank(log)
	if !r.opened {
		removeInferredKerasEpochs(log, r)
	}
	if n == 1 && r.last == 0 && log.Current.Program != logline.Command && len(log.Current.Epochs.All) > 0 || n == 1 && len(r.open) == 0 && (r.last > 1 && (total > 1 || r.loops == 0) || r.last > 0 && len(k.evaluations) > 0) {
		log.BeginRun()
	} else if r.beginsOtherRun(n, total) {
		log.In.Report.AddAssumptionOnce("epoch %d of %d in line %d does not continue the epochs before it", n, total, log.Lines.Number)
		log.BeginRun()
	}
	k = kerasStateOf(log.CountLine(logline.Keras))
	if len(k.evaluations) > 0 {
		k.ignoreEvaluations(log.In.Report, kerasBetween)
	}
	r = k.findOrAddRank(log)
	if len(r.open) >= maxOpenEpochs {
		return log.Refuse("more than %d epochs are open; this one is ignored", maxOpenEpochs)
	}
	r.total = total
	if total == 1 {
		n = nextKerasLoopEpoch(log, r)
	}
	if lost := r.openEpoch(n); lost > 0 {
		log.AddProblem("epoch %d has no values: epoch %d begins before them", lost, n)
	}
	return logline.Used
}

// beginsOtherRun reports whether the line "Epoch n/total" belongs to another run than the rank's epochs
// before it, although n is not 1, because the log is an excerpt. If several ranks write without labels,
// a late one may repeat the last epoch. A program that calls fit again continues after the last epoch.
func (r *kerasRankState) beginsOtherRun(n, total int) bool {
	if n == 1 || r.last == 0 || !r.hasNoOpenEpoch() {
		return false
	}
	return n < r.last || n == r.last && r.writers <= 1 || r.total > 1 && total != r.total && n != r.total+1
}

// nextKerasLoopEpoch returns the epoch that rank r opens by a line "Epoch 1/1", which a program that
// calls fit in a loop prints for each epoch. Before the first values, each rank prints it once.
func nextKerasLoopEpoch(log *logline.Log, r *kerasRankState) int {
	r.loops++
	if r.last == 0 {
		r.atOnce = r.loops
		return 1
	}
	n := (r.loops-1)/max(r.atOnce, 1) + 1
	if n > 1 {
		log.In.Report.AddAssumptionOnce("\"Epoch 1/1\" is repeated after values: a loop over the epochs of one run")
	}
	return n
}

// openEpoch opens epoch n. Each rank has at most one open epoch, so if more are open, the first
// one's values are missing in the log: openEpoch then closes it and returns its number, otherwise 0.
func (r *kerasRankState) openEpoch(n int) (lost int) {
	switch {
	case n > r.begun:
		r.begun, r.times = n, 1
	case n == r.begun:
		r.times++
	default: // of a rank that is behind
		r.times = max(r.times, 2)
	}
	r.writers = max(r.writers, r.times)
	if len(r.open) >= r.writers {
		lost, r.open = r.open[0], r.open[1:]
	}
	r.open = append(r.open, n)
	return lost
}
