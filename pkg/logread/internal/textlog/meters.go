package textlog

import (
	"bytes"
	"math"
	"strings"

	"lockstep/pkg/logread/internal/progress"
	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/scan"
	"lockstep/pkg/logread/internal/template"
	"lockstep/pkg/runs"
)

// Meters are values with their means so far. Three programs print them, all with epochs and
// steps that are counted from 0:
//
// PyTorch's ImageNet example (imagenet/main.py of pytorch/examples, 2017 to 2025), in which
// each process prints its own meters without a label:
//
//	=> creating model 'resnet18'
//	Epoch: [0][ 51/100]	Time  0.250 ( 0.300)	Data  0.001 ( 0.030)	Loss 6.2e+00 (6.5e+00)	Acc@1   2.00 (  1.50)
//	Test: [11/20]	Time  0.100 ( 0.200)	Loss 5.7e+00 (5.8e+00)	Acc@1   4.00 (  3.50)
//	 *   Acc@1 4.250 Acc@5 12.500
//
// torchvision's references (references/classification, utils.py of 2019 and train.py of 2022) and
// programs that use their MetricLogger. img/s is the rate of one process without loading:
//
//	| distributed init (rank 0): env://
//	Namespace(batch_size=32, world_size=2, …)
//	Epoch: [0]  [600/625]  eta: 0:00:06  lr: 0.1  img/s: 512.25  loss: 6.1000 (6.5000)  acc1: 3.12 (1.50)  time: 0.25  …
//	Epoch: [0] Total time: 0:02:30
//	Test:   [100/157]  eta: 0:00:05  loss: 5.7000 (5.8000)  acc1: 6.25 (4.00)  …
//	Test:  Total time: 0:00:15
//	Test:  Acc@1 4.250 Acc@5 12.500
//
// timm (train.py of pytorch-image-models, 0.1.26 to 1.0.29), whose rate is that of all processes:
//
//	Training in distributed mode with multiple processes, 1 device per process.Process 0, total 4, device cuda:0.
//	Train: 0 [  50/1251 (  4%)]  Loss: 6.9 (6.9)  Time: 0.4s,  640.00/s  (0.5s,  512.00/s)  LR: 1.0e-05  Data: 0.01 (0.02)
//	Test: [  48/48]  Time: 0.1 (0.2)  Loss:   6.25 ( 6.40)  Acc@1:   1.00 (  0.75)  Acc@5:   4.00 (  3.00)

// meterState is what the meters of a run contain so far.
type meterState struct {
	ranks     map[int][]*meterWriter // by label; without labels, the processes that print the same lines
	primary   *meterWriter           // the process that has printed the first line, whose values become curves
	initRanks map[int]bool           // ranks that torchvision's processes have printed
	evaluated int                    // number of the last epoch that an evaluation has followed, plus one
}

// ImageNet returns the format of PyTorch's ImageNet example.
func ImageNet() format {
	return format{name: "PyTorch ImageNet example", countsFromZero: true, finish: (*textRun).finishMeters, lines: []lineRule{
		{prefix: "Epoch: [", read: (*textLog).readMeterEpoch, endsWithValue: true},
		{prefix: "Test:", read: (*textLog).readMeterTest, endsWithValue: true},
		{prefix: "* ", read: (*textLog).readMeterSummary, endsWithValue: true},
		{prefix: "=> creating model '", read: (*textLog).readImageNetModel},
		{prefix: "=> using pre-trained model '", read: (*textLog).readImageNetModel},
	}}
}

// Torchvision returns the format of torchvision's references, whose lines with meters begin like those of the ImageNet example.
func Torchvision() format {
	return format{name: "torchvision reference", countsFromZero: true, lines: []lineRule{
		{prefix: "| distributed init (rank ", read: (*textLog).readDistributedInit},
		{prefix: "Namespace(", read: (*textLog).readNamespace},
	}}
}

