package trainer

import (
	"bytes"

	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/scan"
	"lockstep/pkg/logread/internal/textlog/internal/logline"
	"lockstep/pkg/runs"
)

// readKerasDashLine reads lines such as " - 89s - loss: …" of old versions.
func readKerasDashLine(log *logline.Log, m []byte) logline.Result {
	if scan.HasPrefix(m, "- ") {
		return readKerasTimeAndValues(log, scan.Cursor{Rest: m[len("- "):]}, 0, false)
	}
	return logline.Unknown
}

// readKerasSummary reads lines such as "196/196 - …", "196/196 [===] - …" and "196/196 ━━━ …". If
// the two numbers differ, the epoch is not finished.
func readKerasSummary(log *logline.Log, m []byte) logline.Result {
	if bytes.IndexByte(m, '\b') >= 0 { // the progress bar was drawn several times
		if m = scan.SkipBlanks(m[bytes.LastIndexByte(m, '\b')+1:]); len(m) == 0 {
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
		c.Rest = scan.SkipBlanks(stripANSIColors(c.Rest))
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
	return readKerasTimeAndValues(log, c, total, bar)
}

// setKerasValue stores the value with the given name in e. It ignores unknown names.
func setKerasValue(e *runs.Epoch, name []byte, v float64) {
	switch string(name) {
	case "loss":
		e.TrainLoss = v
	case "accuracy", "acc", "sparse_categorical_accuracy", "categorical_accuracy":
		e.Accuracy = v
	case "val_loss":
		e.ValLoss = v
	case "val_accuracy", "val_acc", "val_sparse_categorical_accuracy", "val_categorical_accuracy":
		e.ValAccuracy = v
	case "lr", "learning_rate":
		e.LearningRate = v
	}
}

// closeKerasEpoch closes the open epoch of the current line of values, sets its time to seconds and
// returns it, or nil if the log repeats the epoch too often.
func closeKerasEpoch(log *logline.Log, seconds float64) *runs.Epoch {
	r := kerasStateOf(log.CountLine(logline.Keras)).findOrAddRank(log)
	last := r.last
	n := r.closeEpoch()
	log.Current.HasKerasValues = true
	ordinal := 0
	if n <= last { // of another rank
		r.again[n]++
		ordinal = r.again[n]
	}
	if ordinal >= maxOpenEpochs {
		log.AddProblem("the log has epoch %d more than %d times", n, maxOpenEpochs)
		return nil
	}
	e := log.FindOrAddEpoch(n, ordinal)
	if e.Seconds, e.Line = seconds, log.Lines.Number; !(seconds > 0) {
		e.Seconds = kerasSecondsOrNaN(log, seconds)
	}
	return e
}

// readKerasTimeAndValues reads c, the rest of a line of values from its time on, such as "49s -
// loss: 2.0408 - accuracy: 0.2506". steps is the number of steps at the beginning of the line, or
// 0; bar reports whether the line is a progress bar of Keras 3.
func readKerasTimeAndValues(log *logline.Log, c scan.Cursor, steps int, bar bool) logline.Result {
	seconds := c.ReadFloat()
	switch {
	case c.Failed:
		return logline.Unknown
	case c.Accept("ms"):
		seconds /= 1000
	default:
		c.Expect("s")
	}
	c.SkipBlanks()
	if !c.Failed && !scan.HasPrefix(c.Rest, "- ") { // 49s 245ms/step - loss: …
		i := bytes.Index(c.Rest, []byte(" - "))
		if i < 0 {
			return logline.Unknown
		}
		c.Rest = c.Rest[i+1:]
	}
	if c.Failed || !scan.HasPrefix(c.Rest, "- ") || !bytes.Contains(c.Rest, []byte("loss: ")) {
		return logline.Unknown
	}
	items := c.Rest[len("- "):]
	if kerasHasNoOpenEpoch(log) {
		e := record.NewUnmeasuredEpoch(0, log.Lines.Number)
		e.Seconds = seconds
		readKerasValues(log, items, &e)
		return addExtraKerasValues(log, e, steps, bar)
	}
	e := closeKerasEpoch(log, seconds)
	if e == nil {
		return logline.Unused
	}
	if bar && seconds == 0 {
		r := kerasStateOf(log.Current).findOrAddRank(log)
		r.unfinished, r.steps = r.unfinished+1, steps
	}
	readKerasValues(log, items, e)
	return logline.Used
}

func readKerasValues(log *logline.Log, items []byte, e *runs.Epoch) {
	separator := []byte(" - ")
	for {
		key, text, ok := bytes.Cut(items, []byte(": "))
		if !ok {
			return
		}
		if i := bytes.LastIndex(key, separator); i >= 0 { // after 24s/epoch or 121ms/step
			key = key[i+len(separator):]
		}
		number := scan.Cursor{Rest: text}
		if v := number.ReadFloat(); number.Failed {
			text, _, _ = bytes.Cut(text, separator)
			log.AddProblem("%s: expected a number, got %.40q", key, text)
		} else {
			setKerasValue(e, key, v)
		}
		_, items, _ = bytes.Cut(number.Rest, separator)
	}
}
