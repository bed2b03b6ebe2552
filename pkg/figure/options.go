package figure

import (
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
	IntervalsRange = "range" // from the lowest to the highest of repeated runs
	IntervalsNone  = "none"
	// IntervalsEpochs is the spread of the counted epochs, for figures of their
	// time and throughput; it is no confidence interval, and single runs have
	// it too.
	IntervalsEpochs = "epochs"
)

// Options say how figures are drawn. The zero value is the default; each field
// counts for the figures that have what it is about. Every constructor of the
// package is also a method: figure.Options{Scale: figure.Log2}.Speedup(study).
type Options struct {
	// Series are the only series drawn, by name and in this order; empty draws
	// all, in the order of their names. Of more than 12 series, a figure draws
	// the median as a line and the range as a band.
	Series []string
	// Workers are the only worker counts that have a curve (losses, learning
	// rate); empty draws as many as can be told apart.
	Workers []int
	// Scale is of the axis of the workers, nodes or batches: "linear", "log2",
	// or empty for log2 where the most are at least 16 times the fewest. On
	// log2, what should be proportional to the workers is on a logarithmic axis
	// too, so that the ideal is a straight line.
	Scale string
	// LogY makes the axis of the values logarithmic: losses, times, rates.
	LogY bool
	// Intervals are what bars and bands show: empty for the confidence interval
	// where there is one and else lowest and highest, "range" for those always,
	// "epochs" for the spread of the epochs, "none" for nothing.
	Intervals string
	// Smooth is the weight of TensorBoard's smoothing of curves, from 0 (none)
	// to below 1. What was logged is drawn pale behind it.
	Smooth float64
	// Law is the law that Fit draws, such as scaling.LawUSL; empty for the best
	// by AICc. Beyond is up to where it predicts; 0 means twice the most.
	Law    string
	Beyond int
	// Rate is the price of a device-hour that Pareto draws, in Currency; 0 draws
	// device-hours.
	Rate     float64
	Currency string
	// Pairs are series with and without communication, in this order; empty
	// takes those whose names differ by "no communication".
	Pairs [][2]string
	// Run is the folder or file whose spans Timeline draws, or a part of its
	// name; empty takes the one with the most ranks. FirstStep (from 1; 0 for
	// the middle of the run) and Steps (0 for 3) say which of its steps.
	Run              string
	FirstStep, Steps int
	// Measure is what Quality draws: iou, dice, accuracy, val_accuracy,
	// train_loss, val_loss, test_loss; empty for the study's.
	Measure string
	// NoTitle leaves the title out, for a paper that has a caption. Title and
	// the labels replace those of the figure; empty keeps them.
	NoTitle                           bool
	Title, XLabel, YLabel, RightLabel string
	// Legend is where the legend is: "top" (above the plot), "bottom", "right",
	// "none", or empty for where the data keep most room.
	Legend string
	// WidthInches and HeightInches are the size of the whole picture; 0 for one
	// that is legible in a notebook. A size at which the figure cannot be read
	// is a SizeError.
	WidthInches, HeightInches float64
	// FontSize is the size of the labels in points; lines and marks go with it.
	// 0 is 12 points in a picture of usual size, and less in a smaller one (8.4
	// points on a column of 3.5 inches).
	FontSize float64

	study string // its name, which a study of some of its series has no more
}

