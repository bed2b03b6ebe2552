package element

import (
	"cmp"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// LegendEntry is one entry of the legend: icons, drawn over each other, and a name.
type LegendEntry struct {
	Name  string
	Icons []plot.Thumbnailer
	// End is the value at the right end of the entry's line. HasEnd is false if the entry does not
	// belong to a single line.
	End    float64
	HasEnd bool
}

// LegendKey draws a line and a glyph as a legend's icon. Either may be absent.
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

// Sizes of a legend at full scale.
const (
	iconWidth     = vg.Length(26)
	iconGap       = vg.Length(5)
	columnGap     = vg.Length(14)
	LegendGap     = vg.Length(4)  // vertical gap between legend and plot
	legendSideGap = vg.Length(10) // horizontal gap between plot and legend
)

// Legend is a legend with its layout: names in columns, row by row.
type Legend struct {
	Position string // LegendTop, LegendBottom or LegendRight
	Entries  []LegendEntry
	Names    []string    // names of the entries, shortened if they are too wide
	Style    text.Style  // style of the names
	scale    vg.Length   // factor of all sizes, at most 1
	Columns  []vg.Length // left edge of each column
	Size     vg.Point
}

// NewLegend lays out entries in as many columns as fit into maxWidth, or in one column for
// LegendRight. All sizes are multiplied by scale. Names wider than maxNameWidth are shortened.
func NewLegend(entries []LegendEntry, position string, maxWidth, maxNameWidth, scale vg.Length) Legend {
	l := Legend{Position: position, Entries: entries, scale: scale, Style: TextStyle((FontSize - 1) * scale)}
	l.Style.YAlign = draw.YCenter
	maxNameWidth = min(maxNameWidth, maxWidth-l.IconWidth())
	for _, e := range entries {
		l.Names = append(l.Names, ShortenText(e.Name, maxNameWidth, l.Style.Width))
	}
	most := len(entries)
	if position == LegendRight {
		most = 1
	}
	for n := most; n >= 1; n-- {
		widths := make([]vg.Length, n)
		for i, name := range l.Names {
			widths[i%n] = max(widths[i%n], l.IconWidth()+l.Style.Width(name)+columnGap*scale)
		}
		l.Columns, l.Size.X = make([]vg.Length, n), 0
		for i, w := range widths {
			l.Columns[i] = l.Size.X
			l.Size.X += w
		}
		l.Size.X -= columnGap * scale
		if l.Size.X <= maxWidth {
			break
		}
	}
	if len(l.Columns) > 0 {
		l.Size.Y = vg.Length((len(entries)+len(l.Columns)-1)/len(l.Columns)) * l.RowHeight()
	}
	return l
}

// IconWidth returns the width of an icon, including the gap after it.
func (l Legend) IconWidth() vg.Length { return (iconWidth + iconGap) * l.scale }

// RowHeight returns the height of one row of names.
func (l Legend) RowHeight() vg.Length { return l.Style.FontExtents().Height + 3*l.scale }

// HasDistinctNames reports whether shortened names are still different.
func (l Legend) HasDistinctNames() bool {
	for i := range l.Names {
		for j := range i {
			if l.Names[i] == l.Names[j] && l.Entries[i].Name != l.Entries[j].Name {
				return false
			}
		}
	}
	return true
}

// Draw draws the legend with its upper left corner at corner.
func (l Legend) Draw(c draw.Canvas, corner vg.Point) {
	height := l.RowHeight()
	for i := range l.Entries {
		l.drawEntry(c, i, corner.X+l.Columns[i%len(l.Columns)], corner.Y-height/2-vg.Length(i/len(l.Columns))*height)
	}
}

// drawEntry draws the i-th entry. x is the left edge, and y the middle.
func (l Legend) drawEntry(c draw.Canvas, i int, x, y vg.Length) {
	height := l.RowHeight()
	box := draw.Canvas{Canvas: c.Canvas, Rectangle: vg.Rectangle{
		Min: vg.Point{X: x, Y: y - height/2}, Max: vg.Point{X: x + iconWidth*l.scale, Y: y + height/2},
	}}
	for _, t := range l.Entries[i].Icons {
		t.Thumbnail(&box)
	}
	// +1: text looks centered if its lower-case letters are, without their descenders.
	c.FillText(l.Style, vg.Point{X: x + l.IconWidth(), Y: y + 1}, l.Names[i])
}

// DrawAtLineEnds draws the legend to the right of the plot. Each name is beside the end of its
// line, as close as the other names allow. data is the data area of p, and left the legend's left
// edge. Names without a line are at the bottom.
func (l Legend) DrawAtLineEnds(c draw.Canvas, p *plot.Plot, data vg.Rectangle, left vg.Length) {
	height := l.RowHeight()
	var order []int
	ends := make([]vg.Length, len(l.Entries))
	for i, e := range l.Entries {
		order = append(order, i)
		ends[i] = data.Min.Y
		if e.HasEnd {
			ends[i] += min(1, max(0, vg.Length(p.Y.Norm(e.End)))) * data.Size().Y
		}
	}
	slices.SortStableFunc(order, func(i, j int) int {
		if a, b := l.Entries[i].HasEnd, l.Entries[j].HasEnd; a != b {
			if a {
				return -1
			}
			return 1
		}
		return cmp.Compare(ends[j], ends[i])
	})
	// From the top down, each name is at the end of its line or below the name before; then, from
	// the bottom up, names below the plot move up.
	at := make([]vg.Length, len(order))
	next := data.Max.Y
	for k, i := range order {
		at[k] = min(ends[i], next)
		next = at[k] - height
	}
	lowest := data.Min.Y + height/2
	for k := len(at) - 1; k >= 0 && at[k] < lowest; k-- {
		at[k] = lowest
		lowest += height
	}
	for k, i := range order {
		if e := l.Entries[i]; e.HasEnd {
			if key, ok := e.Icons[0].(LegendKey); ok {
				c.StrokeLine2(draw.LineStyle{Color: WithAlpha(key.Glyph.Color, leaderAlpha), Width: leaderWidth}, data.Max.X, ends[i], left, at[k])
			}
		}
		l.drawEntry(c, i, left, at[k])
	}
}

// Style of the lines that connect the ends of the plotted lines to their names.
const (
	leaderAlpha = 140
	leaderWidth = vg.Length(0.7)
)

// RemainingArea returns the part of area that the legend leaves for the plot.
func (l Legend) RemainingArea(area vg.Rectangle) vg.Rectangle {
	switch {
	case len(l.Entries) == 0:
	case l.Position == LegendRight:
		area.Max.X -= l.Size.X + legendSideGap
	case l.Position == LegendBottom:
		area.Min.Y += l.Size.Y + LegendGap
	default:
		area.Max.Y -= l.Size.Y + LegendGap
	}
	return area
}

// Positions of a legend relative to the plot.
const (
	LegendTop    = "top"    // above the plot
	LegendBottom = "bottom" // below the plot
	LegendRight  = "right"  // to the right of the plot
)
