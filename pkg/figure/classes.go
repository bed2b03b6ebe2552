package figure

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/go-gota/gota/dataframe"
	"github.com/go-gota/gota/series"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg/draw"

	"lockstep/pkg/figure/internal/element"
	"lockstep/pkg/internal/english"
	"lockstep/pkg/runs"
	"lockstep/pkg/scaling"
)

// iouLabel returns the axis label "IoU", or "mean IoU" if any run has several classes.
func iouLabel(study *scaling.Study) string {
	if study != nil && study.HasClasses() {
		return "mean IoU"
	}
	return "IoU"
}

// evaluatedDatasetName returns the name of the data set on which a study's runs were scored.
func evaluatedDatasetName(study *scaling.Study) string {
	validates := func(r runs.Run) bool { return r.Info.EvaluatedPart() == runs.ValidationPart }
	if study != nil && slices.ContainsFunc(study.Runs, validates) {
		return "validation set"
	}
	return "test set"
}

func (o Options) drawClassIoUs(study *scaling.Study, r runs.Run) (*Figure, error) {
	workers := english.FormatCount(r.Info.Workers, "worker")
	f := o.newFigure("iou", "IoU of each class, "+workers, "epoch", "IoU")
	rows := classRows(r)
	f.table = classTable(rows)
	last := r.Classes[len(r.Classes)-1].Epoch
	brief := classTable(slices.DeleteFunc(rows, func(c runs.ClassScores) bool { return c.Epoch != last }))
	f.brief = &brief
	f.plot.X.Tick.Marker = element.EpochTicks{}
	values := element.EmptyExtent()
	absent, err := f.addClassLines(r)
	if err != nil {
		return nil, fmt.Errorf("draw figure iou: %w", err)
	}
	f.plot.X.Min, f.plot.X.Max = float64(r.Classes[0].Epoch), float64(last)
	if f.plot.X.Min == f.plot.X.Max {
		f.plot.X.Min, f.plot.X.Max = f.plot.X.Min-1, f.plot.X.Max+1
	}
	part := r.Info.EvaluatedPart()
	f.caption = fmt.Sprintf("Intersection over union of each class on the %s data after each epoch, and (thick) the mean over the classes. One run with %s.", part, workers)
	if t := r.Info.Test; t != nil && element.IsFinite(t.IoUConstant) {
		style := element.DottedLine(element.Gray())
		f.plot.Add(element.LineWithGlyphs(plotter.XYs{{X: f.plot.X.Min, Y: t.IoUConstant}, {X: f.plot.X.Max, Y: t.IoUConstant}}, element.SeriesStyle{Line: style})...)
		f.legend = append(f.legend, element.LegendEntry{Name: "constant predictor (mean)", Icons: []plot.Thumbnailer{element.LegendKey{Line: style}}})
		values.AddOnAxis(o.LogY, t.IoUConstant)
	}
	if len(absent) > 0 {
		f.caption += fmt.Sprintf(" Not in the %s masks, and left out of the mean: %s.", part, joinFirstNames(absent))
	}
	for _, c := range r.Classes {
		values.AddOnAxis(o.LogY, c.IoU)
	}
	if element.SetValueAxis(&f.plot.Y, values, element.EmptyExtent(), o.LogY, false); !o.LogY {
		f.plot.Y.Min, f.plot.Y.Max = 0, 1
	}
	f.caption += failedRunsNote(study)
	return f.finishLayout(study)
}

// classLineStyle returns the style of a class's line. Its color is the one that package train uses
// for the class in pictures of masks. The yellow of class 5 is replaced, because the palette has no
// such color.
func classLineStyle(class int) element.SeriesStyle {
	const black, orange, skyBlue, green, purple, vermilion, blue = 6, 4, 5, 2, 3, 1, 0 // in element.Palette
	order := []int{black, orange, skyBlue, green, purple, vermilion, blue}
	s := element.NewSeriesStyle(class)
	s.Line.Color = element.Palette()[order[class%len(order)]]
	s.Glyph.Color = s.Line.Color
	return s
}

// addClassLines draws the IoU of each class of a run and their mean. It returns the classes that do
// not occur in any mask.
func (f *Figure) addClassLines(r runs.Run) (absent []string, err error) {
	add := func(name string, l element.SeriesStyle, x, y []float64) {
		f.legend = append(f.legend, newLineLegendEntry(name, l, y))
		f.drawLineWithFewGlyphs(element.NewLineData(x, y, 0, 1), l)
	}
	isDrawn := func(iou float64) bool { return iou > 0 || iou == 0 && !f.options.LogY }
	var names []string
	for _, c := range r.Classes {
		if !slices.Contains(names, c.Name) {
			names = append(names, c.Name)
		}
	}
	for i, name := range names {
		var x, y []float64
		for _, c := range r.Classes {
			if c.Name == name && isDrawn(c.IoU) {
				x, y = append(x, float64(c.Epoch)), append(y, c.IoU)
			}
		}
		if !slices.ContainsFunc(r.Classes, func(c runs.ClassScores) bool { return c.Name == name && !math.IsNaN(c.IoU) }) {
			absent = append(absent, name)
			continue
		}
		if len(x) == 0 { // a logarithmic axis cannot show 0
			continue
		}
		add(name, classLineStyle(i), x, y)
	}
	var x, y []float64
	for _, e := range r.Epochs {
		if isDrawn(e.IoU) {
			x, y = append(x, float64(e.Epoch)), append(y, e.IoU)
		}
	}
	if len(x) == 0 {
		return nil, errors.New("no epoch has an IoU")
	}
	add(meanClassName, element.SeriesStyle{
		Line:  draw.LineStyle{Color: element.Gray(), Width: 3},
		Glyph: draw.GlyphStyle{Color: element.Gray(), Radius: 3, Shape: draw.CircleGlyph{}}, // visible also after a single epoch
	}, x, y)
	return absent, nil
}

// classRows returns the scores of the classes after each epoch of a run, followed by their means.
func classRows(r runs.Run) []runs.ClassScores {
	var rows []runs.ClassScores
	for _, e := range r.Epochs {
		mean := runs.ClassScores{Epoch: e.Epoch, NamedScores: runs.NamedScores{Name: meanClassName, IoU: e.IoU, Dice: e.Dice}}
		for _, c := range r.Classes {
			if c.Epoch == e.Epoch {
				rows = append(rows, c)
				mean.Pixels += c.Pixels
			}
		}
		rows = append(rows, mean)
	}
	return rows
}

const meanClassName = "mean"

func classTable(classes []runs.ClassScores) dataframe.DataFrame {
	n := len(classes)
	epochs, names, ious, dices, pixels := make([]int, n), make([]string, n), make([]float64, n), make([]float64, n), make([]int, n)
	for i, c := range classes {
		epochs[i], names[i], ious[i], dices[i], pixels[i] = c.Epoch, c.Name, c.IoU, c.Dice, int(c.Pixels)
	}
	return dataframe.New(
		series.New(epochs, series.Int, "epoch"), series.New(names, series.String, "class"), series.New(ious, series.Float, "iou"),
		series.New(dices, series.Float, "dice"), series.New(pixels, series.Int, "pixels"),
	)
}
