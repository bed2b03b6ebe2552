package table

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/runs"
)

// tableRun is a run in a table.
type tableRun struct {
	part   *record.Part
	epochs map[int]*record.RankEpochs // by rank; -1 if the rows have no rank
	curves map[curveKey]*record.Curve
	order  []*record.Curve
	last   int       // number of the epoch of the last row plus one
	line   int       // of the last row
	power  []samples // of each GPU

	firstStep int64
}

// curveKey identifies a curve of a run.
type curveKey struct {
	name string
	rank int
}

// samples integrates the power of one GPU over time by the trapezoidal rule.
type samples struct {
	time, watts float64 // of the last sample
	joules      float64
	n           int
}

// add adds a sample.
func (s *samples) add(t, watts float64) {
	if math.IsNaN(t) || math.IsNaN(watts) {
		return
	}
	if s.n > 0 && t > s.time {
		s.joules += (t - s.time) * (watts + s.watts) / 2
	}
	s.time, s.watts = t, watts
	s.n++
}

// keyFields returns the fields by which rows are assigned to runs.
func keyFields() []string {
	return []string{
		fieldStudy, fieldSeries, fieldModel, fieldRun, fieldWorkers, fieldNodes, fieldWorkersPerNode, fieldSeed, fieldBatch, fieldGlobalBatch,
	}
}

// findRun returns the run to which the current row belongs, and adds it if it is new. It
// completes the epoch of the row.
func (t *tableReader) findRun(p *rowPlace) (*tableRun, error) {
	t.key = t.key[:0]
	for _, i := range t.keys {
		t.key = append(append(t.key, t.cells[i]...), 0)
	}
	run := t.byKey[string(t.key)]
	if run != nil {
		begins, err := t.beginsRun(run, p)
		if err != nil {
			return nil, err
		}
		if begins {
			run = nil
		}
	}
	if run == nil {
		var err error
		if run, err = t.newRun(p.line); err != nil {
			return nil, err
		}
		t.byKey[string(t.key)] = run
		t.order = append(t.order, run)
	}
	if t.layout == rowsAreEpochs && p.epoch == noEpoch && t.epochAt < 0 { // the n-th row is epoch n
		p.epoch = run.last + 1
		if run.last == 0 {
			p.epoch = 2 // epochs are stored with their number plus one
			t.in.Report.AddAssumptionOnce("the rows are epochs in their order: no column numbers them")
		}
	}
	if run.line == 0 {
		run.firstStep = p.step
	}
	run.line, run.last = p.line, max(p.epoch, 0)
	return run, nil
}

// beginsRun reports whether the current row begins another run with the same properties as
// run. It returns an error if the row repeats the epoch of an earlier row.
func (t *tableReader) beginsRun(run *tableRun, p *rowPlace) (bool, error) {
	switch t.layout {
	case rowsAreRuns:
		if t.trialAt >= 0 && t.present[t.trialAt] || len(run.epochs) == 0 && run.part.Run.WallSeconds == 0 && len(run.part.Run.Trials) > 0 {
			return false, nil
		}
		if t.kind != joblogKind {
			t.in.Report.AddAssumptionOnce("rows with the same settings are repeats of a run")
		}
		return true, nil
	case rowsAreSteps:
		if t.headerAgain <= run.line {
			return false, nil
		}
		begins := p.step >= 0 && p.step <= run.firstStep
		t.reportHeaderAgain(begins)
		return begins, nil
	case rowsAreEpochs:
		if p.split == "" && !t.hasMetric {
			return t.orderEpoch(run, p)
		}
	case rowsAreMoments, unknownLayout:
	}
	return false, nil
}

// reportHeaderAgain reports a header in the middle of the table.
func (t *tableReader) reportHeaderAgain(begins bool) {
	if begins {
		t.in.Report.AddAssumption("the header occurs again in line %d, and the numbers start again: a new run", t.headerAgain)
	} else {
		t.in.Report.AddAssumption("the header occurs again in line %d, and the numbers continue: one run, resumed", t.headerAgain)
	}
}

