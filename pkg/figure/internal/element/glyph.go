package element

import (
	"image/color"
	"math"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Glyphs returns glyphs that distinguish series without color. RingGlyph is not among them, because
// it marks the untrained network.
func Glyphs() []draw.GlyphDrawer {
	return []draw.GlyphDrawer{
		draw.CircleGlyph{},
		draw.BoxGlyph{},
		draw.PyramidGlyph{},
		OutlineGlyph{{-1, -1, 1, 1}, {-1, 1, 1, -1}},               // cross
		OutlineGlyph{{-1, -1, 1, -1, 1, 1, -1, 1, -1, -1}},         // square
		OutlineGlyph{{-1.15, 0.8, 1.15, 0.8, 0, -1.2, -1.15, 0.8}}, // triangle on its tip
		OutlineGlyph{{-1.2, 0, 0, -1.2, 1.2, 0, 0, 1.2, -1.2, 0}},  // diamond
		OutlineGlyph{{-1.2, 0, 1.2, 0}, {0, -1.2, 0, 1.2}},         // plus
	}
}

// glyphOutlineWidth is the width of a glyph's lines. Gonum's are too thin for a notebook.
const glyphOutlineWidth = 1.4

// OutlineGlyph is a glyph of lines. Each line is a list of x, y pairs in units of the glyph's radius.
type OutlineGlyph [][]float64

// DrawGlyph implements draw.GlyphDrawer.
func (o OutlineGlyph) DrawGlyph(c *draw.Canvas, style draw.GlyphStyle, at vg.Point) {
	c.SetLineStyle(draw.LineStyle{Color: style.Color, Width: glyphOutlineWidth})
	for _, xy := range o {
		var path vg.Path
		for i := 0; i+1 < len(xy); i += 2 {
			p := vg.Point{X: at.X + vg.Length(xy[i])*style.Radius, Y: at.Y + vg.Length(xy[i+1])*style.Radius}
			if i == 0 {
				path.Move(p)
			} else {
				path.Line(p)
			}
		}
		c.Stroke(path)
	}
}

// RingGlyph is a circle that is not filled.
type RingGlyph struct{}

// DrawGlyph implements draw.GlyphDrawer.
func (RingGlyph) DrawGlyph(c *draw.Canvas, style draw.GlyphStyle, at vg.Point) {
	c.SetLineStyle(draw.LineStyle{Color: style.Color, Width: glyphOutlineWidth})
	var path vg.Path
	path.Move(vg.Point{X: at.X + style.Radius, Y: at.Y})
	path.Arc(at, style.Radius, 0, 2*math.Pi)
	path.Close()
	c.Stroke(path)
}

// OutlinedDotGlyph is a filled circle with a white and a black outline, so that it is visible on a
// bar of any color.
type OutlinedDotGlyph struct{}

// DrawGlyph implements draw.GlyphDrawer.
func (OutlinedDotGlyph) DrawGlyph(c *draw.Canvas, style draw.GlyphStyle, at vg.Point) {
	const edge = 1.5
	inner := style
	style.Color, style.Radius = color.White, style.Radius+edge
	for _, s := range []draw.GlyphStyle{style, inner} {
		c.SetColor(s.Color) // CircleGlyph leaves this to its caller
		draw.CircleGlyph{}.DrawGlyph(c, s, at)
	}
	inner.Color = color.Black
	RingGlyph{}.DrawGlyph(c, inner, at)
}
