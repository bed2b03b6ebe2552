package programfile

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"lockstep/pkg/logread/internal/huggingface"
	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/scan"
	"lockstep/pkg/runs"
)

// huggingFaceKind is the name of the format of Hugging Face's
// trainer_state.json. Its log_history mixes entries from training ({"epoch":
// 0.5, "loss": 0.7, "learning_rate": 2e-5, "step": 500}), from evaluation
// (eval_loss, eval_accuracy, eval_runtime) and from the end (train_runtime,
// train_samples_per_second). Each folder checkpoint-<step> contains the state
// at that step; the latest state counts.
const huggingFaceKind = "Hugging Face trainer state"

// isHuggingFace reports whether head begins a JSON object that contains keys of
// a trainer state.
func isHuggingFace(_ string, head []byte) bool {
	return bytes.HasPrefix(bytes.TrimLeft(head, " \t\r\n"), []byte("{")) &&
		(bytes.Contains(head, []byte(`"log_history"`)) || bytes.Contains(head, []byte(`"global_step"`)) && bytes.Contains(head, []byte(`"epoch"`)))
}

// readHuggingFace reads a trainer state.
func readHuggingFace(_ context.Context, in *record.Input) ([]*record.Part, error) {
	text, err := readDocument(in)
	if err != nil {
		return nil, err
	}
	var v struct {
		Step    float64                      `json:"global_step"`
		Planned float64                      `json:"max_steps"`
		Batch   float64                      `json:"train_batch_size"`
		History []map[string]json.RawMessage `json:"log_history"`
	}
	if err := json.Unmarshal(quoteNaN(text), &v); err != nil {
		in.AddProblem(findErrorLine(text, err), "%v", err)
		return nil, nil
	}
	if v.History == nil {
		return nil, record.ErrUnknownFormat
	}
	h := &huggingFaceReader{in: in, at: map[int]int{}, curves: map[string]*record.Curve{}, planned: v.Planned}
	for i, entry := range v.History {
		h.readEntry(i, entry)
	}
	h.session.Apply(h.end, &h.run, in.Report)
	p := &record.Part{Run: h.run, Role: record.Principal}
	slices.SortFunc(h.epochs, func(a, b runs.Epoch) int { return a.Epoch - b.Epoch })
	p.Run.Epochs = h.epochs
	for _, name := range h.names {
		if name == "train_samples_per_second" && len(h.run.Trials) == 0 {
			continue // Session.Apply has refused it
		}
		p.Run.Curves = append(p.Run.Curves, h.curves[name].Finish(in.Report))
	}
	if len(h.epochs) > 0 {
		in.Report.AddAssumption(huggingface.LossAssumption)
	}
	if record.IsPlausibleCount(v.Batch) {
		p.Run.Info.BatchPerWorker = int(v.Batch)
	}
	p.State, p.StateOf = int64(v.Step), filepath.Dir(in.Path)
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

// huggingFaceReader collects the entries of log_history.
type huggingFaceReader struct {
	in     *record.Input
	run    runs.Run
	epochs []runs.Epoch
	at     map[int]int // index in epochs by epoch number
	curves map[string]*record.Curve
	names  []string // names of the curves in order

	session huggingface.Session
	end     huggingface.End // last entry with train_runtime
	planned float64         // steps that the training was to have
}

// readEntry reads the i-th entry of log_history.
func (h *huggingFaceReader) readEntry(i int, entry map[string]json.RawMessage) {
	value := func(key string) float64 {
		if f, ok := scan.ParseJSONFloat(entry[key]); ok {
			return f
		}
		return math.NaN()
	}
	epoch, step := value("epoch"), value("step")
	if !(step >= 0 && step < 1<<53) {
		h.in.AddProblem(0, "log_history[%d] has no step", i)
		return
	}
	keys := make([]string, 0, len(entry))
	for k := range entry {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		f, ok := scan.ParseJSONFloat(entry[k])
		if k == "epoch" || k == "step" || k == "total_flos" || !ok || len(k) > 100 {
			continue
		}
		if h.curves[k] == nil {
			if len(h.names) >= record.MaxCurveNames {
				h.in.AddProblem(0, "the file has more than %d names of values; %.40q is not used", record.MaxCurveNames, k)
				continue
			}
			h.curves[k] = record.NewCurve(k, -1, false)
			h.names = append(h.names, k)
		}
		h.curves[k].Add(int64(step), f, 0)
		h.in.Report.Records++
	}
	if v := value("train_runtime"); v > 0 {
		h.end = huggingface.End{
			Seconds: v, SamplesPerSecond: value("train_samples_per_second"), TrainLoss: value("train_loss"),
			Epochs: epoch, Position: step, Planned: h.planned,
		}
	}
	if v := value("loss"); !math.IsNaN(v) {
		h.session.AddLoss(step, v)
	}
	n, ok := huggingface.EpochNumber(epoch)
	if !ok || !math.IsNaN(value("train_runtime")) {
		return
	}
	e := h.findOrAddEpoch(n)
	for _, k := range keys {
		field := huggingface.EpochField(e, k)
		if f, ok := scan.ParseJSONFloat(entry[k]); ok && field != nil {
			*field = f
		}
	}
}

// findOrAddEpoch returns epoch n, counted from 1, and adds it if it is new.
func (h *huggingFaceReader) findOrAddEpoch(n int) *runs.Epoch {
	i, ok := h.at[n]
	if !ok {
		i = len(h.epochs)
		h.at[n] = i
		h.epochs = append(h.epochs, record.NewUnmeasuredEpoch(n, 0))
	}
	return &h.epochs[i]
}

// quoteNaN puts quotes around NaN and Infinity, which Python's json module
// writes although JSON does not allow them. It does not change the line
// numbers.
func quoteNaN(text []byte) []byte {
	if !bytes.Contains(text, []byte(": NaN")) && !bytes.Contains(text, []byte("Infinity")) {
		return text
	}
	for _, word := range []string{"NaN", "-Infinity", "Infinity"} {
		text = bytes.ReplaceAll(text, []byte(": "+word), []byte(`: "`+strings.Replace(word, "Infinity", "Inf", 1)+`"`))
	}
	return text
}

// findErrorLine returns the number of the line at which encoding/json found err.
func findErrorLine(text []byte, err error) int {
	offset := int64(len(text))
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	if errors.As(err, &syntax) {
		offset = syntax.Offset
	} else if errors.As(err, &kind) {
		offset = kind.Offset
	}
	return 1 + bytes.Count(text[:min(max(offset, 0), int64(len(text)))], []byte("\n"))
}
