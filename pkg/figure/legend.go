package figure

import (
	"gonum.org/v1/plot/vg"

	"lockstep/pkg/figure/internal/element"
)

// Options.Legend.
const (
	LegendTop    = element.LegendTop    // above the plot
	LegendBottom = element.LegendBottom // below it
	LegendRight  = element.LegendRight  // beside it
	LegendNone   = "none"
)

// legendPositions lists the values of Options.Legend.
func legendPositions() []string {
	return []string{LegendTop, LegendBottom, LegendRight, LegendNone}
}

// chooseLegend lays out the legend so that the data keep most room. It goes
// from a legend of full size above the plot to smaller ones, below and beside
// it, and last to shortened names; the first that leaves the data enough is
// taken, else the one that leaves most. share returns the part of the picture
// that the data have beside a legend.
func (f *Figure) chooseLegend(a *arrangement, height, top, whole vg.Length, share func(element.Legend) float64) element.Legend {
	none := element.Legend{Position: LegendNone}
	if len(f.legend) == 0 || f.options.Legend == LegendNone {
		return none
	}
	enough := float64(goodShare)
	if height >= f.natural && f.options.HeightInches == 0 { // the height was made for the legend
		enough = leastShare
	}
	best, most := none, -1.0
	for _, widest := range []vg.Length{1, 0.45, 0.3} { // of the picture
		for _, shrunk := range []vg.Length{1, 0.9, 0.8, 0.7} {
			if shrunk < 1 && (element.FontSize-1)*shrunk*a.zoom < leastText {
				continue
			}
			for _, position := range []string{LegendTop, LegendBottom, LegendRight} {
				if f.options.Legend != "" && f.options.Legend != position {
					continue
				}
				room := top
				if position != LegendTop {
					room = whole
				}
				l := element.NewLegend(f.legend, position, room, widest*whole, shrunk)
				if l.Size.X > room || !l.Distinct() {
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
		if most >= tolerableShare {
			return best
		}
	}
	return best
}

// makeRoom adds the height of the legend's rows after the first, so that the
// data keep theirs.
func (f *Figure) makeRoom() {
	if f.options.HeightInches > 0 || f.options.Legend == LegendRight || f.options.Legend == LegendNone {
		f.natural = f.Height
		return
	}
	const axis = 50 // about what labels take on the left
	f.natural = f.Height
	zoom := f.zoom(f.Width, f.Height)
	room := f.Width/zoom - 2*element.Margin - axis
	l := element.NewLegend(f.legend, LegendTop, room, room, 1)
	if len(l.Columns) > 0 {
		f.Height += (l.Size.Y - l.RowHeight()) * zoom
	}
	f.natural = f.Height
}