// orderEpoch checks the epoch of a row against the earlier rows of its run. begins is true if
// the epochs start again, so that the row belongs to a new run. If they go back to a later
// epoch, the run was resumed, and the later rows count.
func (t *tableReader) orderEpoch(run *tableRun, p *rowPlace) (begins bool, err error) {
	list := run.epochs[p.rank]
	if list == nil || len(list.Epochs) == 0 {
		return false, nil
	}
	again := t.headerAgain > run.line
	n := max(p.epoch, 0)
	if p.epoch == noEpoch && t.epochAt < 0 {
		return false, nil
	}
	e := list.Find(n)
	first, last := list.Epochs[0].Epoch, list.Epochs[len(list.Epochs)-1].Epoch
	switch {
	case e == nil && again:
		t.reportHeaderAgain(false)
	case e == nil, t.splitAt >= 0 && math.IsNaN(e.TrainLoss) && math.IsNaN(e.Seconds) && math.IsNaN(e.Accuracy): // the row of the validation came first
	case n > 0 && n == first && (again || last > first):
		if again {
			t.reportHeaderAgain(true)
		} else {
			t.in.Report.AddAssumption("the epochs start again in line %d: a new run", p.line)
		}
		return true, nil
	case n > 0 && (n < last || again):
		t.in.Report.AddAssumption("the epochs go back to %d in line %d: the run was resumed, and the later rows count", n-1, p.line)
		if list.Index == nil {
			i, _ := slices.BinarySearchFunc(list.Epochs, n, func(e runs.Epoch, n int) int { return e.Epoch - n })
			list.Epochs = list.Epochs[:i]
		} else {
			*e = list.Blank
			e.Epoch = n
		}
	default:
		return false, fmt.Errorf("duplicate epoch %d of this run; add a column seed to distinguish repeats", max(n-1, 0))
	}
	return false, nil
}

// newRun returns a run with the properties in the current row.
func (t *tableReader) newRun(line int) (*tableRun, error) {
	info := runs.Info{Study: t.text(fieldStudy), Series: t.text(fieldSeries), Config: map[string]any{}}
	seeded := false
	for _, c := range []struct {
		name        string
		least, most float64
		to          *int
	}{
		{fieldWorkers, 1, record.MaxWorkers, &info.Workers},
		{fieldNodes, 1, record.MaxWorkers, &info.Nodes},
		{fieldBatch, 1, 1 << 31, &info.BatchPerWorker},
		{fieldGlobalBatch, 1, 1 << 31, &info.GlobalBatch},
	} {
		n, ok, err := t.count(c.name, c.least, c.most)
		if err != nil {
			return nil, err
		}
		if !ok && c.name == fieldWorkers && t.has(fieldWorkers) && t.kind != wandbKind && t.kind != mlflowTableKind {
			return nil, fmt.Errorf("column %q: expected a number, got an empty cell", t.columns[t.at[fieldWorkers]].name)
		}
		*c.to = n
	}
	perNode, ok, err := t.count(fieldWorkersPerNode, 1, record.MaxWorkers)
	if err != nil {
		return nil, err
	}
	if ok && info.Workers == 0 && info.Nodes > 0 && perNode <= record.MaxWorkers/info.Nodes {
		info.Workers = perNode * info.Nodes
		t.in.Report.AddAssumptionOnce("the number of workers is %s × %s", fieldNodes, fieldWorkersPerNode)
	}
	seed, seeded, err := t.count(fieldSeed, 0, 1<<53)
	if err != nil {
		return nil, err
	}
	info.Seed = int64(seed)
	if info.GlobalBatch == 0 {
		info.GlobalBatch = info.BatchPerWorker * info.Workers
	}
	if model := t.text(fieldModel); model != "" {
		info.Config["model"] = model
		if t.kind == nvidiaKind {
			info.Accelerator, info.Config = model, map[string]any{}
		} else if info.Series == "" && t.layout == rowsAreRuns {
			info.Series = model
		}
	}
	if id := t.text(fieldRun); id != "" {
		info.Config["run"] = id
	}
	if host := t.text(fieldHost); host != ":" { // as GNU parallel calls the local host
		info.Host.Name = host
	}
	role := record.Principal
	if t.kind == nvidiaKind {
		role = record.Companion
	}
	return &tableRun{
		part:   &record.Part{Role: role, Line: line, SeedKnown: seeded, Run: runs.Run{Kind: t.kind, Info: info}},
		epochs: map[int]*record.RankEpochs{}, curves: map[curveKey]*record.Curve{},
	}, nil
}

