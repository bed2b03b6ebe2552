package scaling

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/runs"
	"lockstep/pkg/scaling/internal/grid"
	"lockstep/pkg/scaling/internal/observe"
)

// QualityRow is the quality of a series' models at one worker count and global batch.
type QualityRow struct {
	Series                           string
	Workers, GlobalBatch             int // GlobalBatch is 0 if unknown
	Runs, Diverged                   int
	IoU, Dice, Accuracy, ValAccuracy Estimate
	TrainLoss, ValLoss, TestLoss     Estimate
	// Change is Quality.Measure minus its value at the series' smallest worker count.
	Change   Estimate
	Sentence string // summary of the series, in its last row
}

// Quality shows the effect of the global batch on the model. The global batch grows
// with the workers if the batch per worker is fixed.
//
// Its table has one row per series and worker count: series, workers, global_batch,
// runs, diverged, iou, dice, val_accuracy, accuracy, test_loss, val_loss, train_loss
// and change, each with _low and _high.
type Quality struct {
	analysis
	Measure string // the measure of Change: iou, dice, val_accuracy, accuracy, test_loss, val_loss or train_loss
	Rows    []QualityRow
	level   float64
}

// Quality returns IoU, Dice, accuracy and losses by worker count and global batch. The change is
// computed for the first measure that at least two points have, relative to the smallest worker
// count of the same series.
func (s *Study) Quality() *Quality {
	q := &Quality{level: s.Rule.confidenceLevel()}
	q.analysis = analysis{q}
	all := observe.QualityMetrics()
	chosen := -1
	for i, m := range all {
		known := 0
		for _, p := range s.Points {
			if !math.IsNaN(findPointEstimateField(m.Name).of(&p).Value) {
				known++
			}
		}
		if known > 1 || known == 1 && len(s.Points) == 1 {
			chosen = i
			q.Measure = m.Name
			break
		}
	}
	for _, series := range s.Series() {
		first := len(q.Rows)
		base := -1
		for i, p := range s.Points {
			if p.Series != series {
				continue
			}
			row := QualityRow{
				Series: p.Series, Workers: p.Workers, GlobalBatch: p.GlobalBatch, Runs: p.Runs, Diverged: p.Diverged,
				IoU: p.IoU, Dice: p.Dice, Accuracy: p.Accuracy, ValAccuracy: p.ValAccuracy,
				TrainLoss: p.TrainLoss, ValLoss: p.ValLoss, TestLoss: p.TestLoss, Change: unknownEstimate(),
			}
			if chosen >= 0 && !math.IsNaN(findPointEstimateField(all[chosen].Name).of(&p).Value) {
				if base < 0 {
					base = i
				}
				row.Change = s.estimateChange(s.cells[i], s.cells[base], all[chosen].RunValue)
				if i == base {
					row.Change.Value, row.Change.Low, row.Change.High = 0, math.NaN(), math.NaN() // against itself
				}
			}
			q.Rows = append(q.Rows, row)
		}
		if chosen >= 0 && base >= 0 {
			q.Rows[len(q.Rows)-1].Sentence = q.summarize(q.Rows[first:], all[chosen].Higher, func(r QualityRow) Estimate {
				i, err := s.findPointIndex(r.Series, r.Workers)
				if err != nil {
					return unknownEstimate()
				}
				return *findPointEstimateField(all[chosen].Name).of(&s.Points[i])
			})
		}
	}
	return q
}

// estimateChange estimates the center of a quantity over the runs of a, minus its center over the
// runs of b. value returns the quantity of a run.
func (s *Study) estimateChange(a, b observe.RunGroup, value func(runs.Run) float64) Estimate {
	values := func(c observe.RunGroup) []float64 {
		var v []float64
		for _, r := range c.Runs {
			if x := value(r); observe.IsFinite(x) {
				v = append(v, x)
			}
		}
		return v
	}
	x, y := values(a), values(b)
	if len(x) == 0 || len(y) == 0 {
		return unknownEstimate()
	}
	center, other := s.estimate(x, false), s.estimate(y, false)
	out := Estimate{Value: center.Value - other.Value, Min: center.Min - other.Value, Max: center.Max - other.Value, N: len(x)}
	out.Low, out.High = s.estimator().DifferenceInterval(x, y)
	return out
}

