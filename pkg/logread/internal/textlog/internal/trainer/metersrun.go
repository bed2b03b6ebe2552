package trainer

import (
	"bytes"
	"math"
	"strconv"

	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/template"
	"lockstep/pkg/logread/internal/textlog/internal/logline"
)

// What programs with meters print before the first epoch, and what follows from all lines; see meters.go.

func readImageNetModel(log *logline.Log, m []byte) logline.Result {
	name, end, _ := bytes.Cut(m[bytes.IndexByte(m, '\'')+1:], []byte("'"))
	if len(name) == 0 || len(name) > 100 || len(end) > 0 {
		return logline.Unknown
	}
	log.BeginHeader()
	log.AddSetting("model", string(name))
	return logline.Used
}

func addInitRank(log *logline.Log, v []template.Value) logline.Result {
	rank := int(v[0].Number)
	if rank < 0 || rank > record.MaxWorkers {
		return logline.Unknown
	}
	record.PutInMap(&meterStateOf(log.BeginHeader()).initRanks, rank, true)
	return logline.Used
}

// readArgparseNamespace reads the settings in a printed argparse.Namespace that distinguish runs. In torchvision's
// reference scripts, the batch size is that of a GPU. PyTorch's ImageNet example counts nodes as its world size
// until it starts the processes of a node.
func readArgparseNamespace(log *logline.Log, m []byte) (v logline.Result) {
	if m[len(m)-1] != ')' {
		return logline.Unknown
	}
	isTorchvision := len(meterStateOf(log.Current).initRanks) > 0
	for item := range bytes.SplitSeq(m[len("Namespace("):len(m)-1], []byte(", ")) {
		name, value, _ := bytes.Cut(item, []byte("="))
		switch text := string(bytes.Trim(value, "'")); string(name) {
		case "world_size":
			if !isTorchvision && (text == "1" || bytes.Contains(m, []byte("multiprocessing"))) {
				continue
			}
			fallthrough
		case "lr", "learning_rate", "epochs", "arch", "model", "seed", "amp", "precision", "dtype", "fp16", "bf16":
			v = log.AddHeaderSetting(string(name), text)
		case "batch_size":
			if n, err := strconv.Atoi(text); err == nil && isTorchvision && record.IsPlausibleCount(float64(n)) && meterStateOf(log.Current).primary == nil {
				log.Current.Run.Info.BatchPerWorker = n
			} else {
				v = log.AddHeaderSetting(string(name), text)
			}
		}
	}
	return v
}

// finishMeters sets the number of workers, and the times of epochs if only mean step times are printed.
func finishMeters(r *logline.Run, report *record.Report) {
	s := meterStateOf(r)
	if n := len(s.initRanks); n > 1 && r.Run.Info.Workers == 0 {
		for rank := range s.initRanks {
			n = max(n, rank+1)
		}
		r.Run.Info.Workers = n
	}
	if s.primary == nil {
		return
	}
	report.AddAssumptionOnce("losses and accuracies of an epoch are the means in its last line")
	for _, writers := range s.ranks {
		for _, w := range writers {
			setMeterSeconds(r, w, report)
		}
	}
	x := s.primary.currentEpoch()
	if e := r.Epochs.Find(s.primary.id).Find(x.epoch); e != nil && math.IsNaN(e.Seconds) && !s.isCompleteEpoch(x) {
		r.Epochs.Remove(x.epoch)
		report.AddAssumption("epoch %d is not complete (step %d of %d): its values are only in the curves", x.epoch+1, x.last, x.steps)
	}
}

// setMeterSeconds sets the durations of the complete epochs of process w if the log contains only
// mean step times.
func setMeterSeconds(r *logline.Run, w *meterWriter, report *record.Report) {
	list := r.Epochs.Find(w.id)
	for i := range w.epochs {
		x := &w.epochs[i]
		e := list.Find(x.epoch)
		if e == nil || !math.IsNaN(e.Seconds) || !(x.stepSeconds > 0) || i+1 == len(w.epochs) && !meterStateOf(r).isCompleteEpoch(x) {
			continue
		}
		e.Seconds = x.stepSeconds * float64(x.steps)
		report.AddAssumptionOnce("the time of an epoch is the mean time of its logged steps times the number of its steps")
	}
}

// isCompleteEpoch reports whether the last epoch of a process is complete: an evaluation has followed,
// or no further step would be logged at the interval of the log.
func (s *meterState) isCompleteEpoch(x *meterEpoch) bool {
	return s.evaluated > x.epoch || x.last+1 >= x.steps || x.interval > 0 && x.last+x.interval >= x.steps
}
