package element

import (
	"image"

	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// zoomCanvas multiplies coordinates, line widths, dashes and text sizes by a factor. A figure of
// any size is laid out at the default size and then drawn on a zoomCanvas.
type zoomCanvas struct {
	vg.Canvas
	factor vg.Length
}

// NewZoomCanvas returns a canvas that draws on c with all lengths multiplied by factor. Its size is
// that of c divided by factor.
func NewZoomCanvas(c draw.Canvas, factor vg.Length) draw.Canvas {
	if factor == 1 {
		return c
	}
	return draw.Canvas{Canvas: zoomCanvas{c.Canvas, factor}, Rectangle: ScaleRectangle(c.Rectangle, 1/factor)}
}

// ScaleRectangle returns r with its coordinates multiplied by factor.
func ScaleRectangle(r vg.Rectangle, factor vg.Length) vg.Rectangle {
	return vg.Rectangle{Min: r.Min.Scale(factor), Max: r.Max.Scale(factor)}
}

func (z zoomCanvas) SetLineWidth(w vg.Length) { z.Canvas.SetLineWidth(w * z.factor) }

func (z zoomCanvas) SetLineDash(dashes []vg.Length, offset vg.Length) {
	out := make([]vg.Length, len(dashes))
	for i, d := range dashes {
		out[i] = d * z.factor
	}
	z.Canvas.SetLineDash(out, offset*z.factor)
}

func (z zoomCanvas) Translate(to vg.Point) { z.Canvas.Translate(to.Scale(z.factor)) }

func (z zoomCanvas) Stroke(p vg.Path) { z.Canvas.Stroke(z.scalePath(p)) }

func (z zoomCanvas) Fill(p vg.Path) { z.Canvas.Fill(z.scalePath(p)) }

func (z zoomCanvas) scalePath(p vg.Path) vg.Path {
	out := make(vg.Path, len(p))
	for i, c := range p {
		c.Pos, c.Radius = c.Pos.Scale(z.factor), c.Radius*z.factor
		control := make([]vg.Point, len(c.Control))
		for j, at := range c.Control {
			control[j] = at.Scale(z.factor)
		}
		c.Control = control
		out[i] = c
	}
	return out
}

func (z zoomCanvas) FillString(f font.Face, at vg.Point, text string) {
	f.Font.Size *= z.factor
	z.Canvas.FillString(f, at.Scale(z.factor), text)
}

func (z zoomCanvas) DrawImage(r vg.Rectangle, img image.Image) {
	z.Canvas.DrawImage(ScaleRectangle(r, z.factor), img)
}
