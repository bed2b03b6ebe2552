package textlog

import (
	"bytes"
	"math"
	"strconv"
	"strings"

	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/scan"
	"lockstep/pkg/runs"
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
	t.inBlock = sc21Block
	return used
}

// readSC21Setting reads a line "name value" after the configuration's name, up
// to a line of dashes.
func (t *textLog) readSC21Setting(m []byte) lineResult {
	if m[0] == '-' {
		t.inBlock = noBlock
		return idle
	}
	key, value, ok := bytes.Cut(m, []byte(" "))
	if !ok || !scan.IsName(key) || scan.HasPrefix(m, "Time taken") || scan.HasPrefix(m, "Avg ") || len(value) > 1000 {
		return unknown
	}
	if scan.HasPrefix(m, "Configuration ") || scan.HasPrefix(m, "Epoch ") || scan.HasPrefix(m, "DONE ") || scan.HasPrefix(m, "Total ") || len(t.stamp) == 0 {
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

// readSC21Epoch reads the line "Time taken for epoch". Epoch 1 after other
// epochs begins a run.
func (t *textLog) readSC21Epoch(m []byte) lineResult {
	c := scan.Cursor{Rest: m}
	n := c.Expect("Time taken for epoch ").ReadInteger()
	seconds := c.Expect(" is ").ReadFloat()
	c.Expect(" sec")
	rate := math.NaN()
	if c.Accept(", avg ") {
		rate = c.ReadFloat()
		c.Expect(" samples/sec")
	}
	if !c.IsComplete() {
		t.in.AddProblem(t.l.Number, "expected \"Time taken for epoch N is S sec, avg R samples/sec\", got %.80q", m)
		return unused
	}
	t.inBlock = noBlock
	if last := t.lastEpoch(); last != nil && n <= last.Epoch {
		if n <= 1 {
			t.beginRun()
		} else {
			t.in.AddProblem(t.l.Number, "duplicate epoch %d; the later line counts", n)
		}
	}
	t.countLine(formatSC21)
	e := t.findOrAddEpoch(n, 0)
	*e = record.NewUnmeasuredEpoch(n, t.l.Number)
	e.Seconds, e.SamplesPerSecond, e.Samples = t.checkSeconds(seconds), rate, computeSamples(seconds, rate)
	t.repeating = formatSC21
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

// readSC21Loss reads the lines "Avg train loss=" and "Avg val loss=".
func (t *textLog) readSC21Loss(m []byte) lineResult {
	c := scan.Cursor{Rest: m}
	c.Expect("Avg ")
	train := c.Accept("train ")
	if !train {
		c.Expect("val ")
	}
	v := c.Expect("loss=").ReadFloat()
	if !c.IsComplete() {
		t.in.AddProblem(t.l.Number, "expected \"Avg train loss=L\", got %.80q", m)
		return unused
	}
	return t.setLastEpoch(func(e *runs.Epoch) *float64 {
		if train {
			return &e.TrainLoss
		}
		return &e.ValLoss
	}, v)
}

// readSC21Validation reads the line "Total validation time:".
func (t *textLog) readSC21Validation(m []byte) lineResult {
	c := scan.Cursor{Rest: m}
	v := c.Expect("Total validation time: ").ReadFloat()
	if c.Expect(" sec"); !c.IsComplete() {
		t.in.AddProblem(t.l.Number, "expected \"Total validation time: S sec\", got %.80q", m)
		return unused
	}
	return t.setLastEpoch(func(e *runs.Epoch) *float64 { return &e.ValSeconds }, v)
}

// setLastEpoch sets a field of the last epoch.
func (t *textLog) setLastEpoch(field func(*runs.Epoch) *float64, v float64) lineResult {
	e := t.lastEpoch()
	if e == nil {
		t.in.AddProblem(t.l.Number, "value of an epoch without a line with the epoch's time before it")
		return unused
	}
	*field(e) = v
	t.countLine(formatSC21)
	t.repeating = formatSC21
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
