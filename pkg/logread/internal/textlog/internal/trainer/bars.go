package trainer

import (
	"bytes"
	"math"

	"lockstep/pkg/logread/internal/progress"
	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/scan"
	"lockstep/pkg/logread/internal/textlog/internal/logline"
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

type barState struct {
	lightning bool                  // Lightning has printed its devices or processes
	ranks     map[int]*rankBarState // by label
	lines     int64                 // number of lines with bars that were used
	first     int                   // line number of the first of these lines
	last      int                   // line number of the last of these lines
}

// Tqdm returns the format of tqdm's progress bars, which any text may precede.
func Tqdm() logline.Format {
	return logline.Format{Name: "tqdm bars", Anywhere: readBar}
}

// Lightning returns the format of Lightning. readBar reads its progress bars.
func Lightning() logline.Format {
	return logline.Format{Name: "Lightning bars", CountsFromZero: true, Rules: lightningRules()}
}

func barStateOf(r *logline.Run) *barState {
	return logline.FormatState[barState](&r.States, logline.Tqdm)
}

// rankBarState is the last finished bar of one rank.
type rankBarState struct {
	epoch     int
	seconds   float64    // elapsed when the bar was finished first
	before    runs.Epoch // values of the epoch before it, if hasBefore is true
	hasBefore bool
}

func readBar(log *logline.Log, m []byte) logline.Result {
	if !bytes.Contains(m, []byte("%|")) {
		return logline.Unknown
	}
	if i := bytes.Index(m, []byte("{'")); i >= 0 { // the Trainer's output without a line end before it
		if v := readHuggingFaceEntry(log, m[i:]); v != logline.Unknown {
			return v
		}
	}
	bar, ok := progress.ParseBar(m)
	if !ok {
		return logline.Unknown
	}
	epoch, part := parseBarDescription(bar.Description)
	if !bar.IsFinished() || epoch < 0 || part == otherPart {
		return logline.Idle
	}
	last := barStateOf(log.Current).ranks[log.Rank]
	if last != nil && epoch < last.epoch || log.Current.Closed {
		log.BeginRun()
		last = nil
	}
	name := logline.Tqdm
	if barStateOf(log.Current).lightning || bytes.Contains(bar.Values, []byte("v_num=")) {
		name = logline.Lightning
	}
	run := log.CountLine(name)
	s := barStateOf(run)
	if s.last != log.Lines.Number {
		s.last = log.Lines.Number
		if s.lines++; s.lines == 1 {
			s.first = log.Lines.Number
		}
	}
	list := run.BarEpochs.FindOrAdd(logline.RankID{Rank: log.Rank})
	e := list.FindOrAdd(epoch, log.Lines)
	if part == evaluationPart {
		e.ValSeconds = bar.PreciseSeconds()
		return logline.Pending
	}
	if last == nil {
		last = &rankBarState{epoch: -1}
		record.PutInMap(&s.ranks, log.Rank, last)
	}
	first := last.epoch != epoch
	if first {
		b := list.Find(last.epoch)
		if last.hasBefore = b != nil; last.hasBefore {
			last.before = *b
		}
		last.epoch, last.seconds = epoch, bar.Seconds
	}
	if seconds := bar.PreciseSeconds(); bar.Seconds == last.seconds && seconds > 0 { // later bars include a validation
		e.Seconds = seconds
	}
	if name == logline.Lightning && bytes.HasPrefix(bar.Values, []byte("loss=")) {
		log.In.Report.AddAssumptionOnce("the bars of Lightning 1 count the batches of training and validation: so do the times of their epochs")
	}
	var stale *runs.Epoch
	if first && last.hasBefore {
		stale = &last.before
	}
	setBarValues(e, bar.Values, stale)
	return logline.Pending
}

// reasonRedundantBars is the reason for ignoring progress bars if other lines contain epochs.
const reasonRedundantBars = "progress bars beside the epochs of other lines"

// FinishBars gives the run the epochs of the bars, unless other lines have epochs or show which
// program trains.
func FinishBars(r *logline.Run, report *record.Report) {
	s := barStateOf(r)
	switch {
	case s.lines == 0:
	case len(r.Epochs.All) > 0 || r.Program != logline.Command:
		report.AddIgnoredLines(record.IgnoredLines{Reason: reasonRedundantBars, Lines: s.lines, First: s.first})
		r.LinesByFormat[logline.Tqdm], r.LinesByFormat[logline.Lightning] = 0, 0
	default:
		r.Epochs = r.BarEpochs
		report.LinesUsed += s.lines
		for _, list := range r.BarEpochs.All {
			report.Records += int64(len(list.Epochs))
		}
	}
}

// setBarValues sets the values of e that a progress bar lists. Before its validation, Lightning's
// bar still shows the previous epoch's validation. If stale is not nil, values that are equal to
// those in stale are therefore not used.
func setBarValues(e *runs.Epoch, list []byte, stale *runs.Epoch) {
	precise := false // train_loss_epoch was read
	for name, v := range progress.NamedValues(list, ", ") {
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
			if stale == nil || v != stale.ValLoss {
				e.ValLoss = v
			}
		case "val_acc", "val_accuracy":
			if f := fractionOrNaN(v); stale == nil || f != stale.ValAccuracy {
				e.ValAccuracy = f
			}
		}
	}
}

// fractionOrNaN returns v if it is from 0 to 1. Otherwise it returns NaN, since v may be a
// percentage.
func fractionOrNaN(v float64) float64 {
	if v < 0 || v > 1 {
		return math.NaN()
	}
	return v
}

type barPhase int

const (
	trainingPart barPhase = iota
	evaluationPart
	otherPart // no part of an epoch
)

// parseBarDescription parses the description of a bar, such as "Epoch 3/10", "Train epoch [3]" and
// "Epoch 3 val". epoch is -1 if there is none; part states whether the bar is about the training or
// the validation.
func parseBarDescription(description []byte) (epoch int, part barPhase) {
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

// ReadOverwrittenBars reads the bars that a terminal has overwritten: text contains the frames of one
// line, each ended by \r. It reports whether a bar was read.
func ReadOverwrittenBars(log *logline.Log, text []byte) bool {
	found := false
	for n := 0; len(text) > 0; n++ {
		frame, rest, _ := bytes.Cut(text, []byte("\r"))
		text = rest
		if n == 0 {
			frame = log.StripPrefix(frame)
		}
		if bytes.Contains(frame, []byte("100%|")) && readBar(log, scan.SkipBlanks(frame)) == logline.Pending {
			found = true
		}
	}
	return found
}

func lightningRules() []logline.Rule {
	rules := []logline.Rule{{Prefix: "GPU available: ", Read: readLightningDevices}}
	isLightning := func(r *logline.Run) { barStateOf(r).lightning = true }
	for _, start := range []string{"Initializing distributed: ", "initializing distributed: ", "initializing ddp: "} {
		rules = append(rules, logline.WorkersRule(isLightning, start+"GLOBAL_RANK: */{workers}"))
	}
	for _, start := range []string{"All distributed processes registered. Starting with ", "All DDP processes registered. Starting ddp with "} {
		rules = append(rules, logline.WorkersRule(isLightning, start+"{workers} processes"))
	}
	return rules
}

// readLightningDevices reads "GPU available:", which the first rank of each training prints, after a line about
// mixed precision if it is used.
func readLightningDevices(log *logline.Log, m []byte) logline.Result {
	if !bytes.Contains(m, []byte(", used: ")) {
		return logline.Unknown
	}
	barStateOf(log.BeginHeader()).lightning = true
	log.AddConfig(map[string]any{"mixed precision": false})
	return logline.Used
}
