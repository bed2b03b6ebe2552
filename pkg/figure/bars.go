package figure

import (
	"fmt"
	"image/color"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/go-gota/gota/dataframe"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"lockstep/pkg/figure/internal/element"
	"lockstep/pkg/internal/english"
	"lockstep/pkg/scaling"
)

// barWidth is what the bars of a group take of the room between groups.
const barWidth = 0.8

// barEdge is the outline of a bar, which parts it from its neighbours.
func barEdge() draw.LineStyle { return draw.LineStyle{Color: color.Black, Width: 0.5} }

// groupBox is the j-th of n bars of group i, from lo to hi.
func groupBox(i, j, n int, lo, hi float64) element.Box {
	w := barWidth / float64(n)
	x := float64(i) - barWidth/2 + float64(j)*w
	return element.Box{X0: x, Y0: lo, X1: x + w, Y1: hi}
}

// categories puts names below the bars, in as many lines as they need.
func (f *Figure) categories(names []string) {
	const axes = 70 // what the vertical axis and the margins take
	beside := 0.3 * float64(max(0, 4-len(names)))
	f.plot.X.Min, f.plot.X.Max = -0.5-beside, float64(len(names))-0.5+beside
	zoom := f.zoom(f.Width, f.natural)
	room := (f.Width/zoom - axes) / vg.Length(f.plot.X.Max-f.plot.X.Min)
	style := f.plot.X.Tick.Label
	ticks := element.NewCategoryTicks(names, room-4, style.Width)
	f.plot.X.Tick.Marker = ticks
	f.plot.X.Tick.Length = 0
	if f.options.HeightInches == 0 {
		lines := 1
		for _, label := range ticks.Lines {
			lines = max(lines, strings.Count(label, "\n")+1)
		}
		f.Height += vg.Length(lines-1) * style.FontExtents().Height * zoom
	}
}

// Trials draws the throughput of the loader alone (IO), of training on data
// that is there already (SYNTHETIC) and of both together (FULL), with their
// spread: a group of bars a run. What is lowest of the first two bounds the
// third.
func (o Options) Trials(study *scaling.Study) (*Figure, error) {
	const name = "trials"
	study, err := o.of(study, name)
	if err != nil {
		return nil, err
	}
	bottleneck, err := study.Bottleneck()
	if err != nil {
		return nil, fmt.Errorf("draw figure %s: %w", name, err)
	}
	f := o.figure(name, "Throughput of parts and whole", "", "throughput (samples/s)")
	f.table = bottleneck.Table()
	brief := f.table.Drop("sentence").Drop("run")
	f.brief = &brief
	rows, many := inOrderOfRuns(study, bottleneck.Rows), 0
	if tooMany(study) {
		rows, many = combinedTrials(rows), len(study.Series())
	}
	var names []string
	for _, r := range rows {
		label := r.Series
		if many > 0 {
			names = append(names, workersText(r.Workers))
			continue
		}
		if slices.ContainsFunc(rows, func(x scaling.BottleneckRow) bool { return x.Series == r.Series && x.Workers != r.Workers }) {
			label += " " + workersText(r.Workers)
		}
		names = append(names, label)
	}
	f.categories(names)
	values, reach := element.EmptyExtent(), element.EmptyExtent()
	for j, trial := range []struct {
		name string
		span func(scaling.BottleneckRow) scaling.Estimate
	}{
		{"IO (loader)", func(r scaling.BottleneckRow) scaling.Estimate { return r.IO }},
		{"SYNTHETIC (training)", func(r scaling.BottleneckRow) scaling.Estimate { return r.Synthetic }},
		{"FULL (both)", func(r scaling.BottleneckRow) scaling.Estimate { return r.Full }},
	} {
		bars := element.Boxes{Fill: element.Palette()[[]int{4, 5, 0}[j]], Edge: barEdge()}
		bounds := element.ErrorBars{Style: draw.LineStyle{Color: color.Black, Width: 1}, Within: barWidth / 3}
		for i, r := range rows {
			v := trial.span(r)
			if !element.Finite(v.Value) {
				continue
			}
			at := groupBox(i, j, 3, 0, v.Value)
			bars.At = append(bars.At, at)
			values.Add(v.Value)
			if lo, hi, _, ok := o.reach(v); ok {
				bounds.At = append(bounds.At, element.Interval{X: at.MiddleOf(), Lo: lo, Hi: hi})
				reach.Add(lo, hi)
			}
		}
		f.plot.Add(bars, bounds)
		f.legend = append(f.legend, element.LegendEntry{Name: trial.name, Icons: []plot.Thumbnailer{bars}})
	}
	element.SetValueAxis(&f.plot.Y, values, reach, o.LogY, false)
	if o.LogY {
		f.plot.Y.Min = values.Lo / 2
	}
	f.caption = fmt.Sprintf("Throughput of the loader alone (IO), of training on data that is there already (SYNTHETIC) and of both (FULL), n = %s; bars on top: ± the spread over the trials that the log tells.", english.Count(len(rows), "run"))
	if many > 0 {
		f.caption = "Throughput of the loader alone (IO), of training on data that is there already (SYNTHETIC) and of both (FULL)." +
			strings.Replace(manyNote(many, "bars on top", "throughput"), "Line", "Bar", 1)
	}
	f.caption += sentences(rows)
	return f.sized()
}

