package textlog

import (
	"bytes"
	"math"
	"slices"
	"strings"

	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/scan"
	"lockstep/pkg/logread/internal/template"
	"lockstep/pkg/runs"
)

// Horovod's synthetic benchmark (*_synthetic_benchmark.py in its examples). The
// number after +- is 1.96 standard deviations over the iterations (np.std).
//
//	Model: ResNet50
//	Batch size: 32
//	Number of GPUs: 8
//	Iter #0: 1785.8 img/sec per GPU
//	Img/sec per GPU: 1785.2 +-3.1
//	Total img/sec on 8 GPU(s): 14281.2 +-25.0
const (
	// horovodInterval is the number of standard deviations after +-.
	horovodInterval = 1.96
)

// horovodState contains the values in the Horovod lines of a run so far, except the
// rates of the iterations (textRun.iterationRates). Rates are in images per second and GPU.
type horovodState struct {
	perGPU  float64
	spread  float64
	summary int // number of the line with the total; 0 before that line
	// The settings in the lines "Model:", "Batch size:" and "Number of GPUs:".
	// They are ignored if no rates follow, since other programs print such
	// lines too.
	model     string
	batch     int // per GPU
	settings  int // number of lines with settings
	settingAt int // number of the first of these lines
}

// Horovod returns the format of Horovod's synthetic benchmark.
func Horovod() format {
	return format{name: "Horovod synthetic", finish: (*textRun).finishHorovod, lines: []lineRule{
		{prefix: "Model: ", read: (*textLog).readHorovodSetting},
		{prefix: "Batch size: ", read: (*textLog).readHorovodSetting},
		{prefix: "Number of GPUs: ", read: (*textLog).readHorovodSetting},
		{
			prefix: "Iter #", use: (*textLog).addHorovodIteration, more: readSimilarLines, endsWithValue: true,
			templates: []string{"Iter #{step}: {samples_per_second} img/sec per GPU", "Iter #{step}: {samples_per_second} img/sec per *"},
		},
		{
			prefix: "Img/sec per ", use: (*textLog).setHorovodMean, endsWithValue: true,
			templates: []string{"Img/sec per *: {samples_per_second} +-{interval}"},
		},
		{
			prefix: "Total img/sec on ", use: (*textLog).setHorovodTotal, endsWithValue: true,
			templates: []string{"Total img/sec on {workers} *: {samples_per_second} +-{interval}"},
		},
	}}
}

// horovodOf returns what the Horovod lines of a run contain so far.
func horovodOf(r *textRun) *horovodState { return stateOf[horovodState](&r.states, formatHorovod) }

// reasonNoRates is the reason for ignoring a batch size and a model without
// Horovod's rates after them. In lines of other programs, the batch size may be
// per worker or for all workers.
const reasonNoRates = "a batch size or model without rates of Horovod's benchmark after it: other programs print such lines too"

// maxRates is the maximum number of single rates that are kept per trial.
const maxRates = 1 << 16

// addHorovodIteration adds the rate of an iteration: its number and images per
// second and GPU.
func (t *textLog) addHorovodIteration(v []template.Value) lineResult {
	if v[0].Number == 0 && horovodOf(t.cur).summary > 0 {
		t.beginRun()
	}
	run := t.countLine(formatHorovod)
	if n := len(run.iterationRates); n < maxRates {
		if n == cap(run.iterationRates) {
			run.iterationRates = slices.Grow(run.iterationRates, min(t.l.EstimateRemaining(n), maxRates-n))
		}
		run.iterationRates = append(run.iterationRates, v[1].Number)
	}
	return used
}

// setHorovodMean sets the mean rate over all iterations, in images per second
// and GPU, and the number after +-.
func (t *textLog) setHorovodMean(v []template.Value) lineResult {
	h := horovodOf(t.countLine(formatHorovod))
	h.perGPU, h.spread = v[0].Number, v[1].Number
	return used
}

