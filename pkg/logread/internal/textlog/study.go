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

// The output of the programs of the U-Net study:
//
//	PyTorch Settings:
//	--epochs: 200
//	[INFO] EPOCH: 1/200
//	Train loss: 0.561627, elapsed time: 205.38
//	Elapsed execution time: 38765.41 sec
//	Test loss: 0.21, elapsed time: 29.63
//	IOU on test: 0.8998

// Study returns the format of the programs of the U-Net study.
func Study() format {
	return format{name: "U-Net study stdout", readInBlock: (*textLog).readStudySetting, lines: []lineRule{
		{prefix: "[INFO] EPOCH: ", read: (*textLog).readStudyEpoch},
		{prefix: "Train loss: ", read: (*textLog).readStudyLoss, endsWithValue: true},
		{prefix: "Test loss: ", read: (*textLog).readStudyLoss, endsWithValue: true},
		{prefix: "IOU on test: ", read: (*textLog).readStudyIoU, endsWithValue: true},
		{prefix: "Elapsed execution time: ", read: (*textLog).readStudyElapsed},
		{prefix: "PyTorch Settings:", read: (*textLog).readStudySettings},
		{prefix: "TensorFlow Settings:", read: (*textLog).readStudySettings},
	}}
}

// readStudyEpoch reads the line "[INFO] EPOCH: N/M", which begins an epoch.
func (t *textLog) readStudyEpoch(m []byte) lineResult {
	c := scan.Cursor{Rest: m}
	n := c.Expect("[INFO] EPOCH: ").ReadInteger()
	c.Expect("/").ReadInteger()
	if !c.IsComplete() || n < 1 {
		return unknown
	}
	t.block = noBlock
	if last := t.lastEpoch(); last != nil && n < last.Epoch {
		t.beginRun()
	}
	if len(t.config) > 0 { // settings before the first epoch
		t.addConfig(t.config)
		t.config = nil
	}
	t.countLine(formatStudy)
	t.findOrAddEpoch(n, 0)
	return used
}

// readStudyLoss reads the lines "Train loss:", which belongs to the current
// epoch, and "Test loss:", which belongs to the run.
func (t *textLog) readStudyLoss(m []byte) lineResult {
	c := scan.Cursor{Rest: m}
	train := c.Accept("Train ")
	if !train {
		c.Expect("Test ")
	}
	loss := c.Expect("loss: ").ReadFloat()
	seconds := c.Expect(", elapsed time: ").ReadFloat()
	c.SkipBlanks()
	if c.Accept("sec"); !c.IsComplete() {
		return unknown // many programs print a loss
	}
	if !train {
		t.countLine(formatStudy)
		test := t.cur.findOrAddTest()
		test.Loss, test.Seconds = loss, seconds
		return used
	}
	e := t.lastEpoch()
	if e == nil {
		t.in.AddProblem(t.l.Number, "loss without a line \"[INFO] EPOCH: N/M\" before it")
		return unused
	}
	if e.TrainLoss == e.TrainLoss || e.Seconds == e.Seconds { // the epoch has its line
		t.in.AddProblem(t.l.Number, "second training loss of epoch %d: a line \"[INFO] EPOCH: N/M\" before it is missing", e.Epoch)
		return unused
	}
	t.countLine(formatStudy)
	e.TrainLoss, e.Seconds, e.Line = loss, t.checkSeconds(seconds), t.l.Number
	return used
}

// readStudyElapsed reads the line "Elapsed execution time:" with the time of
// the complete training.
func (t *textLog) readStudyElapsed(m []byte) lineResult {
	c := scan.Cursor{Rest: m}
	v := c.Expect("Elapsed execution time: ").ReadFloat()
	if c.Expect(" sec"); !c.IsComplete() {
		return unknown
	}
	t.countLine(formatStudy)
	t.addSetting(record.TrainingSecondsKey, v)
	return used
}

// readStudyIoU reads the line "IOU on test:".
func (t *textLog) readStudyIoU(m []byte) lineResult {
	c := scan.Cursor{Rest: m}
	v := c.Expect("IOU on test: ").ReadFloat()
	if !c.IsComplete() {
		return unknown
	}
	t.countLine(formatStudy)
	t.cur.findOrAddTest().IoU = v
	return used
}

// findOrAddTest returns the test of the run, and adds it without values if it
// is missing.
func (r *textRun) findOrAddTest() *runs.Test {
	info := &r.run.Info
	if info.Test == nil {
		x := math.NaN()
		info.Test = &runs.Test{Loss: x, IoU: x, Dice: x, IoUConstant: x, DiceConstant: x, IoUUntrained: x, DiceUntrained: x, Seconds: x}
	}
	return info.Test
}

// readStudySettings reads the lines "PyTorch Settings:" and "TensorFlow
// Settings:", which begin a list of settings.
func (t *textLog) readStudySettings([]byte) lineResult {
	t.block = formatStudy
	return idle
}

// readStudySetting reads the line "--key: value" in a list of settings, which
// belongs to the run after it.
func (t *textLog) readStudySetting(m []byte) lineResult {
	if !scan.HasPrefix(m, "--") {
		t.block = noBlock
		return unknown
	}
	key, value, ok := bytes.Cut(m[2:], []byte(":"))
	if !ok || !scan.IsName(key) || len(value) > 1000 || len(t.config) >= record.MaxSettings {
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
