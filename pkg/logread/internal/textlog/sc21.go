package textlog

import (
	"bytes"
	"math"
	"strconv"
	"strings"

	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/scan"
	"lockstep/pkg/logread/internal/template"
)

// The logger of the SC21 tutorial "Deep Learning at Scale" (its train.py).
// Seconds × samples/sec is the number of samples of the epoch.
//
//	2021-11-12 00:32:26,118 - root - INFO - Configuration name: base
//	2021-11-12 00:32:26,119 - root - INFO - global_batch_size 64
//	2021-11-12 00:46:23,492 - root - INFO - Time taken for epoch 1 is 752.95 sec, avg 87.04 samples/sec
//	2021-11-12 00:46:23,492 - root - INFO -   Avg train loss=0.014280
//	2021-11-12 00:47:36,657 - root - INFO -   Avg val loss=0.007129
//	2021-11-12 00:47:36,657 - root - INFO -   Total validation time: 73.16 sec
//	2021-11-12 02:50:57,853 - root - INFO - DONE ---- rank 0

// The lines that the logger writes for each epoch.
const (
	sc21EpochLine      = "Time taken for epoch {epoch} is {seconds} sec, avg {samples_per_second} samples/sec"
	sc21TrainLossLine  = "Avg train loss={train_loss}"
	sc21ValLossLine    = "Avg val loss={val_loss}"
	sc21ValSecondsLine = "Total validation time: {val_seconds} sec"
)

// sc21Format returns the format of the logger of the SC21 tutorial.
func sc21Format() format {
	return format{name: "SC21 log", readInBlock: (*textLog).readSC21Setting, notInBlock: []formatID{formatSC21, formatKeras}, lines: []lineRule{
		{
			prefix: "Time taken for epoch ", use: (*textLog).addSC21Epoch, more: readEpochLines, endsWithValue: true,
			templates: []string{sc21EpochLine, "Time taken for epoch {epoch} is {seconds} sec"},
		},
		{
			prefix: "Avg train loss=", use: (*textLog).setSC21TrainLoss, more: readEpochLines, endsWithValue: true,
			templates: []string{sc21TrainLossLine},
		},
		{
			prefix: "Avg val loss=", use: (*textLog).setSC21ValLoss, more: readEpochLines, endsWithValue: true,
			templates: []string{sc21ValLossLine},
		},
		{
			prefix: "Total validation time: ", use: (*textLog).setSC21ValSeconds, more: readEpochLines,
			templates: []string{sc21ValSecondsLine},
		},
		{prefix: "Configuration name: ", read: (*textLog).readSC21Name},
		{prefix: "DONE ---- rank ", read: (*textLog).readSC21Done},
	}}
}

// readSC21Name reads the line "Configuration name:", which begins a run. One
// line per setting follows.
func (t *textLog) readSC21Name(m []byte) lineResult {
	name := strings.TrimSpace(string(m[len("Configuration name: "):]))
	if name == "" || len(name) > 200 {
		return unknown
	}
	if !t.cur.epochs.isEmpty() || t.cur.run.Info.Series != "" && t.cur.run.Info.Series != name {
		t.beginRun()
	}
	run := t.countLine(formatSC21)
	run.run.Info.Series = name
	t.block = formatSC21
	return used
}

// readSC21Setting reads a line "name value" after the configuration's name, up
// to a line of dashes.
func (t *textLog) readSC21Setting(m []byte) lineResult {
	if m[0] == '-' {
		t.block = noBlock
		return idle
	}
	key, value, ok := bytes.Cut(m, []byte(" "))
	if !ok || !scan.IsName(key) || len(value) > 1000 || len(t.stamp) == 0 {
		return unknown
	}
	text := strings.TrimSpace(string(value))
	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		t.addSetting(string(key), text)
		return used
	}
	t.addSetting(string(key), v)
	info := &t.cur.run.Info
	switch n := int(v); {
	case !record.IsPlausibleCount(v):
	case string(key) == "global_batch_size":
		info.GlobalBatch = n
	case string(key) == "local_batch_size":
		info.BatchPerWorker = n
	case string(key) == "world_size":
		info.Workers = n
	}
	return used
}

// addSC21Epoch adds an epoch: its number, seconds and, unless the line ends
// before it, samples per second. Epoch 1 after other epochs begins a run.
func (t *textLog) addSC21Epoch(v []template.Value) lineResult {
	n, seconds, rate := int(v[0].Number), v[1].Number, math.NaN()
	if len(v) > 2 {
		rate = v[2].Number
	}
	if n < 0 || n >= 1<<31 {
		t.in.AddProblem(t.l.Number, "got epoch %d, want 0 or more", n)
		return unused
	}
	t.block = noBlock
	if last := t.lastEpoch(); last != nil && n <= last.Epoch {
		switch {
		case n <= 1:
			t.beginRun()
		case n < last.Epoch:
			t.in.Report.AddAssumptionOnce("epoch %d in line %d does not continue the epochs before it: it begins another run", n, t.l.Number)
			t.beginRun()
		default:
			t.in.AddProblem(t.l.Number, "duplicate epoch %d; the later line counts", n)
		}
	}
	t.countLine(formatSC21)
	e := t.findOrAddEpoch(n, 0)
	*e = record.NewUnmeasuredEpoch(n, t.l.Number)
	e.Seconds, e.SamplesPerSecond, e.Samples = t.checkSeconds(seconds), rate, computeSamples(seconds, rate)
	return used
}

// computeSamples returns the number of samples of an epoch, which is seconds ×
// rate. It returns 0 if the numbers in the log are rounded so much that the
// product is not close to an integer.
func computeSamples(seconds, rate float64) int {
	samples := seconds * rate
	if !(samples > 0.5 && samples < 1<<40) {
		return 0
	}
	if n := int64(samples + 0.5); math.Abs(samples-float64(n)) < 1e-9*samples {
		return int(n)
	}
	return 0
}

// setSC21TrainLoss sets the loss of the last epoch.
func (t *textLog) setSC21TrainLoss(v []template.Value) lineResult {
	return t.setLastEpoch(epochTrainLoss, v)
}

// setSC21ValLoss sets the validation loss of the last epoch.
func (t *textLog) setSC21ValLoss(v []template.Value) lineResult {
	return t.setLastEpoch(epochValLoss, v)
}

// setSC21ValSeconds sets the duration of the last epoch's validation.
func (t *textLog) setSC21ValSeconds(v []template.Value) lineResult {
	return t.setLastEpoch(epochValSeconds, v)
}

// setLastEpoch sets value x of the last epoch to the line's only value.
func (t *textLog) setLastEpoch(x epochValue, v []template.Value) lineResult {
	e := t.lastEpoch()
	if e == nil {
		t.in.AddProblem(t.l.Number, "value of an epoch without a line with the epoch's time before it")
		return unused
	}
	if x.isKnown(e) {
		t.in.AddProblem(t.l.Number, "second value of epoch %d: a line with the time of the next epoch is missing before it", e.Epoch)
		return unused
	}
	x.set(e, v[0].Number)
	t.countLine(formatSC21)
	return used
}

// readSC21Done reads the line "DONE ---- rank N", with ranks from 0. If only
// rank 0, which also writes the log file, reports its end, the number of ranks
// stays unknown.
func (t *textLog) readSC21Done(m []byte) lineResult {
	c := scan.Cursor{Rest: m}
	rank := c.Expect("DONE ---- rank ").ReadInteger()
	if !c.IsComplete() || rank >= record.MaxWorkers {
		return unknown
	}
	t.countLine(formatSC21).done = max(t.cur.done, rank+1)
	return used
}
