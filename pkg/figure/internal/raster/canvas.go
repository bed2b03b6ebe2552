// Package raster draws figures as PNG pictures: a canvas for gonum's plots, the
// outlines of long lines, and the encoder of the file.
package raster

import (
	"encoding/binary"
	"image"
	"image/color"
	"image/draw"
	"io"
	"math"
	"slices"

	"git.sr.ht/~sbinet/gg"
	ximage "golang.org/x/image/font"
	"golang.org/x/image/math/fixed"
	"golang.org/x/image/vector"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/vgimg"
)

// Canvas draws a PNG. It is gonum's canvas except where gonum is slow: long
// paths (gonum's rasterizer keeps the cells of a row of pixels in a list that
// it searches from the start, so that a line of a thousand spikes takes
// seconds), the background, and glyphs, which gonum makes anew for each text.
type Canvas struct {
	*vgimg.Canvas
	Picture *image.RGBA // what is drawn on
	right   float64     // width of the page in pixels, which need not be a whole number
	top     float64     // and its height
	pen     pen
	pens    []pen // of Push
	blank   bool  // nothing was drawn yet: all is white
	faces   map[font.Font]ximage.Face

	// Room that each path uses again.
	outline  shape
	coverage vector.Rasterizer
	mask     []byte
}

// pen is the canvas' state.
type pen struct {
	color  color.Color
	width  vg.Length
	dashes []vg.Length
	offset vg.Length
	moved  bool // the coordinates are no longer those of the page
}

// longPath is how many parts a path has at least that gonum does not draw.
const longPath = 200

// New returns a white canvas of a width and a height, with dpi pixels per inch.
func New(width, height vg.Length, dpi int) *Canvas {
	w, h := width.Dots(float64(dpi)), height.Dots(float64(dpi))
	picture := image.NewRGBA(image.Rect(0, 0, int(w+0.5), int(h+0.5)))
	p := newOn(picture, w, h, dpi)
	p.pen.color = color.White
	p.flood(picture.Rect)
	p.pen.color, p.blank = color.Black, true
	return p
}

// newOn returns a canvas of width × height pixels that draws on a white picture.
func newOn(picture *image.RGBA, width, height float64, dpi int) *Canvas {
	drawing := gg.NewContextForRGBA(picture)
	drawing.SetLineCapButt()
	drawing.InvertY()
	return &Canvas{
		// The picture that gonum is told of is of one pixel: it would fill it with
		// white, and does not use it.
		Canvas:  vgimg.NewWith(vgimg.UseImageWithContext(image.NewRGBA(image.Rect(0, 0, 1, 1)), drawing), vgimg.UseDPI(dpi)),
		Picture: picture, right: width, top: height,
		pen:   pen{color: color.Black, width: 1},
		faces: map[font.Font]ximage.Face{},
	}
}

// Tile returns a canvas for one part of the picture, and the vector that moves
// a place on p to the same place on the tile. The tile cuts what is drawn beyond
// it, so tiles that do not overlap can be drawn concurrently.
func (p *Canvas) Tile(part vg.Rectangle) (t *Canvas, at vg.Point) {
	round := func(l vg.Length) int { return int(math.Round(l.Dots(p.DPI()))) }
	whole := p.Picture.Rect
	area := image.Rect(round(part.Min.X), whole.Max.Y-round(part.Max.Y), round(part.Max.X), whole.Max.Y-round(part.Min.Y)).Intersect(whole)
	if area.Empty() {
		area = image.Rect(0, 0, 1, 1)
	}
	view := &image.RGBA{
		Pix:    p.Picture.Pix[p.Picture.PixOffset(area.Min.X, area.Min.Y) : p.Picture.PixOffset(area.Max.X-1, area.Max.Y-1)+4],
		Stride: p.Picture.Stride, Rect: image.Rect(0, 0, area.Dx(), area.Dy()),
	}
	// Letters stand by the height of the whole page, which is no whole number of pixels.
	t = newOn(view, float64(area.Dx()), float64(area.Dy())+p.top-float64(whole.Dy()), int(p.DPI()))
	return t, vg.Point{X: -p.length(float64(area.Min.X)), Y: -p.length(float64(whole.Max.Y - area.Max.Y))}
}

// length is that of so many pixels.
func (p *Canvas) length(dots float64) vg.Length { return vg.Length(dots/p.DPI()) * vg.Inch }

// Size implements vg.CanvasSizer.
func (p *Canvas) Size() (w, h vg.Length) {
	return p.length(p.right), p.length(p.top)
}

// SetColor implements vg.Canvas.
func (p *Canvas) SetColor(c color.Color) {
	if c == nil {
		c = color.Black
	}
	p.pen.color = c
	p.Canvas.SetColor(c)
}

// SetLineWidth implements vg.Canvas.
func (p *Canvas) SetLineWidth(w vg.Length) {
	p.pen.width = w
	p.Canvas.SetLineWidth(w)
}

// SetLineDash implements vg.Canvas.
func (p *Canvas) SetLineDash(dashes []vg.Length, offset vg.Length) {
	p.pen.dashes, p.pen.offset = slices.Clone(dashes), offset
	p.Canvas.SetLineDash(dashes, offset)
}

