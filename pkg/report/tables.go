package report

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"lockstep/pkg/runs"
	"lockstep/pkg/scaling"
)

// measure is a column of measured values.
type measure struct {
	metric, title string
	span          func(scaling.Point) scaling.Estimate
	show          func(float64) string
	headline      bool // is a column of the headlines
	linked        bool // is explained in the results too, for every worker count
}

// measures returns all columns of measured values, in their order.
func measures() []measure {
	return []measure{
		{"epoch_seconds", "epoch time in s", func(p scaling.Point) scaling.Estimate { return p.EpochSeconds }, number, true, false},
		{"wall_seconds", "whole job in s", func(p scaling.Point) scaling.Estimate { return p.WallSeconds }, number, true, false},
		{"throughput", "samples/s", func(p scaling.Point) scaling.Estimate { return p.Throughput }, number, true, false},
		{"speedup", "speed-up", func(p scaling.Point) scaling.Estimate { return p.Speedup }, number, true, true},
		{"efficiency", "efficiency", func(p scaling.Point) scaling.Estimate { return p.Efficiency }, percent, true, false},
		{"iou", "IoU", func(p scaling.Point) scaling.Estimate { return p.IoU }, number, true, false},
		{"dice", "Dice", func(p scaling.Point) scaling.Estimate { return p.Dice }, number, false, false},
		{"accuracy", "accuracy", func(p scaling.Point) scaling.Estimate { return p.Accuracy }, number, true, false},
		{"val_accuracy", "validation accuracy", func(p scaling.Point) scaling.Estimate { return p.ValAccuracy }, number, true, false},
		{"train_loss", "training loss", func(p scaling.Point) scaling.Estimate { return p.TrainLoss }, number, false, false},
		{"val_loss", "validation loss", func(p scaling.Point) scaling.Estimate { return p.ValLoss }, number, true, false},
	}
}

// measuredColumns returns the columns that have a value in any of the points, or only
// those of the headlines.
func measuredColumns(points []scaling.Point, headline bool) []measure {
	return slices.DeleteFunc(measures(), func(m measure) bool {
		return headline && !m.headline || !slices.ContainsFunc(points, func(p scaling.Point) bool { return known(m.span(p).Value) })
	})
}

// largestPoints returns, for each series, the point with the most workers that has runs.
func (b *builder) largestPoints() []scaling.Point {
	var out []scaling.Point
	for _, p := range b.study.Points {
		if n := len(out); n > 0 && out[n-1].Series == p.Series {
			if p.Runs > 0 {
				out[n-1] = p
			}
			continue
		}
		out = append(out, p)
	}
	return out
}

// maxSettings limits the headlines' columns for settings that differ between the series;
// the table of settings has all.
const maxSettings = 3

