package figure

import (
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

// legendPositions lists the values of Options.Legend.
func legendPositions() []string {
	return []string{LegendTop, LegendBottom, LegendRight, LegendNone}
}

// chooseLegend lays out the legend so that the data keep as much space as possible. It
// tries legends of full size first, then smaller ones, each above, below and beside the
// plot, and last shortened names. It returns the first legend that leaves enough space
// for the data, else the one that leaves most. share returns the data area as a share of
// the image, for a legend.
func (f *Figure) chooseLegend(a *figureLayout, height, top, imageWidth vg.Length, share func(element.Legend) float64) element.Legend {
	none := element.Legend{Position: LegendNone}
	if len(f.legend) == 0 || f.options.Legend == LegendNone {
		return none
	}
	enough := float64(enoughDataShare)
	if height >= f.natural && f.options.HeightInches == 0 { // makeRoom has added the legend's height
		enough = minDataShare
	}
	best, most := none, -1.0
	for _, widest := range []vg.Length{1, 0.45, 0.3} { // names' limit, as a fraction of the image's width
		for _, shrunk := range []vg.Length{1, 0.9, 0.8, 0.7} {
			if shrunk < 1 && (element.FontSize-1)*shrunk*a.zoom < minTextSize {
				continue
			}
			for _, position := range []string{LegendTop, LegendBottom, LegendRight} {
				if f.options.Legend != "" && f.options.Legend != position {
					continue
				}
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
					return l
				}
				if s > most {
					best, most = l, s
				}
			}
		}
		if most >= acceptableDataShare {
			return best
		}
	}
	return best
}

// addLegendHeight increases the figure's height by the legend's rows after the first, so
// that the data area keeps its size.
func (f *Figure) addLegendHeight() {
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
