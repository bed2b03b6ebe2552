package scaling

import (
	"fmt"
	"io"
	"math"
	"strconv"

	"github.com/go-gota/gota/dataframe"

	"lockstep/pkg/runs"
)

// QualityRow is what training with so many workers, and so large a global
// batch, made of the model.
type QualityRow struct {
	Series                           string
	Workers, GlobalBatch             int // the batch is 0 where unknown
	Runs, Diverged                   int
	IoU, Dice, Accuracy, ValAccuracy Span
	TrainLoss, ValLoss, TestLoss     Span
	// Change is of the series' measure of quality (see Quality.Measure) against
	// its fewest workers, with its interval.
	Change   Span
	Sentence string // of the series, in its last row
}

// Quality is the effect of the batch, which grows with the workers where the
// batch per worker is fixed. A cell shows it as a table.
type Quality struct {
	Measure  string // that the changes are of: iou, dice, val_accuracy, accuracy, test_loss, val_loss or train_loss
	Rows     []QualityRow
	Problems []runs.Problem
	level    float64
}

// qualities are the measures of quality, the one that says most first.
func qualities() []struct {
	name   string
	higher bool // is better
	span   func(Point) Span
	of     func(runs.Run) float64
} {
	epoch := func(value func(runs.Epoch) float64) func(runs.Run) float64 {
		return func(r runs.Run) float64 { return ofLast(r, value) }
	}
	return []struct {
		name   string
		higher bool
		span   func(Point) Span
		of     func(runs.Run) float64
	}{
		{"iou", true, func(p Point) Span { return p.IoU }, finalIoU},
		{"dice", true, func(p Point) Span { return p.Dice }, finalDice},
		{"val_accuracy", true, func(p Point) Span { return p.ValAccuracy }, epoch(func(e runs.Epoch) float64 { return e.ValAccuracy })},
		{"accuracy", true, func(p Point) Span { return p.Accuracy }, epoch(func(e runs.Epoch) float64 { return e.Accuracy })},
		{"test_loss", false, func(p Point) Span { return p.TestLoss }, func(r runs.Run) float64 { return ofTest(r, func(t runs.Test) float64 { return t.Loss }) }},
		{"val_loss", false, func(p Point) Span { return p.ValLoss }, finalValLoss},
		{"train_loss", false, func(p Point) Span { return p.TrainLoss }, finalTrainLoss},
	}
}

// Quality shows IoU, Dice, accuracy and losses against the workers and the
// global batch, and what each series loses against its fewest workers: of the
// first measure that any two points have.
func (s *Study) Quality() *Quality {
	q := &Quality{level: s.Rule.level()}
	all := qualities()
	chosen := -1
	for i, m := range all {
		known := 0
		for _, p := range s.Points {
			if !math.IsNaN(m.span(p).Value) {
				known++
			}
		}
		if known > 1 || known == 1 && len(s.Points) == 1 {
			chosen = i
			q.Measure = m.name
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
				TrainLoss: p.TrainLoss, ValLoss: p.ValLoss, TestLoss: p.TestLoss, Change: nothing(),
			}
			if chosen >= 0 && !math.IsNaN(all[chosen].span(p).Value) {
				if base < 0 {
					base = i
				}
				row.Change = s.change(s.cells[i], s.cells[base], all[chosen].of)
				if i == base {
					row.Change.Value, row.Change.Low, row.Change.High = 0, math.NaN(), math.NaN() // against itself
				}
			}
			q.Rows = append(q.Rows, row)
		}
		if chosen >= 0 && base >= 0 {
			q.Rows[len(q.Rows)-1].Sentence = q.say(q.Rows[first:], all[chosen].higher, func(r QualityRow) Span {
				i, err := s.find(r.Series, r.Workers)
				if err != nil {
					return nothing()
				}
				return all[chosen].span(s.Points[i])
			})
		}
	}
	return q
}

// change is the difference of a value's centre between two cells.
func (s *Study) change(a, b cell, of func(runs.Run) float64) Span {
	values := func(c cell) []float64 {
		var v []float64
		for _, r := range c.runs {
			if x := of(r); finite(x) {
				v = append(v, x)
			}
		}
		return v
	}
	x, y := values(a), values(b)
	if len(x) == 0 || len(y) == 0 {
		return nothing()
	}
	center, other := s.span(x, false), s.span(y, false)
	out := Span{Value: center.Value - other.Value, Min: center.Min - other.Value, Max: center.Max - other.Value, N: len(x)}
	out.Low, out.High = s.intervals(false).difference(x, y)
	return out
}