// inOrderOfRuns sorts rows as the logs have the runs, which is the order in
// which a study was made, such as from baseline to all optimisations.
func inOrderOfRuns(study *scaling.Study, rows []scaling.BottleneckRow) []scaling.BottleneckRow {
	at := map[string]int{}
	for i, r := range study.Runs {
		at[r.Info.Series+"\x00"+strconv.Itoa(r.Info.Workers)] = i
	}
	out := slices.Clone(rows)
	slices.SortStableFunc(out, func(a, b scaling.BottleneckRow) int {
		return at[a.Series+"\x00"+strconv.Itoa(a.Workers)] - at[b.Series+"\x00"+strconv.Itoa(b.Workers)]
	})
	return out
}

// sentences are what the rows conclude, where they are few.
func sentences(rows []scaling.BottleneckRow) string {
	const most = 3
	if len(rows) > most {
		return ""
	}
	text := ""
	for _, r := range rows {
		if r.Sentence != "" {
			text += " " + strings.TrimSuffix(r.Sentence, ".") + "."
		}
	}
	return text
}

// TrainTestTime draws the time of the whole training and that of the test as
// bars: a group for each number of workers, a bar for each series with the test
// on top. Where training takes hours and the test seconds, the bar of the test
// stands beside that of the training on a logarithmic axis, where both are seen.
func (o Options) TrainTestTime(study *scaling.Study) (*Figure, error) {
	const name = "train_test_time"
	study, err := o.of(study, name)
	if err != nil {
		return nil, err
	}
	d := timeBars{
		o: o, unit: 1, values: element.EmptyExtent(), reach: element.EmptyExtent(), least: math.Inf(1), longest: element.EmptyExtent(),
		train: func(p scaling.Point) scaling.Estimate { return p.TrainSeconds },
		test:  func(p scaling.Point) scaling.Estimate { return p.TestSeconds },
	}
	whole, many := study, 0
	if tooMany(study) {
		many = len(study.Series())
		study = combined(study, study.Points, func(p scaling.Point) int { return p.Workers })
	}
	d.measure(study)
	if len(d.sizes) == 0 {
		return nil, fmt.Errorf("draw figure %s: no run tells the time of its training%s", name, why(study, name))
	}
	title := "Training time"
	if d.tested() {
		title = "Training and test time"
	}
	f := o.figure(name, title, "workers", d.axis())
	f.table = whole.Table().Select(append([]string{"series", "workers", "runs"}, withBounds("train_seconds", "test_seconds")...))
	names := make([]string, len(d.sizes))
	for i, size := range d.sizes {
		names[i] = strconv.Itoa(size)
	}
	f.categories(names)
	for j, s := range study.Series() {
		d.add(f, study, s, j, len(study.Series()))
	}
	if d.tested() {
		f.legend = append(f.legend, element.LegendEntry{Name: "test", Icons: []plot.Thumbnailer{element.Boxes{Fill: color.White, Edge: barEdge()}}})
	}
	element.SetValueAxis(&f.plot.Y, d.values, d.reach, d.log, false)
	if d.log { // the lowest bar is seen too
		f.plot.Y.Min = d.values.Lo / 2
	}
	f.caption = d.caption(study, many) + notDrawn(study)
	return f.sized()
}

