package figure

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"lockstep/pkg/scaling"
)

// quantity is what a figure over the worker count draws.
type quantity struct {
	name, title, axis string
	what              string // in the caption
	columns           []string
	span              func(scaling.Point) scaling.Span
}

// EpochTime draws the seconds of training per epoch against the workers.
func EpochTime(study *scaling.Study) (*Figure, error) {
	b, err := overWorkers(study, quantity{
		name: "epoch_time", title: "Time per epoch", axis: "time per epoch (s)", what: "Training time per epoch against the number of workers",
		columns: []string{"epoch_seconds", "epoch_seconds_min", "epoch_seconds_max"},
		span:    func(p scaling.Point) scaling.Span { return p.EpochSeconds },
	})
	if err != nil {
		return nil, err
	}
	return b.finish(0, math.NaN())
}

// Throughput draws the samples per second of all workers together.
func Throughput(study *scaling.Study) (*Figure, error) {
	b, err := overWorkers(study, quantity{
		name: "throughput", title: "Throughput", axis: "throughput (samples/s)", what: "Samples per second of all workers together against their number",
		columns: []string{"throughput", "throughput_min", "throughput_max"},
		span:    func(p scaling.Point) scaling.Span { return p.Throughput },
	})
	if err != nil {
		return nil, err
	}
	return b.finish(0, math.NaN())
}

// Speedup draws the speed-up over the fewest workers of each series, with the
// ideal line N/baseline.
func Speedup(study *scaling.Study) (*Figure, error) {
	b, err := overWorkers(study, quantity{
		name: "speedup", title: "Speed-up", axis: "speed-up", what: "Speed-up over the fewest workers of the series",
		columns: []string{"speedup", "speedup_min", "speedup_max", "efficiency"},
		span:    func(p scaling.Point) scaling.Span { return p.Speedup },
	})
	if err != nil {
		return nil, err
	}
	if err := b.ideal(); err != nil {
		return nil, err
	}
	return b.finish(0, math.NaN())
}

// IoU draws the intersection over union on the test set after training, and
// where they are known that of the better constant predictor (all-0 or all-1)
// and that of the network before its first step.
func IoU(study *scaling.Study) (*Figure, error) {
	b, err := overWorkers(study, quantity{
		name: "iou", title: "IoU on the test set", axis: "IoU", what: "Intersection over union on the test set after training",
		columns: []string{"iou", "iou_min", "iou_max", "iou_constant", "iou_untrained"},
		span:    func(p scaling.Point) scaling.Span { return p.IoU },
	})
	if err != nil {
		return nil, err
	}
	if err := b.references(); err != nil {
		return nil, err
	}
	return b.finish(0, 1)
}

// builder makes a figure over the worker count.
type builder struct {
	*Figure
	study   *scaling.Study
	q       quantity
	workers []int
	missing []string // points without a value, for the caption
}

// overWorkers draws a quantity's points, a line for each series.
func overWorkers(study *scaling.Study, q quantity) (*builder, error) {
	if err := validate(study, q.name); err != nil {
		return nil, err
	}
	columns := append([]string{"series", "workers", "runs"}, q.columns...)
	b := &builder{study: study, q: q, Figure: &Figure{
		Width: width, Height: height, name: q.name,
		plot:  newPlot(titleOf(study, q.title), "workers", q.axis),
		table: study.Table().Select(columns),
	}}
	if b.table.Err != nil {
		return nil, fmt.Errorf("draw figure %s: %w", q.name, b.table.Err)
	}
	drawn := 0
	for i, series := range study.Series() {
		n, err := b.line(series, lookOf(i))
		if err != nil {
			return nil, fmt.Errorf("draw figure %s: %w", q.name, err)
		}
		drawn += n
	}
	if drawn == 0 {
		return nil, fmt.Errorf("draw figure %s: no run has a value for it%s", q.name, why(study, q.name))
	}
	slices.Sort(b.workers)
	b.workers = slices.Compact(b.workers)
	return b, nil
}