// Timm returns the format of timm.
func Timm() format {
	return format{name: "timm", countsFromZero: true, lines: []lineRule{
		{prefix: "Train: ", read: (*textLog).readTimmTrain, endsWithValue: true},
		{prefix: "Training ", read: (*textLog).readTimmMode},
	}}
}

// metersOf returns what the meters of a run contain so far, whichever of the programs prints them.
func metersOf(r *textRun) *meterState { return stateOf[meterState](&r.states, formatImageNet) }

// meterWriter is a process that prints meters.
type meterWriter struct {
	id     rankID
	epochs []meterEpoch // never empty
}

// meterEpoch is how far a process has logged an epoch.
type meterEpoch struct {
	epoch, last, interval, steps int
	stepSeconds                  float64 // mean time of its steps so far; NaN if unknown
}

// current returns the epoch of the writer's last line.
func (w *meterWriter) current() *meterEpoch { return &w.epochs[len(w.epochs)-1] }

// isBefore reports whether the writer's last line precedes the line m.
func (w *meterWriter) isBefore(m *meters) bool {
	last := w.current()
	return last.epoch < m.epoch || last.epoch == m.epoch && last.last < m.step
}

// addLine adds how far line m has logged its epoch.
func (w *meterWriter) addLine(m *meters) {
	if n := len(w.epochs); n == 0 || w.epochs[n-1].epoch != m.epoch {
		w.epochs = append(w.epochs, meterEpoch{epoch: m.epoch, last: m.step, steps: m.steps, stepSeconds: m.stepSeconds})
		return
	}
	last := w.current()
	last.interval, last.last, last.stepSeconds = m.step-last.last, m.step, m.stepSeconds
}

// selectMeterWriter returns the process that has printed line m: the first one whose previous
// line precedes it. If the line begins another run, the run is begun.
func (t *textLog) selectMeterWriter(m *meters) *meterWriter {
	writers := metersOf(t.cur).ranks[t.rank]
	earlier := len(writers) > 0
	for _, w := range writers {
		if w.isBefore(m) {
			return w
		}
		earlier = earlier && m.epoch < w.current().epoch
	}
	if earlier || len(writers) >= 1<<12 {
		t.beginRun()
		writers = nil
	}
	s := metersOf(t.cur)
	if s.ranks == nil {
		s.ranks = map[int][]*meterWriter{}
	}
	w := &meterWriter{id: rankID{t.rank, len(writers)}}
	s.ranks[t.rank] = append(writers, w)
	if s.primary == nil {
		s.primary = w
	}
	return w
}

// meters is the content of a line.
type meters struct {
	format             formatID
	epoch, step, steps int
	values             []progress.Meter
	stepSeconds        float64 // mean time of a step; NaN if unknown
}

// addMeters adds the values of a line of training.
func (t *textLog) addMeters(m *meters) {
	if t.cur.closed {
		t.beginRun()
	}
	t.selectProgram(m.format) // before the writer, since it may begin a run
	w := t.selectMeterWriter(m)
	w.addLine(m)
	run := t.countLine(m.format)
	e := t.findOrAddEpoch(m.epoch, w.id.ordinal)
	for i := range m.values {
		x := &m.values[i]
		mean := x.Mean
		if math.IsNaN(mean) {
			mean = x.Value
		}
		switch strings.ToLower(string(x.Name)) {
		case "loss":
			e.TrainLoss = mean
		case "acc@1", "prec@1", "acc1", "top1":
			e.Accuracy = mean / 100
		case "lr":
			e.LearningRate = mean
		case "samples_per_second":
			e.SamplesPerSecond = mean
		}
		if w == metersOf(run).primary {
			t.addPoint(x.Name, max(t.rank, -1), int64(m.epoch)*int64(m.steps)+int64(m.step), x.Value, t.stampSeconds())
		}
	}
}

// meterBuffer returns a buffer for the values of a line.
func meterBuffer(t *textLog) *[]progress.Meter {
	return stateOf[[]progress.Meter](&t.states, formatImageNet)
}

