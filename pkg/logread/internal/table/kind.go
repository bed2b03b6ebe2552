package table

import (
	"slices"
	"strings"

	"lockstep/pkg/logread/internal/fields"
	"lockstep/pkg/logread/internal/scan"
)

// The kinds of tables, which their headers show.
const (
	tableKind        = "CSV table"
	lightningKind    = "Lightning metrics"
	resultsTableKind = "results table"
	ultralyticsKind  = "Ultralytics results"
	wandbKind        = "W&B export"
	mlflowTableKind  = "MLflow export"
	nvidiaKind       = "nvidia-smi"
	joblogKind       = "GNU parallel joblog"
	tensorBoardKind  = "TensorBoard export"
)

func detectTableKind(header []string) string {
	has := func(names ...string) bool {
		return !slices.ContainsFunc(names, func(name string) bool { return !slices.Contains(header, name) })
	}
	begins := func(prefixes ...string) bool {
		return slices.ContainsFunc(header, func(name string) bool {
			return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
		})
	}
	switch {
	case has("epoch", "step") && len(header) > 2:
		return lightningKind
	case has("Seq", "JobRuntime", "Command"):
		return joblogKind
	case begins("utilization.gpu", "power.draw", "memory.used", "temperature.gpu", "clocks.", "memory.total", "pci.bus_id"):
		return nvidiaKind
	case has("Wall time", "Step", "Value"):
		return tensorBoardKind
	case has("epoch") && (begins("train/box_loss", "metrics/mAP", "metrics/accuracy_top1", "x/lr") || has("train/loss") && begins("lr/pg")):
		return ultralyticsKind
	case has("_step", "_timestamp"), has("_step", "_runtime"), has("Name", "State"), isPanelExport(header):
		return wandbKind
	case has("run_id", "key", "value"), has("run_id", "experiment_id"), has("Run ID", "Start Time"):
		return mlflowTableKind
	}
	return tableKind
}

// isPanelExport reports whether the columns after the first are values of different runs, as in the
// data of a W&B panel: "Step","run - loss","run - loss__MIN","run - loss__MAX".
func isPanelExport(header []string) bool {
	if len(header) < 2 || !slices.Contains([]string{"Step", "epoch", "Relative Time (Process)", "Relative Time (Wall)", "_timestamp", "_step", "trainer/global_step", "global_step"}, header[0]) {
		return false
	}
	return !slices.ContainsFunc(header[1:], func(name string) bool { return !strings.Contains(name, " - ") })
}

func (s *schema) splitPanelRuns() {
	if !isPanelExport(s.header) {
		return
	}
	for i := 1; i < len(s.columns); i++ {
		c := &s.columns[i]
		if c.mapped {
			continue
		}
		at := strings.LastIndex(c.name, " - ")
		run, metric := c.name[:at], c.name[at+3:]
		c.run = run
		for _, end := range []string{"__MIN", "__MAX"} {
			if strings.HasSuffix(metric, end) {
				c.unused = "the minimum or maximum of another column"
			}
		}
		c.name, c.field, c.kind = metric, "", fields.Number
	}
}

type rowLayout uint8

const (
	unknownLayout  rowLayout = iota
	rowsAreSteps             // values at a step; most cells may be empty
	rowsAreEpochs            // an epoch, which a column numbers or the order of the rows
	rowsAreRuns              // the measurements of a complete run
	rowsAreMoments           // values at a time
)

// measuredFieldNames returns measured values. A table must have one of them, unless a column numbers
// the epochs or steps.
func measuredFieldNames() []string {
	return []string{
		fields.EpochSeconds, fields.Elapsed, fields.Time, fields.TrainingTime, fields.SamplesPerSecond, fields.TrainLoss, fields.ValLoss, fields.IoU, fields.Dice,
		fields.Accuracy, fields.ValAccuracy, fields.TrainingSeconds, fields.WallSeconds, fields.SummedSeconds, fields.StepSeconds, fields.Energy,
	}
}

// detectLayout returns the layout of the table, or unknownLayout.
func (s *schema) detectLayout(surveys []columnSurvey) rowLayout {
	counters := []string{fields.Epoch, fields.Step, fields.Timestamp, fields.Elapsed, fields.Rank, fields.Seed}
	numbers := 0 // columns of numbers that are not counters
	for i := range s.columns {
		if c := &s.columns[i]; c.kind != fields.Text && c.kind != fields.Moment && !slices.Contains(counters, c.field) && (surveys[min(i, len(surveys)-1)].numbers > 0 || c.field != "" || s.kind == lightningKind) {
			numbers++
		}
	}
	mapped := slices.ContainsFunc(s.columns, func(c column) bool { return c.mapped })
	measured := s.hasAnyField(measuredFieldNames()...) || mapped && numbers > 0
	identity := s.hasAnyField(fields.Workers, fields.Nodes, fields.Series, fields.Model, fields.Run, fields.Batch, fields.GlobalBatch, fields.Study)
	timed := s.hasAnyField(fields.EpochSeconds, fields.SamplesPerSecond, fields.Time, fields.TrainingTime, fields.WallSeconds, fields.TrainingSeconds)
	switch {
	case s.header == nil && !mapped:
		return unknownLayout
	case s.kind == joblogKind:
		return rowsAreRuns
	case s.kind == nvidiaKind:
		if s.hasAnyField(fields.Timestamp) {
			return rowsAreMoments
		}
		return unknownLayout
	case (s.kind == mlflowTableKind || s.kind == wandbKind) && s.hasAnyField(fields.Run) && !s.hasAnyField(fields.MetricValue) && !s.hasAnyField(fields.Timestamp):
		return rowsAreRuns
	case s.hasAnyField(fields.Step) && numbers > 0:
		return rowsAreSteps
	case s.hasAnyField(fields.Epoch) && (numbers > 0 || s.hasAnyField(fields.Elapsed)):
		return rowsAreEpochs
	case identity && measured && (timed || s.hasAnyField(fields.Workers, fields.Nodes)):
		return rowsAreRuns
	case identity && s.hasAnyField(fields.Started) && s.hasAnyField(fields.Ended):
		return rowsAreRuns
	case s.kind == wandbKind && s.hasAnyField(fields.Timestamp, fields.Elapsed) && numbers > 0, s.hasAnyField(fields.Timestamp) && measured:
		return rowsAreMoments
	case s.hasAnyField(fields.TrainLoss, fields.ValLoss, fields.Accuracy, fields.ValAccuracy) || mapped && measured:
		return s.layoutWithoutCounter(surveys)
	case timed && s.hasAnyField(fields.Seed): // of the runs with one number of workers
		return rowsAreRuns
	}
	return unknownLayout
}