// timeBars draws the bars of TrainTestTime.
type timeBars struct {
	o             Options
	log           bool
	unit          float64
	values, reach element.Extent
	train, test   func(scaling.Point) scaling.Estimate
	intervals     bool
	sizes, n      []int
	longest       element.Extent // of training and test together, seconds
	least         float64        // time of a test, seconds; infinite without any
}

func (d *timeBars) tested() bool { return element.Finite(d.least) }

// measure finds the worker counts and how long things took.
func (d *timeBars) measure(study *scaling.Study) {
	shortest := element.EmptyExtent()
	for _, p := range study.Points {
		if !element.Finite(d.train(p).Value) {
			continue
		}
		total := d.train(p).Value
		shortest.Add(total)
		if test := d.test(p).Value; element.Finite(test) {
			total += test
			shortest.Add(test)
			d.least = min(d.least, test)
		}
		d.longest.Add(total)
		d.sizes, d.n = append(d.sizes, p.Workers), append(d.n, d.train(p).N)
	}
	slices.Sort(d.sizes)
	d.sizes = slices.Compact(d.sizes)
	const visible = 0.02 // of the highest bar
	d.log = shortest.Lo > 0 && (d.o.LogY || d.tested() && d.least < visible*d.longest.Hi)
}

// axis returns the label of the axis, and sets its unit.
func (d *timeBars) axis() string {
	if d.log {
		return "time (s), logarithmic"
	}
	name, unit := element.TimeUnit(d.longest.Hi)
	d.unit = unit
	return "time (" + name + ")"
}

func (d *timeBars) add(f *Figure, study *scaling.Study, series string, j, n int) {
	bars := element.Boxes{Fill: element.Palette()[j%len(element.Palette())], Edge: barEdge()}
	if j >= len(element.Palette()) { // the colours come round: the next ones are paler
		bars.Fill = element.WithAlpha(bars.Fill, 120)
	}
	beside := d.log && d.tested() // a bar of the test stands beside each other one
	if beside {
		j, n = 2*j, 2*n
	}
	tests := element.Boxes{Fill: color.White, Edge: barEdge()}
	bounds := element.ErrorBars{Style: draw.LineStyle{Color: color.Black, Width: 1}, Within: barWidth / float64(n)}
	for _, p := range study.Points {
		v := d.train(p)
		if p.Series != series || !element.Finite(v.Value) {
			continue
		}
		i := slices.Index(d.sizes, p.Workers)
		at := groupBox(i, j, n, 0, v.Value/d.unit)
		bars.At = append(bars.At, at)
		d.values.Add(at.Y1)
		if t := d.test(p); element.Finite(t.Value) {
			on := groupBox(i, j, n, at.Y1, at.Y1+t.Value/d.unit)
			if beside {
				on = groupBox(i, j+1, n, 0, t.Value/d.unit)
			}
			tests.At = append(tests.At, on)
			d.values.Add(on.Y1)
		}
		if lo, hi, confident, ok := d.o.reach(v); ok {
			bounds.At = append(bounds.At, element.Interval{X: at.MiddleOf(), Lo: lo / d.unit, Hi: hi / d.unit})
			d.reach.AddOn(d.log, lo/d.unit, hi/d.unit)
			d.intervals = d.intervals || confident
		}
	}
	f.plot.Add(bars, tests, bounds)
	f.legend = append(f.legend, element.LegendEntry{Name: series, Icons: []plot.Thumbnailer{bars}})
}

// caption says what is drawn, and on what axis.
func (d *timeBars) caption(study *scaling.Study, many int) string {
	c := "Time of the whole training"
	switch {
	case d.tested() && d.log:
		c += ", and beside it (white) of the test, on a logarithmic axis"
	case d.tested():
		c += ", and on top of it (white) of the test"
	case d.log:
		c += ", on a logarithmic axis"
	}
	c += "."
	if many > 0 {
		c += strings.Replace(manyNote(many, "bars on top", "time of training"), "Line", "Bar", 1)
	} else {
		c += " " + runsAPoint(d.n)
	}
	if d.intervals {
		c += " Bars on top: " + strings.TrimPrefix(study.IntervalNote(), "intervals: ") + "."
	}
	if !d.tested() {
		c += " The logs tell no time of the test."
	}
	return c
}

