package trainer

import (
	"bytes"
	"math"

	"lockstep/pkg/logread/internal/huggingface"
	"lockstep/pkg/logread/internal/progress"
	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/template"
	"lockstep/pkg/logread/internal/textlog/internal/logline"
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

// The keys in the lines of the header.
const (
	hfExamples     = "Num examples = "
	hfEpochs       = "Num Epochs = "
	hfPerDevice    = "Instantaneous batch size per device = "
	hfTotalBatch   = "Total train batch size (w. parallel, distributed & accumulation) = "
	hfAccumulation = "Gradient Accumulation steps = "
	hfSteps        = "Total optimization steps = "
	hfContinued    = "Continuing training from global step "
)

type huggingFaceState struct {
	inHeader bool // the last heading was "Running training"
	header   map[string]float64
	session  huggingface.Session
	end      huggingface.FinalEntry // the last dictionary with train_runtime
	epoch    float64                // of the last dictionary
	losses   int64                  // number of dictionaries with a loss
	rank     int                    // whose dictionaries become curves
	entries  int                    // number of dictionaries
}

// HuggingFace returns the format of Hugging Face's Trainer.
func HuggingFace() logline.Format {
	return logline.Format{Name: "Hugging Face Trainer", Finish: finishHuggingFace, Rules: huggingFaceRules()}
}

func huggingFaceStateOf(r *logline.Run) *huggingFaceState {
	return logline.FormatState[huggingFaceState](&r.States, logline.HuggingFace)
}

func huggingFaceRules() []logline.Rule {
	rules := []logline.Rule{
		{Prefix: "***** Running ", Read: readHuggingFaceHeading},
		{Prefix: "{'", Read: readHuggingFaceEntry},
	}
	for _, key := range []string{hfExamples, hfEpochs, hfPerDevice, hfTotalBatch, hfAccumulation, hfSteps, hfContinued} {
		rules = append(rules, logline.Rule{Templates: []string{key + "{value}"}, MayBeOther: true, Use: func(log *logline.Log, v []template.Value) logline.Result {
			return setHuggingFaceSetting(log, key, v[0].Number)
		}})
	}
	return rules
}

// readHuggingFaceHeading reads a heading. "Running training" begins a new run. The header of an
// evaluation contains some of the same lines as the header of a training.
func readHuggingFaceHeading(log *logline.Log, m []byte) logline.Result {
	training := bytes.HasPrefix(m, []byte("***** Running training *****"))
	if !training && !huggingFaceStateOf(log.Current).inHeader && huggingFaceStateOf(log.Current).entries == 0 {
		return logline.Unknown
	}
	if !training {
		huggingFaceStateOf(log.Current).inHeader = false
		return logline.Idle
	}
	*huggingFaceStateOf(log.BeginHeader()) = huggingFaceState{inHeader: true, header: map[string]float64{}}
	log.Stamp = nil // the dictionaries have no stamps, so that the end would be unknown
	return logline.Used
}

func setHuggingFaceSetting(log *logline.Log, key string, v float64) logline.Result {
	h := huggingFaceStateOf(log.Current)
	if !h.inHeader || !(v >= 0) || v > 1<<53 {
		return logline.Unknown
	}
	h.header[key] = v
	log.Stamp = nil
	return logline.Used
}

// readHuggingFaceEntry reads a dictionary that the Trainer printed. Unlike the dictionaries of
// other programs, it contains an epoch together with learning_rate, eval_… or train_runtime.
func readHuggingFaceEntry(log *logline.Log, m []byte) logline.Result {
	buffer := logline.FormatState[progress.DictEntries](&log.States, logline.HuggingFace)
	all, ok := progress.AppendDict((*buffer)[:0], m)
	*buffer = all
	if !ok {
		return logline.Unknown
	}
	epoch, loss := all.Value("epoch"), all.Value("loss")
	end, isEnd := huggingface.ParseFinalEntry(all, epoch)
	isTraining := isNotNaN(loss) && isNotNaN(all.Value("learning_rate"))
	isEvaluation := isNotNaN(all.Value("eval_loss")) || isNotNaN(all.Value("eval_runtime"))
	if !isNotNaN(epoch) || !isEnd && !isTraining && !isEvaluation {
		return logline.Unknown
	}
	if h := huggingFaceStateOf(log.Current); isTraining && h.entries > 0 && (h.end.Seconds > 0 || epoch < h.epoch && log.Rank == h.rank) {
		log.BeginRun()
	}
	run := log.CountLine(logline.HuggingFace)
	h := huggingFaceStateOf(run)
	if h.entries++; h.entries == 1 {
		h.rank = log.Rank
	}
	h.inHeader = false
	if isEnd {
		h.end = end
		log.In.Report.Records++
		return logline.Used
	}
	h.epoch = epoch
	if isTraining && log.Rank == h.rank {
		h.losses++
		h.session.AddLoss(epoch, loss)
	}
	addHuggingFaceValues(log, all, epoch)
	return logline.Used
}

func addHuggingFaceValues(log *logline.Log, all progress.DictEntries, epoch float64) {
	h := huggingFaceStateOf(log.Current)
	var e *runs.Epoch
	if n, ok := huggingface.EpochNumber(epoch); ok {
		e = log.FindOrAddEpoch(n, 0)
	}
	for _, x := range all {
		if string(x.Key) == "epoch" {
			continue
		}
		if log.Rank == h.rank {
			log.AddPoint(x.Key, max(log.Rank, -1), h.losses, x.Value, log.StampSeconds())
		}
		huggingface.SetEpochValue(e, x.Key, x.Value)
	}
}

func isNotNaN(v float64) bool { return !math.IsNaN(v) }

// finishHuggingFace sets the run's properties that follow from the header and the last dictionary.
func finishHuggingFace(r *logline.Run, report *record.Report) {
	h := huggingFaceStateOf(r)
	device, total := h.header[hfPerDevice]*h.header[hfAccumulation], h.header[hfTotalBatch]
	if n := total / device; device == 0 && h.header[hfPerDevice] > 0 && total > 0 {
		report.AddProblem(r.Line, "the header has no line with the gradient accumulation steps, so it does not show the number of workers")
	} else if record.IsPlausibleCount(n) {
		r.DeriveWorkers(int(n))
		r.Run.Info.GlobalBatch, r.Run.Info.BatchPerWorker = int(total), int(device)
	}
	if n := h.header[hfExamples]; n >= 1 && n < 1<<53 {
		r.Run.Info.SamplesPerEpoch = int(n)
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
	h.session.SetRunTotals(h.end, &r.Run, report)
}