// readMeters reads the meters at the end of a line. ok is false if the line has anything else.
func (t *textLog) readMeters(text []byte) (values []progress.Meter, ok bool) {
	buffer := meterBuffer(t)
	values = (*buffer)[:0]
	if t.isCutAfterPoint(text) {
		return nil, false
	}
	for len(bytes.TrimSpace(text)) > 0 {
		m, rest, ok := progress.NextMeter(text)
		if !ok || len(values) >= record.MaxCurveNames {
			return nil, false
		}
		values, text = append(values, m), rest
	}
	*buffer = values
	return values, len(values) > 0
}

// readMeterEpoch reads a line of training of the ImageNet example or of torchvision, and
// torchvision's time of an epoch.
func (t *textLog) readMeterEpoch(m []byte) lineResult {
	c := scan.Cursor{Rest: m}
	x := meters{epoch: c.Expect("Epoch: [").ReadInteger(), stepSeconds: math.NaN()}
	if c.Expect("]"); c.Failed {
		return unknown
	}
	if c.Accept(" Total time: ") {
		text, _, _ := bytes.Cut(c.Rest, []byte(" ("))
		seconds, ok := scan.ParseClock(text)
		e := t.meterEpochOf(x.epoch)
		if !ok || e == nil {
			return unknown
		}
		t.countLine(formatTorchvision)
		e.Seconds, e.Line = t.checkSeconds(seconds), t.l.Number
		return used
	}
	x.format = formatImageNet
	if !c.Accept("[") {
		x.format = formatTorchvision
		c.SkipBlanks().Expect("[")
	}
	x.step = c.SkipBlanks().ReadInteger()
	x.steps = c.Expect("/").SkipBlanks().ReadInteger()
	if c.Expect("]"); c.Failed || x.step > x.steps {
		return unknown
	}
	if x.format == formatTorchvision && !t.acceptTimeLeft(&c) {
		return unknown
	}
	values, ok := t.readMeters(c.Rest)
	if !ok {
		return unknown
	}
	for i := range values {
		switch string(values[i].Name) {
		case "Time":
			x.stepSeconds = values[i].Mean
		case "img/s": // its name must not suggest that loading is included
			values[i].Name = []byte("img/s of one rank without loading")
		}
	}
	x.values = values
	t.addMeters(&x)
	return used
}

// acceptTimeLeft consumes the estimated time that torchvision prints after the steps.
func (t *textLog) acceptTimeLeft(c *scan.Cursor) bool {
	if c.SkipBlanks(); !c.Accept("eta: ") {
		return false
	}
	_, rest, found := bytes.Cut(c.Rest, []byte("  "))
	c.Rest = rest
	return found
}

// meterEpochOf returns epoch n of the current line's rank, or nil.
func (t *textLog) meterEpochOf(n int) *runs.Epoch {
	list := t.cur.epochs.find(rankID{t.rank, 0})
	if list == nil {
		return nil
	}
	return list.Find(n)
}

// timmTemplate matches timm's line of training.
var timmTemplate = template.MustParse("Train: {epoch} [{step}/{steps} (*%)] Loss: {loss} ({train_loss}) Time: {step_seconds}s, {current_rate}/s ({mean_step_seconds}s, {samples_per_second}/s) LR: {lr} Data: *")

// readTimmTrain reads timm's line of training.
func (t *textLog) readTimmTrain(m []byte) lineResult {
	read := t.valuesOf(timmTemplate)
	if !timmTemplate.Match(m, read) {
		return unknown
	}
	value := func(name string) float64 { return read[timmTemplate.Index(name)].Number }
	epoch, step, steps := value("epoch"), value("step"), value("steps")
	if epoch < 0 || step < 0 || epoch > 1<<30 || steps > 1<<30 || step > steps {
		return unknown
	}
	buffer := meterBuffer(t)
	*buffer = append((*buffer)[:0],
		progress.Meter{Name: []byte("loss"), Value: value("loss"), Mean: value("train_loss")},
		progress.Meter{Name: []byte("step_seconds"), Value: value("step_seconds"), Mean: math.NaN()},
		progress.Meter{Name: []byte("samples_per_second"), Value: value("current_rate"), Mean: value("samples_per_second")},
		progress.Meter{Name: []byte("lr"), Value: value("lr"), Mean: math.NaN()},
	)
	t.addMeters(&meters{format: formatTimm, epoch: int(epoch), step: int(step), steps: int(steps), values: *buffer, stepSeconds: value("mean_step_seconds")})
	return used
}

