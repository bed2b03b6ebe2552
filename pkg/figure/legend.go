package figure

import (
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// entry is one of the legend: what it looks like, and its name.
type entry struct {
	name  string
	icons []plot.Thumbnailer
}

// key draws a line and a glyph (either may be absent) as a legend's icon.
type key struct {
	line  draw.LineStyle
	glyph draw.GlyphStyle
}

// Thumbnail implements plot.Thumbnailer.
func (k key) Thumbnail(c *draw.Canvas) {
	y := c.Center().Y
	if k.line.Width > 0 {
		c.StrokeLine2(k.line, c.Min.X, y, c.Max.X, y)
	}
	if k.glyph.Shape != nil {
		c.DrawGlyph(k.glyph, c.Center())
	}
}

// Sizes of the legend.
const (
	iconWidth = vg.Length(26)
	iconGap   = vg.Length(5)
	columnGap = vg.Length(14)
)

func legendStyle() text.Style {
	style := textStyle(fontSize - 1)
	style.YAlign = draw.YCenter
	return style
}

func legendRowHeight() vg.Length { return legendStyle().FontExtents().Height + 3 }

// legendColumns places the entries in rows of the given width, in as many
// columns as fit. It returns the left edge of each column; the number of rows
// follows.
func legendColumns(entries []entry, width vg.Length) []vg.Length {
	style := legendStyle()
	for n := len(entries); n > 1; n-- {
		widths := make([]vg.Length, n)
		for i, e := range entries {
			widths[i%n] = max(widths[i%n], iconWidth+iconGap+style.Width(e.name)+columnGap)
		}
		edges := make([]vg.Length, n)
		x := vg.Length(0)
		for i, w := range widths {
			edges[i] = x
			x += w
		}
		if x-columnGap <= width {
			return edges
		}
	}
	return []vg.Length{0}
}

// makeRoom adds the height of the legend's rows after the first, so that the
// data keep theirs.
func (f *Figure) makeRoom() {
	if f.fixed {
		return
	}
	const axis = 50 // about what labels take on the left
	columns := legendColumns(f.legend, f.Width-2*margin-axis)
	if len(columns) > 0 {
		rows := (len(f.legend) + len(columns) - 1) / len(columns)
		f.Height += vg.Length(rows-1) * legendRowHeight()
	}
}

// drawLegend draws the entries at the top of c and returns the height that
// they take. It stands outside the plot, so that it covers no data.
func drawLegend(c draw.Canvas, entries []entry) vg.Length {
	if len(entries) == 0 {
		return 0
	}
	style, rowHeight := legendStyle(), legendRowHeight()
	columns := legendColumns(entries, c.Max.X-c.Min.X)
	y := c.Max.Y - rowHeight/2
	for i, e := range entries {
		x := c.Min.X + columns[i%len(columns)]
		y = c.Max.Y - rowHeight/2 - vg.Length(i/len(columns))*rowHeight
		box := draw.Canvas{Canvas: c.Canvas, Rectangle: vg.Rectangle{
			Min: vg.Point{X: x, Y: y - rowHeight/2}, Max: vg.Point{X: x + iconWidth, Y: y + rowHeight/2},
		}}
		for _, t := range e.icons {
			t.Thumbnail(&box)
		}
		// +1: the eye centres on small letters, not on descenders.
		c.FillText(style, vg.Point{X: x + iconWidth + iconGap, Y: y + 1}, shortened(e.name, c.Max.X-x-iconWidth-iconGap, style.Width))
	}
	return c.Max.Y - (y - rowHeight/2) + 4
}
