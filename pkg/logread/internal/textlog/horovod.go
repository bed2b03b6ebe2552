package textlog

import (
	"bytes"
	"math"
	"strings"

	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/scan"
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

// horovodState is what the lines of a run have said so far, in images per
// second and GPU.
type horovodState struct {
	iterations []float64
	perGPU     float64
	spread     float64
	summary    int // number of the line with the total; 0 if it has not come
	// Settings, which belong to other programs if no rates follow.
	model     string
	batch     int // per GPU
	settings  int // number of their lines
	settingAt int // number of the first line
}

// otherSettings is the reason for ignoring settings that no rates follow. It is
// unknown whether such a batch size is per worker.
const otherSettings = "a batch size or a model that no rates of Horovod's benchmark follow: other programs print them, too"

// maxRates limits the single rates that are kept per trial.
const maxRates = 1 << 16

// horovodRate reads the rate of an iteration, or the mean over iterations.
func (t *textLog) horovodRate(m []byte) verdict {
	c := scan.Cursor{Rest: m}
	if c.Accept("Iter #") {
		n := c.Count()
		v := c.Expect(": ").Float()
		if c.Expect(" img/sec per "); c.Failed {
			t.in.Problem(t.l.Number, "expected \"Iter #N: R img/sec per GPU\", got %.80q", m)
			return unused
		}
		if n == 0 && t.cur.rates.summary > 0 {
			t.begin()
		}
		run := t.form(formHorovod)
		if len(run.rates.iterations) < maxRates {
			run.rates.iterations = append(run.rates.iterations, v)
		}
		t.usual = formHorovod
		return used
	}
	c.Expect("Img/sec per ")
	_, after, ok := bytes.Cut(c.Rest, []byte(": "))
	c.Rest = after
	v := c.Float()
	spread := c.SkipBlanks().Expect("+-").Float()
	if !ok || !c.Complete() {
		t.in.Problem(t.l.Number, "expected \"Img/sec per GPU: R +-D\", got %.80q", m)
		return unused
	}
	run := t.form(formHorovod)
	run.rates.perGPU, run.rates.spread = v, spread
	return used
}

// horovodLine reads the iteration that b begins with, for usualLines.
func (t *textLog) horovodLine(b []byte) (int, verdict) {
	if !scan.HasPrefix(b, "Iter #") || t.cur.rates.summary > 0 {
		return 0, unknown
	}
	k := len("Iter #")
	_, n := scan.ShortCount(b[k:])
	if k += n; n == 0 || !scan.HasPrefix(b[k:], ": ") {
		return 0, unknown
	}
	k += len(": ")
	v, n := scan.Decimal(b[k:])
	if k += n; n == 0 || !scan.HasPrefix(b[k:], " img/sec") || !scan.HasPrefix(b[k+8:], " per GPU\n") {
		return 0, unknown
	}
	if run := t.form(formHorovod); len(run.rates.iterations) < maxRates {
		run.rates.iterations = append(run.rates.iterations, v)
	}
	return k + len(" img/sec per GPU\n"), used
}

// horovodTotal reads the line with the total rate of all GPUs, which is the last line of a
// run.
func (t *textLog) horovodTotal(m []byte) verdict {
	c := scan.Cursor{Rest: m}
	n := c.Expect("Total img/sec on ").Count()
	_, after, ok := bytes.Cut(c.Rest, []byte(": "))
	c.Rest = after
	rate := c.Float()
	spread := c.SkipBlanks().Expect("+-").Float()
	if !ok || !c.Complete() || n < 1 || n > record.MaxWorkers {
		t.in.Problem(t.l.Number, "expected \"Total img/sec on N GPU(s): R +-D\", got %.80q", m)
		return unused
	}
	if t.cur.rates.summary > 0 {
		t.begin()
	}
	run := t.form(formHorovod)
	run.run.Info.Workers = n
	run.rates.summary = t.l.Number
	tr := t.trial("SYNTHETIC")
	tr.Rate, tr.Spread, tr.Line = rate, spread/horovodInterval, t.l.Number
	t.in.Report.Records++
	return used
}

// horovodSetting reads the model, the batch size or the number of GPUs.
func (t *textLog) horovodSetting(m []byte) verdict {
	key, value, _ := bytes.Cut(m, []byte(": "))
	text := strings.TrimSpace(string(value))
	if text == "" || len(text) > 200 {
		return unknown
	}
	if t.cur.rates.summary > 0 && string(key) == "Model" {
		t.begin()
	}
	c := scan.Cursor{Rest: value}
	n := c.Count()
	h := &t.cur.rates
	switch {
	case string(key) == "Model":
		h.model = text
	case !c.Complete() || n < 1:
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

// finishHorovod completes the trial of the run.
func (r *textRun) finishHorovod(report *record.Report) {
	h := r.rates
	if h.summary == 0 && len(h.iterations) == 0 && h.perGPU == 0 {
		if h.settings > 0 {
			report.IgnoreLines(record.Ignored{Reason: otherSettings, Lines: int64(h.settings), First: h.settingAt})
		}
		return
	}
	report.LinesUsed += int64(h.settings)
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
	n := float64(r.run.Info.Workers)
	switch {
	case tr != nil:
		report.Assume("± is 1.96 standard deviations, as Horovod's benchmark writes it")
	case n == 0:
		report.Problem(r.line, "images a second and GPU, but no line \"Total img/sec on N GPU(s)\": how many GPUs there were is not said")
		return
	default:
		rate, spread := h.perGPU, h.spread/horovodInterval
		if rate == 0 {
			rate, spread = record.MeanAndSpread(h.iterations)
		}
		report.Assume("the total is %g times the rate of a GPU, for the log ends before its own total", n)
		r.trial(n*rate, n*spread)
		tr = r.trials["SYNTHETIC"]
	}
	for _, v := range h.iterations {
		if rate := v * n; !math.IsInf(rate, 0) {
			tr.Rates = append(tr.Rates, rate)
		}
	}
}
