package trainer

import (
	"bytes"

	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/scan"
	"lockstep/pkg/logread/internal/textlog/internal/logline"
	"lockstep/pkg/runs"
)

// readKerasDashLine reads lines such as " - 89s - loss: …", which old versions
// of Keras write.
func readKerasDashLine(log *logline.Log, m []byte) logline.Result {
	if !kerasHasNoOpenEpoch(log) {
		if s := log.ShapesOf(logline.Keras).Match(m); s != nil {
			return readKerasShape(log, s)
		}
	}
	if scan.HasPrefix(m, "- ") {
		return readKerasTimeAndValues(log, m, scan.Cursor{Rest: m[len("- "):]}, 0, false)
	}
	return logline.Unknown
}

// readKerasSummary reads lines such as "196/196 - …", "196/196 [===] - …" and
// "196/196 ━━━ …". If the two numbers differ, the epoch is not finished.
func readKerasSummary(log *logline.Log, m []byte) logline.Result {
	if !kerasHasNoOpenEpoch(log) {
		if s := log.ShapesOf(logline.Keras).Match(m); s != nil {
			return readKerasShape(log, s)
		}
	}
	if i := bytes.LastIndexByte(m, '\b'); i >= 0 { // the progress bar was drawn several times
		if m = scan.SkipBlanks(m[i+1:]); len(m) == 0 {
			return logline.Idle
		}
	}
	c := scan.Cursor{Rest: m}
	done := c.ReadInteger()
	total := c.Expect("/").ReadInteger()
	if c.Failed {
		return logline.Unknown
	}
	if c.SkipBlanks(); scan.HasPrefix(c.Rest, "\x1b") {
		c.Rest = scan.SkipBlanks(stripColors(c.Rest))
	}
	bar := scan.HasPrefix(c.Rest, "━")
	switch {
	case bar: // progress bar of Keras 3
		c.Rest = scan.SkipBlanks(bytes.TrimLeft(c.Rest, "━"))
	case c.Accept("["):
		i := bytes.Index(c.Rest, []byte(" - "))
		if i < 0 {
			return logline.Unknown
		}
		c.Rest = c.Rest[i+1:]
	}
	if !bar && !c.Accept("- ") || bar && !bytes.Contains(c.Rest, []byte("/step - ")) {
		return logline.Unknown
	}
	if done != total {
		return logline.Idle
	}
	return readKerasTimeAndValues(log, m, c, total, bar)
}

// Slot fields, which identify the meaning of each number in a line of values.
const (
	kerasSeconds = 1 + iota
	kerasMilliseconds
	kerasLoss
	kerasAccuracy
	kerasValLoss
	kerasValAccuracy
	kerasLearningRate
)

// kerasField returns the slot field for the name of a value, or 0 if the value
// is not used.
func kerasField(key []byte) int {
	switch string(key) {
	case "loss":
		return kerasLoss
	case "accuracy", "acc", "sparse_categorical_accuracy", "categorical_accuracy":
		return kerasAccuracy
	case "val_loss":
		return kerasValLoss
	case "val_accuracy", "val_acc", "val_sparse_categorical_accuracy", "val_categorical_accuracy":
		return kerasValAccuracy
	case "lr", "learning_rate":
		return kerasLearningRate
	}
	return 0
}

// setKerasValue stores v in epoch e as the loss, the accuracy or the learning rate that field
// identifies. It ignores other slot fields.
func setKerasValue(e *runs.Epoch, field int, v float64) {
	switch field {
	case kerasLoss:
		e.TrainLoss = v
	case kerasAccuracy:
		e.Accuracy = v
	case kerasValLoss:
		e.ValLoss = v
	case kerasValAccuracy:
		e.ValAccuracy = v
	case kerasLearningRate:
		e.LearningRate = v
	}
}

// readKerasShape reads a line of values of a known shape.
func readKerasShape(log *logline.Log, s *scan.LineShape) logline.Result {
	seconds := s.Slots[0].Value
	if s.Slots[0].Field == kerasMilliseconds {
		seconds /= 1000
	}
	e := closeKerasEpoch(log, seconds)
	if e == nil {
		return logline.Unused
	}
	for i := range s.Slots[1:] {
		x := &s.Slots[i+1]
		setKerasValue(e, x.Field, x.Value)
	}
	return logline.Used
}