// setHorovodTotal reads the last line of a run: the number of GPUs, the rate of
// all GPUs, and the number after +-.
func (t *textLog) setHorovodTotal(v []template.Value) lineResult {
	if !record.IsPlausibleCount(v[0].Number) {
		t.in.AddProblem(t.l.Number, "got %g GPUs, want 1 to %d", v[0].Number, record.MaxWorkers)
		return unused
	}
	if horovodOf(t.cur).summary > 0 {
		t.beginRun()
	}
	run := t.countLine(formatHorovod)
	run.run.Info.Workers = int(v[0].Number)
	horovodOf(run).summary = t.l.Number
	tr := t.findOrAddTrial("SYNTHETIC")
	tr.Rate, tr.Spread, tr.Line = v[1].Number, v[2].Number/horovodInterval, t.l.Number
	t.in.Report.Records++
	return used
}

// readHorovodSetting reads the lines "Model:", "Batch size:" and "Number of
// GPUs:".
func (t *textLog) readHorovodSetting(m []byte) lineResult {
	key, value, _ := bytes.Cut(m, []byte(": "))
	text := strings.TrimSpace(string(value))
	if text == "" || len(text) > 200 || value[0] == ' ' { // tf_cnn_benchmarks aligns its settings
		return unknown
	}
	if horovodOf(t.cur).summary > 0 && string(key) == "Model" {
		t.beginRun()
	}
	c := scan.Cursor{Rest: value}
	n := c.ReadInteger()
	h := horovodOf(t.cur)
	switch {
	case string(key) == "Model":
		h.model = text
	case !c.IsComplete() || n < 1:
		return unknown
	case string(key) == "Batch size":
		h.batch = n
	default:
		if n <= record.MaxWorkers {
			t.cur.run.Info.Workers = n
		}
		return used
	}
	if h.settings++; h.settings == 1 {
		h.settingAt = t.l.Number
	}
	return pending
}

// finishHorovod computes the trial of the run if the log ends before the line
// with the total.
func (r *textRun) finishHorovod(report *record.Report) {
	h := horovodOf(r)
	if h.summary == 0 && len(r.iterationRates) == 0 && h.perGPU == 0 {
		if h.settings > 0 {
			report.AddIgnoredLines(record.IgnoredLines{Reason: reasonNoRates, Lines: int64(h.settings), First: h.settingAt})
		}
		return
	}
	report.LinesUsed += int64(h.settings)
	r.run.ThroughputUnit = "images/s"
	if h.batch > 0 {
		r.run.Info.BatchPerWorker = h.batch
	}
	if h.model != "" {
		if r.run.Info.Config == nil {
			r.run.Info.Config = map[string]any{}
		}
		r.run.Info.Config["model"] = h.model
	}
	tr := r.trials["SYNTHETIC"]
	n := float64(r.statedWorkers())
	switch {
	case tr != nil:
		report.AddAssumption("± is 1.96 standard deviations, as Horovod's benchmark writes it")
	case n == 0:
		report.AddProblem(r.line, "images per second and GPU, but no line \"Total img/sec on N GPU(s)\": the number of GPUs is unknown")
		return
	default:
		rate, spread := h.perGPU, h.spread/horovodInterval
		if rate == 0 {
			rate, spread = record.MeanAndSpread(r.iterationRates)
		}
		report.AddAssumption("the total is %g times the rate of one GPU, since the log ends before the line with the total", n)
		r.setSyntheticTrial(n*rate, n*spread)
		tr = r.trials["SYNTHETIC"]
	}
	tr.Rates = slices.Grow(tr.Rates, len(r.iterationRates))
	for _, v := range r.iterationRates {
		if rate := v * n; !math.IsInf(rate, 0) {
			tr.Rates = append(tr.Rates, rate)
		}
	}
}

// setSyntheticTrial sets the run's trial named SYNTHETIC.
func (r *textRun) setSyntheticTrial(rate, spread float64) {
	r.trials["SYNTHETIC"] = &runs.Trial{Name: "SYNTHETIC", Rate: rate, Spread: spread}
}