// summarize describes how the quality changes in the rows of one series, and between which worker
// counts it drops most. higher is true if higher values are better.
func (q *Quality) summarize(rows []QualityRow, higher bool, measureOf func(QualityRow) Estimate) string {
	first, last, previous := -1, -1, -1
	worst, from, to := 0.0, -1, -1
	for i, r := range rows {
		v := measureOf(r).Value
		if math.IsNaN(v) {
			continue
		}
		if first < 0 {
			first = i
		}
		if previous >= 0 {
			step := v - measureOf(rows[previous]).Value
			if !higher {
				step = -step
			}
			if step < worst {
				worst, from, to = step, previous, i
			}
		}
		previous, last = i, i
	}
	at := func(r QualityRow) string {
		text := english.FormatCount(r.Workers, "worker")
		if r.GlobalBatch > 0 {
			text += fmt.Sprintf(" (global batch %d)", r.GlobalBatch)
		}
		return text
	}
	if first == last {
		return fmt.Sprintf("%s: %s %s at %s", rows[first].Series, q.Measure, english.FormatNumber(measureOf(rows[first]).Value), at(rows[first]))
	}
	change := rows[last].Change
	text := fmt.Sprintf("%s: %s goes from %s at %s to %s at %s", rows[first].Series, q.Measure,
		english.FormatNumber(measureOf(rows[first]).Value), at(rows[first]), english.FormatNumber(measureOf(rows[last]).Value), at(rows[last]))
	switch {
	case math.IsNaN(change.Low):
		text += " (single runs: no interval; different seeds alone may differ as much)"
	case change.Low <= 0 && change.High >= 0:
		text += fmt.Sprintf(", a change of %s %s that may be due to chance", english.FormatNumber(change.Value), change.formatInterval())
	default:
		text += fmt.Sprintf(", a change of %s %s", english.FormatNumber(change.Value), change.formatInterval())
	}
	if from >= 0 {
		text += fmt.Sprintf("; the largest loss is from %d to %s (%s to %s)", rows[from].Workers, english.FormatCount(rows[to].Workers, "worker"), english.FormatNumber(measureOf(rows[from]).Value), english.FormatNumber(measureOf(rows[to]).Value))
	}
	return text
}

func (q *Quality) table(maxRows int) resultTable {
	g := grid.Grid[QualityRow]{What: "quality", Rows: limitRows(q.Rows, maxRows), Columns: []grid.Column[QualityRow]{
		{Name: "series", Brief: true, Text: func(r QualityRow) string { return r.Series }},
		{Name: "workers", Brief: true, Count: func(r QualityRow) int { return r.Workers }},
		{
			Name: "global_batch", Brief: true, Optional: true, Count: func(r QualityRow) int { return r.GlobalBatch },
			Show: func(r QualityRow) string { return strconv.Itoa(r.GlobalBatch) }, // and "-" if unknown
		},
		{Name: "runs", Brief: true, Count: func(r QualityRow) int { return r.Runs }},
		{Name: "diverged", Brief: true, Optional: true, Count: func(r QualityRow) int { return r.Diverged }},
	}}
	for _, c := range []struct {
		name string
		span func(QualityRow) Estimate
	}{
		{"iou", func(r QualityRow) Estimate { return r.IoU }},
		{"dice", func(r QualityRow) Estimate { return r.Dice }},
		{"val_accuracy", func(r QualityRow) Estimate { return r.ValAccuracy }},
		{"accuracy", func(r QualityRow) Estimate { return r.Accuracy }},
		{"test_loss", func(r QualityRow) Estimate { return r.TestLoss }},
		{"val_loss", func(r QualityRow) Estimate { return r.ValLoss }},
		{"train_loss", func(r QualityRow) Estimate { return r.TrainLoss }},
	} {
		columns := estimateColumns(c.name, c.span)
		if c.name != q.Measure { // a table with all intervals would be too wide to read
			columns = slices.DeleteFunc(columns, func(c grid.Column[QualityRow]) bool { return c.Interval })
		}
		g.Columns = append(g.Columns, columns...)
	}
	g.Columns = append(g.Columns, estimateColumns("change", func(r QualityRow) Estimate { return r.Change })...)
	for _, r := range g.Rows {
		if r.Sentence != "" {
			g.Remarks = append(g.Remarks, r.Sentence)
		}
	}
	if q.Measure != "" {
		g.Remarks = append(g.Remarks, fmt.Sprintf("change: of %s, relative to the fewest workers of the series; %s intervals over repeated runs", q.Measure, english.FormatPercent(q.level)))
	}
	return g
}
