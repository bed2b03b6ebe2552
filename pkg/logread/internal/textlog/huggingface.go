package textlog

import (
	"bytes"
	"math"

	"lockstep/pkg/logread/internal/huggingface"
	"lockstep/pkg/logread/internal/progress"
	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/scan"
	"lockstep/pkg/runs"
)

// The Trainer of Hugging Face's transformers (versions 4 and 5: PrinterCallback and
// ProgressCallback.on_log, Trainer.log, speed_metrics) prints dictionaries, in version 5
// with numbers in quotes, and, with the log level info, a header:
//
//	***** Running training *****
//	  Num examples = 12,800
//	  Num Epochs = 2
//	  Instantaneous batch size per device = 16
//	  Total train batch size (w. parallel, distributed & accumulation) = 128
//	  Gradient Accumulation steps = 2
//	  Total optimization steps = 200
//	{'loss': 0.8, 'grad_norm': 2.5, 'learning_rate': 3.75e-05, 'epoch': 0.5}
//	{'eval_loss': 0.55, 'eval_accuracy': 0.81, 'eval_runtime': 3.25, 'epoch': 1.0}
//	{'train_runtime': 100.0, 'train_samples_per_second': 256.0, 'train_loss': 0.575, 'epoch': 2.0}

// The keys of the header's lines.
const (
	hfExamples     = "Num examples = "
	hfEpochs       = "Num Epochs = "
	hfPerDevice    = "Instantaneous batch size per device = "
	hfTotalBatch   = "Total train batch size (w. parallel, distributed & accumulation) = "
	hfAccumulation = "Gradient Accumulation steps = "
	hfSteps        = "Total optimization steps = "
	hfContinued    = "Continuing training from global step "
)

// huggingFaceState is what a run's lines of the Trainer contain so far.
type huggingFaceState struct {
	inHeader bool // the last heading was "Running training"
	header   map[string]float64
	session  huggingface.Session
	end      huggingface.End // the last dictionary with train_runtime
	epoch    float64         // of the last dictionary
	losses   int64           // number of dictionaries with a loss
	rank     int             // whose dictionaries become curves
	entries  int             // number of dictionaries
}

// HuggingFace returns the format of Hugging Face's Trainer.
func HuggingFace() format {
	return format{name: "Hugging Face Trainer", finish: (*textRun).finishHuggingFace, lines: huggingFaceRules()}
}

// huggingFaceOf returns what the Trainer's lines of a run contain so far.
func huggingFaceOf(r *textRun) *huggingFaceState {
	return stateOf[huggingFaceState](&r.states, formatHuggingFace)
}

// huggingFaceRules returns the rules of the Trainer's lines.
func huggingFaceRules() []lineRule {
	rules := []lineRule{
		{prefix: "***** Running ", read: (*textLog).readHuggingFaceHeading},
		{prefix: "{'", read: (*textLog).readHuggingFaceEntry},
	}
	for _, key := range []string{hfExamples, hfEpochs, hfPerDevice, hfTotalBatch, hfAccumulation, hfSteps, hfContinued} {
		rules = append(rules, lineRule{prefix: key, endsWithValue: true, read: func(t *textLog, m []byte) lineResult {
			return t.readHuggingFaceSetting(key, m)
		}})
	}
	return rules
}

// readHuggingFaceHeading reads a heading. "Running training" begins a run; the header of an
// evaluation has some of the same lines.
func (t *textLog) readHuggingFaceHeading(m []byte) lineResult {
	training := bytes.HasPrefix(m, []byte("***** Running training *****"))
	if !training && !huggingFaceOf(t.cur).inHeader && huggingFaceOf(t.cur).entries == 0 {
		return unknown
	}
	if !training {
		huggingFaceOf(t.cur).inHeader = false
		return idle
	}
	*huggingFaceOf(t.beginHeader()) = huggingFaceState{inHeader: true, header: map[string]float64{}}
	t.stamp = nil // the dictionaries have no stamps, so that the end would be unknown
	return used
}

// readHuggingFaceSetting reads a line of the header.
func (t *textLog) readHuggingFaceSetting(key string, m []byte) lineResult {
	var buf [64]byte
	v, ok := scan.ParseFloat(appendWithoutCommas(buf[:0], bytes.TrimSpace(m[len(key):])))
	h := huggingFaceOf(t.cur)
	if !h.inHeader || !ok || v < 0 || v > 1<<53 {
		return unknown
	}
	h.header[key] = v
	t.stamp = nil
	return used
}