// Rotate implements vg.Canvas.
func (p *Canvas) Rotate(radians float64) {
	p.pen.moved = true
	p.Canvas.Rotate(radians)
}

// Translate implements vg.Canvas.
func (p *Canvas) Translate(to vg.Point) {
	p.pen.moved = true
	p.Canvas.Translate(to)
}

// Scale implements vg.Canvas.
func (p *Canvas) Scale(x, y float64) {
	p.pen.moved = true
	p.Canvas.Scale(x, y)
}

// Push implements vg.Canvas.
func (p *Canvas) Push() {
	p.pens = append(p.pens, p.pen)
	p.Canvas.Push()
}

// Pop implements vg.Canvas.
func (p *Canvas) Pop() {
	last := len(p.pens) - 1
	p.pen, p.pens = p.pens[last], p.pens[:last]
	p.Canvas.Pop()
}

// Stroke implements vg.Canvas.
func (p *Canvas) Stroke(path vg.Path) {
	if p.pen.width <= 0 {
		return
	}
	p.blank = false
	lines, ok := p.long(path)
	if !ok {
		p.Canvas.Stroke(path)
		return
	}
	dots := func(l vg.Length) float64 { return l.Dots(p.DPI()) }
	var dashes []float64
	for _, d := range p.pen.dashes {
		dashes = append(dashes, dots(d))
	}
	s := stroker{half: dots(p.pen.width) / 2, to: &p.outline}
	s.to.clear()
	dashed(lines, dashes, dots(p.pen.offset)).each(s.add)
	p.paint(s.to)
}

// Fill implements vg.Canvas.
func (p *Canvas) Fill(path vg.Path) {
	if r, ok := p.whole(path); ok {
		p.flood(r)
		return
	}
	p.blank = false
	lines, ok := p.long(path)
	if !ok {
		p.Canvas.Fill(path)
		return
	}
	p.paint(lines)
}

// long is a long path of straight lines in pixels.
func (p *Canvas) long(path vg.Path) (lines *shape, ok bool) {
	if len(path) < longPath || p.pen.moved {
		return nil, false
	}
	height := float64(p.Picture.Rect.Dy())
	lines = &shape{dots: make([]dot, 0, len(path))}
	begin := 0
	for _, c := range path {
		switch c.Type {
		case vg.MoveComp:
			if begin < len(lines.dots) {
				lines.end()
			}
			begin = len(lines.dots)
		case vg.LineComp:
		case vg.CloseComp:
			if begin < len(lines.dots) {
				lines.dots = append(lines.dots, lines.dots[begin])
			}
			continue
		default:
			return nil, false
		}
		lines.dots = append(lines.dots, dot{c.Pos.X.Dots(p.DPI()), height - c.Pos.Y.Dots(p.DPI())})
	}
	lines.end()
	return lines, true
}

// paint fills polygons with the pen's colour. What several cover is painted
// once.
func (p *Canvas) paint(s *shape) {
	lo, hi := dot{math.Inf(1), math.Inf(1)}, dot{math.Inf(-1), math.Inf(-1)}
	for _, d := range s.dots {
		lo, hi = dot{min(lo.x, d.x), min(lo.y, d.y)}, dot{max(hi.x, d.x), max(hi.y, d.y)}
	}
	const far = 1 << 20 // beyond any picture
	if !(lo.x <= hi.x && lo.x > -far && lo.y > -far && hi.x < far && hi.y < far) {
		return
	}
	area := image.Rect(int(math.Floor(lo.x)), int(math.Floor(lo.y)), int(math.Ceil(hi.x))+1, int(math.Ceil(hi.y))+1).Intersect(p.Picture.Rect)
	if area.Empty() {
		return
	}
	r := &p.coverage
	r.Reset(area.Dx(), area.Dy())
	at := func(d dot) (x, y float32) {
		return float32(d.x - float64(area.Min.X)), float32(d.y - float64(area.Min.Y))
	}
	s.each(func(polygon []dot) {
		if len(polygon) < 3 {
			return
		}
		r.MoveTo(at(polygon[0]))
		for _, d := range polygon[1:] {
			r.LineTo(at(d))
		}
		r.ClosePath()
	})
	p.dye(area)
}

// dye lays the pen's colour over an area, as much as is covered.
func (p *Canvas) dye(area image.Rectangle) {
	width := area.Dx()
	p.mask = slices.Grow(p.mask[:0], width*area.Dy())[:width*area.Dy()]
	mask := &image.Alpha{Pix: p.mask, Stride: width, Rect: image.Rect(0, 0, width, area.Dy())}
	p.coverage.DrawOp = draw.Src
	p.coverage.Draw(mask, mask.Rect, image.Opaque, image.Point{})
	const full = math.MaxUint16
	red, green, blue, alpha := p.pen.color.RGBA()
	for y := range area.Dy() {
		covered := p.mask[y*width : (y+1)*width]
		pix := p.Picture.Pix[p.Picture.PixOffset(area.Min.X, area.Min.Y+y):]
		for x := 0; x < width; x++ {
			if x+8 <= width && binary.LittleEndian.Uint64(covered[x:]) == 0 {
				x += 7
				continue
			}
			c := uint32(covered[x]) * 0x101
			if c == 0 {
				continue
			}
			// Over: what is there, times what the colour lets through.
			through := (full - alpha*c/full) * 0x101
			d := pix[4*x : 4*x+4]
			d[0] = byte((uint32(d[0])*through + red*c) / full >> 8)
			d[1] = byte((uint32(d[1])*through + green*c) / full >> 8)
			d[2] = byte((uint32(d[2])*through + blue*c) / full >> 8)
			d[3] = byte((uint32(d[3])*through + alpha*c) / full >> 8)
		}
	}
}

