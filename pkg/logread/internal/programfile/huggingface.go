package programfile

import (
	"bytes"
	"context"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"lockstep/pkg/logread/internal/huggingface"
	"lockstep/pkg/logread/internal/progress"
	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/scan"
	"lockstep/pkg/runs"
)

// huggingFaceKind is the format of Hugging Face's trainer_state.json. Its log_history mixes entries
// from training ({"epoch": 0.5, "loss": 0.7, "learning_rate": 2e-5, "step": 500}), from evaluation
// (eval_loss, eval_accuracy, eval_runtime) and from the end (train_runtime, train_samples_per_second).
// Each folder checkpoint-<step> contains the state at that step; the latest counts.
const huggingFaceKind = "Hugging Face trainer state"

func isHuggingFace(_ string, head []byte) bool {
	return bytes.HasPrefix(bytes.TrimLeft(head, " \t\r\n"), []byte("{")) &&
		(bytes.Contains(head, []byte(`"log_history"`)) || bytes.Contains(head, []byte(`"global_step"`)) && bytes.Contains(head, []byte(`"epoch"`)))
}

func readHuggingFace(_ context.Context, in *record.Input) ([]*record.Part, error) {
	h := &huggingFaceReader{in: in}
	members, ok, err := in.ReadObject(maxJSONFileBytes, "log_history", h.readEntry)
	if !ok {
		in.Report.Records = 0
		return nil, err
	}
	in.Report.Lines = 0 // which nothing counts as used
	if history := members["log_history"]; len(history) == 0 || history[0] != '[' {
		return nil, record.ErrUnknownFormat
	}
	h.end.Planned = scan.JSONFloat(members["max_steps"])
	h.session.SetRunTotals(h.end, &h.run, in.Report)
	p := &record.Part{Run: h.run, Role: record.Principal}
	p.Run.Epochs = h.epochs.Epochs
	slices.SortFunc(p.Run.Epochs, record.CompareEpochs)
	for _, c := range h.curves.All {
		if c.Name == "train_samples_per_second" && len(h.run.Trials) == 0 {
			continue // Session.Apply has refused it
		}
		p.Run.Curves = append(p.Run.Curves, c.Finish(in.Report))
	}
	if len(p.Run.Epochs) > 0 {
		in.Report.AddAssumption(huggingface.LossAssumption)
	}
	if batch := scan.JSONFloat(members["train_batch_size"]); record.IsPlausibleCount(batch) {
		p.Run.Info.BatchPerWorker = int(batch)
	}
	step, _ := scan.ParseJSONFloat(members["global_step"])
	p.State, p.StateOf = int64(step), filepath.Dir(in.Path)
	if name, ok := strings.CutPrefix(filepath.Base(p.StateOf), "checkpoint-"); ok && strings.Trim(name, "0123456789") == "" {
		p.StateOf = filepath.Dir(p.StateOf)
	} else {
		p.State = math.MaxInt64 // the state at the end
	}
	if len(p.Run.Epochs) == 0 && len(p.Run.Curves) == 0 && len(p.Run.Trials) == 0 {
		in.AddProblem(0, "log_history has no values")
		return nil, nil
	}
	return []*record.Part{p}, nil
}

type huggingFaceReader struct {
	in     *record.Input
	read   int                  // number of entries that were read
	entry  progress.DictEntries // of the current entry
	run    runs.Run
	epochs record.RankEpochs
	curves record.Curves

	session huggingface.Session
	end     huggingface.FinalEntry // last entry with train_runtime
}

func (h *huggingFaceReader) readEntry(s *scan.JSONReader) error {
	text, bad, err := s.ParseObject(maxJSONFileBytes, h.parseEntry)
	switch {
	case err != nil:
		return err
	case bad:
		h.in.AddProblem(0, "log_history[%d]: expected a JSON object, got %.80q", h.read, text)
	default:
		h.addEntry()
	}
	h.read++
	return nil
}

// parseEntry parses an entry of log_history into h.entry, which contains its numbers sorted by
// name.
func (h *huggingFaceReader) parseEntry(doc *scan.ObjectIterator) {
	h.entry = h.entry[:0]
	for name, ok := doc.NextKey(); ok; name, ok = doc.NextKey() {
		f, isNumber := doc.Number()
		if !isNumber {
			var value []byte
			if value, ok = doc.Value(); !ok {
				break
			}
			if f, isNumber = scan.ParseJSONFloat(value); !isNumber {
				continue
			}
		}
		if bytes.IndexByte(name, '\\') >= 0 {
			name = []byte(scan.DecodeJSONString(name))
		}
		h.entry = append(h.entry, progress.DictEntry{Key: name, Value: f})
	}
	slices.SortStableFunc(h.entry, func(a, b progress.DictEntry) int { return bytes.Compare(a.Key, b.Key) })
}

func (h *huggingFaceReader) addEntry() {
	epoch, step := h.entry.Value("epoch"), h.entry.Value("step")
	if !(step >= 0 && step < 1<<53) {
		h.in.AddProblem(0, "log_history[%d] has no step", h.read)
		return
	}
	end, isEnd := huggingface.ParseFinalEntry(h.entry, step)
	if isEnd {
		h.end = end
	}
	if v := h.entry.Value("loss"); !math.IsNaN(v) {
		h.session.AddLoss(step, v)
	}
	var e *runs.Epoch
	if n, ok := huggingface.EpochNumber(epoch); ok && math.IsNaN(end.Seconds) {
		e = h.epochs.FindOrAdd(n, nil)
	}
	for _, m := range h.entry {
		huggingface.SetEpochValue(e, m.Key, m.Value)
		switch string(m.Key) {
		case "epoch", "step", "total_flos":
			continue
		}
		var curve *record.Curve
		if len(m.Key) <= 100 {
			curve = h.curves.FindOrAdd(m.Key, -1, false)
		}
		if curve == nil {
			h.in.AddProblem(0, "%.40q is not used: its name is too long, or the file has more than %d names of values", m.Key, record.MaxCurveNames)
			continue
		}
		curve.AddPoint(int64(step), m.Value, 0)
		h.in.Report.Records++
	}
}
