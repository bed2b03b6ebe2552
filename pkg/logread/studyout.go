package logread

import (
	"bytes"
	"strconv"
	"strings"

	"lockstep/pkg/runs"
)

// What the programs of the U-Net study print:
//
//	PyTorch Settings:
//	--epochs: 200
//	[INFO] EPOCH: 1/200
//	Train loss: 0.561627, elapsed time: 205.38
//	Elapsed execution time: 38765.41 sec
//	Test loss: 0.21, elapsed time: 29.63
//	IOU on test: 0.8998

func (t *textLog) studyEpoch(m []byte) verdict {
	c := cursor{b: m}
	n := c.lit("[INFO] EPOCH: ").count()
	c.lit("/").count()
	if !c.end() || n < 1 {
		return unknown
	}
	t.inBlock = noBlock
	if last := t.last(); last != nil && n < last.Epoch {
		t.begin()
	}
	if len(t.config) > 0 { // settings above the first epoch
		t.setConfig(t.config)
		t.config = nil
	}
	t.form(formStudy)
	t.epoch(n, 0)
	return used
}

// studyLoss is the line of the training of the epoch above, or of the test.
func (t *textLog) studyLoss(m []byte) verdict {
	c := cursor{b: m}
	train := c.opt("Train ")
	if !train {
		c.lit("Test ")
	}
	loss := c.lit("loss: ").num()
	seconds := c.lit(", elapsed time: ").num()
	c.blank()
	if c.opt("sec"); !c.end() {
		return unknown // many programs print a loss
	}
	if !train {
		t.form(formStudy)
		test := t.cur.test()
		test.Loss, test.Seconds = loss, seconds
		return used
	}
	e := t.last()
	if e == nil {
		t.in.problem(t.l.number, "a loss without the line \"[INFO] EPOCH: N/M\" above it")
		return unused
	}
	t.form(formStudy)
	e.TrainLoss, e.Seconds, e.Line = loss, t.took(seconds), t.l.number
	return used
}

func (t *textLog) studyElapsed(m []byte) verdict {
	c := cursor{b: m}
	v := c.lit("Elapsed execution time: ").num()
	if c.lit(" sec"); !c.end() {
		return unknown
	}
	t.form(formStudy)
	t.set(TrainingSeconds, v)
	return used
}

func (t *textLog) studyIoU(m []byte) verdict {
	c := cursor{b: m}
	v := c.lit("IOU on test: ").num()
	if !c.end() {
		return unknown
	}
	t.form(formStudy)
	t.cur.test().IoU = v
	return used
}

// test is the test of the run.
func (r *textRun) test() *runs.Test {
	info := &r.run.Info
	if info.Test == nil {
		x := nan()
		info.Test = &runs.Test{Loss: x, IoU: x, Dice: x, IoUConstant: x, DiceConstant: x, IoUUntrained: x, DiceUntrained: x, Seconds: x}
	}
	return info.Test
}

// studySetting is "--key: value"; it belongs to the run that begins below it.
func (t *textLog) studySetting(m []byte) verdict {
	if !has(m, "--") {
		t.inBlock = noBlock
		return unknown
	}
	key, value, ok := bytes.Cut(m[2:], []byte(":"))
	if !ok || !identifierText(key) || len(value) > 1000 || len(t.config) >= maxSettings {
		return unknown
	}
	if t.config == nil {
		t.config = map[string]any{}
	}
	text := strings.TrimSpace(string(value))
	if v, err := strconv.ParseFloat(text, 64); err == nil {
		t.config[string(key)] = v
	} else {
		t.config[string(key)] = text
	}
	return idle
}