// findOrAddEpoch returns epoch n of a rank, and adds it if it is new.
func (t *tableReader) findOrAddEpoch(run *tableRun, rank, n int) *runs.Epoch {
	list := run.epochs[rank]
	if list == nil {
		list = record.NewRankEpochs()
		run.epochs[rank] = list
	}
	if e := list.Find(n); e != nil {
		return e
	}
	t.fast.target = nil // adding may move the other epochs
	return list.Add(n, t.l)
}

// storeRow stores the values of the current row. It reports whether the row had one.
func (t *tableReader) storeRow(run *tableRun, p *rowPlace) (good bool) {
	if t.trialAt >= 0 && t.present[t.trialAt] {
		run.part.Run.Trials = append(run.part.Run.Trials, runs.Trial{
			Name: t.text(fieldTrial), Rate: t.number(fieldSamplesPerSecond), Spread: t.number(fieldSpread), Line: p.line,
		})
		return true
	}
	if t.hasMetric {
		return t.storeNamedValue(run, p)
	}
	var e *runs.Epoch
	stepRow := t.layout == rowsAreSteps
	for i := range t.columns {
		c := &t.columns[i]
		if !t.present[i] || c.unused != "" {
			continue
		}
		if c.setting {
			t.storeSetting(run, c, i)
			good = good || t.layout == rowsAreRuns
			continue
		}
		v := t.values[i]
		toEpoch, name := c.epoch, c.name
		if p.split != "" {
			toEpoch, name = splitField(c, p.split), p.split+"/"+name
		}
		if c.toCurve || p.split == "test" && c.epoch != nil || toEpoch == nil && c.epoch != nil && t.layout != rowsAreRuns {
			to := run
			if c.run != "" {
				to = t.columnRun(run, c)
			}
			t.addPoint(to, c, p, name, v)
			good = true
		}
		if toEpoch != nil && (p.epoch > 0 || !stepRow && t.layout != rowsAreMoments) {
			if math.IsNaN(v) {
				continue
			}
			if e == nil {
				e = t.findOrAddEpoch(run, p.rank, max(p.epoch, 0))
				if e.Line == 0 {
					e.Line = p.line
				}
			}
			*toEpoch(e) = v
			good = true
		}
	}
	return t.hasTotals && t.storeTotals(run, p, e) || good
}

// splitField returns the field of an epoch that a column sets in a row about a part of the
// data set, or nil.
func splitField(c *column, split string) func(*runs.Epoch) *float64 {
	if split != "val" || c.epoch == nil {
		return nil
	}
	switch c.field {
	case fieldTrainLoss, fieldValLoss:
		return epochField(fieldValLoss)
	case fieldAccuracy, fieldValAccuracy:
		return epochField(fieldValAccuracy)
	case fieldSeconds, fieldTime, fieldValSeconds:
		return epochField(fieldValSeconds)
	case fieldIoU, fieldDice:
		return c.epoch
	}
	return nil
}

// storeNamedValue stores the value of a row that has the name of the value in a column.
func (t *tableReader) storeNamedValue(run *tableRun, p *rowPlace) bool {
	i, ok := t.at[fieldValue]
	name := t.text(fieldMetric)
	if !ok || name == "" || len(name) > 200 || !t.present[i] {
		return false
	}
	f, factor := lookUp(name, "")
	if f != nil && p.epoch > 0 && epochField(f.name) != nil && f.name != fieldTime && f.name != fieldElapsed && f.name != fieldTrainingTime {
		*epochField(f.name)(t.findOrAddEpoch(run, p.rank, p.epoch)) = t.values[i] * factor
		if t.layout == rowsAreSteps {
			t.in.Report.Records++
		}
		return true
	}
	t.addPoint(run, nil, p, name, t.values[i])
	return true
}