// readMeterTest reads a line of an evaluation, which belongs to the last epoch.
func (t *textLog) readMeterTest(m []byte) lineResult {
	e := t.lastMeterEpoch()
	if e == nil {
		return unknown
	}
	c := scan.Cursor{Rest: m}
	c.Expect("Test:").SkipBlanks()
	switch {
	case c.Accept("Total time: "):
		seconds, ok := scan.ParseClock(c.Rest)
		if !ok {
			return unknown
		}
		e.ValSeconds = seconds
	case c.Accept("Acc@1 "):
		return t.readMeterAccuracy(e, c)
	case c.Accept("["):
		c.SkipBlanks().ReadInteger()
		c.Expect("/").SkipBlanks().ReadInteger()
		if c.Expect("]"); c.Failed {
			return unknown
		}
		t.acceptTimeLeft(&c)
		values, ok := t.readMeters(c.Rest)
		if !ok {
			return unknown
		}
		for _, x := range values {
			switch strings.ToLower(string(x.Name)) {
			case "loss":
				e.ValLoss = x.Mean
			case "acc@1", "prec@1", "acc1":
				e.ValAccuracy = x.Mean / 100
			}
		}
	default: // of averaged weights
		return idle
	}
	t.countMeterLine()
	return used
}

// readMeterSummary reads the accuracy after an evaluation: " * Acc@1 69.7 Acc@5 89.1".
func (t *textLog) readMeterSummary(m []byte) lineResult {
	c := scan.Cursor{Rest: m}
	c.Expect("*").SkipBlanks()
	if !c.Accept("Acc@1 ") && !c.Accept("Prec@1 ") {
		return unknown
	}
	e := t.lastMeterEpoch()
	if e == nil {
		return unknown
	}
	return t.readMeterAccuracy(e, c)
}

// readMeterAccuracy reads the accuracy after "Acc@1 ", and the loss if one follows.
func (t *textLog) readMeterAccuracy(e *runs.Epoch, c scan.Cursor) lineResult {
	if t.isCutAfterPoint(c.Rest) {
		return unknown
	}
	v := c.ReadFloat()
	c.SkipBlanks()
	if !c.Accept("Acc@5 ") && !c.Accept("Prec@5 ") {
		return unknown
	}
	c.ReadFloat()
	loss := math.NaN()
	if c.Accept(" loss ") {
		loss = c.ReadFloat()
	}
	if !c.IsComplete() {
		return unknown
	}
	e.ValAccuracy = v / 100
	if isKnown(loss) {
		e.ValLoss = loss
	}
	metersOf(t.cur).evaluated = max(metersOf(t.cur).evaluated, e.Epoch+1)
	t.countMeterLine()
	return used
}

// lastMeterEpoch returns the epoch to which an evaluation belongs, or nil if the rank has no
// epoch with meters.
func (t *textLog) lastMeterEpoch() *runs.Epoch {
	writers := metersOf(t.cur).ranks[t.rank]
	if len(writers) == 0 {
		return nil
	}
	return t.meterEpochOf(writers[0].current().epoch)
}

// countMeterLine counts the current line as a line of the run's program.
func (t *textLog) countMeterLine() {
	name := formatImageNet
	for _, f := range []formatID{formatTorchvision, formatTimm} {
		if t.cur.linesByFormat[f] > t.cur.linesByFormat[name] {
			name = f
		}
	}
	t.countLine(name)
}
