package table

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/logread/internal/fields"
	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/runs"
)

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
		if t.kind != lightningKind && !t.fractional {
			report.AddAssumption("the table counts epochs from 0; here they count from 1")
		}
	}
	var parts []*record.Part
	for _, run := range t.order {
		if t.finishRun(run, shift) {
			parts = append(parts, run.part)
		}
	}
	t.multiplyWorkersByNodes(parts)
	t.finishTimes(parts)
	t.convertPercentages(parts)
	for _, p := range parts {
		p.Run.ThroughputUnit = t.throughputUnit()
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

// multiplyWorkersByNodes multiplies the number of workers in each run by its number of nodes if the column
// counts the workers per node. That is the case if a run has fewer workers than nodes, or if the
// number of workers is the same for all numbers of nodes.
func (t *tableReader) multiplyWorkersByNodes(parts []*record.Part) {
	i, ok := t.at[fields.Workers]
	if !ok || !t.hasAnyField(fields.Nodes) || t.columns[i].mapped || t.hasAnyField(fields.GlobalBatch, fields.WorkersPerNode) {
		return
	}
	if name := fields.Normalize(t.columns[i].name); strings.Contains(name, "total") || strings.Contains(name, "world") {
		return
	}
	fewer, equal, nodes := false, true, map[int]bool{}
	for _, p := range parts {
		info := &p.Run.Info
		if info.Nodes == 0 || info.Workers == 0 {
			return
		}
		nodes[info.Nodes] = true
		fewer, equal = fewer || info.Workers < info.Nodes, equal && info.Workers == parts[0].Run.Info.Workers
	}
	if !fewer && !(equal && len(nodes) > 1) {
		return
	}
	for _, p := range parts {
		p.Run.Info.Workers *= p.Run.Info.Nodes
		p.Run.Info.GlobalBatch *= p.Run.Info.Nodes
	}
	t.in.Report.AddAssumption("column %q is the number of workers of each node", t.columns[i].name)
}

// throughputUnit returns the unit in the name of the throughput column, or "" for samples or none.
func (t *tableReader) throughputUnit() string {
	if i, ok := t.at[fields.SamplesPerSecond]; ok && strings.HasPrefix(strings.ToLower(t.columns[i].name), "im") {
		return "images/s" // images_per_second, img/s, …
	}
	return ""
}

func (t *tableReader) finishRun(run *tableRun, shift int) bool {
	var lists [][]runs.Epoch
	for _, rank := range slices.Sorted(maps.Keys(run.epochs)) {
		list := run.epochs[rank].Epochs
		sorted := true
		for i := range list {
			if list[i].Epoch > 0 {
				list[i].Epoch -= shift
			}
			sorted = sorted && (i == 0 || list[i-1].Epoch <= list[i].Epoch)
		}
		if !sorted {
			slices.SortStableFunc(list, record.CompareEpochs)
		}
		lists = append(lists, list)
	}
	out := &run.part.Run
	switch {
	case len(lists) == 1:
		out.Epochs = lists[0]
	case len(lists) > 1:
		out.Epochs = record.MergeEpochs(lists, true, t.in.Report)
		t.in.Report.AddAssumptionOnce("the rows of several ranks are one run: times of the slowest rank, mean losses and accuracies, sums of rates")
		if out.Info.Workers == 0 {
			out.Info.Workers = len(lists)
		}
	}
	run.elapsed.SetEpochSeconds(out.Epochs, -shift, t.in.Report)
	t.sortCurves(run.curves.All)
	for _, c := range run.curves.All {
		if t.kind == tensorBoardKind && c.Name == "Value" {
			c.Name = tensorBoardTag(t.in.Path)
		}
		out.Curves = append(out.Curves, c.Finish(t.in.Report))
	}
	if t.layout == rowsAreSteps && t.timeAt >= 0 && len(out.Curves) > 0 && !t.hasAnyField(fields.StepSeconds, fields.Elapsed) {
		record.AddStepTimesFrom(out, t.columns[t.timeAt].name, out.Curves[0], out.Curves[0].Times, t.in.Report)
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
		if t.rankAt < 0 && len(t.ranks) == 0 {
			t.in.Report.AddAssumption("energy: the rows are those of one GPU, because no column (index, uuid, pci.bus_id) distinguishes several")
		}
		if late := run.late; late.rows > 0 {
			t.in.AddProblem(late.line, "the time of GPU %d goes back: the power of %s with a time before that of an earlier row is not in the energy", late.gpu, english.FormatCount(late.rows, "row"))
		}
	}
	return len(out.Epochs)+len(out.Curves)+len(out.Trials) > 0 || out.WallSeconds > 0 || out.Info.Config[record.TrainingSecondsKey] != nil || t.kind == joblogKind
}

// sortCurves sorts curves by rank and then by column. Curves without a column come last, in the
// order of the rows.
func (t *tableReader) sortCurves(curves []*record.Curve) {
	at := make(map[string]int, len(t.columns))
	for i := range t.columns {
		if _, known := at[t.columns[i].name]; !known {
			at[t.columns[i].name] = i
		}
	}
	column := func(c *record.Curve) int {
		if i, known := at[c.Name]; known {
			return i
		}
		return len(t.columns)
	}
	slices.SortStableFunc(curves, func(a, b *record.Curve) int {
		return cmp.Or(a.Rank-b.Rank, column(a)-column(b))
	})
}

// tensorBoardTag returns the tag in the name of a file downloaded from TensorBoard, such as
// run-train-tag-loss.csv, or "value".
func tensorBoardTag(path string) string {
	base := record.UncompressedName(path)
	if _, tag, ok := strings.Cut(base, "-tag-"); ok {
		return strings.TrimSuffix(tag, ".csv")
	}
	return "value"
}

// finishTimes converts times since the start of the run to times of epochs, if there are any.
func (t *tableReader) finishTimes(parts []*record.Part) {
	if t.layout != rowsAreEpochs {
		return
	}
	i := slices.IndexFunc(t.columns, func(c column) bool {
		return c.epoch != nil && (c.field == fields.Time || c.field == fields.TrainingTime || c.field == fields.Elapsed)
	})
	if i < 0 {
		return
	}
	c := &t.columns[i]
	total, cumulative, several, elapsed := c.field == fields.TrainingTime, true, false, c.field == fields.Elapsed
	for _, p := range parts {
		if len(p.Run.Epochs) > 1 {
			total, cumulative, several = total && haveConstantTimes(p.Run.Epochs), cumulative && areTimesCumulative(p.Run.Epochs), true
			elapsed = elapsed && (!c.mayMeanEpochTime() || mayBeElapsedTimes(p.Run.Epochs))
		}
	}
	switch {
	case c.field == fields.Elapsed && !elapsed:
		t.in.Report.AddAssumption("column %q is taken as the time of each epoch: it does not rise as a time since the start would; if it is one, use --columns '%s=%s'", c.name, fields.Elapsed, c.name)
	case elapsed, t.kind == ultralyticsKind, several && cumulative && !total:
		t.in.Report.AddAssumption("column %q is the time since the start; its differences are the times of the epochs, with everything between them", c.name)
		for _, p := range parts {
			record.ElapsedToDurations(p.Run.Epochs, p != parts[0], t.in.Report)
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

// haveConstantTimes reports whether all epochs have the same time, with a fraction of a second.
func haveConstantTimes(epochs []runs.Epoch) bool {
	for _, e := range epochs {
		if e.Seconds != epochs[0].Seconds || e.Seconds == math.Trunc(e.Seconds) {
			return false
		}
	}
	return len(epochs) > 1
}

// minCumulativeGrowth is the ratio of the last to the first of a run's rising times above which
// they are times since the start.
const minCumulativeGrowth = 1.5

// areTimesCumulative reports whether the epochs' times rise as times since the start do.
func areTimesCumulative(epochs []runs.Epoch) bool {
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

// mayMeanEpochTime reports whether the name of the column, such as "Elapsed (s)", is used both for
// times since the start and for durations of epochs.
func (c *column) mayMeanEpochTime() bool {
	base, _ := splitUnit(c.name)
	name := fields.Normalize(base)
	return !c.mapped && !strings.Contains(name, "total") && (strings.Contains(name, "elapsed") || strings.HasPrefix(name, "wall"))
}

// The durations of a few epochs may all rise by chance, but hardly those of minRisingEpochs. Two or
// three rising times show nothing.
const (
	fewEpochs       = 4
	minRisingEpochs = 8
)

// mayBeElapsedTimes reports whether the epochs' times can be times since the start of a run that was
// resumed at most once in three epochs.
func mayBeElapsedTimes(epochs []runs.Epoch) bool {
	var times []float64
	falls := 0
	for _, e := range epochs {
		if math.IsNaN(e.Seconds) {
			continue
		}
		if n := len(times); n > 0 && e.Seconds <= times[n-1] {
			if e.Seconds*minCumulativeGrowth > times[n-1] { // a clock that starts again starts near zero
				return false
			}
			falls++
		}
		times = append(times, e.Seconds)
	}
	n := len(times)
	if falls > 0 {
		return 3*falls < n
	}
	return n < fewEpochs || n >= minRisingEpochs || times[n-1] > minCumulativeGrowth*times[0]
}

// convertPercentages converts percentages to fractions. A column contains percentages if its
// maximum is greater than 1 and at most 100.
func (t *tableReader) convertPercentages(parts []*record.Part) {
	for i := range t.columns {
		c := &t.columns[i]
		if c.kind != fields.Fraction || c.epoch == nil || c.factor != 1 {
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
