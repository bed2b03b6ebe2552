package figure

import (
	"gonum.org/v1/plot"

	"lockstep/pkg/figure/internal/element"
)

// sideBySide says in a caption why points are not above their tick.
const sideBySide = " Series with bars are drawn side by side at equal counts."

// measured is the marks of a series and its error bars.
type measured struct {
	bars  element.ErrorBars
	marks []plot.Plotter
}

// addMeasured draws series whose bars stand beside each other. It returns what
// the caption says of it.
func (f *Figure) addMeasured(all []measured) (note string) {
	bars := make([][]element.Interval, len(all))
	for i, m := range all {
		bars[i] = m.bars.At
	}
	for i, place := range element.PlaceSideBySide(bars) {
		m := all[i]
		m.bars.Beside = place
		f.plot.Add(m.bars)
		f.plot.Add(place.MoveAll(m.marks)...)
		if place.Of > 1 {
			note = sideBySide
		}
	}
	return note
}
