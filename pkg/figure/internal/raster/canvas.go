// Package raster draws figures as PNG images. It contains a canvas for gonum's plots, the outlines
// of long lines, and the encoder of the file.
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

// Canvas draws a PNG image. It replaces three slow parts of gonum's canvas: the background; glyphs,
// which gonum renders again for each text; and long paths, for which gonum's rasterizer searches
// linearly in each row of pixels (a line with a thousand spikes takes seconds).
type Canvas struct {
	*vgimg.Canvas
	Picture *image.RGBA // the image that is drawn on
	width   float64     // width of the page in pixels, not always an integer
	height  float64     // height of the page in pixels, not always an integer
	pen     penState
	pens    []penState // the states saved by Push
	blank   bool       // nothing has been drawn yet, so the image is white
	faces   map[font.Font]ximage.Face

	// Buffers that are reused for each path.
	outline  polygonList
	coverage vector.Rasterizer
	mask     []byte
}

type penState struct {
	color       color.Color
	width       vg.Length
	dashes      []vg.Length
	offset      vg.Length
	transformed bool // coordinates have been transformed
}

// minLongPathComponents is the number of components from which this package draws a path itself,
// instead of gonum.
const minLongPathComponents = 200

// New returns a white canvas of the given size, with dpi pixels per inch.
func New(width, height vg.Length, dpi int) *Canvas {
	w, h := width.Dots(float64(dpi)), height.Dots(float64(dpi))
	picture := image.NewRGBA(image.Rect(0, 0, int(w+0.5), int(h+0.5)))
	p := newCanvasOn(picture, w, h, dpi)
	p.pen.color = color.White
	p.fillRect(picture.Rect)
	p.pen.color, p.blank = color.Black, true
	return p
}

// newCanvasOn returns a canvas of width × height pixels that draws on picture, which must be white.
func newCanvasOn(picture *image.RGBA, width, height float64, dpi int) *Canvas {
	drawing := gg.NewContextForRGBA(picture)
	drawing.SetLineCapButt()
	drawing.InvertY()
	return &Canvas{
		// Gonum gets an image of one pixel, which it only fills with white.
		Canvas:  vgimg.NewWith(vgimg.UseImageWithContext(image.NewRGBA(image.Rect(0, 0, 1, 1)), drawing), vgimg.UseDPI(dpi)),
		Picture: picture, width: width, height: height,
		pen:   penState{color: color.Black, width: 1},
		faces: map[font.Font]ximage.Face{},
	}
}

// Tile returns a canvas for a part of the image, and the offset from a point on p to the same point
// on the tile. Drawing outside of the tile is clipped, so tiles that do not overlap can be drawn
// concurrently.
func (p *Canvas) Tile(part vg.Rectangle) (tile *Canvas, offset vg.Point) {
	round := func(l vg.Length) int { return int(math.Round(l.Dots(p.DPI()))) }
	page := p.Picture.Rect
	area := image.Rect(round(part.Min.X), page.Max.Y-round(part.Max.Y), round(part.Max.X), page.Max.Y-round(part.Min.Y)).Intersect(page)
	if area.Empty() {
		area = image.Rect(0, 0, 1, 1)
	}
	view := &image.RGBA{
		Pix:    p.Picture.Pix[p.Picture.PixOffset(area.Min.X, area.Min.Y) : p.Picture.PixOffset(area.Max.X-1, area.Max.Y-1)+4],
		Stride: p.Picture.Stride, Rect: image.Rect(0, 0, area.Dx(), area.Dy()),
	}
	// Text is placed relative to the height of the page, which may be a fraction of pixels.
	tile = newCanvasOn(view, float64(area.Dx()), float64(area.Dy())+p.height-float64(page.Dy()), int(p.DPI()))
	return tile, vg.Point{X: -p.pixelsToLength(float64(area.Min.X)), Y: -p.pixelsToLength(float64(page.Max.Y - area.Max.Y))}
}

func (p *Canvas) pixelsToLength(pixels float64) vg.Length {
	return vg.Length(pixels/p.DPI()) * vg.Inch
}

// Size implements vg.CanvasSizer.
func (p *Canvas) Size() (w, h vg.Length) {
	return p.pixelsToLength(p.width), p.pixelsToLength(p.height)
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
	p.pen.transformed = true
	p.Canvas.Rotate(radians)
}

// Translate implements vg.Canvas.
func (p *Canvas) Translate(to vg.Point) {
	p.pen.transformed = true
	p.Canvas.Translate(to)
}

// Scale implements vg.Canvas.
func (p *Canvas) Scale(x, y float64) {
	p.pen.transformed = true
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
	lines, ok := p.convertLongPath(path)
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
	dashLines(lines, dashes, dots(p.pen.offset)).forEachPolygon(s.strokePolyline)
	p.fillPolygons(s.to)
}

// Fill implements vg.Canvas.
func (p *Canvas) Fill(path vg.Path) {
	if r, ok := p.findSolidRect(path); ok {
		p.fillRect(r)
		return
	}
	p.blank = false
	lines, ok := p.convertLongPath(path)
	if !ok {
		p.Canvas.Fill(path)
		return
	}
	p.fillPolygons(lines)
}

