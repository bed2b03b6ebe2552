package jsonlog

import (
	"cmp"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"lockstep/pkg/logread/internal/fields"
	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/scan"
	"lockstep/pkg/runs"
)

type reader struct {
	in *record.Input
	l  *scan.LineReader
	// visData is set for a file in the folder in which MMEngine writes the same values to two
	// files, such as vis_data/scalars.json and vis_data/20240101_120000.json.
	visData  bool
	settings map[string]any // before the first values
	numbers  []numberMember // of the current object
	// hasCounts is set if a key counts workers or nodes.
	hasCounts bool
	mode      string // of the last object that has one
	names     map[string]*jsonKey
	start     jsonKey // before the first member of an object
	runs      []*jsonRun
}

type jsonRun struct {
	line    int
	kind    string
	epochs  record.RankEpochs
	curves  record.Curves
	epoch   int64             // of the last object of the training; -1 if unknown
	step    int64             // of the last object; -1 if unknown
	iter    int64             // within the epoch, of the last object
	offset  int64             // number of steps in the epochs before
	rates   record.EpochRates // of the steps, by epoch
	elapsed record.ElapsedTimes
	counts  []numberMember // of workers and nodes
}

func (r *reader) addObject(o logObject) bool {
	run := r.findOrBeginRun(o)
	val := o.mode == "val" || o.mode == "test"
	epoch, step := int64(-1), int64(-1)
	if o.epoch == o.epoch {
		epoch = int64(math.Ceil(o.epoch - 1e-6)) // 0.5 is in the first epoch
	}
	switch {
	case o.mode != "" && o.iter == o.iter && o.step != o.step:
		run.kind = mmcvKind
		if val { // the number is that of the iterations of the validation
			step = max(run.step, 0)
		} else {
			step = run.globalStep(epoch, int64(o.iter))
		}
	case o.step == o.step && (o.iter == o.iter || run.kind == mmengineKind || r.visData):
		run.kind = mmengineKind
		step = int64(o.step)
		if o.iter != o.iter && o.epoch != o.epoch { // an evaluation, after an epoch or after a step
			val = true
			if epoch = run.epoch; step == epoch && step < run.step {
				step = run.step
			}
		}
	case o.step == o.step:
		step = int64(o.step)
	case o.iter == o.iter:
		step = int64(o.iter)
	}
	if o.kind != "" && run.kind == linesKind {
		run.kind = o.kind
	}
	at := step
	if at < 0 {
		at = max(epoch, 0)
	}
	for i := range o.numbers {
		n := o.numbers[i].name
		if n.run != run {
			n.run, n.trained, n.curves = run, false, [2]*record.Curve{}
		}
		n.trained = n.trained || !val
		r.addPoint(run, n, val && n.trained, at, o.numbers[i].value)
	}
	if epoch >= 0 {
		r.addEpochValues(run, o, epoch, step, val)
	}
	run.updatePosition(epoch, step, val)
	return true
}

// globalStep returns the number of a step over the whole run from its number within the
// epoch. The steps must be passed in the order of the log.
func (run *jsonRun) globalStep(epoch, iter int64) int64 {
	if run.iter > 0 && epoch != run.epoch && iter <= run.iter {
		run.offset += run.iter
	}
	run.iter = iter
	return run.offset + iter
}

func (run *jsonRun) updatePosition(epoch, step int64, val bool) {
	if val {
		return
	}
	if epoch >= 0 {
		run.epoch = epoch
	}
	if step >= 0 {
		run.step = step
	}
}

// addCounts stores the numbers of workers and nodes of an object in run. It returns false if run already
// has another number.
func (run *jsonRun) addCounts(numbers []numberMember) bool {
	for _, m := range numbers {
		if !m.name.counts || !record.IsPlausibleCount(m.value) {
			continue
		}
		i := slices.IndexFunc(run.counts, func(c numberMember) bool { return c.name.text == m.name.text })
		if i < 0 {
			run.counts = append(run.counts, m)
		} else if run.counts[i].value != m.value {
			return false
		}
	}
	return true
}

// findOrBeginRun returns the run to which an object belongs. It begins a new run if the step or
// epoch numbers go back, or if the number of workers or nodes changes. Package identity later
// decides whether the new run resumes the old one.
func (r *reader) findOrBeginRun(o logObject) *jsonRun {
	if n := len(r.runs); n > 0 {
		run := r.runs[n-1]
		again := false
		switch isTraining := o.mode == "" || o.mode == "train"; {
		case !isTraining:
		case run.kind == mmengineKind && o.iter != o.iter && o.epoch != o.epoch: // an evaluation
		case o.step == o.step:
			again = run.step > int64(o.step) && !(o.epoch > float64(run.epoch)) // steps may count within an epoch
		case o.epoch == o.epoch:
			again = run.epoch > int64(math.Ceil(o.epoch-1e-6))
		}
		switch {
		case again:
			r.in.Report.AddAssumption("the numbers go back in line %d", r.l.Number)
		case r.hasCounts && !run.addCounts(o.numbers):
			r.in.Report.AddAssumption("another number of workers or nodes begins in line %d", r.l.Number)
		default:
			return run
		}
	}
	run := &jsonRun{
		line: r.l.Number, kind: linesKind, epoch: -1, step: -1, curves: record.Curves{Lines: r.l},
	}
	run.addCounts(o.numbers)
	r.runs = append(r.runs, run)
	return run
}

