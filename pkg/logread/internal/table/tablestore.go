package table

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"lockstep/pkg/logread/internal/fields"
	"lockstep/pkg/logread/internal/launchline"
	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/runs"
)

func (t *tableReader) storeRow(run *tableRun, p *rowPosition) (good bool) {
	if t.trialAt >= 0 && t.present[t.trialAt] {
		run.part.Run.Trials = append(run.part.Run.Trials, runs.Trial{
			Name: t.fieldText(fields.Trial), Rate: t.fieldNumber(fields.SamplesPerSecond), Spread: t.fieldNumber(fields.Spread), Line: p.line,
		})
		return true
	}
	if t.hasMetric {
		return t.storeNamedValue(run, p)
	}
	var e *runs.Epoch
	stepRow := t.layout == rowsAreSteps
	for _, i := range t.stored {
		c := &t.columns[i]
		if !t.present[i] {
			continue
		}
		if c.setting {
			t.storeSetting(run, c, i)
			good = good || t.layout == rowsAreRuns
			continue
		}
		v := t.values[i]
		toEpoch, name := c.epoch, c.name
		if c.field == fields.StepSeconds { // whatever the unit in the column's name is
			name = c.field
		}
		if p.split != "" {
			toEpoch, name = epochFieldForSplit(c, p.split), p.split+"/"+name
		}
		if c.toCurve || p.split == "test" && c.epoch != nil || toEpoch == nil && c.epoch != nil && t.layout != rowsAreRuns {
			to := run
			if c.run != "" {
				to = t.runOfColumn(run, c)
			}
			t.addPoint(to, c, p, name, v)
			good = true
		}
		if stepRow && c.field == fields.Elapsed && p.epoch > 0 && p.rank <= 0 {
			run.elapsed.Add(p.epoch, p.position, v)
		}
		if toEpoch != nil && (p.epoch > 0 || !stepRow && t.layout != rowsAreMoments) {
			if math.IsNaN(v) {
				continue
			}
			if stepRow && c.field == fields.SamplesPerSecond && p.split == "" {
				v = run.rates.Add(p.rank, p.epoch, v, t.in.Report)
			}
			if e == nil {
				e = t.findOrAddEpoch(run, p.rank, max(p.epoch, 0))
				e.Line = cmp.Or(e.Line, p.line)
			}
			*toEpoch(e) = v
			good = true
		}
	}
	if t.powerAt >= 0 {
		t.addPower(run, p)
	}
	return t.hasTotals && t.storeTotals(run, e) || good
}

// epochFieldForSplit returns the field of an epoch that a column sets in a row about split, a part of the
// data set, or nil.
func epochFieldForSplit(c *column, split string) func(*runs.Epoch) *float64 {
	if split != "val" || c.epoch == nil {
		return nil
	}
	switch c.field {
	case fields.TrainLoss, fields.ValLoss:
		return epochField(fields.ValLoss)
	case fields.Accuracy, fields.ValAccuracy:
		return epochField(fields.ValAccuracy)
	case fields.EpochSeconds, fields.Time, fields.ValSeconds:
		return epochField(fields.ValSeconds)
	case fields.IoU, fields.Dice:
		return c.epoch
	}
	return nil
}

func (t *tableReader) storeNamedValue(run *tableRun, p *rowPosition) bool {
	i, ok := t.at[fields.MetricValue]
	name := t.fieldText(fields.MetricName)
	if !ok || name == "" || len(name) > 200 || !t.present[i] {
		return false
	}
	m, known := t.metrics[name]
	if !known {
		m.field, m.factor = lookUpColumn(name, "")
		t.metrics[name] = m
	}
	f, factor := m.field, m.factor
	if f != nil && p.epoch > 0 && epochField(f.Name) != nil && f.Name != fields.Time && f.Name != fields.Elapsed && f.Name != fields.TrainingTime {
		*epochField(f.Name)(t.findOrAddEpoch(run, p.rank, p.epoch)) = t.values[i] * factor
		if t.layout == rowsAreSteps {
			t.in.Report.Records++
		}
		return true
	}
	t.addPoint(run, nil, p, name, t.values[i])
	return true
}

// storeSetting stores the value of a column as a setting of the run. It drops the setting if its
// values differ between rows.
func (t *tableReader) storeSetting(run *tableRun, c *column, i int) {
	name := c.name
	var v any = t.values[i]
	if c.isText() {
		text := t.cells[i].Text
		v = strings.ToValidUTF8(string(text[:min(len(text), 1000)]), "\ufffd")
	}
	if name == "" || len(name) > 100 {
		return
	}
	config := run.part.Run.Info.Config
	was, known := config[name]
	switch {
	case known && was != v:
		c.changed = true
	case !known && len(config) < record.MaxRunSettings:
		config[name] = v
	}
}

// storeTotals stores the values of the current row that describe the complete run, and the number
// of samples. The samples belong to the epoch e, or to each epoch of the run if the row is a run. e
// is nil if the row has no epoch. good reports whether a value was stored.
func (t *tableReader) storeTotals(run *tableRun, e *runs.Epoch) (good bool) {
	info := &run.part.Run.Info
	for _, c := range []struct {
		name string
		to   func(float64)
	}{
		{fields.TrainingSeconds, func(v float64) { info.Config[record.TrainingSecondsKey] = v }},
		{fields.WallSeconds, func(v float64) { run.part.Run.WallSeconds = v }},
		{fields.Energy, func(v float64) { info.EnergyJoules = v }},
	} {
		if v := t.fieldNumber(c.name); v > 0 && !math.IsInf(v, 0) {
			c.to(v)
			good = true
		}
	}
	if t.layout == rowsAreRuns {
		good = t.storeRunTimes(run) || good
	}
	if samples, ok, err := t.fieldCount(fields.Samples, 0, 1<<53); err == nil && ok {
		if e != nil {
			e.Samples = samples
			good = true
		} else if t.layout == rowsAreRuns {
			info.SamplesPerEpoch = samples
		}
	}
	return good
}

func (t *tableReader) storeRunTimes(run *tableRun) (good bool) {
	info := &run.part.Run.Info
	for _, name := range []string{fields.Elapsed, fields.Time} {
		if v := t.fieldNumber(name); v > 0 && !math.IsInf(v, 0) && run.part.Run.WallSeconds == 0 {
			run.part.Run.WallSeconds, good = v, true
		}
	}
	if v := t.fieldNumber(fields.SummedSeconds); v > 0 && !math.IsInf(v, 0) && run.part.Run.WallSeconds == 0 && info.Workers > 0 {
		run.part.Run.WallSeconds, good = v/float64(info.Workers), true
		t.in.Report.AddAssumptionOnce("column %q is the sum over the workers: divided by their number, it is the time of the run", t.columns[t.at[fields.SummedSeconds]].name)
	}
	if v := t.fieldNumber(fields.TrainingTime); v > 0 && !math.IsInf(v, 0) {
		info.Config[record.TrainingSecondsKey], good = v, true
	}
	if v := t.fieldNumber(fields.Started); v > 0 && v < 1e11 {
		info.Started = time.UnixMilli(int64(v * 1e3)).UTC()
		if w := run.part.Run.WallSeconds; w > 0 && w < 1e9 {
			info.Ended = info.Started.Add(time.Duration(w * float64(time.Second)))
		}
	}
	if v := t.fieldNumber(fields.Ended); v > 0 && v < 1e11 {
		info.Ended = time.UnixMilli(int64(v * 1e3)).UTC()
	}
	if !info.Started.IsZero() && !info.Ended.IsZero() && run.part.Run.WallSeconds == 0 {
		switch v := info.Ended.Sub(info.Started).Seconds(); {
		case v > 0:
			run.part.Run.WallSeconds, good = v, true
			t.in.Report.AddAssumptionOnce("the time of a run is that from its start to its end")
		case v < 0:
			t.in.AddProblem(t.l.Number, "the run ends before it starts: its time is unknown")
		}
	}
	if !t.hasAnyField(fields.ExitCode) && !t.hasAnyField(fields.Status) {
		info.Status = runs.StatusDone
	}
	t.storeStatus(info)
	if text := t.fieldText(fields.Command); text != "" {
		t.storeCommand(run, text)
	}
	return good
}

func (t *tableReader) storeStatus(info *runs.Info) {
	switch text := t.fieldText(fields.Status); strings.ToLower(text) {
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
	code, ok, err := t.fieldCount(fields.ExitCode, 0, 1<<31)
	if err != nil || !ok {
		return
	}
	info.Status = runs.StatusDone
	if signal := t.columnText("Signal"); signal != "" && signal != "0" {
		info.Status, info.Error = runs.StatusFailed, "signal "+signal
	} else if code != 0 {
		info.Status, info.Error = runs.StatusFailed, "exit code "+strconv.Itoa(code)
	}
}

func (t *tableReader) columnText(name string) string {
	if i := slices.IndexFunc(t.columns, func(c column) bool { return c.name == name }); i >= 0 {
		return string(t.cells[i].Text)
	}
	return ""
}

// runOfColumn returns the run that the header of a column names, as in a panel, where several runs
// share each row.
func (t *tableReader) runOfColumn(row *tableRun, c *column) *tableRun {
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
				epochs: map[int]*record.RankEpochs{}, curves: record.Curves{Lines: t.l},
			}
			t.order = append(t.order, run)
		}
		run.part.Run.Info.Config["run"], run.part.Run.Info.Series = c.run, c.run
		t.byKey["\x00"+c.run] = run
	}
	return run
}

// addPoint adds a value to the curve with the given name. c is the column of the value, or nil if
// the curve is not the values of a single column.
func (t *tableReader) addPoint(run *tableRun, c *column, p *rowPosition, name string, v float64) {
	step := p.step
	switch {
	case t.layout == rowsAreMoments:
		step = -1
	case t.layout == rowsAreEpochs && step < 0:
		step = int64(p.epoch) - 1
	}
	var curve *record.Curve
	if c != nil && c.curveOf == run && c.curve.Rank == p.rank && c.curve.Name == name {
		curve = c.curve
	} else {
		if curve = run.curves.FindOrAdd([]byte(name), p.rank, !math.IsNaN(p.time)); curve == nil {
			t.in.Report.AddAssumptionOnce("only the first %d curves of a run are kept", record.MaxCurveNames)
			return
		}
		if c != nil {
			c.curve, c.curveOf = curve, run
			curve.Name = name // the comparison above is fast for the same string
		}
	}
	if t.layout == rowsAreMoments { // the points have times
		step = curve.Points
	}
	curve.AddPoint(max(step, 0), v, p.time)
	if t.layout == rowsAreSteps || t.layout == rowsAreMoments {
		t.in.Report.Records++
	}
}

func (t *tableReader) addPower(run *tableRun, p *rowPosition) {
	gpu := max(p.rank, 0)
	if gpu >= maxGPUs {
		return
	}
	for len(run.power) <= gpu {
		run.power = append(run.power, powerIntegrator{})
	}
	if !run.power[gpu].addSample(p.time, t.values[t.powerAt]) {
		if run.late.rows == 0 {
			run.late.line, run.late.gpu = p.line, gpu
		}
		run.late.rows++
	}
}

// maxGPUs is larger than the number of GPUs in a host.
const maxGPUs = 1024

func (t *tableReader) storeCommand(run *tableRun, text string) {
	words := strings.Fields(text)
	run.part.Run.Info.Command = words
	run.part.Evidence = append(run.part.Evidence, launchline.CommandEvidence(words, text)...)
}
