package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"lockstep/pkg/runs"
	"lockstep/pkg/scaling"
)

// metricColumn is a column with the values of one metric.
type metricColumn struct {
	metric, title string
	span          func(scaling.Point) scaling.Estimate
	show          func(float64) string
	headline      bool // whether the table of headlines has the column
	linked        bool // whether every value in the table of results links to its explanation
}

// metricColumns returns the columns of all metrics, in the order of the tables. rateUnit is the unit of
// the throughput.
func metricColumns(rateUnit string) []metricColumn {
	return []metricColumn{
		{"epoch_seconds", "epoch time in s", func(p scaling.Point) scaling.Estimate { return p.EpochSeconds }, formatNumber, true, false},
		{"wall_seconds", "whole job in s", func(p scaling.Point) scaling.Estimate { return p.WallSeconds }, formatNumber, true, false},
		{"throughput", rateUnit, func(p scaling.Point) scaling.Estimate { return p.Throughput }, formatNumber, true, false},
		{"speedup", "speed-up", func(p scaling.Point) scaling.Estimate { return p.Speedup }, formatNumber, true, true},
		{"efficiency", "efficiency", func(p scaling.Point) scaling.Estimate { return p.Efficiency }, formatPercent, true, false},
		{"iou", "IoU", func(p scaling.Point) scaling.Estimate { return p.IoU }, formatNumber, true, false},
		{"dice", "Dice", func(p scaling.Point) scaling.Estimate { return p.Dice }, formatNumber, false, false},
		{"accuracy", "accuracy", func(p scaling.Point) scaling.Estimate { return p.Accuracy }, formatNumber, true, false},
		{"val_accuracy", "validation accuracy", func(p scaling.Point) scaling.Estimate { return p.ValAccuracy }, formatNumber, true, false},
		{"train_loss", "training loss", func(p scaling.Point) scaling.Estimate { return p.TrainLoss }, formatNumber, false, false},
		{"val_loss", "validation loss", func(p scaling.Point) scaling.Estimate { return p.ValLoss }, formatNumber, true, false},
	}
}

// columnsWithValues returns the columns that have a value for any of the points. If headline is
// true, it returns only columns of the headline table.
func (b *pageBuilder) columnsWithValues(points []scaling.Point, headline bool) []metricColumn {
	columns := metricColumns(b.study.ThroughputUnit())
	if b.study.HasClasses() {
		i := slices.IndexFunc(columns, func(m metricColumn) bool { return m.metric == "iou" })
		columns[i].title = "mean IoU"
	}
	return slices.DeleteFunc(columns, func(m metricColumn) bool {
		return headline && !m.headline || !slices.ContainsFunc(points, func(p scaling.Point) bool { return isMeasured(m.span(p).Value) })
	})
}