// why says what a quantity without any value lacks.
func why(study *scaling.Study, name string) string {
	if name == "throughput" {
		return " (the logs tell no sample counts); give them with Rule.SamplesPerEpoch"
	}
	if len(study.Problems) > 0 {
		return "; see the study's problems, the first is: " + study.Problems[0].Reason
	}
	return ""
}

// line draws a series and returns how many points it has.
func (b *builder) line(series string, l look) (int, error) {
	var xy plotter.XYs
	var spread errorBars
	for _, p := range b.study.Points {
		if p.Series != series {
			continue
		}
		b.workers = append(b.workers, p.Workers)
		v := b.q.span(p)
		if !finite(v.Value) {
			b.missing = append(b.missing, fmt.Sprintf("%s at %d", series, p.Workers))
			continue
		}
		at := plotter.XY{X: float64(p.Workers), Y: v.Value}
		xy = append(xy, at)
		if v.Max > v.Min && finite(v.Max) && finite(v.Min) {
			spread.XYs = append(spread.XYs, at)
			spread.YErrors = append(spread.YErrors, struct{ Low, High float64 }{v.Value - v.Min, v.Max - v.Value})
		}
	}
	if len(xy) == 0 {
		return 0, nil
	}
	if len(spread.XYs) > 0 {
		bars, err := plotter.NewYErrorBars(spread)
		if err != nil {
			return 0, err
		}
		bars.LineStyle = draw.LineStyle{Color: l.line.Color, Width: 1}
		b.plot.Add(bars)
	}
	line, points, err := plotter.NewLinePoints(xy)
	if err != nil {
		return 0, err
	}
	line.LineStyle, points.GlyphStyle = l.line, l.glyph
	b.plot.Add(line, points)
	b.legend = append(b.legend, entry{name: series, icons: []plot.Thumbnailer{key(l)}})
	return len(xy), nil
}

// errorBars is what plotter.NewYErrorBars takes.
type errorBars struct {
	plotter.XYs
	plotter.YErrors
}

// ideal draws N/B for each baseline B, up to the most workers.
func (b *builder) ideal() error {
	most := b.workers[len(b.workers)-1]
	style := draw.LineStyle{Color: grey(), Width: 1.2, Dashes: []vg.Length{3, 3}}
	var bases []int
	for _, series := range b.study.Series() {
		for _, p := range b.study.Points { // the first with a speed-up is the baseline
			if p.Series == series && finite(p.Speedup.Value) {
				bases = append(bases, p.Workers)
				break
			}
		}
	}
	slices.Sort(bases)
	named := false
	for _, base := range slices.Compact(bases) {
		if base == most {
			continue
		}
		line, err := plotter.NewLine(plotter.XYs{{X: float64(base), Y: 1}, {X: float64(most), Y: float64(most) / float64(base)}})
		if err != nil {
			return fmt.Errorf("draw ideal speed-up: %w", err)
		}
		line.LineStyle = style
		b.plot.Add(line)
		if !named {
			b.legend = append(b.legend, entry{name: "ideal", icons: []plot.Thumbnailer{key{line: style}}})
			named = true
		}
	}
	return nil
}