// storeSetting stores a setting of the run. A setting that differs between the rows of a run
// is not used.
func (t *tableReader) storeSetting(run *tableRun, c *column, i int) {
	name := c.name
	var v any = t.values[i]
	if c.isText() {
		v = t.cleanCell(i)
	}
	if name == "" || len(name) > 100 {
		return
	}
	config := run.part.Run.Info.Config
	was, known := config[name]
	switch {
	case known && was != v:
		c.changed = true
	case !known && len(config) < record.MaxSettings:
		config[name] = v
	}
}

// cleanCell returns the text of a cell, at most 1000 bytes of it.
func (t *tableReader) cleanCell(i int) string {
	return strings.ToValidUTF8(string(t.cells[i][:min(len(t.cells[i]), 1000)]), "\ufffd")
}

// storeTotals stores the values of the current row that describe the complete run, and the
// samples of the epoch. e is the epoch of the row, or nil.
func (t *tableReader) storeTotals(run *tableRun, p *rowPlace, e *runs.Epoch) (good bool) {
	info := &run.part.Run.Info
	for _, c := range []struct {
		name string
		to   func(float64)
	}{
		{fieldTrainingSeconds, func(v float64) { info.Config[record.TrainingSecondsKey] = v }},
		{fieldWallSeconds, func(v float64) { run.part.Run.WallSeconds = v }},
		{fieldEnergy, func(v float64) { info.EnergyJoules = v }},
	} {
		if v := t.number(c.name); v > 0 && !math.IsInf(v, 0) {
			c.to(v)
			good = true
		}
	}
	if t.layout == rowsAreRuns {
		good = t.storeRunTimes(run) || good
	}
	if samples, ok, err := t.count(fieldSamples, 0, 1<<53); err == nil && ok && e != nil {
		e.Samples = samples
		good = true
	}
	if t.kind == nvidiaKind {
		t.addPower(run, p)
	}
	return good
}

// storeRunTimes stores the duration, the start, the end and the status of a row that is a run.
func (t *tableReader) storeRunTimes(run *tableRun) (good bool) {
	info := &run.part.Run.Info
	for _, name := range []string{fieldElapsed, fieldTime} {
		if v := t.number(name); v > 0 && !math.IsInf(v, 0) && run.part.Run.WallSeconds == 0 {
			run.part.Run.WallSeconds, good = v, true
		}
	}
	if v := t.number(fieldTrainingTime); v > 0 && !math.IsInf(v, 0) {
		info.Config[record.TrainingSecondsKey], good = v, true
	}
	if v := t.number(fieldStarted); v > 0 && v < 1e11 {
		info.Started = time.UnixMilli(int64(v * 1e3)).UTC()
		if w := run.part.Run.WallSeconds; w > 0 && w < 1e9 {
			info.Ended = info.Started.Add(time.Duration(w * float64(time.Second)))
		}
	}
	if v := t.number(fieldEnded); v > 0 && v < 1e11 {
		info.Ended = time.UnixMilli(int64(v * 1e3)).UTC()
	}
	if !t.has(fieldExitCode) && !t.has(fieldStatus) {
		info.Status = runs.StatusDone
	}
	t.storeStatus(info)
	if text := t.text(fieldCommand); text != "" {
		t.storeCommand(info, text)
	}
	return good
}

// storeStatus stores how a run ended.
func (t *tableReader) storeStatus(info *runs.Info) {
	switch text := t.text(fieldStatus); strings.ToLower(text) {
	case "":
	case "finished", "done", "completed", "complete", "success", "succeeded", "ok":
		info.Status = runs.StatusDone
	case "running", "scheduled", "pending":
		info.Status = runs.StatusRunning
	case "killed", "canceled", "cancelled", "stopped", "preempted", "timeout":
		info.Status, info.Error = runs.StatusCanceled, text
	default:
		info.Status, info.Error = runs.StatusFailed, text
	}
	code, ok, err := t.count(fieldExitCode, 0, 1<<31)
	if err != nil || !ok {
		return
	}
	info.Status = runs.StatusDone
	if signal := t.textOf("Signal"); signal != "" && signal != "0" {
		info.Status, info.Error = runs.StatusFailed, "signal "+signal
	} else if code != 0 {
		info.Status, info.Error = runs.StatusFailed, "exit code "+strconv.Itoa(code)
	}
}

// textOf returns the text of the column with a name in the current row, or "".
func (t *tableReader) textOf(name string) string {
	for i := range t.columns {
		if t.columns[i].name == name {
			return string(t.cells[i])
		}
	}
	return ""
}

// columnRun returns the run that a column's header names. The runs of a panel share the rows.
func (t *tableReader) columnRun(row *tableRun, c *column) *tableRun {
	if c.curveOf != nil {
		return c.curveOf
	}
	run := t.byKey["\x00"+c.run]
	if run == nil {
		if row.part.Run.Info.Config["run"] == nil { // the first run
			run = row
		} else {
			run = &tableRun{
				part:   &record.Part{Role: record.Principal, Line: t.lines, Run: runs.Run{Kind: t.kind, Info: runs.Info{Config: map[string]any{}}}},
				epochs: map[int]*record.RankEpochs{}, curves: map[curveKey]*record.Curve{},
			}
			t.order = append(t.order, run)
		}
		run.part.Run.Info.Config["run"] = c.run
		t.byKey["\x00"+c.run] = run
	}
	return run
}

// addPoint adds a value to the curve with the given name. c is the column of the value, or nil
// if the name is not that of a column.
func (t *tableReader) addPoint(run *tableRun, c *column, p *rowPlace, name string, v float64) {
	step := p.step
	switch {
	case t.layout == rowsAreMoments:
		step = -1
	case t.layout == rowsAreEpochs && step < 0:
		step = int64(p.epoch) - 1
	}
	curve := (*record.Curve)(nil)
	if c != nil && c.curveOf == run && c.curve.Rank == p.rank && c.curve.Name == name {
		curve = c.curve
	} else {
		key := curveKey{name, p.rank}
		if curve = run.curves[key]; curve == nil {
			if len(run.order) >= record.MaxCurveNames {
				t.in.Report.AddAssumptionOnce("only the first %d curves of a run are kept", record.MaxCurveNames)
				return
			}
			curve = record.NewCurve(name, p.rank, !math.IsNaN(p.time))
			run.curves[key] = curve
			run.order = append(run.order, curve)
		}
		if c != nil {
			c.curve, c.curveOf = curve, run
		}
	}
	if t.layout == rowsAreMoments { // the points have times
		step = curve.Points
	}
	curve.Add(max(step, 0), v, p.time)
	if t.layout == rowsAreSteps || t.layout == rowsAreMoments {
		t.in.Report.Records++
	}
}

// addPower adds the power of the GPU in the current row to the run's energy.
func (t *tableReader) addPower(run *tableRun, p *rowPlace) {
	for i := range t.columns {
		if base, _ := splitUnit(t.columns[i].name); base != "power.draw" && base != "power.draw.average" && base != "power.draw.instant" {
			continue
		}
		gpu := max(p.rank, 0)
		if gpu >= maxGPUs {
			return
		}
		for len(run.power) <= gpu {
			run.power = append(run.power, samples{})
		}
		run.power[gpu].add(p.time, t.values[i])
		return
	}
}

// maxGPUs is larger than the number of GPUs in a host.
const maxGPUs = 1024

// storeCommand stores the command line of a run.
func (t *tableReader) storeCommand(info *runs.Info, text string) {
	info.Command = strings.Fields(text)
}

