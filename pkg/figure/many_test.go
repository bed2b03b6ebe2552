package figure

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"lockstep/pkg/figure/internal/element"
	"lockstep/pkg/runs"
	"lockstep/pkg/scaling"
)

// manySeries returns a study of n series, one of which is without 4 workers.
func manySeries(t *testing.T, n int) *scaling.Study {
	t.Helper()
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("series %d", i+1)
	}
	all := synthetic(t, names, []int{1, 2, 4, 8, 16}, 2, 6).Runs
	all = slices.DeleteFunc(slices.Clone(all), func(r runs.Run) bool { return r.Info.Series == "series 1" && r.Info.Workers == 4 })
	for i := range all {
		test := *all[i].Info.Test
		test.IoU = 0.5 + 0.4*float64(i)/float64(len(all))
		all[i].Info.Test = &test
	}
	study, err := scaling.FromRuns(all)
	check(t, err)
	return study
}

// TestManySeriesAreAggregated: a figure of 100 series has a short legend, shows the
// median and the range in place of each series, and its caption says so and how to
// choose series. Its table has every series.
func TestManySeriesAreAggregated(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	study := manySeries(t, 100)
	figures, err := All(study)
	check(t, err)
	curve, err := Curve(study, "train_loss", scaling.AxisEpoch)
	check(t, err)
	drawn := map[string]bool{}
	for _, f := range append(figures, curve) {
		drawn[f.Name()] = true
		svg := f.SVG()
		if n := len(f.legend); n == 0 || n > 10 {
			t.Errorf("%s: %d names in the legend, want 1 to 10", f.Name(), n)
		}
		if strings.Contains(svg, "series 37") {
			t.Errorf("%s: the picture names a single series", f.Name())
		}
		if strings.Contains(svg, "NaN") || len(svg) > 100_000 {
			t.Errorf("%s: %d bytes of SVG, want numbers alone in at most 100,000 bytes", f.Name(), len(svg))
		}
		for _, want := range []string{"100 series", "--series"} {
			if !strings.Contains(f.Caption(), want) {
				t.Errorf("%s: the caption lacks %q: %s", f.Name(), want, f.Caption())
			}
		}
		if csv := f.csvOf(t); strings.Count(csv, "\nseries") < 100 && f.Name() != "pareto" {
			t.Errorf("%s: the table lacks a series", f.Name())
		}
	}
	for _, want := range []string{"epoch_time", "throughput", "speedup", "efficiency", "speedup_iou", "iou", "loss_by_epoch", "loss_by_time", "learning_rate", "train_test_time", "weak_scaling", "fit", "pareto", "quality", "train_loss_by_epoch"} {
		if !drawn[want] {
			t.Errorf("no figure %s of 100 series", want)
		}
	}
}

// csvOf returns the table of a figure.
func (f *Figure) csvOf(t *testing.T) string {
	t.Helper()
	b, err := f.encode("csv")
	check(t, err)
	return string(b)
}

// TestChosenSeriesAreDrawn: each of up to 12 chosen series is drawn and named, and
// 13 are aggregated, chosen or not.
func TestChosenSeriesAreDrawn(t *testing.T) {
	study := manySeries(t, 20)
	for _, n := range []int{1, maxIndividualSeries, maxIndividualSeries + 1} {
		f, err := Options{Series: study.Series()[:n]}.Speedup(study)
		check(t, err)
		each := slices.ContainsFunc(f.legend, func(e element.LegendEntry) bool { return e.Name == study.Series()[0] })
		median := slices.ContainsFunc(f.legend, func(e element.LegendEntry) bool { return e.Name == medianLegendName(n) })
		if each != (n <= maxIndividualSeries) || median == each {
			t.Errorf("%d series: each is named: %v, their median is named: %v", n, each, median)
		}
	}
}

