package element

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
	DefaultWidth  = 6.4 * vg.Inch
	DefaultHeight = 4.2 * vg.Inch
	Margin        = 6 * vg.Length(1)
	FontSize      = 12 // points
)

// Gray returns the color of lines that were not measured in a run: the ideal line and the constant
// predictor.
func Gray() color.Color { return color.NRGBA{R: 90, G: 90, B: 90, A: 255} }

// Palette returns the colors of Okabe and Ito ("Color Universal Design", 2008), which are
// distinguishable with any color vision. It omits their yellow, which is too light for lines on
// white.
func Palette() []color.NRGBA {
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

// DashPatterns returns dash patterns that distinguish lines without color.
func DashPatterns() [][]vg.Length {
	return [][]vg.Length{nil, {6, 3}, {2, 2}, {8, 3, 2, 3}}
}

// SeriesStyle is the style of a series' line and glyphs.
type SeriesStyle struct {
	Line  draw.LineStyle
	Glyph draw.GlyphStyle
}

// NewSeriesStyle returns the style of the i-th series, counted from 0.
func NewSeriesStyle(i int) SeriesStyle {
	p, g, d := Palette(), Glyphs(), DashPatterns()
	c := p[i%len(p)]
	return SeriesStyle{
		Line:  draw.LineStyle{Color: c, Width: 1.6, Dashes: d[i%len(d)]},
		Glyph: draw.GlyphStyle{Color: c, Radius: 3.6, Shape: g[i%len(g)]},
	}
}

// TextStyle returns a style in the figures' font.
func TextStyle(size vg.Length) text.Style {
	return text.Style{
		Color:   color.Black,
		Font:    font.Font{Typeface: "Liberation", Variant: "Sans", Size: size},
		Handler: plot.DefaultTextHandler,
	}
}

// NewPlot returns an empty plot in the style of all figures.
func NewPlot(title, x, y string) *plot.Plot {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	ApplyPlotStyle(p)
	return p
}

// ApplyPlotStyle applies the fonts, ticks, grid and legend of all figures to a plot. It keeps scales
// and ticks that are not gonum's defaults.
func ApplyPlotStyle(p *plot.Plot) {
	p.Title.TextStyle.Font = TextStyle(FontSize + 1).Font
	p.Title.Padding = 4
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.Label.TextStyle.Font = TextStyle(FontSize).Font
		a.Tick.Label.Font = TextStyle(FontSize - 1).Font
		a.Label.Padding = 3
		switch a.Tick.Marker.(type) {
		case plot.DefaultTicks:
			a.Tick.Marker = ValueTicks{}
		case plot.LogTicks:
			a.Tick.Marker = LogTicks{}
		}
	}
	p.Legend.TextStyle.Font = TextStyle(FontSize - 1).Font
	p.Legend.ThumbnailWidth, p.Legend.Padding, p.Legend.Top = iconWidth, 2, true
	grid := plotter.NewGrid()
	grid.Vertical.Width = 0
	grid.Horizontal = draw.LineStyle{Color: color.NRGBA{R: 225, G: 225, B: 225, A: 255}, Width: 0.6}
	p.Add(grid)
}
