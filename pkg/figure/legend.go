package figure

import (
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"lockstep/pkg/figure/internal/element"
)

// Values of Options.Legend.
const (
	LegendTop    = element.LegendTop    // above the plot
	LegendBottom = element.LegendBottom // below the plot
	LegendRight  = element.LegendRight  // to the right of the plot
	LegendNone   = "none"               // no legend
)

func legendPositions() []string {
	return []string{LegendTop, LegendBottom, LegendRight, LegendNone}
}

// maxLegendLines is the largest number of lines in an ordinary legend. If there are more, readers
// cannot distinguish the lines, so each name is placed beside the end of its line.
const maxLegendLines = 8

// hasLineEndLegend reports whether a legend to the right of the plot has each name beside the end
// of its line. This is not possible with a right axis, which would be in between.
func (f *Figure) hasLineEndLegend() bool {
	n := 0
	for _, e := range f.legend {
		if e.HasEnd {
			n++
		}
	}
	return n > maxLegendLines && f.right == nil
}

func newLineLegendEntry(name string, l element.SeriesStyle, values []float64) element.LegendEntry {
	e := element.LegendEntry{Name: name, Icons: []plot.Thumbnailer{element.LegendKey(l)}}
	for _, v := range values {
		if element.IsFinite(v) {
			e.End, e.HasEnd = v, true
		}
	}
	return e
}

func yValues(xy plotter.XYs) []float64 {
	var y []float64
	for _, p := range xy {
		y = append(y, p.Y)
	}
	return y
}

// layOutLegend lays out the legend so that the data keep as much space as possible. With many
// lines, it is to the right of the plot if there is enough space. share returns the fraction of the
// image that remains for the data with a given legend.
func (f *Figure) layOutLegend(a *figureLayout, height, top, imageWidth vg.Length, share func(element.Legend) float64) element.Legend {
	if len(f.legend) == 0 || f.options.Legend == LegendNone {
		return element.Legend{Position: LegendNone}
	}
	enough := float64(enoughDataShare)
	if height >= f.natural && f.options.HeightInches == 0 { // makeRoom has added the legend's height
		enough = minDataShare
	}
	find := func(positions ...string) (element.Legend, float64) {
		return f.findFittingLegend(a, enough, positions, top, imageWidth, share)
	}
	if f.options.Legend != "" {
		l, _ := find(f.options.Legend)
		return l
	}
	const most = 0.8 // of the image's height
	if f.hasLineEndLegend() {
		if l, s := find(LegendRight); s >= acceptableDataShare && l.Size.Y*a.zoom <= most*height {
			return l
		}
	}
	l, _ := find(LegendTop, LegendBottom, LegendRight)
	return l
}

// findFittingLegend tries legends of full size first, then smaller ones, each at the given positions, and
// finally shortened names. It returns the first legend that leaves enough space for the data, or
// else the one that leaves the most. It also returns the fraction of the image that remains for the
// data.
func (f *Figure) findFittingLegend(a *figureLayout, enough float64, positions []string, top, imageWidth vg.Length, share func(element.Legend) float64) (element.Legend, float64) {
	best, most := element.Legend{Position: LegendNone}, -1.0
	for _, widest := range []vg.Length{1, 0.45, 0.3} { // names' limit, as a fraction of the image's width
		for _, shrunk := range []vg.Length{1, 0.9, 0.8, 0.7} {
			if shrunk < 1 && (element.FontSize-1)*shrunk*a.zoom < minTextSize {
				continue
			}
			for _, position := range positions {
				room := top
				if position != LegendTop {
					room = imageWidth
				}
				l := element.NewLegend(f.legend, position, room, widest*imageWidth, shrunk)
				if l.Size.X > room || !l.HasDistinctNames() {
					continue
				}
				s := share(l)
				if s >= enough {
					return l, s
				}
				if s > most {
					best, most = l, s
				}
			}
		}
		if most >= acceptableDataShare {
			break
		}
	}
	return best, most
}

// enlargeForLegend increases the figure's size so that the data area is not reduced by a large
// legend: its height for all legend rows after the first, or its width for names at the ends of
// lines.
func (f *Figure) enlargeForLegend() {
	if f.hasLineEndLegend() && f.options.WidthInches == 0 && f.options.Legend == "" {
		l := element.NewLegend(f.legend, LegendRight, f.Width, f.Width, 1)
		f.Width += l.Size.X
		f.Height = max(f.Height, l.Size.Y+1.5*vg.Inch)
		f.natural = f.Height
		return
	}
	if f.options.HeightInches > 0 || f.options.Legend == LegendRight || f.options.Legend == LegendNone {
		f.natural = f.Height
		return
	}
	const axis = 50 // approximate width of the labels on the left
	f.natural = f.Height
	zoom := f.zoomFactor(f.Width, f.Height)
	room := f.Width/zoom - 2*element.Margin - axis
	l := element.NewLegend(f.legend, LegendTop, room, room, 1)
	if len(l.Columns) > 0 {
		f.Height += (l.Size.Y - l.RowHeight()) * zoom
	}
	f.natural = f.Height
}
