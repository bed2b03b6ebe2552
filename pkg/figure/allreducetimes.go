package figure

import (
	"fmt"
	"slices"

	"github.com/go-gota/gota/dataframe"
	"github.com/go-gota/gota/series"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"

	"lockstep/pkg/figure/internal/element"
	"lockstep/pkg/runs"
	"lockstep/pkg/scaling"
)

// Units of the axes of AllReduceTimes.
const (
	bytesPerKB            = 1e3
	millisecondsPerSecond = 1e3
)

// AllReduceTimes draws the times of all-reduces between hosts against the size of the buffer, on
// logarithmic axes: a point with its range for each measured time, and a line for the
// prediction of the latency–bandwidth model of each algorithm. It is not in Names, because a
// run folder has no such times: lockstep bench allreduce --hosts measures them, and draws them
// with --out.
func (o Options) AllReduceTimes(times *runs.AllReduceTimes) (*Figure, error) {
	const name = "allreduce_times"
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("draw figure %s: %w", name, err)
	}
	var algorithms []string
	sizes, milliseconds, intervals := element.EmptyExtent(), element.EmptyExtent(), element.EmptyExtent()
	if times != nil {
		for _, r := range times.Rows {
			if !isDrawable(r) {
				continue
			}
			if !slices.Contains(algorithms, r.Algorithm) {
				algorithms = append(algorithms, r.Algorithm)
			}
			sizes.Add(float64(r.Bytes) / bytesPerKB)
			milliseconds.Add(r.Seconds*millisecondsPerSecond, r.ModelSeconds*millisecondsPerSecond)
			intervals.AddOnAxis(true, r.LowSeconds*millisecondsPerSecond, r.HighSeconds*millisecondsPerSecond)
		}
	}
	if len(algorithms) == 0 {
		return nil, fmt.Errorf("draw figure %s: no measured times; measure some with lockstep bench allreduce --hosts 2", name)
	}
	f := o.newFigure(name, fmt.Sprintf("All-reduce between %d hosts", times.Hosts), "size of the buffer (kB)", "time of one all-reduce (ms)")
	for i, algorithm := range algorithms {
		if err := f.addAlgorithm(times, algorithm, element.NewSeriesStyle(i)); err != nil {
			return nil, fmt.Errorf("draw figure %s: %w", name, err)
		}
	}
	element.SetValueAxis(&f.plot.X, sizes, sizes, true, false)
	element.SetValueAxis(&f.plot.Y, milliseconds, intervals, true, false)
	f.caption = allReduceCaption(times)
	f.table = allReduceTable(times)
	return f.finishLayout(&scaling.Study{})
}

// isDrawable reports whether r has a positive size, measured time and prediction.
func isDrawable(r runs.AllReduceTime) bool {
	return r.Bytes > 0 && r.Seconds > 0 && r.ModelSeconds > 0 && element.IsFinite(r.Seconds) && element.IsFinite(r.ModelSeconds)
}

// addAlgorithm draws the points and the line of one algorithm.
func (f *Figure) addAlgorithm(times *runs.AllReduceTimes, algorithm string, l element.SeriesStyle) error {
	var measured, model plotter.XYs
	bars := element.ErrorBars{Style: l.Line}
	bars.Style.Dashes = nil
	for _, r := range times.Rows {
		if r.Algorithm != algorithm || !isDrawable(r) {
			continue
		}
		x := float64(r.Bytes) / bytesPerKB
		measured = append(measured, plotter.XY{X: x, Y: r.Seconds * millisecondsPerSecond})
		model = append(model, plotter.XY{X: x, Y: r.ModelSeconds * millisecondsPerSecond})
		bars.At = append(bars.At, element.Interval{X: x, Lo: r.LowSeconds * millisecondsPerSecond, Hi: r.HighSeconds * millisecondsPerSecond})
	}
	line, err := element.LineWithGlyphs(model, lineOnlyStyle(l.Line))
	if err != nil {
		return err
	}
	points, err := element.LineWithGlyphs(measured, glyphOnlyStyle(l.Glyph))
	if err != nil {
		return err
	}
	f.plot.Add(line...)
	f.plot.Add(bars)
	f.plot.Add(points...)
	f.legend = append(f.legend,
		element.LegendEntry{Name: algorithm + ", measured", Icons: []plot.Thumbnailer{element.LegendKey{Glyph: l.Glyph}}},
		element.LegendEntry{Name: algorithm + ", model", Icons: []plot.Thumbnailer{element.LegendKey{Line: l.Line}}})
	return nil
}

// allReduceCaption describes the measurement and the model.
func allReduceCaption(times *runs.AllReduceTimes) string {
	repeats := 0
	for _, r := range times.Rows {
		repeats = max(repeats, r.Repeats)
	}
	text := fmt.Sprintf("Times of all-reduces of float32 buffers between %d hosts, ranks per host: %d, link of each host: %s. "+
		"Points: medians with the range of n = %d repeats. Lines: latency–bandwidth model, the sum over the steps of the algorithm of "+
		"%.3g µs and the bytes of the host that sends or receives most, at %.3g MB/s. Both were measured with messages between two hosts, not fitted to the points.",
		times.Hosts, times.PerHost, times.Link, repeats, times.Between.LatencySeconds*1e6, times.Between.BytesPerSecond/1e6)
	if times.PerHost > 1 {
		text += fmt.Sprintf(" Within a host: %.3g µs and %.3g MB/s.", times.Within.LatencySeconds*1e6, times.Within.BytesPerSecond/1e6)
	}
	return text
}

// allReduceTable returns a row for each measured time: algorithm, bytes, seconds, low_seconds,
// high_seconds, model_seconds, model_steps and model_critical_bytes.
func allReduceTable(times *runs.AllReduceTimes) dataframe.DataFrame {
	var names []string
	var bytes, steps []int
	var seconds, low, high, model, critical []float64
	for _, r := range times.Rows {
		names, bytes, steps = append(names, r.Algorithm), append(bytes, r.Bytes), append(steps, r.Steps)
		seconds, low, high = append(seconds, r.Seconds), append(low, r.LowSeconds), append(high, r.HighSeconds)
		model, critical = append(model, r.ModelSeconds), append(critical, r.CriticalBytes)
	}
	return dataframe.New(
		series.New(names, series.String, "algorithm"), series.New(bytes, series.Int, "bytes"),
		series.New(seconds, series.Float, "seconds"), series.New(low, series.Float, "low_seconds"), series.New(high, series.Float, "high_seconds"),
		series.New(model, series.Float, "model_seconds"), series.New(steps, series.Int, "model_steps"), series.New(critical, series.Float, "model_critical_bytes"),
	)
}
