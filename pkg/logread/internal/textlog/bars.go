package textlog

import (
	"bytes"
	"math"

	"lockstep/pkg/logread/internal/progress"
	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/scan"
	"lockstep/pkg/runs"
)

// Progress bars of tqdm 4 (format_meter) and of Lightning, which draws them with tqdm
// (versions 1.0 to 2.6: TQDMProgressBar, _init_dist_connection, _log_device_info):
//
//	Epoch 3/10: 100%|██████████| 625/625 [00:12<00:00, 51.20it/s, loss=0.31]
//	Epoch 2: 100%|██████████| 938/938 [00:11<00:00, 82.64it/s, v_num=3, train_loss=0.1]
//	Initializing distributed: GLOBAL_RANK: 0, MEMBER: 1/4
//	All distributed processes registered. Starting with 4 processes
//
// Only finished bars whose description has the number of an epoch are used. Lightning draws
// all bars of a training into one line, separated by \r, and draws a finished bar again after
// the validation; the time of an epoch is that of the first finished bar.

// barState is what the bars of a run contain so far.
type barState struct {
	ranks map[int]*barRank // by label
}

// barRank is the last finished bar of one rank.
type barRank struct {
	epoch   int
	seconds float64     // elapsed when the bar was finished first
	before  *runs.Epoch // values of the epoch before it; nil if there is none
}

// readBar reads a progress bar.
func (t *textLog) readBar(m []byte) lineResult {
	if bytes.Index(m, []byte("%|")) < 0 {
		return unknown
	}
	bar, ok := progress.ParseBar(m)
	if !ok {
		return unknown
	}
	epoch, part := parseBarDescription(bar.Description)
	if !bar.IsFinished() || epoch < 0 || part == otherPart {
		return idle
	}
	name := formatTqdm
	if t.cur.linesByFormat[formatLightning] > 0 || bytes.Contains(bar.Values, []byte("v_num=")) {
		name = formatLightning
	}
	if last := t.cur.bars.ranks[t.rank]; last != nil && epoch < last.epoch {
		t.beginRun()
	}
	run := t.countLine(name)
	e := t.findOrAddEpoch(epoch, 0)
	if part == evaluationPart {
		e.ValSeconds = bar.PreciseSeconds()
		return used
	}
	last := run.bars.ranks[t.rank]
	first := last == nil || last.epoch != epoch
	if first {
		next := &barRank{epoch: epoch, seconds: bar.Seconds}
		if last != nil {
			if b := run.epochs.find(rankID{t.rank, 0}).Find(last.epoch); b != nil {
				copied := *b
				next.before = &copied
			}
		}
		if run.bars.ranks == nil {
			run.bars.ranks = map[int]*barRank{}
		}
		run.bars.ranks[t.rank], last = next, next
	}
	if bar.Seconds == last.seconds { // later bars include a validation
		if s := bar.PreciseSeconds(); s > 0 {
			e.Seconds = s
		}
	}
	if name == formatLightning && bytes.HasPrefix(bar.Values, []byte("loss=")) {
		t.in.Report.AddAssumptionOnce("the bars of Lightning 1 count the batches of training and validation: so do the times of their epochs")
	}
	t.setBarValues(e, bar.Values, first, last.before)
	return used
}

// setBarValues sets the values in a bar's list. Before the validation, Lightning's bar has the
// values of the previous epoch's validation: if first is set, values equal to those of the
// epoch before are not used.
func (t *textLog) setBarValues(e *runs.Epoch, list []byte, first bool, before *runs.Epoch) {
	precise := false // train_loss_epoch was read
	for {
		name, v, rest, ok := progress.NextValue(list)
		if !ok {
			return
		}
		list = rest
		switch string(name) {
		case "train_loss_epoch":
			precise, e.TrainLoss = true, v
		case "loss", "train_loss":
			if !precise {
				e.TrainLoss = v
			}
		case "lr":
			e.LearningRate = v
		case "acc", "accuracy", "train_acc", "train_accuracy":
			e.Accuracy = fractionOrNaN(v)
		case "val_loss", "val_loss_epoch":
			if !first || before == nil || v != before.ValLoss {
				e.ValLoss = v
			}
		case "val_acc", "val_accuracy":
			if f := fractionOrNaN(v); !first || before == nil || f != before.ValAccuracy {
				e.ValAccuracy = f
			}
		}
	}
}

