package benchmark

import (
	"math"
	"strings"

	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/scan"
	"lockstep/pkg/logread/internal/template"
	"lockstep/pkg/logread/internal/textlog/internal/logline"
	"lockstep/pkg/runs"
)

// tf_cnn_benchmarks (benchmark_cnn.py of tensorflow/benchmarks, 2018 to 2023). The rate in the
// line of a step is that of one process; the total at the end is that of all workers.
//
//	TensorFlow:  1.15
//	Model:       resnet50
//	Dataset:     imagenet (synthetic)
//	Mode:        training
//	Batch size:  256 global
//	             64 per device
//	Devices:     ['/gpu:0', '/gpu:1', '/gpu:2', '/gpu:3']
//	Step	Img/sec	total_loss
//	10	images/sec: 1425.2 +/- 3.1 (jitter = 5.0)	7.9
//	total images/sec: 1428.75

type tfCNNState struct {
	global, perDevice int
	model, mode       string
	synthetic         bool
	headerLine        int // number of the last line of the header that was read
}

// TFCNN returns the format of tf_cnn_benchmarks.
func TFCNN() logline.Format {
	return logline.Format{Name: "tf_cnn_benchmarks", Finish: finishTFCNN, Rules: []logline.Rule{
		{Prefix: "TensorFlow:  ", Read: readTFCNNHeader},
		{Prefix: "Model: ", Read: readTFCNNModel},
		{Prefix: "Dataset: ", Read: readTFCNNModel},
		{Prefix: "Mode: ", Read: readTFCNNModel},
		{Prefix: "Devices: ", Read: readTFCNNModel},
		{Prefix: "Batch size: ", Read: readTFCNNBatch},
		{Templates: []string{"total images/sec: {samples_per_second}"}, Use: addTFCNNTotal, MayBeOther: true},
		{First: "123456789", Read: readTFCNNStep},
	}}
}

func tfCNNStateOf(r *logline.Run) *tfCNNState {
	return logline.FormatState[tfCNNState](&r.States, logline.TFCNN)
}

func readTFCNNHeader(log *logline.Log, m []byte) logline.Result {
	c := scan.Cursor{Rest: m}
	c.Expect("TensorFlow:  ").ReadInteger()
	if c.Expect(".").ReadInteger(); !c.IsComplete() {
		return logline.Unknown
	}
	*tfCNNStateOf(log.BeginHeader()) = tfCNNState{headerLine: log.Lines.Number}
	return logline.Used
}

// followsTFCNNHeader reports whether the current line follows a line of the header and so belongs
// to it. Settings elsewhere may be another program's.
func followsTFCNNHeader(log *logline.Log) bool {
	s := tfCNNStateOf(log.Current)
	follows := s.headerLine > 0 && log.Lines.Number <= s.headerLine+3 // lines without use are between
	if follows {
		s.headerLine = log.Lines.Number
	}
	return follows
}

// readTFCNNModel reads the name of the model or of the data set, the mode, or the list of devices.
// Horovod's synthetic benchmark has a similar line with the model.
func readTFCNNModel(log *logline.Log, m []byte) logline.Result {
	key, value, _ := strings.Cut(string(m[:min(len(m), 200)]), ":")
	if !strings.HasPrefix(value, "   ") || !followsTFCNNHeader(log) {
		return logline.Unknown
	}
	s := tfCNNStateOf(log.Current)
	switch value = strings.TrimSpace(value); key {
	case "Model":
		s.model = value
	case "Dataset":
		s.synthetic = strings.HasSuffix(value, "(synthetic)")
	case "Mode":
		s.mode = value
	case "Devices":
		log.Current.Run.Info.Workers = strings.Count(value, "pu:")
	}
	return logline.Used
}

func readTFCNNBatch(log *logline.Log, m []byte) logline.Result {
	c := scan.Cursor{Rest: m}
	n := c.Expect("Batch size:").SkipBlanks().ReadInteger()
	if c.Expect(" global"); !c.IsComplete() || n < 1 || !followsTFCNNHeader(log) {
		return logline.Unknown
	}
	tfCNNStateOf(log.Current).global = n
	return logline.Used
}

func readTFCNNStep(log *logline.Log, m []byte) logline.Result {
	c := scan.Cursor{Rest: m}
	step := c.ReadInteger()
	c.Accept(".0") // with Python 3, in 2018
	if c.Accept(" per device") && c.IsComplete() && step > 0 && followsTFCNNHeader(log) {
		tfCNNStateOf(log.Current).perDevice = step
		return logline.Used
	}
	if !c.Accept("\timages/sec: ") {
		return logline.Unknown
	}
	rate := c.ReadFloat()
	if c.Accept(" +/- ") {
		c.ReadFloat()
		c.Expect(" (jitter = ").ReadFloat()
		c.Expect(")")
	}
	loss := c.Expect("\t").ReadFloat()
	if c.Failed || log.IsCutAfterPoint(m) {
		return log.Refuse("expected \"STEP images/sec: R +/- D (jitter = J) LOSS\", got %.80q", m)
	}
	if last := log.Current.Curves.First("total_loss"); last != nil && log.Current.LinesByFormat[logline.TFCNN] > 0 && len(last.Steps) > 0 && int64(step) <= last.Steps[0] {
		log.BeginRun()
	}
	log.CountLine(logline.TFCNN)
	log.AddPoint([]byte("images/sec of one process"), max(log.Rank, -1), int64(step), rate, math.NaN())
	log.AddPoint([]byte("total_loss"), max(log.Rank, -1), int64(step), loss, math.NaN())
	return logline.Used
}

func addTFCNNTotal(log *logline.Log, v []template.Value) logline.Result {
	rate := v[0].Number
	if !(rate > 0) || math.IsInf(rate, 0) {
		return logline.Unknown
	}
	run := log.CountLine(logline.TFCNN)
	name := "FULL"
	if tfCNNStateOf(run).synthetic {
		name = "SYNTHETIC"
	}
	run.Trials[name] = &runs.Trial{Name: name, Rate: rate, Spread: math.NaN(), Line: log.Lines.Number}
	run.Run.ThroughputUnit = "images/s"
	log.In.Report.Records++
	return logline.Used
}

func finishTFCNN(r *logline.Run, _ *record.Report) {
	s := tfCNNStateOf(r)
	if r.LinesByFormat[logline.TFCNN] == 0 || s.model == "" {
		return
	}
	if n := s.global / max(s.perDevice, 1); s.perDevice > 0 && n >= 1 && n <= record.MaxWorkers && n*s.perDevice == s.global {
		r.DeriveWorkers(n)
		r.Run.Info.BatchPerWorker, r.Run.Info.GlobalBatch = s.perDevice, s.global
	}
	record.SetConfigValue(&r.Run.Info, "model", s.model)
	if s.mode != "" {
		record.SetConfigValue(&r.Run.Info, "mode", s.mode)
	}
}
