package element

import (
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// LegendEntry is one line of the legend: an icon and a name.
type LegendEntry struct {
	Name  string
	Icons []plot.Thumbnailer
}

// LegendKey draws a line and a glyph (either may be absent) as a legend's icon.
type LegendKey struct {
	Line  draw.LineStyle
	Glyph draw.GlyphStyle
}

// Thumbnail implements plot.Thumbnailer.
func (k LegendKey) Thumbnail(c *draw.Canvas) {
	y := c.Center().Y
	if k.Line.Width > 0 {
		c.StrokeLine2(k.Line, c.Min.X, y, c.Max.X, y)
	}
	if k.Glyph.Shape != nil {
		c.DrawGlyph(k.Glyph, c.Center())
	}
}

// Sizes of a legend that is not shrunk.
const (
	iconWidth  = vg.Length(26)
	iconGap    = vg.Length(5)
	columnGap  = vg.Length(14)
	LegendGap  = vg.Length(4)  // between the legend and the plot below or above it
	legendSide = vg.Length(10) // between the plot and a legend beside it
)

// Legend is a legend that is laid out: names in columns, row by row.
type Legend struct {
	Position string // legendTop, legendBottom or legendRight
	Entries  []LegendEntry
	Names    []string    // of the entries, shortened where they are too wide
	Style    text.Style  // of the names
	shrunk   vg.Length   // factor of the sizes above
	Columns  []vg.Length // left edges
	Size     vg.Point
}

// NewLegend lays out entries in rows of the given width, in as many columns as
// fit, with everything smaller by the factor shrunk. Names wider than widest
// are shortened.
func NewLegend(entries []LegendEntry, position string, room, widest, shrunk vg.Length) Legend {
	l := Legend{Position: position, Entries: entries, shrunk: shrunk, Style: TextStyle((FontSize - 1) * shrunk)}
	l.Style.YAlign = draw.YCenter
	widest = min(widest, room-l.Icon())
	for _, e := range entries {
		l.Names = append(l.Names, Shortened(e.Name, widest, l.Style.Width))
	}
	most := len(entries)
	if position == LegendRight {
		most = 1
	}
	for n := most; n >= 1; n-- {
		widths := make([]vg.Length, n)
		for i, name := range l.Names {
			widths[i%n] = max(widths[i%n], l.Icon()+l.Style.Width(name)+columnGap*shrunk)
		}
		l.Columns, l.Size.X = make([]vg.Length, n), 0
		for i, w := range widths {
			l.Columns[i] = l.Size.X
			l.Size.X += w
		}
		l.Size.X -= columnGap * shrunk
		if l.Size.X <= room {
			break
		}
	}
	if len(l.Columns) > 0 {
		l.Size.Y = vg.Length((len(entries)+len(l.Columns)-1)/len(l.Columns)) * l.RowHeight()
	}
	return l
}

// Icon returns the width of an icon and of the gap beside it.
func (l Legend) Icon() vg.Length { return (iconWidth + iconGap) * l.shrunk }

// RowHeight returns the height of one row of names.
func (l Legend) RowHeight() vg.Length { return l.Style.FontExtents().Height + 3*l.shrunk }

// Distinct reports whether no two names that differ were shortened to the same
// text.
func (l Legend) Distinct() bool {
	for i := range l.Names {
		for j := range i {
			if l.Names[i] == l.Names[j] && l.Entries[i].Name != l.Entries[j].Name {
				return false
			}
		}
	}
	return true
}

// Draw draws the legend with its upper left corner at a point.
func (l Legend) Draw(c draw.Canvas, corner vg.Point) {
	height := l.RowHeight()
	for i, e := range l.Entries {
		x := corner.X + l.Columns[i%len(l.Columns)]
		y := corner.Y - height/2 - vg.Length(i/len(l.Columns))*height
		box := draw.Canvas{Canvas: c.Canvas, Rectangle: vg.Rectangle{
			Min: vg.Point{X: x, Y: y - height/2}, Max: vg.Point{X: x + iconWidth*l.shrunk, Y: y + height/2},
		}}
		for _, t := range e.Icons {
			t.Thumbnail(&box)
		}
		// +1: the eye centres on small letters, not on descenders.
		c.FillText(l.Style, vg.Point{X: x + l.Icon(), Y: y + 1}, l.Names[i])
	}
}

// Take cuts the legend's room off the area of the plot.
func (l Legend) Take(area vg.Rectangle) vg.Rectangle {
	switch {
	case len(l.Entries) == 0:
	case l.Position == LegendRight:
		area.Max.X -= l.Size.X + legendSide
	case l.Position == LegendBottom:
		area.Min.Y += l.Size.Y + LegendGap
	default:
		area.Max.Y -= l.Size.Y + LegendGap
	}
	return area
}

// Places of a legend.
const (
	LegendTop    = "top"    // above the plot
	LegendBottom = "bottom" // below it
	LegendRight  = "right"  // beside it
)