// fractionOrNaN returns v if it is a fraction, otherwise NaN: it may be a percentage.
func fractionOrNaN(v float64) float64 {
	if v < 0 || v > 1 {
		return math.NaN()
	}
	return v
}

// barPart is the part of an epoch that a bar shows.
type barPart int

const (
	trainingPart barPart = iota
	evaluationPart
	otherPart // no part of an epoch
)

// parseBarDescription returns the epoch, or -1, and the part of the epoch in the description
// of a bar, such as "Epoch 3/10", "Train epoch [3]" and "Epoch 3 val".
func parseBarDescription(description []byte) (epoch int, part barPart) {
	if len(description) > 200 {
		return -1, otherPart
	}
	text := bytes.ToLower(description)
	for _, word := range []string{"predict", "sanity", "download", "load"} {
		if bytes.Contains(text, []byte(word)) {
			return -1, otherPart
		}
	}
	for _, word := range []string{"val", "eval", "test"} {
		if i := bytes.Index(text, []byte(word)); i >= 0 && (i == 0 || !scan.IsLetter(text[i-1])) {
			part = evaluationPart
		}
	}
	i := bytes.Index(text, []byte("epoch"))
	if i < 0 {
		return -1, part
	}
	c := scan.Cursor{Rest: bytes.TrimLeft(text[i+len("epoch"):], " :[(#=")}
	if epoch = c.ReadInteger(); c.Failed {
		return -1, part
	}
	return epoch, part
}

// cutOverwritten returns the text after the last \r of a line. Before, it reads the bars in
// the text that was overwritten, and reports whether it used values of them.
func (t *textLog) cutOverwritten(line []byte) (last []byte, found bool) {
	i := bytes.LastIndexByte(line, '\r')
	if i < 0 {
		return line, false
	}
	return line[i+1:], t.readOverwritten(line[:i])
}

// readOverwritten reads the bars that later text of a terminal has overwritten: text contains
// the frames of one line, each ended by \r. It reports whether values of a frame were used.
func (t *textLog) readOverwritten(text []byte) bool {
	found := false
	for n := 0; len(text) > 0; n++ {
		frame, rest, _ := bytes.Cut(text, []byte("\r"))
		text = rest
		if n == 0 {
			frame = t.stripPrefix(frame)
		}
		if bytes.Contains(frame, []byte("100%|")) && t.readBar(scan.SkipBlanks(frame)) == used {
			found = true
		}
	}
	return found
}

// lightningRules returns the rules of the lines that Lightning prints before the bars.
func lightningRules() []lineRule {
	rules := []lineRule{{prefix: "GPU available: ", read: (*textLog).readLightningDevices}}
	for _, start := range []string{"Initializing distributed: ", "initializing distributed: ", "initializing ddp: "} {
		rules = append(rules, lineRule{prefix: start + "GLOBAL_RANK: ", endsWithValue: true, read: (*textLog).readLightningMember})
	}
	for _, start := range []string{"All distributed processes registered. Starting with ", "All DDP processes registered. Starting ddp with "} {
		rules = append(rules, lineRule{prefix: start, read: (*textLog).readLightningMember})
	}
	return rules
}

// readLightningDevices reads the line "GPU available:", which the first rank of each training
// prints.
func (t *textLog) readLightningDevices(m []byte) lineResult {
	if !bytes.Contains(m, []byte(", used: ")) {
		return unknown
	}
	t.beginHeader().linesByFormat[formatLightning]++
	return used
}

// readLightningMember reads the number of processes from the end of a header's line.
func (t *textLog) readLightningMember(m []byte) lineResult {
	text := m
	if i := bytes.LastIndexByte(m, '/'); i >= 0 { // MEMBER: 1/4
		text = m[i+1:]
	} else if i := bytes.LastIndex(m, []byte(" with ")); i >= 0 { // with 4 processes
		text = bytes.TrimSuffix(m[i+len(" with "):], []byte(" processes"))
	}
	c := scan.Cursor{Rest: text}
	n := c.ReadInteger()
	if !c.IsComplete() || n < 1 || n > record.MaxWorkers {
		return unknown
	}
	run := t.beginHeader()
	run.linesByFormat[formatLightning]++
	run.run.Info.Workers = n
	return used
}