// convertLongPath converts a long path of straight lines to polygons in pixels. ok is false if the
// path is short, has curves, or is transformed; then gonum should draw it.
func (p *Canvas) convertLongPath(path vg.Path) (lines *polygonList, ok bool) {
	if len(path) < minLongPathComponents || p.pen.transformed {
		return nil, false
	}
	height := float64(p.Picture.Rect.Dy())
	lines = &polygonList{dots: make([]pixelPoint, 0, len(path))}
	begin := 0
	for _, c := range path {
		switch c.Type {
		case vg.MoveComp:
			if begin < len(lines.dots) {
				lines.endPolygon()
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
		lines.dots = append(lines.dots, pixelPoint{c.Pos.X.Dots(p.DPI()), height - c.Pos.Y.Dots(p.DPI())})
	}
	lines.endPolygon()
	return lines, true
}

// fillPolygons fills polygons with the pen's color. Where polygons overlap, the area is painted
// once.
func (p *Canvas) fillPolygons(s *polygonList) {
	lo, hi := pixelPoint{math.Inf(1), math.Inf(1)}, pixelPoint{math.Inf(-1), math.Inf(-1)}
	for _, d := range s.dots {
		lo, hi = pixelPoint{min(lo.x, d.x), min(lo.y, d.y)}, pixelPoint{max(hi.x, d.x), max(hi.y, d.y)}
	}
	const far = 1 << 20 // pixels, outside any image
	if !(lo.x <= hi.x && lo.x > -far && lo.y > -far && hi.x < far && hi.y < far) {
		return
	}
	area := image.Rect(int(math.Floor(lo.x)), int(math.Floor(lo.y)), int(math.Ceil(hi.x))+1, int(math.Ceil(hi.y))+1).Intersect(p.Picture.Rect)
	if area.Empty() {
		return
	}
	r := &p.coverage
	r.Reset(area.Dx(), area.Dy())
	at := func(d pixelPoint) (x, y float32) {
		return float32(d.x - float64(area.Min.X)), float32(d.y - float64(area.Min.Y))
	}
	s.forEachPolygon(func(polygon []pixelPoint) {
		if len(polygon) < 3 {
			return
		}
		r.MoveTo(at(polygon[0]))
		for _, d := range polygon[1:] {
			r.LineTo(at(d))
		}
		r.ClosePath()
	})
	p.blendArea(area)
}

// blendArea blends the pen's color into an area, in proportion to its coverage.
func (p *Canvas) blendArea(area image.Rectangle) {
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
			// Porter-Duff "over": the present color is multiplied by 1 − alpha.
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
	if p.pen.transformed || f.Font.Size == 0 {
		at.Y -= p.pixelsToLength(p.height - 1) // gonum's canvas is one pixel high
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
		Dot: fixed.Point26_6{X: fix(at.X.Dots(p.DPI())), Y: fix(p.height - at.Y.Dots(p.DPI()))},
	}
	d.DrawString(text)
}

// kernedFace corrects the kerning of x/image's opentype.Face. Its method Kern returns font units
// regardless of the face's size, so that small letters would overlap.
type kernedFace struct {
	ximage.Face
	perUnit float64 // 1/64 pixels per font unit
}

func (f kernedFace) Kern(r0, r1 rune) fixed.Int26_6 {
	return fixed.Int26_6(math.Round(float64(f.Face.Kern(r0, r1)) * f.perUnit))
}

// findSolidRect returns the pixels inside path. ok reports whether they can be filled without
// blending: the path is a rectangle whose edges are at edges of pixels or outside of the image, and
// the color is opaque.
func (p *Canvas) findSolidRect(path vg.Path) (pixels image.Rectangle, ok bool) {
	img := p.Picture
	if len(path) != 5 || p.pen.transformed || path[4].Type != vg.CloseComp {
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
	// vg.Rectangle.Path starts at the lower left corner and continues to the right.
	if at[0].Y != at[1].Y || at[1].X != at[2].X || at[2].Y != at[3].Y || at[3].X != at[0].X {
		return image.Rectangle{}, false
	}
	w, h := float64(img.Rect.Dx()), float64(img.Rect.Dy())
	inside := func(l vg.Length, size float64) float64 { return min(max(l.Dots(p.DPI()), 0), size) }
	edges := [4]float64{inside(at[0].X, w), h - inside(at[2].Y, h), inside(at[2].X, w), h - inside(at[0].Y, h)}
	var r [4]int
	for i, e := range edges {
		// Half a unit of the 26.6 fixed-point numbers in gonum's rasterizer.
		if r[i] = int(math.Round(e)); math.Abs(e-float64(r[i])) > 1.0/128 {
			return image.Rectangle{}, false
		}
	}
	return image.Rect(r[0], r[1], r[2], r[3]), true
}

// fillRect fills a rectangle of the image with the pen's color, which must be opaque.
func (p *Canvas) fillRect(r image.Rectangle) {
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

// WriteTo writes the image as a PNG.
func (p *Canvas) WriteTo(w io.Writer) (int64, error) { return writePNG(w, p.Picture, p.DPI()) }