// readHuggingFaceEntry reads a dictionary. Other programs print dictionaries too: those of
// the Trainer have an epoch and learning_rate, eval_… or train_runtime.
func (t *textLog) readHuggingFaceEntry(m []byte) lineResult {
	buffer := stateOf[[]progress.Entry](&t.states, formatHuggingFace)
	all, ok := progress.AppendDict((*buffer)[:0], m)
	*buffer = all
	if !ok {
		return unknown
	}
	value := func(key string) float64 {
		for i := range all {
			if string(all[i].Key) == key {
				return all[i].Value
			}
		}
		return math.NaN()
	}
	epoch, loss, isEnd := value("epoch"), value("loss"), value("train_runtime") > 0
	isTraining := isKnown(loss) && isKnown(value("learning_rate"))
	isEvaluation := isKnown(value("eval_loss")) || isKnown(value("eval_runtime"))
	if !isKnown(epoch) || !isEnd && !isTraining && !isEvaluation {
		return unknown
	}
	if h := huggingFaceOf(t.cur); isTraining && h.entries > 0 && (h.end.Seconds > 0 || epoch < h.epoch && t.rank == h.rank) {
		t.beginRun()
	}
	run := t.countLine(formatHuggingFace)
	h := huggingFaceOf(run)
	if h.entries++; h.entries == 1 {
		h.rank = t.rank
	}
	h.inHeader = false
	if isEnd {
		h.end = huggingface.End{
			Seconds: value("train_runtime"), SamplesPerSecond: value("train_samples_per_second"), TrainLoss: value("train_loss"),
			Epochs: epoch, Position: epoch,
		}
		t.in.Report.Records++
		return used
	}
	h.epoch = epoch
	if isTraining && t.rank == h.rank {
		h.losses++
		h.session.AddLoss(epoch, loss)
	}
	t.addHuggingFaceValues(all, epoch)
	return used
}

// addHuggingFaceValues adds the values of a dictionary to the epoch and to curves.
func (t *textLog) addHuggingFaceValues(all []progress.Entry, epoch float64) {
	h := huggingFaceOf(t.cur)
	var e *runs.Epoch
	if n, ok := huggingface.EpochNumber(epoch); ok {
		e = t.findOrAddEpoch(n, 0)
	}
	for _, x := range all {
		if string(x.Key) == "epoch" {
			continue
		}
		if t.rank == h.rank {
			t.addPoint(x.Key, max(t.rank, -1), h.losses, x.Value, t.stampSeconds())
		}
		if e == nil {
			continue
		}
		if field := huggingface.EpochField(e, string(x.Key)); field != nil {
			*field = x.Value
		}
	}
}

// isKnown reports whether v is not NaN.
func isKnown(v float64) bool { return !math.IsNaN(v) }

// finishHuggingFace sets the properties of the run that follow from the header and from the
// last dictionary.
func (r *textRun) finishHuggingFace(report *record.Report) {
	h := huggingFaceOf(r)
	device, total := h.header[hfPerDevice]*h.header[hfAccumulation], h.header[hfTotalBatch]
	if n := total / device; device == 0 && h.header[hfPerDevice] > 0 && total > 0 {
		report.AddProblem(r.line, "the header has no line with the gradient accumulation steps, so it does not show the number of workers")
	} else if record.IsPlausibleCount(n) {
		r.run.Info.Workers, r.run.Info.GlobalBatch, r.run.Info.BatchPerWorker = int(n), int(total), int(device)
	}
	if n := h.header[hfExamples]; n >= 1 && n < 1<<53 {
		r.run.Info.SamplesPerEpoch = int(n)
	}
	if h.entries == 0 {
		return
	}
	if h.losses > 0 {
		report.AddAssumptionOnce(huggingface.LossAssumption)
		report.AddAssumptionOnce("the dictionaries contain no step: the points of their curves are numbered by the logged losses")
	}
	steps, epochs := h.header[hfSteps], h.header[hfEpochs]
	if perEpoch := steps / epochs; perEpoch >= 1 && math.Abs(perEpoch-h.header[hfExamples]/total) <= 1 { // not ended by max_steps
		h.end.Planned = epochs
	}
	if start := h.header[hfContinued]; start > 0 && steps > 0 {
		h.end.Start = start / steps * max(h.end.Planned, h.end.Epochs)
	}
	h.session.Apply(h.end, &r.run, report)
}