// Validate reports the first field that cannot be.
func (o Options) Validate() error {
	nonNegative := func(v float64) bool { return v >= 0 && !math.IsInf(v, 0) }
	switch {
	case o.Scale != "" && o.Scale != Linear && o.Scale != Log2:
		return fmt.Errorf("options: scale %q is not known; use %q or %q", o.Scale, Linear, Log2)
	case o.Intervals != "" && !slices.Contains([]string{IntervalsRange, IntervalsNone, IntervalsEpochs}, o.Intervals):
		return fmt.Errorf("options: intervals %q are not known; use %q, %q or %q", o.Intervals, IntervalsRange, IntervalsEpochs, IntervalsNone)
	case !(o.Smooth >= 0 && o.Smooth < 1):
		return fmt.Errorf("options: smooth is %g, expected 0 to below 1, such as 0.6", o.Smooth)
	case !nonNegative(o.Rate):
		return fmt.Errorf("options: rate is %g, expected the price of a device-hour", o.Rate)
	case !nonNegative(o.WidthInches) || !nonNegative(o.HeightInches) || o.WidthInches > 100 || o.HeightInches > 100:
		return fmt.Errorf("options: %g by %g inches, expected 0 to 100", o.WidthInches, o.HeightInches)
	case !nonNegative(o.FontSize) || o.FontSize > 0 && o.FontSize < leastText || o.FontSize > 100:
		return fmt.Errorf("options: font size is %g points, expected %g to 100, or 0 for one that suits the size", o.FontSize, float64(leastText))
	case o.Legend != "" && !slices.Contains(legendPositions(), o.Legend):
		return fmt.Errorf("options: unknown legend position %q; use %s, or nothing for where there is most room", o.Legend, strings.Join(legendPositions(), ", "))
	case o.Beyond < 0 || o.Steps < 0 || o.FirstStep < 0:
		return errors.New("options: beyond, steps and first step cannot be negative")
	}
	return nil
}

// of is the study of the series that are drawn; an error says what is missing.
func (o *Options) of(study *scaling.Study, name string) (*scaling.Study, error) {
	if study == nil {
		return nil, fmt.Errorf("draw figure %s: no study; read one with scaling.Read", name)
	}
	if len(study.Points) == 0 {
		return nil, fmt.Errorf("draw figure %s: %w", name, errors.New("the study holds no runs"))
	}
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("draw figure %s: %w", name, err)
	}
	o.study = study.Name()
	if len(o.Series) == 0 {
		return study, nil
	}
	some, err := study.Only(o.Series...)
	if err != nil {
		return nil, fmt.Errorf("draw figure %s: %w", name, err)
	}
	return some, nil
}

// figure is an empty figure of the options' size.
func (o Options) figure(name, title, x, y string) *Figure {
	f := &Figure{Width: element.UsualWidth, Height: element.UsualHeight, name: name, options: o, heading: o.titled(title)}
	f.plot = element.NewPlot(f.heading, x, y)
	if o.WidthInches > 0 {
		f.Width = vg.Length(o.WidthInches) * vg.Inch
		f.Height = min(element.UsualHeight, f.Width*element.UsualHeight/element.UsualWidth)
	}
	f.natural = f.Height
	if o.HeightInches > 0 {
		f.Height, f.natural = vg.Length(o.HeightInches)*vg.Inch, element.UsualHeight
	}
	return f
}

// replaced returns the text that the options have for another one, if any.
func replaced(text, by string) string {
	if by != "" {
		return by
	}
	return text
}

// logarithmic says whether counts stand on a logarithmic axis.
func (o Options) logarithmic(counts []int) bool {
	if o.Scale != "" || len(counts) == 0 {
		return o.Scale == Log2
	}
	const wide = 16
	return slices.Max(counts) >= wide*slices.Min(counts)
}

// reach is how far the bar of a value goes. It is not ok where there is none.
func (o Options) reach(v scaling.Estimate) (lo, hi float64, interval, ok bool) {
	switch {
	case o.Intervals == IntervalsNone || o.Intervals == IntervalsEpochs || !element.Finite(v.Value):
	case o.Intervals == "" && element.Finite(v.Low) && element.Finite(v.High) && v.NotDrawn() == "":
		return v.Low, v.High, true, true
	case element.Finite(v.Min) && element.Finite(v.Max) && v.Max > v.Min:
		return v.Min, v.Max, false, true
	}
	return 0, 0, false, false
}

// titled is a title with the study's name.
func (o Options) titled(title string) string {
	switch {
	case o.Title != "":
		return o.Title
	case o.study != "" && len(o.study) <= 40:
		return title + " (" + o.study + ")"
	}
	return title
}
