package figure

import (
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg/draw"

	"lockstep/pkg/figure/internal/element"
)

// Style applies the fonts, ticks, grid and legend of this package's figures to a plot. Call it
// before you add data, so that the grid does not cover them. It keeps scales and ticks that are not
// gonum's defaults. LineStyle and GlyphStyle return the styles of the series.
//
//	p := plot.New()
//	figure.Style(p)
//	line.LineStyle, points.GlyphStyle = figure.LineStyle(0), figure.GlyphStyle(0)
//	p.Add(line, points)
func Style(p *plot.Plot) {
	if p != nil {
		element.ApplyPlotStyle(p)
	}
}

// LineStyle returns the color, width and dashes of the i-th series of a figure, counted from 0.
func LineStyle(i int) draw.LineStyle { return element.NewSeriesStyle(max(0, i)).Line }

// GlyphStyle returns the color, radius and shape of the marks of the i-th series of a figure,
// counted from 0.
func GlyphStyle(i int) draw.GlyphStyle { return element.NewSeriesStyle(max(0, i)).Glyph }
