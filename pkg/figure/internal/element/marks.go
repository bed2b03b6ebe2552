package element

import (
	"image/color"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// WithAlpha returns c with the given opacity, from 0 to 255.
func WithAlpha(c color.Color, alpha uint8) color.NRGBA {
	r, g, b, _ := c.RGBA()
	return color.NRGBA{R: uint8(r >> 8), G: uint8(g >> 8), B: uint8(b >> 8), A: alpha}
}

// Interval is the range of a value at one x.
type Interval struct{ X, Lo, Hi float64 }

// ErrorBars are vertical bars from Lo to Hi. An end that is clipped at the edge of the plot is
// drawn as an arrow instead of a cap, because gonum's error bars would extend beyond the plot.
type ErrorBars struct {
	At    []Interval
	Style draw.LineStyle
	// Within is the width, in units of the axis, of the bar on which the error bar is drawn. It is
	// 0 if there is none.
	Within    float64
	Placement SidewaysShift
}

// Plot implements plot.Plotter.
func (w ErrorBars) Plot(c draw.Canvas, p *plot.Plot) {
	halfCap := vg.Length(2.6) // half of the cap's width
	tx, ty := p.Transforms(&c)
	if w.Within > 0 {
		halfCap = min(halfCap, 0.4*(tx(w.Within)-tx(0)))
	}
	if w.Placement.Count > 1 {
		halfCap = min(halfCap, 0.46*w.Placement.barDistance(c, p))
	}
	shift := w.Placement.horizontalOffset(c, p)
	for _, v := range w.At {
		if !(v.Hi > v.Lo) {
			continue
		}
		x, lo, hi := tx(v.X)+shift, ty(v.Lo), ty(v.Hi)
		if on := widenCanvas(c); lo > on.Max.Y || hi < on.Min.Y { // completely outside the plot
			continue
		}
		c.StrokeLine2(w.Style, x, max(lo, c.Min.Y), x, min(hi, c.Max.Y))
		for _, y := range []vg.Length{lo, hi} {
			switch {
			case widenCanvas(c).ContainsY(y):
				c.StrokeLine2(w.Style, x-halfCap, y, x+halfCap, y)
			case y > c.Max.Y:
				w.drawArrow(c, vg.Point{X: x, Y: c.Max.Y}, halfCap, -1)
			default:
				w.drawArrow(c, vg.Point{X: x, Y: c.Min.Y}, halfCap, 1)
			}
		}
	}
}

// drawArrow draws an arrowhead whose tip is at the edge of the plot. back is the direction from the
// tip to the shaft: 1 is up, −1 is down.
func (w ErrorBars) drawArrow(c draw.Canvas, tip vg.Point, halfWidth, back vg.Length) {
	const length = 1.6 // of half the width
	halfWidth *= 1.3   // wider than a cap
	var head vg.Path
	head.Move(tip)
	for _, side := range []vg.Length{-1, 1} {
		head.Line(vg.Point{X: tip.X + side*halfWidth, Y: tip.Y + back*length*halfWidth})
	}
	head.Close()
	c.SetColor(w.Style.Color)
	c.Fill(head)
}

// Band is the area between Lo and Hi, clipped at the edges of the plot.
type Band struct {
	At   []Interval // ascending by X
	Fill color.Color
}

// Plot implements plot.Plotter.
func (b Band) Plot(c draw.Canvas, p *plot.Plot) {
	if len(b.At) < 2 {
		return
	}
	tx, ty := p.Transforms(&c)
	inside := func(y vg.Length) vg.Length { return min(max(y, c.Min.Y), c.Max.Y) }
	var path vg.Path
	for i, v := range b.At {
		at := vg.Point{X: tx(v.X), Y: inside(ty(v.Hi))}
		if i == 0 {
			path.Move(at)
		} else {
			path.Line(at)
		}
	}
	for i := len(b.At) - 1; i >= 0; i-- {
		path.Line(vg.Point{X: tx(b.At[i].X), Y: inside(ty(b.At[i].Lo))})
	}
	path.Close()
	c.SetColor(b.Fill)
	c.Fill(path)
}

// Thumbnail implements plot.Thumbnailer.
func (b Band) Thumbnail(c *draw.Canvas) {
	c.SetColor(b.Fill)
	c.Fill(vg.Rectangle{Min: vg.Point{X: c.Min.X, Y: c.Min.Y + 2}, Max: vg.Point{X: c.Max.X, Y: c.Max.Y - 2}}.Path())
}

// DataRectangle is a bar, or a span of a timeline, in the plot's coordinates.
type DataRectangle struct{ X0, Y0, X1, Y1 float64 }

// MiddleX returns the horizontal center of the rectangle, where its error bar is drawn.
func (b DataRectangle) MiddleX() float64 { return (b.X0 + b.X1) / 2 }

// DataRectangles are filled rectangles in the plot's coordinates.
type DataRectangles struct {
	At   []DataRectangle
	Fill color.Color
	Edge draw.LineStyle // no edge if its width is 0
}

// Plot implements plot.Plotter.
func (b DataRectangles) Plot(c draw.Canvas, p *plot.Plot) {
	tx, ty := p.Transforms(&c)
	for _, r := range b.At {
		x0, x1 := max(tx(r.X0), c.Min.X), min(tx(r.X1), c.Max.X)
		y0, y1 := max(ty(r.Y0), c.Min.Y), min(ty(r.Y1), c.Max.Y)
		if x1 < x0 || y1 < y0 {
			continue
		}
		rect := vg.Rectangle{Min: vg.Point{X: x0, Y: y0}, Max: vg.Point{X: x1, Y: y1}}
		c.SetColor(b.Fill)
		c.Fill(rect.Path())
		if b.Edge.Width > 0 {
			c.SetLineStyle(b.Edge)
			c.Stroke(rect.Path())
		}
	}
}

// DataRange implements plot.DataRanger.
func (b DataRectangles) DataRange() (xmin, xmax, ymin, ymax float64) {
	x, y := EmptyExtent(), EmptyExtent()
	for _, r := range b.At {
		x.Add(r.X0, r.X1)
		y.Add(r.Y0, r.Y1)
	}
	return x.Lo, x.Hi, y.Lo, y.Hi
}

// Thumbnail implements plot.Thumbnailer.
func (b DataRectangles) Thumbnail(c *draw.Canvas) {
	rect := vg.Rectangle{Min: vg.Point{X: c.Max.X - 16, Y: c.Min.Y + 3}, Max: vg.Point{X: c.Max.X, Y: c.Max.Y - 3}}
	c.SetColor(b.Fill)
	c.Fill(rect.Path())
	if b.Edge.Width > 0 {
		c.SetLineStyle(b.Edge)
		c.Stroke(rect.Path())
	}
}

// PointLabel is a text near a point.
type PointLabel struct {
	X, Y  float64
	Text  string
	Shift vg.Point // from the point to the text
	Style text.Style
	// Background draws a white background, and keeps the text inside the plot.
	Background bool
}

// PointLabels are texts in the plot's coordinates.
type PointLabels []PointLabel

// Plot implements plot.Plotter.
func (n PointLabels) Plot(c draw.Canvas, p *plot.Plot) {
	tx, ty := p.Transforms(&c)
	for _, t := range n {
		at := vg.Point{X: tx(t.X), Y: ty(t.Y)}
		if !c.Contains(at) {
			continue
		}
		at = at.Add(t.Shift)
		if t.Background {
			at.X = min(at.X, c.Max.X-t.Style.Width(t.Text))
			behind := t.Style.Rectangle(t.Text).Add(at)
			c.SetColor(color.NRGBA{R: 255, G: 255, B: 255, A: 200})
			c.Fill(behind.Path())
		}
		c.FillText(t.Style, at, t.Text)
	}
}

// LineWithGlyphs returns plotters for a line and for glyphs at its points. It omits what the style
// does not have, and points that are not finite.
func LineWithGlyphs(xy plotter.XYs, l SeriesStyle) []plot.Plotter {
	xy = slices.DeleteFunc(slices.Clone(xy), func(p plotter.XY) bool { return !IsFinite(p.X) || !IsFinite(p.Y) })
	var out []plot.Plotter
	if l.Line.Width > 0 && len(xy) > 1 {
		p := Polyline{XY: xy, Style: l.Line}
		p.Lo.X, p.Hi.X, p.Lo.Y, p.Hi.Y = plotter.XYRange(xy)
		out = append(out, p)
	}
	if l.Glyph.Shape != nil && len(xy) > 0 {
		out = append(out, Dots{xy, l.Glyph})
	}
	return out
}

// widenCanvas returns a slightly larger c, so that points on its edge are inside despite rounding.
func widenCanvas(c draw.Canvas) *draw.Canvas {
	const rounding = vg.Length(0.01)
	c = draw.Crop(c, -rounding, rounding, -rounding, rounding)
	return &c
}

// Dots draws a glyph at each point.
type Dots struct {
	XY    plotter.XYs
	Style draw.GlyphStyle
}

// Plot implements plot.Plotter.
func (d Dots) Plot(c draw.Canvas, p *plot.Plot) {
	tx, ty := p.Transforms(&c)
	on := widenCanvas(c)
	for _, v := range d.XY {
		on.DrawGlyph(d.Style, vg.Point{X: tx(v.X), Y: ty(v.Y)})
	}
}

// DataRange implements plot.DataRanger.
func (d Dots) DataRange() (xmin, xmax, ymin, ymax float64) { return plotter.XYRange(d.XY) }

// GlyphBoxes implements plot.GlyphBoxer.
func (d Dots) GlyphBoxes(p *plot.Plot) []plot.GlyphBox {
	boxes := make([]plot.GlyphBox, len(d.XY))
	for i, v := range d.XY {
		boxes[i] = plot.GlyphBox{X: p.X.Norm(v.X), Y: p.Y.Norm(v.Y), Rectangle: d.Style.Rectangle()}
	}
	return boxes
}

// Polyline is a line through points. Unlike gonum's plotter.Line, it returns glyph boxes only for
// its outermost points, because gonum iterates over all boxes several times.
type Polyline struct {
	XY     plotter.XYs
	Style  draw.LineStyle
	Lo, Hi plotter.XY // smallest and largest coordinates in XY
}

// Plot implements plot.Plotter.
func (l Polyline) Plot(c draw.Canvas, p *plot.Plot) {
	tx, ty := p.Transforms(&c)
	at := make([]vg.Point, len(l.XY))
	for i, v := range l.XY {
		at[i] = vg.Point{X: tx(v.X), Y: ty(v.Y)}
	}
	c.StrokeLines(l.Style, widenCanvas(c).ClipLinesXY(at)...)
}

// DataRange implements plot.DataRanger.
func (l Polyline) DataRange() (xmin, xmax, ymin, ymax float64) { return l.Lo.X, l.Hi.X, l.Lo.Y, l.Hi.Y }

// GlyphBoxes implements plot.GlyphBoxer.
func (l Polyline) GlyphBoxes(p *plot.Plot) []plot.GlyphBox {
	half := l.Style.Width / 2
	square := vg.Rectangle{Min: vg.Point{X: -half, Y: -half}, Max: vg.Point{X: half, Y: half}}
	box := func(v plotter.XY) plot.GlyphBox {
		return plot.GlyphBox{X: p.X.Norm(v.X), Y: p.Y.Norm(v.Y), Rectangle: square}
	}
	inside := func(b plot.GlyphBox) bool { return b.X >= 0 && b.X <= 1 && b.Y >= 0 && b.Y <= 1 }
	if lo, hi := box(l.Lo), box(l.Hi); inside(lo) && inside(hi) {
		return []plot.GlyphBox{lo, hi}
	}
	var left, right, low, high *plot.GlyphBox // outermost points inside the axes
	for _, v := range l.XY {
		b := box(v)
		if b.X >= 0 && (left == nil || b.X < left.X) {
			left = &b
		}
		if b.X <= 1 && (right == nil || b.X > right.X) {
			right = &b
		}
		if b.Y >= 0 && (low == nil || b.Y < low.Y) {
			low = &b
		}
		if b.Y <= 1 && (high == nil || b.Y > high.Y) {
			high = &b
		}
	}
	var out []plot.GlyphBox
	for _, b := range []*plot.GlyphBox{left, right, low, high} {
		if b != nil {
			out = append(out, *b)
		}
	}
	return out
}

// DottedLine returns the style of lines that show ideal scaling.
func DottedLine(c color.Color) draw.LineStyle {
	return draw.LineStyle{Color: c, Width: 1.2, Dashes: []vg.Length{1.5, 3}}
}