// say is what a series loses, and where it loses most.
func (q *Quality) say(rows []QualityRow, higher bool, span func(QualityRow) Span) string {
	first, last, previous := -1, -1, -1
	worst, from, to := 0.0, -1, -1
	for i, r := range rows {
		v := span(r).Value
		if math.IsNaN(v) {
			continue
		}
		if first < 0 {
			first = i
		}
		if previous >= 0 {
			step := v - span(rows[previous]).Value
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
		text := plural(r.Workers, "worker")
		if r.GlobalBatch > 0 {
			text += fmt.Sprintf(" (global batch %d)", r.GlobalBatch)
		}
		return text
	}
	if first == last {
		return fmt.Sprintf("%s: %s %s at %s", rows[first].Series, q.Measure, short(span(rows[first]).Value), at(rows[first]))
	}
	change := rows[last].Change
	text := fmt.Sprintf("%s: %s goes from %s at %s to %s at %s", rows[first].Series, q.Measure,
		short(span(rows[first]).Value), at(rows[first]), short(span(rows[last]).Value), at(rows[last]))
	switch {
	case math.IsNaN(change.Low):
		text += " (single runs: no interval, and seeds alone may differ so much)"
	case change.Low <= 0 && change.High >= 0:
		text += fmt.Sprintf(", a change of %s %s that the runs do not show to be real", short(change.Value), change.interval())
	default:
		text += fmt.Sprintf(", a change of %s %s", short(change.Value), change.interval())
	}
	if from >= 0 {
		text += fmt.Sprintf("; it gets worse most from %d to %s (%s to %s)", rows[from].Workers, plural(rows[to].Workers, "worker"), short(span(rows[from]).Value), short(span(rows[to]).Value))
	}
	return text
}

func (q *Quality) grid() grid[QualityRow] {
	g := grid[QualityRow]{what: "quality", rows: q.Rows, columns: []column[QualityRow]{
		{name: "series", brief: true, text: func(r QualityRow) string { return r.Series }},
		{name: "workers", brief: true, count: func(r QualityRow) int { return r.Workers }},
		{
			name: "global_batch", brief: true, optional: true, count: func(r QualityRow) int { return r.GlobalBatch },
			show: func(r QualityRow) string { return strconv.Itoa(r.GlobalBatch) }, // and "-" where unknown
		},
		{name: "runs", brief: true, count: func(r QualityRow) int { return r.Runs }},
		{name: "diverged", brief: true, optional: true, count: func(r QualityRow) int { return r.Diverged }},
	}}
	for _, c := range []struct {
		name string
		span func(QualityRow) Span
	}{
		{"iou", func(r QualityRow) Span { return r.IoU }},
		{"dice", func(r QualityRow) Span { return r.Dice }},
		{"val_accuracy", func(r QualityRow) Span { return r.ValAccuracy }},
		{"accuracy", func(r QualityRow) Span { return r.Accuracy }},
		{"test_loss", func(r QualityRow) Span { return r.TestLoss }},
		{"val_loss", func(r QualityRow) Span { return r.ValLoss }},
		{"train_loss", func(r QualityRow) Span { return r.TrainLoss }},
	} {
		g.columns = append(g.columns, spanColumns(c.name, true, c.span)...)
	}
	g.columns = append(g.columns, spanColumns("change", true, func(r QualityRow) Span { return r.Change })...)
	for _, r := range q.Rows {
		if r.Sentence != "" {
			g.remarks = append(g.remarks, r.Sentence)
		}
	}
	if q.Measure != "" {
		g.remarks = append(g.remarks, fmt.Sprintf("change: of %s, against the fewest workers of the series; %s intervals over repeated runs", q.Measure, percent(q.level)))
	}
	return g
}

// Table has a row a series and number of workers: series, workers,
// global_batch, runs, diverged, iou, dice, val_accuracy, accuracy, test_loss,
// val_loss, train_loss and change, each with _low and _high.
func (q *Quality) Table() dataframe.DataFrame { return q.grid().table() }

// String is the table for people.
func (q *Quality) String() string { return q.grid().String() }

// HTML is the table for a notebook's cell.
func (q *Quality) HTML() string { return q.grid().html() }

// Write writes the rows as "table", "csv" or "json".
func (q *Quality) Write(w io.Writer, format string) error { return q.grid().write(w, format) }
