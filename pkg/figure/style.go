package figure

import (
	"image/color"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Sizes of a figure in a notebook.
const (
	width    = 6.4 * vg.Inch
	height   = 4.2 * vg.Inch
	margin   = 6 * vg.Length(1)
	fontSize = 12 // points
)

// grey is for what is not measured: the ideal line, the constant predictor.
func grey() color.Color { return color.NRGBA{R: 90, G: 90, B: 90, A: 255} }

// palette is that of Okabe and Ito ("Color Universal Design", 2008), which
// people with any colour vision can tell apart; without its yellow, which is
// too light for lines on white.
func palette() []color.NRGBA {
	return []color.NRGBA{
		{R: 0, G: 114, B: 178, A: 255},   // blue
		{R: 213, G: 94, B: 0, A: 255},    // vermilion
		{R: 0, G: 158, B: 115, A: 255},   // bluish green
		{R: 204, G: 121, B: 167, A: 255}, // reddish purple
		{R: 230, G: 159, B: 0, A: 255},   // orange
		{R: 86, G: 180, B: 233, A: 255},  // sky blue
		{R: 0, G: 0, B: 0, A: 255},       // black
	}
}

// dashes tell lines apart without colour.
func dashes() [][]vg.Length {
	return [][]vg.Length{nil, {6, 3}, {2, 2}, {8, 3, 2, 3}}
}

// look is how the i-th thing is drawn.
type look struct {
	line  draw.LineStyle
	glyph draw.GlyphStyle
}

func lookOf(i int) look {
	p, g, d := palette(), glyphs(), dashes()
	c := p[i%len(p)]
	return look{
		line:  draw.LineStyle{Color: c, Width: 1.6, Dashes: d[i%len(d)]},
		glyph: draw.GlyphStyle{Color: c, Radius: 3.6, Shape: g[i%len(g)]},
	}
}

// textStyle is a style in the figure's font.
func textStyle(size vg.Length) text.Style {
	return text.Style{
		Color:   color.Black,
		Font:    font.Font{Typeface: "Liberation", Variant: "Sans", Size: size},
		Handler: plot.DefaultTextHandler,
	}
}

// newPlot returns an empty plot in the style of all figures.
func newPlot(title, x, y string) *plot.Plot {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	Style(p)
	return p
}

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
	if p == nil {
		return
	}
	p.Title.TextStyle.Font = textStyle(fontSize + 1).Font
	p.Title.Padding = 4
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.Label.TextStyle.Font = textStyle(fontSize).Font
		a.Tick.Label.Font = textStyle(fontSize - 1).Font
		a.Label.Padding = 3
		switch a.Tick.Marker.(type) {
		case plot.DefaultTicks:
			a.Tick.Marker = valueTicks{}
		case plot.LogTicks:
			a.Tick.Marker = logTicks{}
		}
	}
	p.Legend.TextStyle.Font = textStyle(fontSize - 1).Font
	p.Legend.ThumbnailWidth, p.Legend.Padding, p.Legend.Top = iconWidth, 2, true
	grid := plotter.NewGrid()
	grid.Vertical.Width = 0
	grid.Horizontal = draw.LineStyle{Color: color.NRGBA{R: 225, G: 225, B: 225, A: 255}, Width: 0.6}
	p.Add(grid)
}

// LineStyle returns color, width and dashes of the i-th series of a figure,
// counted from 0.
func LineStyle(i int) draw.LineStyle { return lookOf(max(0, i)).line }

// GlyphStyle returns color, radius and shape of the marks of the i-th series
// of a figure, counted from 0.
func GlyphStyle(i int) draw.GlyphStyle { return lookOf(max(0, i)).glyph }