// TestMedianOfSeries: the line is the median of the series and the band their
// range, at each worker count of the series that have it.
func TestMedianOfSeries(t *testing.T) {
	study := manySeries(t, 13)
	b, err := Options{}.drawQuantityByWorkers(study, iouQuantity(study))
	check(t, err)
	for _, p := range b.study.Points {
		var values []float64
		for _, q := range study.Points {
			if q.Workers == p.Workers {
				values = append(values, q.IoU.Value)
			}
		}
		slices.Sort(values)
		n := len(values)
		want := (values[(n-1)/2] + values[n/2]) / 2
		if got := p.IoU; got.Value != want || got.Min != values[0] || got.Max != values[n-1] || got.N != n {
			t.Errorf("%d workers: %+v, want the median %g from %g to %g of %d", p.Workers, got, want, values[0], values[n-1], n)
		}
	}
	if want := "median is over the 12 to 13 series"; !strings.Contains(b.finishFigure(1).Caption(), want) {
		t.Errorf("the caption lacks %q: %s", want, b.Caption())
	}
}

// TestSpansHasAllValues: spans returns every measured value of a point.
func TestSpansHasAllValues(t *testing.T) {
	var p scaling.Point
	n := 0
	for i := range reflect.TypeOf(p).NumField() {
		if reflect.TypeOf(p).Field(i).Type == reflect.TypeOf(scaling.Estimate{}) {
			n++
		}
	}
	if got := len(pointEstimates(&p)); got != n {
		t.Errorf("spans returns %d of %d values of a point", got, n)
	}
}

// TestMedianLine: lines that were logged at other steps are joined by straight
// lines, and the median ends where less than half of the lines have a value.
func TestMedianLine(t *testing.T) {
	line, reach := medianLine([]scaling.CurveLine{
		{X: []float64{0, 2}, Y: []float64{0, 2}},
		{X: []float64{0, 1, 2}, Y: []float64{3, 3, 3}},
		{X: []float64{0, 1, 2, 9}, Y: []float64{5, 5, 5, 5}},
	})
	if !slices.Equal(line.X, []float64{0, 1, 2}) || !slices.Equal(line.Y, []float64{3, 3, 3}) {
		t.Errorf("median at %v is %v", line.X, line.Y)
	}
	if want := []element.Interval{{X: 0, Lo: 0, Hi: 5}, {X: 1, Lo: 1, Hi: 5}, {X: 2, Lo: 2, Hi: 5}}; !slices.Equal(reach, want) {
		t.Errorf("range %v, want %v", reach, want)
	}
}

// TestManyUncommonFigures: figures of traces, trials and pairs of 100 series have
// one bar or line per worker count too, in place of an error that the names have no
// room.
func TestManyUncommonFigures(t *testing.T) {
	var use []scaling.TimeUseRow
	var trials []scaling.BottleneckRow
	for i := range 100 {
		v := float64(i + 1)
		use = append(use, scaling.TimeUseRow{Series: fmt.Sprint(i), Workers: 1 + i%2, Step: scaling.Estimate{Value: 2 * v}, Compute: scaling.Estimate{Value: v}, Data: scaling.Estimate{Value: v}})
		trials = append(trials, scaling.BottleneckRow{Series: fmt.Sprint(i), Workers: 1 + i%2, IO: scaling.Estimate{Value: v}, Full: scaling.Estimate{Value: v}})
	}
	// Of 1, 3, …, 99 and of 2, 4, …, 100: means and medians are 50 and 51.
	if got := averageTimeUseRows(use); len(got) != 2 || got[0].Step.Value != 100 || got[0].Compute.Value+got[0].Data.Value != 100 || got[1].Step.Value != 102 {
		t.Errorf("use %+v", got)
	}
	if got := combineBottleneckRows(trials); len(got) != 2 || got[0].IO.Value != 50 || got[1].Full.Max != 100 || got[1].Full.Min != 2 {
		t.Errorf("trials %+v", got)
	}
	names := []string{}
	for i := range 13 {
		names = append(names, fmt.Sprintf("s%d", i), fmt.Sprintf("s%d (no communication)", i))
	}
	f, err := Overhead(synthetic(t, names, []int{1, 2, 4}, 1, 5))
	check(t, err)
	if len(f.legend) != 1 || !strings.Contains(f.Caption(), "median of 13 pairs of series") {
		t.Errorf("legend of %d names, caption %s", len(f.legend), f.Caption())
	}
}