// layoutWithoutCounter returns the layout of a table of measured values without an epoch or step
// column: one row per epoch, or unknownLayout if a column contains text. A first column of whole
// numbers without a name, which is pandas' index, numbers the epochs.
func (s *schema) layoutWithoutCounter(surveys []columnSurvey) rowLayout {
	for i := range s.columns {
		if c := &s.columns[i]; c.kind == fields.Text && surveys[min(i, len(surveys)-1)].texts > 0 {
			return unknownLayout
		}
	}
	if s.columns[0].name == "" && surveys[0].whole == surveys[0].numbers && !s.columns[0].mapped && s.header != nil {
		s.columns[0].field, s.columns[0].kind, s.at[fields.Epoch] = fields.Epoch, fields.Whole, 0
		s.assumed = append(s.assumed, "the column without a name is the number of the epoch")
	}
	return rowsAreEpochs
}

// rowsAreSeparateRuns reports whether a column shows that the rows are runs: it differs between them, such as the
// number of workers, or measures complete runs. It returns false if the rows may be epochs: an unknown
// column numbers the rows of each run anew, or several rows have the same settings and seed. text follows the header.
func (s *schema) rowsAreSeparateRuns(text []byte, surveys []columnSurvey) bool {
	if slices.Contains([]string{joblogKind, wandbKind, mlflowTableKind}, s.kind) || s.hasAnyField(fields.Trial) {
		return true
	}
	var keys []int
	for i, c := range s.columns[:min(len(s.columns), len(surveys))] {
		if slices.Contains(append(runKeyFieldNames(), fields.Setting), c.field) || c.field == "" && c.kind == fields.Text && 2*len(s.distinctCells(text, i)) <= surveys[i].texts {
			keys = append(keys, i)
		}
	}
	counters := s.unknownCounters()
	groups := map[string]*rowGroup{}
	rows := 0
	for cells, ok := range s.form.rowsOf(text, s.width) {
		if !ok {
			continue
		}
		rows++
		var key []byte
		for _, i := range keys {
			key = append(append(key, cells[i].Text...), 0)
		}
		group := groups[string(key)]
		if group == nil {
			group = &rowGroup{counts: make([]float64, len(counters)), rising: make([]bool, len(counters))}
			groups[string(key)] = group
		}
		group.addRow(s, counters, cells)
	}
	if len(groups) == rows {
		return true
	}
	mapsTime := slices.ContainsFunc(s.columns, func(c column) bool {
		return c.mapped && (c.field == fields.WallSeconds || c.field == fields.TrainingSeconds)
	})
	for k := range counters {
		if isEpochCounter(groups, k) && !mapsTime {
			s.counter = s.columns[counters[k]].name
			return false
		}
	}
	if len(groups) > 1 && !s.hasAnyField(fields.Run, fields.Seed) { // several rows of one seed are not repeats
		return true
	}
	return s.hasAnyField(fields.WallSeconds, fields.TrainingSeconds, fields.Energy, fields.Status, fields.Started, fields.Ended, fields.Command)
}

// unknownCounters returns the indexes of the columns of numbers that have no field.
func (s *schema) unknownCounters() []int {
	var counters []int
	for i := range s.columns {
		if c := &s.columns[i]; c.field == "" && !c.mapped && c.kind != fields.Text && i < maxTableColumns {
			counters = append(counters, i)
		}
	}
	return counters
}

type rowGroup struct {
	rows   int
	first  []float64 // number in the first row, of each unknown counter
	counts []float64 // number in the last row
	rising []bool    // each number is that of the row before plus one
}

func (g *rowGroup) addRow(s *schema, counters []int, cells []scan.Cell) {
	for k, i := range counters {
		v, ok := s.columns[i].form.parse(cells[i].Text)
		g.rising[k] = ok && v == float64(int64(v)) && (g.rows == 0 || g.rising[k] && v == g.counts[k]+1)
		g.counts[k] = v
	}
	if g.rows == 0 {
		g.first = slices.Clone(g.counts)
	}
	g.rows++
}

// isEpochCounter reports whether counter k numbers epochs and not the rows of the whole table. It
// must rise by one from row to row within each group. In addition, there must be only one group,
// two groups must start at the same number, or the only group with several rows must start at 0 or
// 1.
func isEpochCounter(groups map[string]*rowGroup, k int) bool {
	starts := map[float64]bool{}
	several := 0
	for _, g := range groups {
		if !g.rising[k] {
			return false
		}
		if g.rows > 1 {
			starts[g.first[k]] = true
			several++
		}
	}
	return len(groups) == 1 || several > 1 && len(starts) < several || several == 1 && (starts[0] || starts[1])
}