// largestPointPerSeries returns for each series the point with the most workers, among the points
// that have runs.
func (b *pageBuilder) largestPointPerSeries() []scaling.Point {
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

// maxHeadlineSettings limits the settings in the headline table. The table of settings shows all
// settings that differ.
const maxHeadlineSettings = 3

// headlineTable returns one row per series, with the results at its largest worker count. Every
// number links to its explanation.
func (b *pageBuilder) headlineTable() pageTable {
	points := b.largestPointPerSeries()
	columns := b.columnsWithValues(points, true)
	if len(columns) == 0 {
		return pageTable{}
	}
	// The speed-up of the baseline is always 1.
	if !slices.ContainsFunc(points, func(p scaling.Point) bool { return p.Size > p.Baseline && p.Baseline > 0 }) {
		columns = slices.DeleteFunc(columns, func(m metricColumn) bool { return m.metric == "speedup" || m.metric == "efficiency" })
	}
	t := pageTable{Head: []string{"series", b.sizeUnit() + "s"}}
	settings := b.differingSettings().Rows
	settings = settings[:min(len(settings), maxHeadlineSettings)]
	for _, s := range settings {
		t.Head = append(t.Head, s.Setting)
	}
	for _, m := range columns {
		t.Head = append(t.Head, m.title)
	}
	t.More = describeOmitted(len(points), maxSeries, "series", "lockstep scaling")
	names := b.study.Series()
	for _, p := range points[:min(len(points), maxSeries)] {
		row := []tableCell{{Text: p.Series}, {Text: strconv.Itoa(p.Size), Number: true}}
		at := slices.Index(names, p.Series)
		for _, s := range settings {
			row = append(row, tableCell{Text: s.Values[at], Number: true})
		}
		for _, m := range columns {
			row = append(row, b.newMetricCell(p, m, true))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// newMetricCell returns the cell of point p in column m. If link is true, the number links to its
// explanation.
func (b *pageBuilder) newMetricCell(p scaling.Point, m metricColumn, link bool) tableCell {
	v := m.span(p)
	c := tableCell{Text: m.show(v.Value), Number: true}
	if m.metric == "throughput" && p.ThroughputUnit != m.title && isMeasured(v.Value) { // the series have different units
		c.Text += " " + p.ThroughputUnit
	}
	if !isMeasured(v.Value) || !link {
		return c
	}
	if id := b.addExplanation(p.Series, m.metric, p.Workers); id != "" {
		c.Link = "#" + id
	}
	return c
}

type pointCountColumn struct {
	title string
	of    func(scaling.Point) int
}

// differingCountColumns returns the columns of the counts that differ between the points. same describes the
// counts that are equal at all points.
func differingCountColumns(points []scaling.Point) (columns []pointCountColumn, same string) {
	var equal []string
	for _, c := range []pointCountColumn{
		{"workers", func(p scaling.Point) int { return p.Workers }},
		{"nodes", func(p scaling.Point) int { return p.Nodes }},
		{"runs", func(p scaling.Point) int { return p.Runs }},
		{"failed", func(p scaling.Point) int { return p.Failed }},
		{"diverged", func(p scaling.Point) int { return p.Diverged }},
		{"disturbed", func(p scaling.Point) int { return p.Disturbed }},
		{"shared cores", func(p scaling.Point) int { return p.SharedCores }},
		{"batch per worker", func(p scaling.Point) int { return p.BatchPerWorker }},
	} {
		first := c.of(points[0])
		switch {
		case c.title == "workers", slices.ContainsFunc(points, func(p scaling.Point) bool { return c.of(p) != first }):
			columns = append(columns, c)
		case first > 0:
			equal = append(equal, fmt.Sprintf("%s %d", c.title, first))
		}
	}
	if len(equal) > 0 {
		same = "In all rows: " + strings.Join(equal, ", ") + "."
	}
	return columns, same
}

// resultTable returns the table of results, with one row per series and worker count.
func (b *pageBuilder) resultTable() pageTable {
	points := b.study.Points
	if len(points) == 0 {
		return pageTable{}
	}
	columns := b.columnsWithValues(points, false)
	counts, same := differingCountColumns(points)
	interval := slices.ContainsFunc(points, func(p scaling.Point) bool { return isMeasured(p.Speedup.Low) && p.Size != p.Baseline })
	t := pageTable{Head: []string{"series"}}
	for _, c := range counts {
		t.Head = append(t.Head, c.title)
	}
	for _, m := range columns {
		t.Head = append(t.Head, m.title)
		if m.metric == "speedup" && interval {
			t.Head = append(t.Head, "interval")
		}
	}
	t.More = strings.TrimSpace(same + " " + describeOmitted(len(points), maxPoints, "rows", "lockstep scaling"))
	for _, p := range points[:min(len(points), maxPoints)] {
		row := []tableCell{{Text: p.Series}}
		for _, c := range counts {
			row = append(row, newCountCell(c.of(p)))
		}
		for _, m := range columns {
			row = append(row, b.newMetricCell(p, m, m.linked && p.Size != p.Baseline && len(b.sections) < maxExplanations))
			if m.metric == "speedup" && interval {
				row = append(row, tableCell{Text: speedupInterval(p), Number: true})
			}
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// speedupInterval formats the confidence interval of a speed-up. It returns "–" if the interval is
// unknown, and for the baseline, whose speed-up is 1 by definition.
func speedupInterval(p scaling.Point) string {
	if p.Size == p.Baseline || !isMeasured(p.Speedup.Low) {
		return "–"
	}
	return formatNumber(p.Speedup.Low) + " to " + formatNumber(p.Speedup.High)
}

// sizeUnit returns the unit of sizes in the study's rule: scaling.PerWorker or scaling.PerNode.
func (b *pageBuilder) sizeUnit() string {
	return cmp.Or(b.study.Rule.Per, scaling.PerWorker)
}

// runTable lists all runs, including those that do not count.
func (b *pageBuilder) runTable(all []runs.Run) pageTable {
	t := pageTable{Head: []string{"run", "kind", "series", "workers", "seed", "state", "batch per worker", "epochs", "median epoch in s", "last loss", "best IoU"}}
	used := make([]bool, len(t.Head))
	for _, r := range all {
		var seconds []float64
		best, loss := math.NaN(), math.NaN()
		for _, e := range r.Epochs {
			if e.Seconds > 0 && isMeasured(e.Seconds) {
				seconds = append(seconds, e.Seconds)
			}
			if isMeasured(e.IoU) && !(e.IoU <= best) {
				best = e.IoU
			}
			switch {
			case !math.IsNaN(e.ValLoss):
				loss = e.ValLoss
			case !math.IsNaN(e.TrainLoss):
				loss = e.TrainLoss
			}
		}
		row := []tableCell{
			{Text: b.shortenPaths(r.Dir)},
			{Text: r.Kind},
			{Text: r.Info.Series},
			newCountCell(r.Info.Workers), newCountCell(int(r.Info.Seed)),
			{Text: describeStatus(r)},
			newCountCell(r.Info.BatchPerWorker), newCountCell(len(r.Epochs)),
			{Text: formatNumber(median(seconds)), Number: true},
			{Text: formatNumber(loss), Number: true},
			{Text: formatNumber(best), Number: true},
		}
		for i, c := range row {
			used[i] = used[i] || c.Text != "" && c.Text != "–"
		}
		t.Rows = append(t.Rows, row)
	}
	return t.removeUnusedColumns(used)
}

func (t pageTable) removeUnusedColumns(used []bool) pageTable {
	for i, isUsed := range slices.Backward(used) {
		if isUsed {
			continue
		}
		t.Head = slices.Delete(t.Head, i, i+1)
		for k, row := range t.Rows {
			t.Rows[k] = slices.Delete(row, i, i+1)
		}
	}
	return t
}

// newCountCell returns a cell with n, or a dash if n is 0, which means unknown.
func newCountCell(n int) tableCell {
	if n == 0 {
		return tableCell{Text: "–", Number: true}
	}
	return tableCell{Text: strconv.Itoa(n), Number: true}
}

func describeStatus(r runs.Run) string {
	if r.Info.Error == "" {
		return r.Info.Status
	}
	return r.Info.Status + ": " + r.Info.Error
}

// median returns the median of v, or NaN if v is empty.
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

// fileKindTable returns one row per kind of file, with the numbers of files, runs, records, lines
// and problems.
func (b *pageBuilder) fileKindTable() pageTable {
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
		return pageTable{}
	}
	slices.SortFunc(names, func(x, y string) int {
		return cmp.Or(strings.Compare(fmt.Sprint(x == "not read"), fmt.Sprint(y == "not read")), strings.Compare(x, y))
	})
	t := pageTable{Head: []string{"kind", "files", "runs", "records", "lines", "lines used", "could not be used"}}
	for _, n := range names {
		s := sums[n]
		row := []tableCell{{Text: n}}
		for _, v := range []int{s.files, s.runs, s.records, s.lines, s.used, s.problems} {
			row = append(row, tableCell{Text: strconv.Itoa(v), Number: true})
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}