// headlines returns each series at its largest worker count. Every number links to its
// explanation.
func (b *builder) headlines() table {
	points := b.largestPoints()
	columns := measuredColumns(points, true)
	if len(columns) == 0 {
		return table{}
	}
	// The speed-up of the baseline is always 1.
	if !slices.ContainsFunc(points, func(p scaling.Point) bool { return p.Size > p.Baseline && p.Baseline > 0 }) {
		columns = slices.DeleteFunc(columns, func(m measure) bool { return m.metric == "speedup" || m.metric == "efficiency" })
	}
	t := table{Head: []string{"series", b.unit() + "s"}}
	settings := b.settingRows().Rows
	settings = settings[:min(len(settings), maxSettings)]
	for _, s := range settings {
		t.Head = append(t.Head, s.Setting)
	}
	for _, m := range columns {
		t.Head = append(t.Head, m.title)
	}
	t.More = moreNote(len(points), maxSeries, "series", "lockstep scaling")
	names := b.study.Series()
	for _, p := range points[:min(len(points), maxSeries)] {
		row := []cell{{Text: p.Series}, {Text: strconv.Itoa(p.Size), Number: true}}
		at := slices.Index(names, p.Series)
		for _, s := range settings {
			row = append(row, cell{Text: s.Values[at], Number: true})
		}
		for _, m := range columns {
			row = append(row, b.number(p, m, true))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// number returns a cell with the value of a measure, which links to its explanation if
// link is set.
func (b *builder) number(p scaling.Point, m measure, link bool) cell {
	v := m.span(p)
	c := cell{Text: m.show(v.Value), Number: true}
	if !known(v.Value) || !link {
		return c
	}
	if id := b.explain(p.Series, m.metric, p.Workers); id != "" {
		c.Link = "#" + id
	}
	return c
}

// results returns a table of all points of the study.
func (b *builder) results() table {
	points := b.study.Points
	columns := measuredColumns(points, false)
	column := func(title string, of func(scaling.Point) int) func(scaling.Point) (string, int) {
		return func(p scaling.Point) (string, int) { return title, of(p) }
	}
	counts := []func(scaling.Point) (string, int){
		column("workers", func(p scaling.Point) int { return p.Workers }),
		column("nodes", func(p scaling.Point) int { return p.Nodes }),
		column("runs", func(p scaling.Point) int { return p.Runs }),
		column("failed", func(p scaling.Point) int { return p.Failed }),
		column("diverged", func(p scaling.Point) int { return p.Diverged }),
		column("batch per worker", func(p scaling.Point) int { return p.BatchPerWorker }),
	}
	counts = slices.DeleteFunc(counts, func(of func(scaling.Point) (string, int)) bool {
		return !slices.ContainsFunc(points, func(p scaling.Point) bool { _, n := of(p); return n > 0 })
	})
	interval := slices.ContainsFunc(points, func(p scaling.Point) bool { return known(p.Speedup.Low) && p.Size != p.Baseline })
	t := table{Head: []string{"series"}}
	for _, of := range counts {
		title, _ := of(scaling.Point{})
		t.Head = append(t.Head, title)
	}
	for _, m := range columns {
		t.Head = append(t.Head, m.title)
		if m.metric == "speedup" && interval {
			t.Head = append(t.Head, "interval")
		}
	}
	t.More = moreNote(len(points), maxPoints, "rows", "lockstep scaling")
	for _, p := range points[:min(len(points), maxPoints)] {
		row := []cell{{Text: p.Series}}
		for _, of := range counts {
			text := "–"
			if _, n := of(p); n > 0 {
				text = strconv.Itoa(n)
			}
			row = append(row, cell{Text: text, Number: true})
		}
		for _, m := range columns {
			row = append(row, b.number(p, m, m.linked && p.Size != p.Baseline && len(b.sections) < maxExplained))
			if m.metric == "speedup" && interval {
				row = append(row, cell{Text: speedupInterval(p), Number: true})
			}
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// speedupInterval returns the text of a speed-up's interval.
func speedupInterval(p scaling.Point) string {
	if p.Size == p.Baseline || !known(p.Speedup.Low) {
		return "–"
	}
	return number(p.Speedup.Low) + " to " + number(p.Speedup.High)
}

// unit returns what the study's rule counts: workers or nodes.
func (b *builder) unit() string {
	if b.study.Rule.Per == scaling.PerNode {
		return scaling.PerNode
	}
	return scaling.PerWorker
}

// runs returns a table of all runs, including those that do not count.
func (b *builder) runs(all []runs.Run) table {
	t := table{Head: []string{"run", "kind", "series", "workers", "seed", "state", "batch per worker", "epochs", "median epoch in s", "last loss", "best IoU"}}
	used := make([]bool, len(t.Head))
	for _, r := range all {
		var seconds []float64
		best, loss := math.NaN(), math.NaN()
		for _, e := range r.Epochs {
			if e.Seconds > 0 && known(e.Seconds) {
				seconds = append(seconds, e.Seconds)
			}
			if known(e.IoU) && !(e.IoU <= best) {
				best = e.IoU
			}
			switch {
			case !math.IsNaN(e.ValLoss):
				loss = e.ValLoss
			case !math.IsNaN(e.TrainLoss):
				loss = e.TrainLoss
			}
		}
		row := []cell{
			{Text: b.shortenPaths(r.Dir)},
			{Text: r.Kind},
			{Text: r.Info.Series},
			count(r.Info.Workers), count(int(r.Info.Seed)),
			{Text: state(r)},
			count(r.Info.BatchPerWorker), count(len(r.Epochs)),
			{Text: number(median(seconds)), Number: true},
			{Text: number(loss), Number: true},
			{Text: number(best), Number: true},
		}
		for i, c := range row {
			used[i] = used[i] || c.Text != "" && c.Text != "–"
		}
		t.Rows = append(t.Rows, row)
	}
	return t.only(used)
}

// only returns the table with the used columns.
func (t table) only(used []bool) table {
	out := table{}
	for i, h := range t.Head {
		if used[i] {
			out.Head = append(out.Head, h)
		}
	}
	for _, row := range t.Rows {
		var kept []cell
		for i, c := range row {
			if used[i] {
				kept = append(kept, c)
			}
		}
		out.Rows = append(out.Rows, kept)
	}
	return out
}

// count returns a cell with n, or a dash if n is 0, which means unknown.
func count(n int) cell {
	if n == 0 {
		return cell{Text: "–", Number: true}
	}
	return cell{Text: strconv.Itoa(n), Number: true}
}

// state returns a run's status, with its error if it has one.
func state(r runs.Run) string {
	if r.Info.Error == "" {
		return r.Info.Status
	}
	return r.Info.Status + ": " + r.Info.Error
}

// median returns the median of v, NaN if v is empty.
func median(v []float64) float64 {
	if len(v) == 0 {
		return math.NaN()
	}
	v = slices.Sorted(slices.Values(v))
	if n := len(v); n%2 == 0 {
		return (v[n/2-1] + v[n/2]) / 2
	}
	return v[len(v)/2]
}

// kinds returns a table that summarizes the files by kind.
func (b *builder) kinds() table {
	type sum struct{ files, runs, records, lines, used, problems int }
	sums := map[string]*sum{}
	var names []string
	for _, f := range b.study.Reports {
		kind := f.Kind
		if f.Skipped != "" || kind == "" {
			kind = "not read"
		}
		if sums[kind] == nil {
			sums[kind] = &sum{}
			names = append(names, kind)
		}
		s := sums[kind]
		s.files, s.runs, s.records = s.files+1, s.runs+f.Runs, s.records+int(f.Records)
		s.lines, s.used, s.problems = s.lines+int(f.Lines), s.used+int(f.LinesUsed), s.problems+len(f.Unused)+f.UnusedMore
	}
	if len(names) == 0 {
		return table{}
	}
	slices.SortFunc(names, func(x, y string) int {
		if c := strings.Compare(fmt.Sprint(x == "not read"), fmt.Sprint(y == "not read")); c != 0 {
			return c
		}
		return strings.Compare(x, y)
	})
	t := table{Head: []string{"kind", "files", "runs", "records", "lines", "lines used", "could not be used"}}
	for _, n := range names {
		s := sums[n]
		row := []cell{{Text: n}}
		for _, v := range []int{s.files, s.runs, s.records, s.lines, s.used, s.problems} {
			row = append(row, cell{Text: strconv.Itoa(v), Number: true})
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}