// FillString implements vg.Canvas.
func (p *Canvas) FillString(f font.Face, at vg.Point, text string) {
	p.blank = false
	if p.pen.moved || f.Font.Size == 0 {
		at.Y -= p.length(p.top - 1) // gonum's canvas is one pixel high
		p.Canvas.FillString(f, at, text)
		return
	}
	face, known := p.faces[f.Font]
	if !known {
		face = kernedFace{f.FontFace(p.DPI()), f.Font.Size.Dots(p.DPI()) * 64 / float64(f.Face.UnitsPerEm())}
		p.faces[f.Font] = face
	}
	fix := func(v float64) fixed.Int26_6 { return fixed.Int26_6(math.Round(v * 64)) }
	d := ximage.Drawer{
		Dst: p.Picture, Src: image.NewUniform(p.pen.color), Face: face,
		Dot: fixed.Point26_6{X: fix(at.X.Dots(p.DPI())), Y: fix(p.top - at.Y.Dots(p.DPI()))},
	}
	d.DrawString(text)
}

// kernedFace is a face of x/image's opentype package with kerning for its size:
// opentype.Face.Kern returns font units, whatever the size of the face, so that
// small letters would overlap.
type kernedFace struct {
	ximage.Face
	perUnit float64 // 1/64 pixels per font unit
}

// Kern implements font.Face of x/image.
func (f kernedFace) Kern(r0, r1 rune) fixed.Int26_6 {
	return fixed.Int26_6(math.Round(float64(f.Face.Kern(r0, r1)) * f.perUnit))
}

// whole is the rectangle of a path that an opaque colour covers, where its
// edges are those of pixels or beyond the picture.
func (p *Canvas) whole(path vg.Path) (image.Rectangle, bool) {
	img := p.Picture
	if len(path) != 5 || p.pen.moved || path[4].Type != vg.CloseComp {
		return image.Rectangle{}, false
	}
	if _, _, _, a := p.pen.color.RGBA(); a != math.MaxUint16 {
		return image.Rectangle{}, false
	}
	var at [4]vg.Point
	for i := range at {
		if i > 0 && path[i].Type != vg.LineComp {
			return image.Rectangle{}, false
		}
		at[i] = path[i].Pos
	}
	// vg.Rectangle.Path begins at the lower left corner and goes to the right.
	if at[0].Y != at[1].Y || at[1].X != at[2].X || at[2].Y != at[3].Y || at[3].X != at[0].X {
		return image.Rectangle{}, false
	}
	w, h := float64(img.Rect.Dx()), float64(img.Rect.Dy())
	inside := func(l vg.Length, size float64) float64 { return min(max(l.Dots(p.DPI()), 0), size) }
	edges := [4]float64{inside(at[0].X, w), h - inside(at[2].Y, h), inside(at[2].X, w), h - inside(at[0].Y, h)}
	var r [4]int
	for i, e := range edges {
		// Half a step of the 26.6 numbers that gonum's rasteriser counts in.
		if r[i] = int(math.Round(e)); math.Abs(e-float64(r[i])) > 1.0/128 {
			return image.Rectangle{}, false
		}
	}
	return image.Rect(r[0], r[1], r[2], r[3]), true
}

// flood fills a rectangle of the picture.
func (p *Canvas) flood(r image.Rectangle) {
	img := p.Picture
	c, _ := color.RGBAModel.Convert(p.pen.color).(color.RGBA)
	if r = r.Intersect(img.Rect); r.Empty() || p.blank && c == (color.RGBA{R: 255, G: 255, B: 255, A: 255}) {
		return
	}
	p.blank = false
	first := img.Pix[img.PixOffset(r.Min.X, r.Min.Y) : img.PixOffset(r.Max.X-1, r.Min.Y)+4]
	copy(first, []byte{c.R, c.G, c.B, c.A})
	for n := 4; n < len(first); n *= 2 {
		copy(first[n:], first[:n])
	}
	for y := r.Min.Y + 1; y < r.Max.Y; y++ {
		copy(img.Pix[img.PixOffset(r.Min.X, y):], first)
	}
}

// DrawImage implements vg.Canvas.
func (p *Canvas) DrawImage(rect vg.Rectangle, img image.Image) {
	p.blank = false
	p.Canvas.DrawImage(rect, img)
}

// WriteTo writes the picture as a PNG.
func (p *Canvas) WriteTo(w io.Writer) (int64, error) { return writePNG(w, p.Picture, p.DPI()) }