// closeKerasEpoch closes the open epoch to which the current line of values
// belongs, sets its time to seconds and returns it. It returns nil if the log
// repeats the epoch too often.
func closeKerasEpoch(log *logline.Log, seconds float64) *runs.Epoch {
	r := kerasOf(log.CountLine(logline.Keras)).selectRank(log)
	n := r.closeEpoch()
	log.Current.HasKerasValues = true
	ordinal := r.count.add(n)
	if ordinal >= maxOpenEpochs {
		log.In.AddProblem(log.Lines.Number, "the log has epoch %d more than %d times", n, maxOpenEpochs)
		return nil
	}
	e := log.FindOrAddEpoch(n, ordinal)
	if e.Seconds, e.Line = seconds, log.Lines.Number; !(seconds > 0) {
		e.Seconds = checkKerasSeconds(log, seconds)
	}
	return e
}

// readKerasTimeAndValues reads c, the rest of a line of values from its time
// on, such as "49s - loss: 2.0408 - accuracy: 0.2506". steps is the number of
// steps at the beginning of the line, or 0; bar reports whether the line is a
// progress bar of Keras 3.
func readKerasTimeAndValues(log *logline.Log, line []byte, c scan.Cursor, steps int, bar bool) logline.Result {
	text, field := c.Rest, kerasSeconds
	seconds := c.ReadFloat()
	switch {
	case c.Failed:
		return logline.Unknown
	case c.Accept("ms"):
		seconds /= 1000
		field = kerasMilliseconds
	default:
		c.Expect("s")
	}
	c.SkipBlanks()
	perStep := c.Rest[:0]
	if !c.Failed && !scan.HasPrefix(c.Rest, "- ") { // 49s 245ms/step - loss: …
		perStep = c.Rest
		i := bytes.Index(c.Rest, []byte(" - "))
		if i < 0 {
			return logline.Unknown
		}
		c.Rest = c.Rest[i+1:]
	}
	if c.Failed || !scan.HasPrefix(c.Rest, "- ") || !bytes.Contains(c.Rest, []byte("loss: ")) {
		return logline.Unknown
	}
	if kerasHasNoOpenEpoch(log) {
		e := record.NewUnmeasuredEpoch(0, log.Lines.Number)
		e.Seconds = seconds
		readKerasValues(log, c.Rest[len("- "):], &e, nil)
		return addExtraKerasValues(log, e, steps, bar)
	}
	e := closeKerasEpoch(log, seconds)
	if e == nil {
		return logline.Unused
	}
	var shape *scan.LineShape
	if bar { // such lines are long, and few of them end an epoch
		if seconds == 0 {
			r := kerasOf(log.Current).selectRank(log)
			r.unfinished, r.steps = r.unfinished+1, steps
		}
	} else {
		shape = log.ShapesOf(logline.Keras).Learn(line)
	}
	shape.AddSlot(scan.SlotNumber, text, field, nil)
	if _, n := scan.ParseDecimal(perStep); n > 0 {
		shape.AddSlot(scan.SlotNumber, perStep, 0, nil)
	}
	if !readKerasValues(log, c.Rest[len("- "):], e, shape) {
		shape = nil
	}
	log.ShapesOf(logline.Keras).Keep(shape)
	return logline.Used
}

// readKerasValues reads the values in items, such as "loss: 2.0408 - accuracy:
// 0.2506", into e, and adds them to shape. It returns false if an item has
// another form.
func readKerasValues(log *logline.Log, items []byte, e *runs.Epoch, shape *scan.LineShape) bool {
	good := true
	for len(items) > 0 {
		var item []byte
		item, items, _ = bytes.Cut(items, []byte(" - "))
		key, text, ok := bytes.Cut(item, []byte(": "))
		if !ok { // 24s/epoch, 121ms/step
			if _, n := scan.ParseDecimal(item); n > 0 {
				shape.AddSlot(scan.SlotNumber, item, 0, nil)
			}
			continue
		}
		number := scan.Cursor{Rest: text}
		v := number.ReadFloat()
		if number.Failed {
			log.In.AddProblem(log.Lines.Number, "%s: expected a number, got %.40q", key, text)
			shape, good = nil, false
			continue
		}
		field := kerasField(key)
		setKerasValue(e, field, v)
		shape.AddSlot(scan.SlotNumber, text, field, nil)
	}
	return good
}
