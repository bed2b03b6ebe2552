package figure

import (
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg/draw"

	"lockstep/pkg/figure/internal/element"
)

// Style gives a plot of your own the fonts, ticks, grid and legend of this
// package's figures. Call it before you add data, which the grid would cover
// otherwise. LineStyle and GlyphStyle are the looks of the series. A scale or
// ticks that are not gonum's defaults stay as they are.
//
//	p := plot.New()
//	figure.Style(p)
//	line.LineStyle, points.GlyphStyle = figure.LineStyle(0), figure.GlyphStyle(0)
//	p.Add(line, points)
func Style(p *plot.Plot) {
	if p != nil {
		element.ApplyStyle(p)
	}
}

// LineStyle returns color, width and dashes of the i-th series of a figure,
// counted from 0.
func LineStyle(i int) draw.LineStyle { return element.SeriesLook(max(0, i)).Line }

// GlyphStyle returns color, radius and shape of the marks of the i-th series
// of a figure, counted from 0.
func GlyphStyle(i int) draw.GlyphStyle { return element.SeriesLook(max(0, i)).Glyph }