// finish returns the runs of the table.
func (t *tableReader) finish() []*record.Part {
	report := t.in.Report
	t.reportColumns()
	if t.rows == 0 {
		if len(report.Unused) == 0 {
			t.in.AddProblem(0, "the file has a header but no values")
		}
		return nil
	}
	shift := 1 // the table counts from 1, and epochs are stored with their number plus one
	if t.zeroEpoch || t.kind == lightningKind && t.sparse {
		shift = 0
		if t.kind != lightningKind {
			report.AddAssumption("the table counts epochs from 0; here they count from 1")
		}
	}
	var parts []*record.Part
	for _, run := range t.order {
		if t.finishRun(run, shift) {
			parts = append(parts, run.part)
		}
	}
	t.finishTimes(parts)
	t.finishFractions(parts)
	for _, p := range parts {
		for i := range p.Run.Epochs {
			e := &p.Run.Epochs[i]
			if math.IsNaN(e.SamplesPerSecond) && e.Samples > 0 && e.Seconds > 0 {
				e.SamplesPerSecond = float64(e.Samples) / e.Seconds
			}
			if e.Seconds <= 0 {
				t.in.AddProblem(e.Line, "got an epoch of %g s: the clock was set during the epoch; its time is not used", e.Seconds)
				e.Seconds = math.NaN()
			}
		}
		if t.kind == lightningKind && len(p.Run.Epochs) > 0 {
			report.AddAssumptionOnce("if a value was logged several times in an epoch, the last one counts; Lightning counts epochs from 0, here they count from 1")
		}
	}
	return parts
}

// finishRun completes a run and reports whether it has any value.
func (t *tableReader) finishRun(run *tableRun, shift int) bool {
	ranks := make([]int, 0, len(run.epochs))
	for rank := range run.epochs {
		ranks = append(ranks, rank)
	}
	slices.Sort(ranks)
	var lists [][]runs.Epoch
	for _, rank := range ranks {
		list := run.epochs[rank].Epochs
		for i := range list {
			if list[i].Epoch > 0 {
				list[i].Epoch -= shift
			}
		}
		slices.SortStableFunc(list, record.CompareEpochs)
		lists = append(lists, list)
	}
	out := &run.part.Run
	switch {
	case len(lists) == 1:
		out.Epochs = lists[0]
	case len(lists) > 1:
		out.Epochs = record.MergeEpochs(lists, true)
		t.in.Report.AddAssumptionOnce("the rows of several ranks are one run: times of the slowest rank, mean losses and accuracies, sums of rates")
		if out.Info.Workers == 0 {
			out.Info.Workers = len(lists)
		}
	}
	for _, c := range run.order {
		if t.kind == tensorBoardKind && c.Name == "Value" {
			c.Name = tensorBoardTag(t.in.Path)
		}
		out.Curves = append(out.Curves, c.Finish(t.in.Report))
	}
	for i := range t.columns {
		if c := &t.columns[i]; c.changed && t.layout != rowsAreRuns {
			delete(out.Info.Config, c.name)
		}
	}
	joules := 0.0
	for _, gpu := range run.power {
		joules += gpu.joules
	}
	if joules > 0 {
		out.Info.EnergyJoules = joules
		t.in.Report.AddAssumption("energy: the integral of power.draw from the first to the last row")
	}
	return len(out.Epochs)+len(out.Curves)+len(out.Trials) > 0 || out.WallSeconds > 0 || out.Info.Config[record.TrainingSecondsKey] != nil || t.kind == joblogKind
}

// tensorBoardTag returns the name of the values in a file that was downloaded from
// TensorBoard, such as run-train-tag-loss.csv, or "value".
func tensorBoardTag(path string) string {
	base := record.UncompressedName(path)
	if _, tag, ok := strings.Cut(base, "-tag-"); ok {
		return strings.TrimSuffix(tag, ".csv")
	}
	return "value"
}

