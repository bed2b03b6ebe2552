package logread

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"lockstep/pkg/runs"
)

// Hugging Face's trainer_state.json: log_history mixes what was logged in
// training ({"epoch": 0.5, "loss": 0.7, "learning_rate": 2e-5, "step": 500}),
// in evaluation (eval_loss, eval_accuracy, eval_runtime) and at the end
// (train_runtime, train_samples_per_second). Each checkpoint-<step> holds the
// state of then; the latest counts.
const huggingKind = "Hugging Face trainer state"

func isHugging(_ string, head []byte) bool {
	return bytes.HasPrefix(bytes.TrimLeft(head, " \t\r\n"), []byte("{")) &&
		(bytes.Contains(head, []byte(`"log_history"`)) || bytes.Contains(head, []byte(`"global_step"`)) && bytes.Contains(head, []byte(`"epoch"`)))
}

func readHugging(_ context.Context, in *input) ([]*part, error) {
	text, err := document(in)
	if err != nil {
		return nil, err
	}
	var v struct {
		Step    float64                      `json:"global_step"`
		Batch   float64                      `json:"train_batch_size"`
		History []map[string]json.RawMessage `json:"log_history"`
	}
	if err := json.Unmarshal(bareNaN(text), &v); err != nil {
		in.problem(lineOf(text, err), "%v", err)
		return nil, nil
	}
	if v.History == nil {
		return nil, errUnknown
	}
	h := &huggingReader{in: in, at: map[int]int{}, curves: map[string]*curve{}}
	for i, entry := range v.History {
		h.entry(i, entry)
	}
	p := &part{run: h.run, role: principal}
	slices.SortFunc(h.epochs, func(a, b runs.Epoch) int { return a.Epoch - b.Epoch })
	p.run.Epochs = h.epochs
	for _, name := range h.names {
		p.run.Curves = append(p.run.Curves, h.curves[name].done(in.report))
	}
	if len(h.epochs) > 0 {
		in.report.assume("an epoch's training loss is the last one that was logged in it")
	}
	if whole(v.Batch) {
		p.run.Info.BatchPerWorker = int(v.Batch)
	}
	p.state, p.stateOf = int64(v.Step), filepath.Dir(in.path)
	if name, ok := strings.CutPrefix(filepath.Base(p.stateOf), "checkpoint-"); ok && strings.Trim(name, "0123456789") == "" {
		p.stateOf = filepath.Dir(p.stateOf)
	} else {
		p.state = math.MaxInt64 // the state at the end
	}
	if len(p.run.Epochs) == 0 && len(p.run.Curves) == 0 && len(p.run.Trials) == 0 {
		in.problem(0, "log_history holds no values")
		return nil, nil
	}
	return []*part{p}, nil
}

type huggingReader struct {
	in     *input
	run    runs.Run
	epochs []runs.Epoch
	at     map[int]int
	curves map[string]*curve
	names  []string
}

func (h *huggingReader) entry(i int, entry map[string]json.RawMessage) {
	value := func(key string) float64 {
		if f, ok := jsonNumber(entry[key]); ok {
			return f
		}
		return nan()
	}
	epoch, step := value("epoch"), value("step")
	if !(step >= 0 && step < 1<<53) {
		h.in.problem(0, "log_history[%d] has no step", i)
		return
	}
	keys := make([]string, 0, len(entry))
	for k := range entry {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		f, ok := jsonNumber(entry[k])
		if k == "epoch" || k == "step" || k == "total_flos" || !ok || len(k) > 100 {
			continue
		}
		if h.curves[k] == nil {
			if len(h.names) >= maxCurveNames {
				h.in.problem(0, "more than %d names of values; %.40q is not used", maxCurveNames, k)
				continue
			}
			h.curves[k] = newCurve(k, -1, false)
			h.names = append(h.names, k)
		}
		h.curves[k].add(int64(step), f, 0)
		h.in.report.Records++
	}
	if v := value("train_runtime"); v > 0 {
		if h.run.Info.Config == nil {
			h.run.Info.Config = map[string]any{}
		}
		h.run.Info.Config[TrainingSeconds] = v
	}
	if v := value("train_samples_per_second"); v > 0 {
		h.run.Trials = []runs.Trial{{Name: "FULL", Rate: v, Spread: nan()}}
	}
	if epoch != epoch || epoch > 1<<30 || epoch <= 0 || !math.IsNaN(value("train_runtime")) {
		return
	}
	e := h.epoch(int(math.Ceil(epoch - 1e-6)))
	for key, field := range map[string]*float64{
		"loss": &e.TrainLoss, "learning_rate": &e.LearningRate, "eval_loss": &e.ValLoss, "eval_accuracy": &e.ValAccuracy,
		"eval_mean_iou": &e.IoU, "eval_iou": &e.IoU, "eval_runtime": &e.ValSeconds,
	} {
		if f, ok := jsonNumber(entry[key]); ok {
			*field = f
		}
	}
}