// addPoint adds a point to the curve named n, or val/n if prefixed is true. at is its step and v
// its value.
func (r *reader) addPoint(run *jsonRun, n *jsonKey, prefixed bool, at int64, v float64) {
	to, name := &n.curves[0], n.text
	if prefixed {
		to, name = &n.curves[1], "val/"+n.text
	}
	if *to == nil {
		if *to = run.curves.FindOrAdd([]byte(name), -1, false); *to == nil {
			r.in.AddProblem(r.l.Number, "the file has more than %d names of values; %.40q is not used", record.MaxCurveNames, name)
			return
		}
	}
	(*to).AddPoint(at, v, 0)
	r.in.Report.Records++
}

// addEpochValues sets the values of an epoch. If several objects with steps belong to one epoch, the
// last one is used. Their times are not used, because they are the times of steps.
func (r *reader) addEpochValues(run *jsonRun, o logObject, epoch, step int64, val bool) {
	if epoch >= 1<<31 {
		return
	}
	var e *runs.Epoch
	of := 0
	if val {
		of = 1
	}
	for _, m := range o.numbers {
		f, v := m.name.fields[of], m.value
		switch {
		case f == nil || f.OfEpoch == nil && f.Name != fields.Elapsed, step >= 0 && (f.Name == fields.EpochSeconds || f.Name == fields.ValSeconds):
			continue
		case f.Name == fields.SamplesPerSecond && step >= 0 && record.IsPlausibleTime(v):
			v = run.rates.Add(-1, int(epoch), v, r.in.Report)
		case f.Kind == fields.Fraction && v > 1 && v <= 100:
			v /= 100
		}
		if e == nil {
			e = run.epochs.FindOrAdd(int(epoch), r.l)
		}
		if f.Name == fields.Elapsed {
			run.elapsed.Add(int(epoch), o.epoch, v)
			continue
		}
		to := f.OfEpoch(e)
		if step < 0 && *to == *to && *to != v {
			r.in.AddProblem(r.l.Number, "epoch %d has %s twice: the later value counts", epoch, m.name.text)
		}
		if step >= 0 && to == &e.TrainLoss {
			r.in.Report.AddAssumptionOnce("the training loss of an epoch is the last one logged in that epoch")
		}
		if *to = v; to == &e.Seconds && !(v > 0) {
			*to = math.NaN()
			r.in.AddProblem(r.l.Number, "%s: expected a positive time, got %g", m.name.text, v)
		}
	}
}

func (r *reader) finish() []*record.Part {
	var parts []*record.Part
	for i, run := range r.runs {
		p := &record.Part{Role: record.Principal, Line: run.line}
		p.Run.Kind = run.kind
		p.Run.Epochs = run.sortedEpochs(r.in.Report)
		for _, c := range run.curves.All {
			p.Run.Curves = append(p.Run.Curves, c.Finish(r.in.Report))
			if last := &p.Run.Curves[len(p.Run.Curves)-1]; last.Name == "time" && run.kind != linesKind && run.curves.First("data_time") != nil {
				last.Name = fields.StepSeconds // of OpenMMLab's programs and Detectron2
			}
		}
		if run.kind == mmcvKind && run.offset > 0 {
			r.in.Report.AddAssumptionOnce("steps count on over the epochs, each of which has as many as the last one that was logged")
		}
		if run.curves.First("total_tokens") != nil && run.curves.First("throughput") != nil { // as LLaMA-Factory logs
			p.Run.ThroughputUnit = "tokens/s"
		}
		r.applySettings(p)
		for _, c := range run.counts {
			if n := int(c.value); c.name.fields[0].Name == fields.Nodes {
				p.Run.Info.Nodes = cmp.Or(p.Run.Info.Nodes, n)
			} else {
				p.Run.Info.Workers = cmp.Or(p.Run.Info.Workers, n)
			}
		}
		if r.visData && len(r.runs) == 1 {
			p.StateOf, p.State = filepath.Dir(r.in.Path), r.in.Report.LinesUsed
		}
		if i == 0 {
			r.in.Report.Kind = run.kind
		}
		parts = append(parts, p)
	}
	if len(parts) == 0 && len(r.in.Report.Unused) == 0 {
		r.in.AddProblem(0, "no line has the number of a step or an epoch and a value")
	}
	return parts
}

// sortedEpochs returns the epochs of a run, counted from 1.
func (run *jsonRun) sortedEpochs(report *record.Report) []runs.Epoch {
	epochs := run.epochs.Epochs
	slices.SortFunc(epochs, record.CompareEpochs)
	shift := 0
	if len(epochs) > 0 && epochs[0].Epoch == 0 {
		report.AddAssumptionOnce("the log counts epochs from 0; here they count from 1")
		shift = 1
	}
	for i := range epochs {
		epochs[i].Epoch += shift
	}
	run.elapsed.SetEpochSeconds(epochs, shift, report)
	return epochs
}

func (r *reader) applySettings(p *record.Part) {
	if len(r.settings) == 0 {
		return
	}
	info := &p.Run.Info
	info.Config = maps.Clone(r.settings)
	if name, ok := info.Config["exp_name"].(string); ok { // MMCV: the file of the configuration
		info.Series = strings.TrimSuffix(filepath.Base(name), filepath.Ext(name))
	}
	if seed, ok := record.ConfigNumber(info.Config, "seed"); ok && seed >= 0 && seed < 1<<53 && seed == math.Trunc(seed) {
		info.Seed, p.SeedKnown = int64(seed), true
	}
}
