package figure

import (
	"image/color"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// pale is a colour that what lies behind shines through.
func pale(c color.Color, alpha uint8) color.NRGBA {
	r, g, b, _ := c.RGBA()
	return color.NRGBA{R: uint8(r >> 8), G: uint8(g >> 8), B: uint8(b >> 8), A: alpha}
}

// interval is the reach of a value.
type interval struct{ x, lo, hi float64 }

// whiskers are bars from lo to hi. They end at the edge of the plot without a
// cap, which gonum's own would cross.
type whiskers struct {
	at    []interval
	style draw.LineStyle
	// within is the width of the bar that they stand on, in units of the axis; 0
	// without one.
	within float64
	beside beside
}

// Plot implements plot.Plotter.
func (w whiskers) Plot(c draw.Canvas, p *plot.Plot) {
	cap := vg.Length(2.6) // half of its width
	tx, ty := p.Transforms(&c)
	if w.within > 0 {
		cap = min(cap, 0.4*(tx(w.within)-tx(0)))
	}
	if w.beside.of > 1 {
		cap = min(cap, 0.46*w.beside.step(c, p))
	}
	shift := w.beside.shift(c, p)
	for _, v := range w.at {
		if !(v.hi > v.lo) {
			continue
		}
		x, lo, hi := tx(v.x)+shift, ty(v.lo), ty(v.hi)
		if on := frame(c); lo > on.Max.Y || hi < on.Min.Y { // no part of it
			continue
		}
		c.StrokeLine2(w.style, x, max(lo, c.Min.Y), x, min(hi, c.Max.Y))
		for _, y := range []vg.Length{lo, hi} {
			if frame(c).ContainsY(y) {
				c.StrokeLine2(w.style, x-cap, y, x+cap, y)
			}
		}
	}
}

// band is the area between lo and hi, cut at the edges of the plot.
type band struct {
	at   []interval // by x
	fill color.Color
}

// Plot implements plot.Plotter.
func (b band) Plot(c draw.Canvas, p *plot.Plot) {
	if len(b.at) < 2 {
		return
	}
	tx, ty := p.Transforms(&c)
	inside := func(y vg.Length) vg.Length { return min(max(y, c.Min.Y), c.Max.Y) }
	var path vg.Path
	for i, v := range b.at {
		at := vg.Point{X: tx(v.x), Y: inside(ty(v.hi))}
		if i == 0 {
			path.Move(at)
		} else {
			path.Line(at)
		}
	}
	for i := len(b.at) - 1; i >= 0; i-- {
		path.Line(vg.Point{X: tx(b.at[i].x), Y: inside(ty(b.at[i].lo))})
	}
	path.Close()
	c.SetColor(b.fill)
	c.Fill(path)
}

// Thumbnail implements plot.Thumbnailer.
func (b band) Thumbnail(c *draw.Canvas) {
	c.SetColor(b.fill)
	c.Fill(vg.Rectangle{Min: vg.Point{X: c.Min.X, Y: c.Min.Y + 2}, Max: vg.Point{X: c.Max.X, Y: c.Max.Y - 2}}.Path())
}

// box is a bar, or a span of a timeline.
type box struct{ x0, y0, x1, y1 float64 }

// boxes are filled rectangles in the plot's coordinates.
type boxes struct {
	at   []box
	fill color.Color
	edge draw.LineStyle // none where its width is 0
}

// Plot implements plot.Plotter.
func (b boxes) Plot(c draw.Canvas, p *plot.Plot) {
	tx, ty := p.Transforms(&c)
	for _, r := range b.at {
		x0, x1 := max(tx(r.x0), c.Min.X), min(tx(r.x1), c.Max.X)
		y0, y1 := max(ty(r.y0), c.Min.Y), min(ty(r.y1), c.Max.Y)
		if x1 < x0 || y1 < y0 {
			continue
		}
		rect := vg.Rectangle{Min: vg.Point{X: x0, Y: y0}, Max: vg.Point{X: x1, Y: y1}}
		c.SetColor(b.fill)
		c.Fill(rect.Path())
		if b.edge.Width > 0 {
			c.SetLineStyle(b.edge)
			c.Stroke(rect.Path())
		}
	}
}

// DataRange implements plot.DataRanger.
func (b boxes) DataRange() (xmin, xmax, ymin, ymax float64) {
	x, y := nowhere(), nowhere()
	for _, r := range b.at {
		x.add(r.x0, r.x1)
		y.add(r.y0, r.y1)
	}
	return x.lo, x.hi, y.lo, y.hi
}

// Thumbnail implements plot.Thumbnailer.
func (b boxes) Thumbnail(c *draw.Canvas) {
	rect := vg.Rectangle{Min: vg.Point{X: c.Max.X - 16, Y: c.Min.Y + 3}, Max: vg.Point{X: c.Max.X, Y: c.Max.Y - 3}}
	c.SetColor(b.fill)
	c.Fill(rect.Path())
	if b.edge.Width > 0 {
		c.SetLineStyle(b.edge)
		c.Stroke(rect.Path())
	}
}

// note is a text beside a point.
type note struct {
	x, y  float64
	text  string
	shift vg.Point
	style text.Style
	// ground puts white behind the text, and keeps it inside the plot.
	ground bool
}

// notes are texts in the plot's coordinates.
type notes []note

// Plot implements plot.Plotter.
func (n notes) Plot(c draw.Canvas, p *plot.Plot) {
	tx, ty := p.Transforms(&c)
	for _, t := range n {
		at := vg.Point{X: tx(t.x), Y: ty(t.y)}
		if !c.Contains(at) {
			continue
		}
		at = at.Add(t.shift)
		if t.ground {
			at.X = min(at.X, c.Max.X-t.style.Width(t.text))
			behind := t.style.Rectangle(t.text).Add(at)
			c.SetColor(color.NRGBA{R: 255, G: 255, B: 255, A: 200})
			c.Fill(behind.Path())
		}
		c.FillText(t.style, at, t.text)
	}
}

// line draws a line and glyphs; either may be absent from the look.
func line(xy plotter.XYs, l look) ([]plot.Plotter, error) {
	var out []plot.Plotter
	if l.line.Width > 0 && len(xy) > 1 {
		if err := plotter.CheckFloats(flat(xy)...); err != nil {
			return nil, err
		}
		p := polyline{xy: xy, style: l.line}
		p.lo.X, p.hi.X, p.lo.Y, p.hi.Y = plotter.XYRange(xy)
		out = append(out, p)
	}
	if l.glyph.Shape != nil {
		if len(xy) == 0 {
			return nil, plotter.ErrNoData
		}
		if err := plotter.CheckFloats(flat(xy)...); err != nil {
			return nil, err
		}
		out = append(out, dots{xy, l.glyph})
	}
	return out, nil
}

// flat is all numbers of some points.
func flat(xy plotter.XYs) []float64 {
	v := make([]float64, 0, 2*len(xy))
	for _, p := range xy {
		v = append(v, p.X, p.Y)
	}
	return v
}

// frame returns c with the edge of the plot inside it: what lies on the edge is
// drawn, on whichever side of it rounding puts it.
func frame(c draw.Canvas) *draw.Canvas {
	const rounding = vg.Length(0.01)
	c = draw.Crop(c, -rounding, rounding, -rounding, rounding)
	return &c
}

// dots are glyphs at points.
type dots struct {
	xy    plotter.XYs
	style draw.GlyphStyle
}

// Plot implements plot.Plotter.
func (d dots) Plot(c draw.Canvas, p *plot.Plot) {
	tx, ty := p.Transforms(&c)
	on := frame(c)
	for _, v := range d.xy {
		on.DrawGlyph(d.style, vg.Point{X: tx(v.X), Y: ty(v.Y)})
	}
}

// DataRange implements plot.DataRanger.
func (d dots) DataRange() (xmin, xmax, ymin, ymax float64) { return plotter.XYRange(d.xy) }

// GlyphBoxes implements plot.GlyphBoxer.
func (d dots) GlyphBoxes(p *plot.Plot) []plot.GlyphBox {
	boxes := make([]plot.GlyphBox, len(d.xy))
	for i, v := range d.xy {
		boxes[i] = plot.GlyphBox{X: p.X.Norm(v.X), Y: p.Y.Norm(v.Y), Rectangle: d.style.Rectangle()}
	}
	return boxes
}

// polyline is a line through points. It is gonum's but that it asks for the
// room of its outermost points alone, where gonum's asks for that of each,
// several times over.
type polyline struct {
	xy     plotter.XYs
	style  draw.LineStyle
	lo, hi plotter.XY // the range of xy
}

// Plot implements plot.Plotter.
func (l polyline) Plot(c draw.Canvas, p *plot.Plot) {
	tx, ty := p.Transforms(&c)
	at := make([]vg.Point, len(l.xy))
	for i, v := range l.xy {
		at[i] = vg.Point{X: tx(v.X), Y: ty(v.Y)}
	}
	c.StrokeLines(l.style, frame(c).ClipLinesXY(at)...)
}

// DataRange implements plot.DataRanger.
func (l polyline) DataRange() (xmin, xmax, ymin, ymax float64) { return l.lo.X, l.hi.X, l.lo.Y, l.hi.Y }

// GlyphBoxes implements plot.GlyphBoxer.
func (l polyline) GlyphBoxes(p *plot.Plot) []plot.GlyphBox {
	half := l.style.Width / 2
	square := vg.Rectangle{Min: vg.Point{X: -half, Y: -half}, Max: vg.Point{X: half, Y: half}}
	box := func(v plotter.XY) plot.GlyphBox {
		return plot.GlyphBox{X: p.X.Norm(v.X), Y: p.Y.Norm(v.Y), Rectangle: square}
	}
	inside := func(b plot.GlyphBox) bool { return b.X >= 0 && b.X <= 1 && b.Y >= 0 && b.Y <= 1 }
	if lo, hi := box(l.lo), box(l.hi); inside(lo) && inside(hi) {
		return []plot.GlyphBox{lo, hi}
	}
	var left, right, low, high *plot.GlyphBox // of those inside the axes
	for _, v := range l.xy {
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

// dotted is the style of what is ideal.
func dotted(c color.Color) draw.LineStyle {
	return draw.LineStyle{Color: c, Width: 1.2, Dashes: []vg.Length{1.5, 3}}
}
