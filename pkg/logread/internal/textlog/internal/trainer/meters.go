package trainer

import (
	"bytes"
	"math"

	"lockstep/pkg/logread/internal/progress"
	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/scan"
	"lockstep/pkg/logread/internal/template"
	"lockstep/pkg/logread/internal/textlog/internal/logline"
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

type meterState struct {
	ranks     map[int][]*meterWriter // by label; without labels, the processes that print the same lines
	primary   *meterWriter           // the process that has printed the first line, whose values become curves
	initRanks map[int]bool           // ranks that torchvision's processes have printed
	evaluated int                    // number of the last epoch that an evaluation has followed, plus one
}

// ImageNet returns the format of the ImageNet example in the PyTorch examples repository.
func ImageNet() logline.Format {
	return logline.Format{Name: "PyTorch ImageNet example", CountsFromZero: true, Finish: finishMeters, Rules: []logline.Rule{
		{Prefix: "Epoch: [", Read: readMeterEpoch, EndsWithValue: true},
		{Prefix: "Test:", Read: readMeterTest, EndsWithValue: true},
		{Prefix: "* ", Read: readMeterSummary, EndsWithValue: true},
		{Prefix: "=> creating model '", Read: readImageNetModel},
		{Prefix: "=> using pre-trained model '", Read: readImageNetModel},
	}}
}

// Torchvision returns the format of torchvision's reference scripts. Their meters begin like those
// of PyTorch's ImageNet example.
func Torchvision() logline.Format {
	return logline.Format{Name: "torchvision reference", CountsFromZero: true, Rules: []logline.Rule{
		{Templates: []string{"| distributed init (rank {rank}):*"}, Use: addInitRank, MayBeOther: true},
		{Prefix: "Namespace(", Read: readArgparseNamespace},
	}}
}

// Timm returns the format of timm.
func Timm() logline.Format {
	return logline.Format{Name: "timm", CountsFromZero: true, Rules: []logline.Rule{
		{Prefix: "Train: ", Read: readTimmTrain, EndsWithValue: true},
		logline.WorkersRule(nil, "Training in distributed mode with multiple processes, 1 *, total {workers}*", "Training with a single process on {workers} *"),
	}}
}

// meterStateOf returns the meters of a run. It is shared by all programs that print meters.
func meterStateOf(r *logline.Run) *meterState {
	return logline.FormatState[meterState](&r.States, logline.ImageNet)
}

// meterWriter is a process that prints meters.
type meterWriter struct {
	id     logline.RankID
	epochs []meterEpoch // never empty
}

// meterEpoch is a process's progress in an epoch.
type meterEpoch struct {
	epoch, last, interval, steps int
	stepSeconds                  float64 // mean time of its steps so far; NaN if unknown
}

func (w *meterWriter) currentEpoch() *meterEpoch { return &w.epochs[len(w.epochs)-1] }

// isBefore reports whether the writer's last line is about an earlier epoch or step than m.
func (w *meterWriter) isBefore(m *meterLine) bool {
	last := w.currentEpoch()
	return last.epoch < m.epoch || last.epoch == m.epoch && last.last < m.step
}

// addLine updates the progress of line m's epoch, which may be new.
func (w *meterWriter) addLine(m *meterLine) {
	if n := len(w.epochs); n == 0 || w.epochs[n-1].epoch != m.epoch {
		w.epochs = append(w.epochs, meterEpoch{epoch: m.epoch, last: m.step, steps: m.steps, stepSeconds: m.stepSeconds})
		return
	}
	last := w.currentEpoch()
	last.interval, last.last, last.stepSeconds = m.step-last.last, m.step, m.stepSeconds
}

// selectMeterWriter returns the process that has printed line m: the first of the rank's processes
// whose last line is of an earlier epoch or step, or else a new one. If all their last lines are of
// later epochs, m begins a new run; so it does if m is of a later epoch than the rank's first one,
// since all processes begin with the same epoch: a killed run was resumed in its last epoch.
func selectMeterWriter(log *logline.Log, m *meterLine) *meterWriter {
	writers := meterStateOf(log.Current).ranks[log.Rank]
	earlier := len(writers) > 0
	for _, w := range writers {
		if w.isBefore(m) {
			return w
		}
		earlier = earlier && m.epoch < w.currentEpoch().epoch
	}
	if earlier || len(writers) > 0 && m.epoch > writers[0].epochs[0].epoch || len(writers) >= 1<<12 {
		log.BeginRun()
		writers = nil
	}
	s := meterStateOf(log.Current)
	w := &meterWriter{id: logline.RankID{Rank: log.Rank, Ordinal: len(writers)}}
	record.PutInMap(&s.ranks, log.Rank, append(writers, w))
	if s.primary == nil {
		s.primary = w
	}
	return w
}

type meterLine struct {
	format             logline.FormatID
	epoch, step, steps int
	values             []progress.Meter
	stepSeconds        float64 // mean time of a step; NaN if unknown
}

func addMeterLine(log *logline.Log, m *meterLine) {
	if log.Current.Closed {
		log.BeginRun()
	}
	log.SelectProgram(m.format) // before the writer, since it may begin a run
	w := selectMeterWriter(log, m)
	w.addLine(m)
	run := log.CountLine(m.format)
	e := log.FindOrAddEpoch(m.epoch, w.id.Ordinal)
	now, at := log.StampSeconds(), int64(m.epoch)*int64(m.steps)+int64(m.step)
	isPrimary := w == meterStateOf(run).primary
	var lower [20]byte // more than the longest of the names below
	for i := range m.values {
		x := &m.values[i]
		mean := x.Mean
		if math.IsNaN(mean) {
			mean = x.Value
		}
		switch string(scan.AppendLower(lower[:0], x.Name[:min(len(x.Name), len(lower))])) {
		case "loss":
			e.TrainLoss = mean
		case "acc@1", "prec@1", "acc1", "top1":
			e.Accuracy = mean / 100
		case "lr":
			e.LearningRate = mean
		case "samples_per_second":
			e.SamplesPerSecond = mean
		}
		if isPrimary {
			log.AddPoint(x.Name, max(log.Rank, -1), at, x.Value, now)
		}
	}
}

func meterBuffer(log *logline.Log) *[]progress.Meter {
	return logline.FormatState[[]progress.Meter](&log.States, logline.ImageNet)
}

// readMeters reads the meters at the end of a line. ok is false for anything else.
func readMeters(log *logline.Log, text []byte) (values []progress.Meter, ok bool) {
	buffer := meterBuffer(log)
	values = (*buffer)[:0]
	if log.IsCutAfterPoint(text) {
		return nil, false
	}
	for text = bytes.TrimSpace(text); len(text) > 0; {
		m, rest, ok := progress.NextMeter(text)
		if !ok || len(values) >= record.MaxCurveNames {
			return nil, false
		}
		values, text = append(values, m), rest
	}
	*buffer = values
	return values, len(values) > 0
}

// readMeterEpoch reads a training line of PyTorch's ImageNet example or of torchvision, or
// torchvision's line with the time of an epoch.
func readMeterEpoch(log *logline.Log, m []byte) logline.Result {
	c := scan.Cursor{Rest: m}
	x := meterLine{epoch: c.Expect("Epoch: [").ReadInteger(), stepSeconds: math.NaN()}
	if c.Expect("]"); c.Failed {
		return logline.Unknown
	}
	if c.Accept(" Total time: ") {
		text, _, _ := bytes.Cut(c.Rest, []byte(" ("))
		seconds, ok := scan.ParseClock(text)
		e := findMeterEpoch(log, x.epoch)
		if !ok || e == nil {
			return logline.Unknown
		}
		log.CountLine(logline.Torchvision)
		e.Seconds, e.Line = log.EpochSecondsOrNaN(seconds), log.Lines.Number
		return logline.Used
	}
	x.format = logline.ImageNet
	if !c.Accept("[") {
		x.format = logline.Torchvision
		c.SkipBlanks().Expect("[")
	}
	x.step = c.SkipBlanks().ReadInteger()
	x.steps = c.Expect("/").SkipBlanks().ReadInteger()
	if c.Expect("]"); c.Failed || x.step > x.steps {
		return logline.Unknown
	}
	if x.format == logline.Torchvision && !acceptTimeLeft(&c) {
		return logline.Unknown
	}
	values, ok := readMeters(log, c.Rest)
	if !ok {
		return logline.Unknown
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
	addMeterLine(log, &x)
	return logline.Used
}

// acceptTimeLeft consumes the estimated time that torchvision prints after the steps.
func acceptTimeLeft(c *scan.Cursor) bool {
	if c.SkipBlanks(); !c.Accept("eta: ") {
		return false
	}
	_, rest, found := bytes.Cut(c.Rest, []byte("  "))
	c.Rest = rest
	return found
}

// findMeterEpoch returns epoch n of the current line's rank, or nil.
func findMeterEpoch(log *logline.Log, n int) *runs.Epoch {
	return log.Current.Epochs.Find(logline.RankID{Rank: log.Rank}).Find(n)
}

var timmTemplate = template.MustParse("Train: {epoch} [{step}/{steps} (*%)] Loss: {loss} ({train_loss}) Time: {step_seconds}s, {current_rate}/s ({mean_step_seconds}s, {samples_per_second}/s) LR: {lr} Data: *")

var timmNames = [...][]byte{[]byte("loss"), []byte("step_seconds"), []byte("samples_per_second"), []byte("lr")}

func readTimmTrain(log *logline.Log, m []byte) logline.Result {
	read := log.ValueBuffer(timmTemplate)
	if !timmTemplate.Match(m, read) {
		return logline.Unknown
	}
	epoch, step, steps, meanStepSeconds := read[0].Number, read[1].Number, read[2].Number, read[7].Number // in the order of the fields
	if epoch < 0 || step < 0 || epoch > 1<<30 || steps > 1<<30 || step > steps {
		return logline.Unknown
	}
	buffer := meterBuffer(log)
	*buffer = append((*buffer)[:0],
		progress.Meter{Name: timmNames[0], Value: read[3].Number, Mean: read[4].Number},
		progress.Meter{Name: timmNames[1], Value: read[5].Number, Mean: math.NaN()},
		progress.Meter{Name: timmNames[2], Value: read[6].Number, Mean: read[8].Number},
		progress.Meter{Name: timmNames[3], Value: read[9].Number, Mean: math.NaN()},
	)
	addMeterLine(log, &meterLine{format: logline.Timm, epoch: int(epoch), step: int(step), steps: int(steps), values: *buffer, stepSeconds: meanStepSeconds})
	return logline.Used
}

// readMeterTest reads a line of an evaluation, which belongs to the last epoch.
func readMeterTest(log *logline.Log, m []byte) logline.Result {
	e := lastMeterEpoch(log)
	if e == nil {
		return logline.Unknown
	}
	c := scan.Cursor{Rest: m}
	c.Expect("Test:").SkipBlanks()
	switch {
	case c.Accept("Total time: "):
		seconds, ok := scan.ParseClock(c.Rest)
		if !ok {
			return logline.Unknown
		}
		e.ValSeconds = seconds
	case c.Accept("Acc@1 "):
		return readMeterAccuracy(log, e, c)
	case c.Accept("["):
		c.SkipBlanks().ReadInteger()
		c.Expect("/").SkipBlanks().ReadInteger()
		if c.Expect("]"); c.Failed {
			return logline.Unknown
		}
		acceptTimeLeft(&c)
		values, ok := readMeters(log, c.Rest)
		if !ok {
			return logline.Unknown
		}
		for _, x := range values {
			switch string(scan.AppendLower(nil, x.Name)) {
			case "loss":
				e.ValLoss = x.Mean
			case "acc@1", "prec@1", "acc1":
				e.ValAccuracy = x.Mean / 100
			}
		}
	default: // of averaged weights
		return logline.Idle
	}
	countMeterLine(log)
	return logline.Used
}

// readMeterSummary reads the accuracy after an evaluation: " * Acc@1 69.7 Acc@5 89.1".
func readMeterSummary(log *logline.Log, m []byte) logline.Result {
	c := scan.Cursor{Rest: m}
	c.Expect("*").SkipBlanks()
	if !c.Accept("Acc@1 ") && !c.Accept("Prec@1 ") {
		return logline.Unknown
	}
	e := lastMeterEpoch(log)
	if e == nil {
		return logline.Unknown
	}
	return readMeterAccuracy(log, e, c)
}

// readMeterAccuracy reads the accuracy after "Acc@1 ", and the loss if one follows.
func readMeterAccuracy(log *logline.Log, e *runs.Epoch, c scan.Cursor) logline.Result {
	if log.IsCutAfterPoint(c.Rest) {
		return logline.Unknown
	}
	v := c.ReadFloat()
	c.SkipBlanks()
	if !c.Accept("Acc@5 ") && !c.Accept("Prec@5 ") {
		return logline.Unknown
	}
	c.ReadFloat()
	loss := math.NaN()
	if c.Accept(" loss ") {
		loss = c.ReadFloat()
	}
	if !c.IsComplete() {
		return logline.Unknown
	}
	e.ValAccuracy = v / 100
	if isNotNaN(loss) {
		e.ValLoss = loss
	}
	meterStateOf(log.Current).evaluated = max(meterStateOf(log.Current).evaluated, e.Epoch+1)
	countMeterLine(log)
	return logline.Used
}

// lastMeterEpoch returns the epoch of an evaluation, or nil if the rank has none with meters.
func lastMeterEpoch(log *logline.Log) *runs.Epoch {
	writers := meterStateOf(log.Current).ranks[log.Rank]
	if len(writers) == 0 {
		return nil
	}
	return findMeterEpoch(log, writers[0].currentEpoch().epoch)
}

func countMeterLine(log *logline.Log) {
	name := logline.ImageNet
	for _, f := range []logline.FormatID{logline.Torchvision, logline.Timm} {
		if log.Current.LinesByFormat[f] > log.Current.LinesByFormat[name] {
			name = f
		}
	}
	log.CountLine(name)
}
