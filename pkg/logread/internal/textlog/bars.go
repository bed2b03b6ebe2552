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
	lightning bool             // Lightning has printed its devices or processes
	ranks     map[int]*barRank // by label
	lines     int64            // number of lines with bars that were used
	first     int              // number of the first of them
	last      int              // number of the last of them
}

// Tqdm returns the format of progress bars of tqdm, which have any text before them.
func Tqdm() format {
	return format{name: "tqdm bars", anywhere: (*textLog).readBar}
}

// Lightning returns the format of Lightning, whose bars readBar reads.
func Lightning() format {
	return format{name: "Lightning bars", countsFromZero: true, lines: lightningRules()}
}

// barsOf returns what the bars of a run contain so far.
func barsOf(r *textRun) *barState { return stateOf[barState](&r.states, formatTqdm) }

// barRank is the last finished bar of one rank.
type barRank struct {
	epoch   int
	seconds float64     // elapsed when the bar was finished first
	before  *runs.Epoch // values of the epoch before it; nil if there is none
}

// readBar reads a progress bar.
func (t *textLog) readBar(m []byte) lineResult {
	if !bytes.Contains(m, []byte("%|")) {
		return unknown
	}
	if i := bytes.Index(m, []byte("{'")); i >= 0 { // the Trainer's output without a line end before it
		if v := t.readHuggingFaceEntry(m[i:]); v != unknown {
			return v
		}
	}
	bar, ok := progress.ParseBar(m)
	if !ok {
		return unknown
	}
	epoch, part := parseBarDescription(bar.Description)
	if !bar.IsFinished() || epoch < 0 || part == otherPart {
		return idle
	}
	last := barsOf(t.cur).ranks[t.rank]
	if last != nil && epoch < last.epoch || t.cur.closed {
		t.beginRun()
		last = nil
	}
	name := formatTqdm
	if barsOf(t.cur).lightning || bytes.Contains(bar.Values, []byte("v_num=")) {
		name = formatLightning
	}
	run := t.countLine(name)
	s := barsOf(run)
	if s.last != t.l.Number {
		s.last = t.l.Number
		if s.lines++; s.lines == 1 {
			s.first = t.l.Number
		}
	}
	list := run.barEpochs.find(rankID{t.rank, 0})
	if list == nil {
		list = run.barEpochs.add(rankID{t.rank, 0})
	}
	e := list.Find(epoch)
	if e == nil {
		e = list.Add(epoch, t.l)
	}
	if part == evaluationPart {
		e.ValSeconds = bar.PreciseSeconds()
		return pending
	}
	first := last == nil || last.epoch != epoch
	if first {
		next := &barRank{epoch: epoch, seconds: bar.Seconds}
		if last != nil {
			if b := list.Find(last.epoch); b != nil {
				copied := *b
				next.before = &copied
			}
		}
		if s.ranks == nil {
			s.ranks = map[int]*barRank{}
		}
		s.ranks[t.rank], last = next, next
	}
	if seconds := bar.PreciseSeconds(); bar.Seconds == last.seconds && seconds > 0 { // later bars include a validation
		e.Seconds = seconds
	}
	if name == formatLightning && bytes.HasPrefix(bar.Values, []byte("loss=")) {
		t.in.Report.AddAssumptionOnce("the bars of Lightning 1 count the batches of training and validation: so do the times of their epochs")
	}
	t.setBarValues(e, bar.Values, first, last.before)
	return pending
}

// reasonBars is the reason for ignoring bars.
const reasonBars = "progress bars beside the epochs of other lines"

// finishBars makes the epochs of the bars those of the run, unless other lines have epochs or
// show which program trains.
func (r *textRun) finishBars(report *record.Report) {
	s := barsOf(r)
	switch {
	case s.lines == 0:
	case len(r.epochs.all) > 0 || r.program != formatCommand:
		report.AddIgnoredLines(record.IgnoredLines{Reason: reasonBars, Lines: s.lines, First: s.first})
		r.linesByFormat[formatTqdm], r.linesByFormat[formatLightning] = 0, 0
	default:
		r.epochs = r.barEpochs
		report.LinesUsed += s.lines
		for _, list := range r.barEpochs.all {
			report.Records += int64(len(list.Epochs))
		}
	}
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

// readOverwritten reads the bars that later text of a terminal has overwritten: text contains
// the frames of one line, each ended by \r. It reports whether a bar was read.
func (t *textLog) readOverwritten(text []byte) bool {
	found := false
	for n := 0; len(text) > 0; n++ {
		frame, rest, _ := bytes.Cut(text, []byte("\r"))
		text = rest
		if n == 0 {
			frame = t.stripPrefix(frame)
		}
		if bytes.Contains(frame, []byte("100%|")) && t.readBar(scan.SkipBlanks(frame)) == pending {
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
	barsOf(t.beginHeader()).lightning = true
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
	barsOf(run).lightning = true
	run.run.Info.Workers = n
	return used
}
