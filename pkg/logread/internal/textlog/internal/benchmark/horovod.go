package benchmark

import (
	"bytes"
	"math"
	"slices"
	"strings"

	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/scan"
	"lockstep/pkg/logread/internal/template"
	"lockstep/pkg/logread/internal/textlog/internal/logline"
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
//
// horovodConfidenceStdDevs is the number of standard deviations after +-.
const horovodConfidenceStdDevs = 1.96

// horovodState contains the values so far, except the rates of the iterations (Run.IterationRates).
// Rates are in images per second and GPU.
type horovodState struct {
	perGPU  float64
	spread  float64
	summary int // number of the line with the total; 0 before that line
	// The settings "Model:", "Batch size:" and "Number of GPUs:". The first two are ignored if no rates
	// follow, since other programs print such lines too; the GPUs may then be those of a node.
	model     string
	batch     int // per GPU
	settings  int // number of lines with settings
	settingAt int // number of the first of these lines
}

// Horovod returns the format of Horovod's synthetic benchmark.
func Horovod() logline.Format {
	return logline.Format{Name: "Horovod synthetic", Finish: finishHorovod, Rules: []logline.Rule{
		{Prefix: "Model: ", Read: readHorovodSetting},
		{Prefix: "Batch size: ", Read: readHorovodSetting},
		{Prefix: "Number of GPUs: ", Read: readHorovodSetting},
		{
			Use: addHorovodIteration, EndsWithValue: true,
			Templates: []string{"Iter #{step}: {samples_per_second} img/sec per GPU", "Iter #{step}: {samples_per_second} img/sec per *"},
		},
		{Templates: []string{"Img/sec per *: {samples_per_second} +-{interval}"}, Use: setHorovodMean},
		{Templates: []string{"Total img/sec on {workers} *: {samples_per_second} +-{interval}"}, Use: setHorovodTotal},
	}}
}

func horovodStateOf(r *logline.Run) *horovodState {
	return logline.FormatState[horovodState](&r.States, logline.Horovod)
}

// reasonNoRates is the reason for ignoring a batch size and a model without Horovod's rates. In
// other programs' lines, the batch size may be per worker or for all workers.
const reasonNoRates = "a batch size or model without rates of Horovod's benchmark after it: other programs print such lines too"

const maxHorovodRates = 1 << 16

// addHorovodIteration adds the rate of an iteration: its number and images per second and GPU.
func addHorovodIteration(log *logline.Log, v []template.Value) logline.Result {
	if v[0].Number == 0 && horovodStateOf(log.Current).summary > 0 {
		log.BeginRun()
	}
	run := log.CountLine(logline.Horovod)
	if n := len(run.IterationRates); n < maxHorovodRates {
		if n == cap(run.IterationRates) {
			run.IterationRates = slices.Grow(run.IterationRates, min(log.Lines.EstimateRemainingValues(n), maxHorovodRates-n))
		}
		run.IterationRates = append(run.IterationRates, v[1].Number)
	}
	return logline.Used
}

// setHorovodMean sets the mean rate of all iterations, in images per second and GPU, and the number
// after +-.
func setHorovodMean(log *logline.Log, v []template.Value) logline.Result {
	h := horovodStateOf(log.CountLine(logline.Horovod))
	h.perGPU, h.spread = v[0].Number, v[1].Number
	return logline.Used
}

// setHorovodTotal reads the last line of a run: the GPUs, their total rate, and the number after +-.
func setHorovodTotal(log *logline.Log, v []template.Value) logline.Result {
	if !record.IsPlausibleCount(v[0].Number) {
		return log.Refuse("got %g GPUs, want 1 to %d", v[0].Number, record.MaxWorkers)
	}
	if horovodStateOf(log.Current).summary > 0 {
		log.BeginRun()
	}
	run := log.CountLine(logline.Horovod)
	run.Run.Info.Workers = int(v[0].Number)
	horovodStateOf(run).summary = log.Lines.Number
	tr := log.FindOrAddTrial("SYNTHETIC")
	tr.Rate, tr.Spread, tr.Line = v[1].Number, v[2].Number/horovodConfidenceStdDevs, log.Lines.Number
	log.In.Report.Records++
	return logline.Used
}

// readHorovodSetting reads the lines "Model:", "Batch size:" and "Number of GPUs:".
func readHorovodSetting(log *logline.Log, m []byte) logline.Result {
	key, value, _ := bytes.Cut(m, []byte(": "))
	text := strings.TrimSpace(string(value))
	if text == "" || len(text) > 200 || value[0] == ' ' { // tf_cnn_benchmarks aligns its settings
		return logline.Unknown
	}
	if horovodStateOf(log.Current).summary > 0 && string(key) == "Model" {
		log.BeginRun()
	}
	c := scan.Cursor{Rest: value}
	n := c.ReadInteger()
	h := horovodStateOf(log.Current)
	switch {
	case string(key) == "Model":
		h.model = text
	case !c.IsComplete() || n < 1:
		return logline.Unknown
	case string(key) == "Batch size":
		h.batch = n
	default:
		return log.SetDevices(n, false)
	}
	if h.settings++; h.settings == 1 {
		h.settingAt = log.Lines.Number
	}
	return logline.Pending
}

// finishHorovod computes the trial of the run if the log lacks the line with the total.
func finishHorovod(r *logline.Run, report *record.Report) {
	h := horovodStateOf(r)
	if h.summary == 0 && len(r.IterationRates) == 0 && h.perGPU == 0 {
		if h.settings > 0 {
			report.AddIgnoredLines(record.IgnoredLines{Reason: reasonNoRates, Lines: int64(h.settings), First: h.settingAt})
		}
		return
	}
	report.LinesUsed += int64(h.settings)
	if r.StatedWorkers() == 0 {
		r.Run.Info.Workers = r.Devices.Count
	}
	r.Run.ThroughputUnit = "images/s"
	if h.batch > 0 {
		r.Run.Info.BatchPerWorker = h.batch
	}
	if h.model != "" {
		record.SetConfigValue(&r.Run.Info, "model", h.model)
	}
	tr := r.Trials["SYNTHETIC"]
	n := float64(r.StatedWorkers())
	switch {
	case tr != nil:
		report.AddAssumption("± is 1.96 standard deviations, as Horovod's benchmark writes it")
	case n == 0:
		report.AddProblem(r.Line, "images per second and GPU, but no line \"Total img/sec on N GPU(s)\": the number of GPUs is unknown")
		return
	default:
		rate, spread := h.perGPU, h.spread/horovodConfidenceStdDevs
		if rate == 0 {
			rate, spread = record.MeanAndStdDev(r.IterationRates)
		}
		report.AddAssumption("the total is %g times the rate of one GPU, since the log ends before the line with the total", n)
		tr = &runs.Trial{Name: "SYNTHETIC", Rate: n * rate, Spread: n * spread}
		r.Trials[tr.Name] = tr
	}
	tr.Rates = slices.Grow(tr.Rates, len(r.IterationRates))
	for _, v := range r.IterationRates {
		if rate := v * n; !math.IsInf(rate, 0) {
			tr.Rates = append(tr.Rates, rate)
		}
	}
}