// TimeUse draws where the time of a step goes as stacked bars: data, compute,
// communication that nothing hides, idle; and as a narrow bar inside compute
// the communication that it hides.
func (o Options) TimeUse(study *scaling.Study) (*Figure, error) {
	const name = "time_use"
	study, err := o.of(study, name)
	if err != nil {
		return nil, err
	}
	use, many := study.TimeUse(), 0
	if len(use.Rows) == 0 {
		text := "no run has step spans (steps-<rank>.jsonl of a run folder) or a trace"
		if len(use.Problems) > 0 {
			text += "; " + use.Problems[0].String()
		}
		return nil, fmt.Errorf("draw figure %s: %s", name, text)
	}
	longest := element.EmptyExtent()
	rows, axis := use.Rows, "series and workers"
	if tooMany(study) {
		rows, axis, many = combinedUse(rows), "workers", len(study.Series())
	}
	var names []string
	for _, r := range rows {
		longest.Add(r.Step.Value)
		names = append(names, strings.TrimSpace(fmt.Sprintf("%s %d", r.Series, r.Workers)))
	}
	unitName, unit := element.TimeUnit(longest.Hi)
	f := o.figure(name, "Where the time of a step goes", axis, "time of a step ("+unitName+")")
	f.table = use.Table()
	f.brief = briefUse(f.table)
	f.categories(names)
	parts := []struct {
		name string
		fill color.Color
		span func(scaling.TimeUseRow) scaling.Estimate
	}{
		{"data", kindColor("data"), func(r scaling.TimeUseRow) scaling.Estimate { return r.Data }},
		{"compute", kindColor("compute"), func(r scaling.TimeUseRow) scaling.Estimate { return r.Compute }},
		{"exposed communication", kindColor("exposed"), func(r scaling.TimeUseRow) scaling.Estimate { return r.Exposed }},
		{"idle", kindColor("idle"), func(r scaling.TimeUseRow) scaling.Estimate { return r.Idle }},
	}
	bases := make([]float64, len(rows))
	values := element.EmptyExtent()
	hidden := element.Boxes{Fill: kindColor("hidden"), Edge: barEdge()}
	for k, part := range parts {
		bars := element.Boxes{Fill: part.fill, Edge: barEdge()}
		for i, r := range rows {
			v := part.span(r).Value / unit
			if !(v > 0) {
				continue
			}
			at := groupBox(i, 0, 1, bases[i], bases[i]+v)
			bars.At = append(bars.At, at)
			if h := r.Hidden.Value / unit; k == 1 && h > 0 {
				hidden.At = append(hidden.At, element.Box{X0: at.X1 - 0.22, Y0: at.Y1 - min(h, v), X1: at.X1 - 0.06, Y1: at.Y1})
			}
			bases[i] += v
			values.Add(bases[i])
		}
		if len(bars.At) > 0 {
			f.plot.Add(bars)
			f.legend = append(f.legend, element.LegendEntry{Name: part.name, Icons: []plot.Thumbnailer{bars}})
		}
	}
	if len(hidden.At) > 0 {
		f.plot.Add(hidden)
		f.legend = append(f.legend, element.LegendEntry{Name: "communication hidden by compute", Icons: []plot.Thumbnailer{hidden}})
	}
	values.Add(0)
	element.SetValueAxis(&f.plot.Y, values, element.EmptyExtent(), false, false)
	f.caption = useCaption(study, use)
	if many > 0 {
		f.caption += fmt.Sprintf(" Each bar: the mean over %d series.", many) + howToChoose()
	}
	return f.sized()
}

// briefUse leaves the values of a wide table.
func briefUse(table dataframe.DataFrame) *dataframe.DataFrame {
	var names []string
	for _, n := range table.Names() {
		if !strings.HasSuffix(n, "_low") && !strings.HasSuffix(n, "_high") && !strings.HasSuffix(n, "_min") && !strings.HasSuffix(n, "_max") {
			names = append(names, n)
		}
	}
	brief := table.Select(names)
	return &brief
}

func useCaption(study *scaling.Study, use *scaling.TimeUse) string {
	steps, runs := 0, 0
	var sources []string
	for _, r := range use.Rows {
		steps, runs = steps+r.Steps, runs+r.Runs
		if !slices.Contains(sources, r.Source) {
			sources = append(sources, r.Source)
		}
	}
	return fmt.Sprintf("Where the time of a step goes, mean over steps and ranks, from %s; n = %s, %s.%s",
		strings.Join(sources, " and "), english.Count(runs, "run"), english.Count(steps, "step"), notDrawn(study))
}
