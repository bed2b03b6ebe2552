package textlog

import (
	"math"
	"strings"

	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/scan"
	"lockstep/pkg/runs"
)

// tf_cnn_benchmarks (benchmark_cnn.py of tensorflow/benchmarks, 2018 to 2023). The rate in the
// line of a step is that of one process; the total at the end is that of all workers.
//
//	TensorFlow:  1.15
//	Model:       resnet50
//	Dataset:     imagenet (synthetic)
//	Batch size:  256 global
//	             64 per device
//	Step	Img/sec	total_loss
//	10	images/sec: 1425.2 +/- 3.1 (jitter = 5.0)	7.9
//	total images/sec: 1428.75

// tfCNNState is what a run's lines of the benchmark contain so far.
type tfCNNState struct {
	global, perDevice int
	model             string
	synthetic         bool
	headerLine        int // number of the last line of the header that was read
}

// TFCNN returns the format of tf_cnn_benchmarks.
func TFCNN() format {
	return format{name: "tf_cnn_benchmarks", finish: (*textRun).finishTFCNN, lines: []lineRule{
		{prefix: "TensorFlow:  ", read: (*textLog).readTFCNNHeader},
		{prefix: "Model: ", read: (*textLog).readTFCNNModel},
		{prefix: "Dataset: ", read: (*textLog).readTFCNNModel},
		{prefix: "Batch size: ", read: (*textLog).readTFCNNBatch},
		{prefix: "total images/sec: ", read: (*textLog).readTFCNNTotal, endsWithValue: true},
		{first: "123456789", read: (*textLog).readTFCNNStep},
	}}
}

// tfCNNOf returns what the lines of tf_cnn_benchmarks of a run contain so far.
func tfCNNOf(r *textRun) *tfCNNState { return stateOf[tfCNNState](&r.states, formatTFCNN) }

// readTFCNNHeader reads the first line of the header, which has the version of TensorFlow.
func (t *textLog) readTFCNNHeader(m []byte) lineResult {
	c := scan.Cursor{Rest: m}
	c.Expect("TensorFlow:  ").ReadInteger()
	if c.Expect(".").ReadInteger(); !c.IsComplete() {
		return unknown
	}
	*tfCNNOf(t.beginHeader()) = tfCNNState{headerLine: t.l.Number}
	return used
}

// followsTFCNNHeader reports whether the current line follows a line of the header. If so, it
// belongs to the header too. Settings elsewhere may be those of another program.
func (t *textLog) followsTFCNNHeader() bool {
	s := tfCNNOf(t.cur)
	follows := s.headerLine > 0 && t.l.Number <= s.headerLine+3 // lines without use are between
	if follows {
		s.headerLine = t.l.Number
	}
	return follows
}

// readTFCNNModel reads the name of the model, or of the data set. The synthetic benchmark of
// Horovod has a similar line with the model.
func (t *textLog) readTFCNNModel(m []byte) lineResult {
	key, value, _ := strings.Cut(string(m[:min(len(m), 200)]), ":")
	if !strings.HasPrefix(value, "   ") || !t.followsTFCNNHeader() {
		return unknown
	}
	s := tfCNNOf(t.cur)
	if value = strings.TrimSpace(value); key == "Model" {
		s.model = value
	} else {
		s.synthetic = strings.HasSuffix(value, "(synthetic)")
	}
	return used
}

// readTFCNNBatch reads the line "Batch size:  256 global".
func (t *textLog) readTFCNNBatch(m []byte) lineResult {
	c := scan.Cursor{Rest: m}
	n := c.Expect("Batch size:").SkipBlanks().ReadInteger()
	if c.Expect(" global"); !c.IsComplete() || n < 1 || !t.followsTFCNNHeader() {
		return unknown
	}
	tfCNNOf(t.cur).global = n
	return used
}

// readTFCNNStep reads the line of a step, and the line with the batch size of a device.
func (t *textLog) readTFCNNStep(m []byte) lineResult {
	c := scan.Cursor{Rest: m}
	step := c.ReadInteger()
	c.Accept(".0") // with Python 3, in 2018
	if c.Accept(" per device") && c.IsComplete() && step > 0 && t.followsTFCNNHeader() {
		tfCNNOf(t.cur).perDevice = step
		return used
	}
	if !c.Accept("\timages/sec: ") {
		return unknown
	}
	rate := c.ReadFloat()
	if c.Accept(" +/- ") {
		c.ReadFloat()
		c.Expect(" (jitter = ").ReadFloat()
		c.Expect(")")
	}
	loss := c.Expect("\t").ReadFloat()
	if c.Failed || t.isCutAfterPoint(m) {
		t.in.AddProblem(t.l.Number, "expected \"STEP images/sec: R +/- D (jitter = J) LOSS\", got %.80q", m)
		return unused
	}
	if last := t.cur.curves["total_loss"]; last != nil && t.cur.linesByFormat[formatTFCNN] > 0 && len(last.Steps) > 0 && int64(step) <= last.Steps[0] {
		t.beginRun()
	}
	t.countLine(formatTFCNN)
	t.addPoint([]byte("images/sec of one process"), max(t.rank, -1), int64(step), rate, math.NaN())
	t.addPoint([]byte("total_loss"), max(t.rank, -1), int64(step), loss, math.NaN())
	return used
}

// readTFCNNTotal reads the throughput of the run.
func (t *textLog) readTFCNNTotal(m []byte) lineResult {
	c := scan.Cursor{Rest: m}
	rate := c.Expect("total images/sec: ").ReadFloat()
	if !c.IsComplete() || !(rate > 0) || math.IsInf(rate, 0) || t.isCutAfterPoint(m) {
		return unknown
	}
	run := t.countLine(formatTFCNN)
	name := "FULL"
	if tfCNNOf(run).synthetic {
		name = "SYNTHETIC"
	}
	run.trials[name] = &runs.Trial{Name: name, Rate: rate, Spread: math.NaN(), Line: t.l.Number}
	run.run.ThroughputUnit = "images/s"
	t.in.Report.Records++
	return used
}

// finishTFCNN sets the properties that the header contains.
func (r *textRun) finishTFCNN(*record.Report) {
	s := tfCNNOf(r)
	if r.linesByFormat[formatTFCNN] == 0 || s.model == "" {
		return
	}
	if n := s.global / max(s.perDevice, 1); s.perDevice > 0 && n >= 1 && n <= record.MaxWorkers && n*s.perDevice == s.global {
		r.run.Info.Workers, r.run.Info.BatchPerWorker, r.run.Info.GlobalBatch = n, s.perDevice, s.global
	}
	if r.run.Info.Config == nil {
		r.run.Info.Config = map[string]any{}
	}
	r.run.Info.Config["model"] = s.model
}