// finishTimes converts times since the start of the run to times of epochs, if the column of
// seconds has them.
func (t *tableReader) finishTimes(parts []*record.Part) {
	if t.layout != rowsAreEpochs {
		return
	}
	i := slices.IndexFunc(t.columns, func(c column) bool {
		return c.epoch != nil && (c.field == fieldTime || c.field == fieldTrainingTime || c.field == fieldElapsed)
	})
	if i < 0 {
		return
	}
	c := &t.columns[i]
	total, cumulative, several := c.field == fieldTrainingTime, true, false
	for _, p := range parts {
		if len(p.Run.Epochs) > 1 {
			total, cumulative, several = total && isConstant(p.Run.Epochs), cumulative && isCumulative(p.Run.Epochs), true
		}
	}
	switch {
	case c.field == fieldElapsed, t.kind == ultralyticsKind, several && cumulative && !total:
		t.in.Report.AddAssumption("column %q is the time since the start; its differences are the times of the epochs, with everything between them", c.name)
		for _, p := range parts {
			t.takeDifferences(p.Run.Epochs)
		}
	case several && total:
		t.in.Report.AddAssumption("column %q is the time of the complete training: it is the same in each row", c.name)
		for _, p := range parts {
			if len(p.Run.Epochs) == 0 {
				continue
			}
			p.Run.Info.Config[record.TrainingSecondsKey] = p.Run.Epochs[0].Seconds
			for k := range p.Run.Epochs {
				p.Run.Epochs[k].Seconds = math.NaN()
			}
		}
	default:
		t.in.Report.AddAssumption("column %q is taken as the time of each epoch", c.name)
	}
}

// isConstant reports whether all epochs have the same time, which has a fraction of a second.
func isConstant(epochs []runs.Epoch) bool {
	for _, e := range epochs {
		if e.Seconds != epochs[0].Seconds || e.Seconds == math.Trunc(e.Seconds) {
			return false
		}
	}
	return len(epochs) > 1
}

// minCumulativeGrowth is the ratio of the last to the first of a run's times that increase
// from epoch to epoch. If it is larger, the times are taken as times since the start.
const minCumulativeGrowth = 1.5

// isCumulative reports whether the times of the epochs increase as times since the start do.
func isCumulative(epochs []runs.Epoch) bool {
	last, first := math.NaN(), math.NaN()
	for _, e := range epochs {
		switch v := e.Seconds; {
		case math.IsNaN(v):
		case math.IsNaN(first):
			first, last = v, v
		case v <= last:
			return false
		default:
			last = v
		}
	}
	return last > minCumulativeGrowth*first
}

// takeDifferences replaces times since the start by the times of the epochs. If a time is
// smaller than the one before, the clock started again.
func (t *tableReader) takeDifferences(epochs []runs.Epoch) {
	last, lastEpoch := 0.0, 0
	for i := range epochs {
		e := &epochs[i]
		v := e.Seconds
		switch {
		case math.IsNaN(v):
			continue
		case v < last:
			t.in.Report.AddAssumption("the time starts again in line %d: the run was resumed", e.Line)
		case lastEpoch > 0 && e.Epoch != lastEpoch+1, lastEpoch == 0 && e.Epoch > 1:
			e.Seconds = math.NaN() // of several epochs
		default:
			e.Seconds = v - last
		}
		last, lastEpoch = v, e.Epoch
	}
}

// finishFractions converts percentages to fractions. A column whose largest value is between 1
// and 100 has percentages.
func (t *tableReader) finishFractions(parts []*record.Part) {
	for i := range t.columns {
		c := &t.columns[i]
		if c.kind != fractionValue || c.epoch == nil || c.factor != 1 {
			continue
		}
		largest := 0.0
		for _, p := range parts {
			for k := range p.Run.Epochs {
				if v := *c.epoch(&p.Run.Epochs[k]); v > largest {
					largest = v
				}
			}
		}
		if largest <= 1 || largest > 100 {
			continue
		}
		t.in.Report.AddAssumption("column %q has percentages: its largest value is %g", c.name, largest)
		for _, p := range parts {
			for k := range p.Run.Epochs {
				*c.epoch(&p.Run.Epochs[k]) /= 100
			}
		}
	}
}

// reportColumns reports which columns were not used.
func (t *tableReader) reportColumns() {
	report := t.in.Report
	report.Columns = len(t.columns)
	for i := range t.columns {
		c := &t.columns[i]
		why := c.unused
		if c.changed && t.layout != rowsAreRuns && why == "" {
			why = "its texts differ between the rows of a run"
		}
		if why != "" {
			report.UnusedColumns = append(report.UnusedColumns, fmt.Sprintf("%s: %s", quoteName(c.name), why))
		}
	}
}