// references draws what needs no training: the constant predictor as a line
// across, the untrained network as rings.
func (b *builder) references() error {
	var constants []float64
	untrained := false
	for i, series := range b.study.Series() {
		var xy plotter.XYs
		for _, p := range b.study.Points {
			if p.Series != series {
				continue
			}
			if v := p.IoUConstant.Value; finite(v) {
				constants = append(constants, v)
			}
			if v := p.IoUUntrained.Value; finite(v) {
				xy = append(xy, plotter.XY{X: float64(p.Workers), Y: v})
			}
		}
		if len(xy) == 0 {
			continue
		}
		rings, err := plotter.NewScatter(xy)
		if err != nil {
			return fmt.Errorf("draw untrained network: %w", err)
		}
		rings.GlyphStyle = draw.GlyphStyle{Color: lookOf(i).line.Color, Radius: 4.4, Shape: ring{}}
		b.plot.Add(rings)
		untrained = true
	}
	slices.Sort(constants)
	constants = slices.CompactFunc(constants, func(x, y float64) bool { return math.Abs(x-y) < 1e-6 })
	style := draw.LineStyle{Color: grey(), Width: 1.2, Dashes: []vg.Length{3, 3}}
	lo, hi := b.xRange()
	for i, v := range constants {
		line, err := plotter.NewLine(plotter.XYs{{X: lo, Y: v}, {X: hi, Y: v}})
		if err != nil {
			return fmt.Errorf("draw constant predictor: %w", err)
		}
		line.LineStyle = style
		b.plot.Add(line)
		if i == 0 {
			b.legend = append(b.legend, entry{name: "constant predictor", icons: []plot.Thumbnailer{key{line: style}}})
		}
	}
	if untrained {
		b.legend = append(b.legend, entry{name: "untrained network", icons: []plot.Thumbnailer{
			key{glyph: draw.GlyphStyle{Color: grey(), Radius: 4.4, Shape: ring{}}},
		}})
	}
	return nil
}

// xRange leaves room beside the fewest and the most workers.
func (b *builder) xRange() (lo, hi float64) {
	first, last := float64(b.workers[0]), float64(b.workers[len(b.workers)-1])
	if first == last {
		return first - 1, last + 1
	}
	room := (last - first) * 0.05
	return first - room, last + room
}

// finish sets the axes (from low, to high where that is known) and the caption.
func (b *builder) finish(low, high float64) (*Figure, error) {
	b.plot.X.Min, b.plot.X.Max = b.xRange()
	b.plot.X.Tick.Marker = workerTicks(b.workers)
	b.plot.Y.Min = min(low, b.plot.Y.Min)
	if finite(high) {
		b.plot.Y.Max = high
	} else {
		b.plot.Y.Max += (b.plot.Y.Max - b.plot.Y.Min) * 0.06
	}
	b.caption = caption(b.study, b.q)
	if len(b.missing) > 0 {
		b.caption += " No value: " + strings.Join(b.missing, ", ") + "."
	}
	b.makeRoom()
	return b.Figure, nil
}

// caption says what, by which rule, and how repeats are drawn.
func caption(study *scaling.Study, q quantity) string {
	repeated, failed := repeats(study)
	c := q.what + "."
	switch {
	case q.name != "iou": // a time, which the rule is for
		c = q.what + "; " + study.Rule.String() + "."
	case repeated && study.Rule.Repeats == scaling.Mean:
		c = q.what + "; mean over repeated runs."
	case repeated:
		c = q.what + "; median over repeated runs."
	}
	if repeated {
		c += " Bars reach from the lowest to the highest of repeated runs."
	}
	if failed > 0 {
		c += fmt.Sprintf(" %d failed or cancelled runs are not drawn.", failed)
	}
	return c
}

// repeats says whether any point stands for several runs, and how many runs
// do not count.
func repeats(study *scaling.Study) (repeated bool, failed int) {
	for _, p := range study.Points {
		repeated = repeated || p.Runs > 1
		failed += p.Failed
	}
	return repeated, failed
}

func titleOf(study *scaling.Study, title string) string {
	if name := study.Name(); name != "" && len(name) <= 40 {
		return title + " (" + name + ")"
	}
	return title
}

func validate(study *scaling.Study, name string) error {
	if study == nil {
		return fmt.Errorf("draw figure %s: no study; read one with scaling.Read", name)
	}
	if len(study.Points) == 0 {
		return fmt.Errorf("draw figure %s: %w", name, errors.New("the study holds no runs"))
	}
	return nil
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }
