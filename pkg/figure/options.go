package figure

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/plot/vg"

	"lockstep/pkg/figure/internal/element"
	"lockstep/pkg/scaling"
)

// Values of Options.Scale.
const (
	Linear = "linear"
	Log2   = "log2"
)

// Values of Options.Intervals.
const (
	IntervalsRange = "range" // from the lowest to the highest value of repeated runs
	IntervalsNone  = "none"
	// IntervalsEpochs is the spread over the counted epochs, in figures of epoch time and
	// throughput. It is not a confidence interval. Single runs have it too.
	IntervalsEpochs = "epochs"
)

// Options configure how figures are drawn. Figures ignore fields that do not apply to them. The
// package's functions that draw figures are also methods of Options: figure.Options{Scale:
// figure.Log2}.Speedup(study).
type Options struct {
	// Series are the names of the series to draw, in this order. Empty means all, sorted by name.
	// For more than 12 series, a figure draws the median as a line and the range as a band.
	Series []string
	// Workers are the worker counts whose curves (losses, learning rate) are drawn. Empty means as
	// many as a reader can distinguish.
	Workers []int
	// Scale is the scale of the axis of workers, nodes or batches: "linear" or "log2".
	// Empty means log2 if the largest count is at least 16 times the smallest. With log2,
	// quantities that are ideally proportional to the workers have a logarithmic axis
	// too, so that the ideal is a straight line.
	Scale string
	// LogY makes the axis of the values (losses, times, rates) logarithmic.
	LogY bool
	// Intervals selects what bars and bands show: "range" for the lowest and highest value,
	// "epochs" for the spread over the epochs, or "none". Empty means the confidence interval if
	// there is one, else the range.
	Intervals string
	// Smooth is the weight of TensorBoard's smoothing of curves, from 0 (no smoothing) to below 1.
	// The original values are drawn in a pale color.
	Smooth float64
	// Law is the scaling model that Fit draws, such as scaling.LawUSL. Empty means the best by AICc.
	// Beyond is the largest worker count of the prediction; 0 means twice the largest measured one.
	Law    string
	Beyond int
	// Rate is the price of a device-hour in Currency, for Pareto. 0 means device-hours.
	Rate     float64
	Currency string
	// Pairs are pairs of series; the first of each pair communicates and the second does not. Empty
	// means the pairs that the study finds; see scaling.Study.CommunicationPairs.
	Pairs [][2]string
	// Run selects the run whose spans Timeline draws or whose samples Usage draws: its folder or
	// file, or a part of its name. Empty means the run with the most ranks. Timeline draws Steps
	// steps (0 means 3) starting at FirstStep (counted from 1; 0 means the middle of the run).
	Run              string
	FirstStep, Steps int
	// Measure is the quality that Quality draws: iou, dice, accuracy, val_accuracy, train_loss,
	// val_loss or test_loss. Empty means the measure that scaling.Study.Quality chooses.
	Measure string
	// NoTitle omits the title, for a paper that has a caption. Title and the labels replace the
	// figure's own texts if they are not empty.
	NoTitle                           bool
	Title, XLabel, YLabel, RightLabel string
	// Legend is the position of the legend: "top" (above the plot), "bottom", "right" or "none".
	// Empty means the position that leaves the most space for the data.
	Legend string
	// WidthInches and HeightInches are the size of the complete image. 0 means a size that suits a
	// notebook. A size at which the figure would be illegible results in a SizeError.
	WidthInches, HeightInches float64
	// FontSize is the size of the labels in points; lines and marks scale with it. 0 means 12 points
	// in an image of default size and less in a smaller one (8.4 points at a width of 3.5 inches).
	FontSize float64

	study string // what titles add about the study; Study.Only does not keep its name
}

// Validate returns an error for the first invalid field.
func (o Options) Validate() error {
	nonNegative := func(v float64) bool { return v >= 0 && !math.IsInf(v, 0) }
	switch {
	case o.Scale != "" && o.Scale != Linear && o.Scale != Log2:
		return fmt.Errorf("options: unknown scale %q; use %q or %q", o.Scale, Linear, Log2)
	case o.Intervals != "" && !slices.Contains([]string{IntervalsRange, IntervalsNone, IntervalsEpochs}, o.Intervals):
		return fmt.Errorf("options: unknown intervals %q; use %q, %q or %q", o.Intervals, IntervalsRange, IntervalsEpochs, IntervalsNone)
	case !(o.Smooth >= 0 && o.Smooth < 1):
		return fmt.Errorf("options: smooth is %g, want 0 to below 1, such as 0.6", o.Smooth)
	case !nonNegative(o.Rate):
		return fmt.Errorf("options: rate is %g per device-hour, want 0 or more", o.Rate)
	case !nonNegative(o.WidthInches) || !nonNegative(o.HeightInches) || o.WidthInches > 100 || o.HeightInches > 100:
		return fmt.Errorf("options: size is %g by %g inches, want 0 to 100 each", o.WidthInches, o.HeightInches)
	case !nonNegative(o.FontSize) || o.FontSize > 0 && o.FontSize < minTextSize || o.FontSize > 100:
		return fmt.Errorf("options: font size is %g points, want %g to 100, or 0 for one that depends on the image's size", o.FontSize, float64(minTextSize))
	case o.Legend != "" && !slices.Contains(legendPositions(), o.Legend):
		return fmt.Errorf("options: unknown legend position %q; use %s, or leave it empty for the place that leaves most space", o.Legend, strings.Join(legendPositions(), ", "))
	case o.Beyond < 0 || o.Steps < 0 || o.FirstStep < 0:
		return fmt.Errorf("options: beyond is %d, steps is %d and first step is %d, want 0 or more each", o.Beyond, o.Steps, o.FirstStep)
	}
	return nil
}

// selectSeries validates study and o, and returns the study restricted to the series to draw. It
// stores the study's name in o. name is the figure's name for errors.
func (o *Options) selectSeries(study *scaling.Study, name string) (*scaling.Study, error) {
	if study == nil {
		return nil, fmt.Errorf("draw figure %s: no study; read one with scaling.Read", name)
	}
	if len(study.Points) == 0 {
		return nil, fmt.Errorf("draw figure %s: %w", name, errors.New("the study contains no runs"))
	}
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("draw figure %s: %w", name, err)
	}
	o.study = cmp.Or(o.study, studyTitleSuffix(study))
	if len(o.Series) == 0 {
		return study, nil
	}
	some, err := study.Only(o.Series...)
	if err != nil {
		return nil, fmt.Errorf("draw figure %s: %w", name, err)
	}
	return some, nil
}

func (o Options) newFigure(name, title, x, y string) *Figure {
	f := &Figure{Width: element.DefaultWidth, Height: element.DefaultHeight, name: name, options: o, heading: o.chooseTitle(title)}
	f.plot = element.NewPlot(f.heading, x, y)
	if o.WidthInches > 0 {
		f.Width = vg.Length(o.WidthInches) * vg.Inch
		f.Height = min(element.DefaultHeight, f.Width*element.DefaultHeight/element.DefaultWidth)
	}
	f.natural = f.Height
	if o.HeightInches > 0 {
		f.Height, f.natural = vg.Length(o.HeightInches)*vg.Inch, element.DefaultHeight
	}
	return f
}

func (o Options) usesLogAxis(counts []int) bool {
	if o.Scale != "" || len(counts) == 0 {
		return o.Scale == Log2
	}
	const wide = 16
	return slices.Max(counts) >= wide*slices.Min(counts)
}

// estimateBarRange returns the range of a value's bar or band. interval is true if the range is a
// confidence interval. ok is false if the value has no bar or band.
func (o Options) estimateBarRange(v scaling.Estimate) (lo, hi float64, interval, ok bool) {
	switch {
	case o.Intervals == IntervalsNone || o.Intervals == IntervalsEpochs || !element.IsFinite(v.Value):
	case o.Intervals == "" && element.IsFinite(v.Low) && element.IsFinite(v.High) && v.NotDrawnReason() == "":
		return v.Low, v.High, true, true
	case element.IsFinite(v.Min) && element.IsFinite(v.Max) && v.Max > v.Min:
		return v.Min, v.Max, false, true
	}
	return 0, 0, false, false
}

// studyTitleSuffix returns the text that the titles of a study's figures have in parentheses: the name
// of the study, unless it is longer than 40 bytes, and "published" or "recorded" if the runs were
// not trained here.
func studyTitleSuffix(study *scaling.Study) string {
	name, kind := study.Name(), study.SourceKind()
	switch {
	case name == "" || len(name) > 40:
		return kind
	case kind == "":
		return name
	}
	return name + ", " + kind
}

// chooseTitle returns Options.Title if it is set, otherwise title followed by studyTitleSuffix in parentheses.
func (o Options) chooseTitle(title string) string {
	switch {
	case o.Title != "":
		return o.Title
	case o.study != "":
		return title + " (" + o.study + ")"
	}
	return title
}