// epoch is the epoch in which a share of it lies: 0.5 and 1.0 lie in the first.
func (h *huggingReader) epoch(n int) *runs.Epoch {
	n = max(n, 1)
	i, ok := h.at[n]
	if !ok {
		i = len(h.epochs)
		h.at[n] = i
		h.epochs = append(h.epochs, unmeasured(n, 0))
	}
	return &h.epochs[i]
}

// bareNaN puts quotes around the NaN and Infinity that Python's json writes and
// that JSON does not know; the text keeps its lines.
func bareNaN(text []byte) []byte {
	if !bytes.Contains(text, []byte(": NaN")) && !bytes.Contains(text, []byte("Infinity")) {
		return text
	}
	for _, word := range []string{"NaN", "-Infinity", "Infinity"} {
		text = bytes.ReplaceAll(text, []byte(": "+word), []byte(`: "`+strings.Replace(word, "Infinity", "Inf", 1)+`"`))
	}
	return text
}

// jsonNumber is a number, also one that is written as a text.
func jsonNumber(text json.RawMessage) (float64, bool) { return jsonFloat(text) }

// lineOf is the line of text in which encoding/json met err.
func lineOf(text []byte, err error) int {
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

// plainKind is a loss a line and nothing else: "1 8.049097061157227".
const plainKind = "plain loss lines"

// isPlain says whether all whole lines of the head are so.
func isPlain(_ string, head []byte) bool {
	n := 0
	for line := range bytes.Lines(head) {
		if !bytes.HasSuffix(line, []byte("\n")) && n > 0 {
			break
		}
		if _, _, ok := plainLine(bytes.TrimRight(line, "\r\n")); !ok {
			return false
		}
		n++
	}
	return n > 0
}

// plainLine is a step and a value with a point, or one that is not finite.
func plainLine(line []byte) (step int, v float64, ok bool) {
	c := cursor{b: line}
	step = c.count()
	c.lit(" ")
	point := bytes.IndexByte(c.b, '.') >= 0 || bytes.IndexByte(c.b, 'n') >= 0
	v = c.num()
	return step, v, !c.failed && len(c.b) == 0 && point
}

// readPlain reads such a file; one other line, and it is none.
func readPlain(ctx context.Context, in *input) ([]*part, error) {
	l := newLines(in.r, in.size)
	loss := newCurve("loss", -1, false)
	last := -1
	for {
		line, ok := l.next()
		if !ok {
			break
		}
		if l.number&0xffff == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		in.report.Lines++
		step, v, good := plainLine(line)
		switch {
		case !l.ended:
			in.problem(l.number, "last line is torn: %.80q", line)
		case !good || l.cut:
			return nil, errUnknown
		case step <= last:
			in.problem(l.number, "step %d comes after step %d", step, last)
		default:
			loss.add(int64(step), v, 0)
			last = step
			in.report.LinesUsed++
			in.report.Records++
		}
	}
	if l.err != nil {
		return nil, fmt.Errorf("read %s after line %d: %w", in.path, l.number, l.err)
	}
	if last < 0 {
		return nil, nil
	}
	in.report.assume("the second number of each line is a loss, the first its step %s", strconv.Quote("1 8.049"))
	return []*part{{run: runs.Run{Curves: []runs.Curve{loss.done(in.report)}}, role: principal}}, nil
}
