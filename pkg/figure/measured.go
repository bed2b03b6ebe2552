package figure

import (
	"gonum.org/v1/plot"

	"lockstep/pkg/figure/internal/element"
)

const sideBySideNote = " Series with bars are drawn side by side at equal counts."

type seriesMarks struct {
	bars  element.ErrorBars
	marks []plot.Plotter
}

// addSeriesSideBySide draws series, side by side if they have error bars at equal x. It returns a
// sentence about this, or "".
func (f *Figure) addSeriesSideBySide(all []seriesMarks) (note string) {
	bars := make([][]element.Interval, len(all))
	for i, m := range all {
		bars[i] = m.bars.At
	}
	for i, place := range element.NewSidewaysShifts(bars) {
		m := all[i]
		m.bars.Placement = place
		f.plot.Add(m.bars)
		f.plot.Add(place.ShiftPlotters(m.marks)...)
		if place.Count > 1 {
			note = sideBySideNote
		}
	}
	return note
}
