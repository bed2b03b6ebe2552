package element

import (
	"image"

	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// zoomCanvas multiplies all lengths by a factor: coordinates, line widths, dashes and
// text sizes. A figure of another size is laid out as an image of default size and drawn
// on a zoomCanvas.
type zoomCanvas struct {
	vg.Canvas
	by vg.Length
}

// Zoomed returns a canvas that draws on c with all lengths multiplied by factor. Its own
// width and height are those of c divided by factor.
func Zoomed(c draw.Canvas, factor vg.Length) draw.Canvas {
	if factor == 1 {
		return c
	}
	return draw.Canvas{Canvas: zoomCanvas{c.Canvas, factor}, Rectangle: Scaled(c.Rectangle, 1/factor)}
}

// Scaled returns r with its coordinates multiplied by by.
func Scaled(r vg.Rectangle, by vg.Length) vg.Rectangle {
	return vg.Rectangle{Min: r.Min.Scale(by), Max: r.Max.Scale(by)}
}

// SetLineWidth implements vg.Canvas.
func (z zoomCanvas) SetLineWidth(w vg.Length) { z.Canvas.SetLineWidth(w * z.by) }

// SetLineDash implements vg.Canvas.
func (z zoomCanvas) SetLineDash(dashes []vg.Length, offset vg.Length) {
	out := make([]vg.Length, len(dashes))
	for i, d := range dashes {
		out[i] = d * z.by
	}
	z.Canvas.SetLineDash(out, offset*z.by)
}

// Translate implements vg.Canvas.
func (z zoomCanvas) Translate(to vg.Point) { z.Canvas.Translate(to.Scale(z.by)) }

// Stroke implements vg.Canvas.
func (z zoomCanvas) Stroke(p vg.Path) { z.Canvas.Stroke(z.path(p)) }

// Fill implements vg.Canvas.
func (z zoomCanvas) Fill(p vg.Path) { z.Canvas.Fill(z.path(p)) }

// path returns p with its coordinates multiplied.
func (z zoomCanvas) path(p vg.Path) vg.Path {
	out := make(vg.Path, len(p))
	for i, c := range p {
		c.Pos, c.Radius = c.Pos.Scale(z.by), c.Radius*z.by
		control := make([]vg.Point, len(c.Control))
		for j, at := range c.Control {
			control[j] = at.Scale(z.by)
		}
		c.Control = control
		out[i] = c
	}
	return out
}

// FillString implements vg.Canvas.
func (z zoomCanvas) FillString(f font.Face, at vg.Point, text string) {
	f.Font.Size *= z.by
	z.Canvas.FillString(f, at.Scale(z.by), text)
}

// DrawImage implements vg.Canvas.
func (z zoomCanvas) DrawImage(r vg.Rectangle, img image.Image) {
	z.Canvas.DrawImage(Scaled(r, z.by), img)
}
