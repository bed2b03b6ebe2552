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

// Sizes of a legend that is not shrunk.
const (
	iconWidth  = vg.Length(26)
	iconGap    = vg.Length(5)
	columnGap  = vg.Length(14)
	legendGap  = vg.Length(4)  // between the legend and the plot below or above it
	legendSide = vg.Length(10) // between the plot and a legend beside it
)

// legend is a legend that is laid out: names in columns, row by row.
type legend struct {
	position string // LegendTop, LegendBottom or LegendRight
	entries  []entry
	names    []string    // of the entries, shortened where they are too wide
	style    text.Style  // of the names
	shrunk   vg.Length   // factor of the sizes above
	columns  []vg.Length // left edges
	size     vg.Point
}

// newLegend lays out entries in rows of the given width, in as many columns as
// fit, with everything smaller by the factor shrunk. Names wider than widest
// are shortened.
func newLegend(entries []entry, position string, room, widest, shrunk vg.Length) legend {
	l := legend{position: position, entries: entries, shrunk: shrunk, style: textStyle((fontSize - 1) * shrunk)}
	l.style.YAlign = draw.YCenter
	widest = min(widest, room-l.icon())
	for _, e := range entries {
		l.names = append(l.names, shortened(e.name, widest, l.style.Width))
	}
	most := len(entries)
	if position == LegendRight {
		most = 1
	}
	for n := most; n >= 1; n-- {
		widths := make([]vg.Length, n)
		for i, name := range l.names {
			widths[i%n] = max(widths[i%n], l.icon()+l.style.Width(name)+columnGap*shrunk)
		}
		l.columns, l.size.X = make([]vg.Length, n), 0
		for i, w := range widths {
			l.columns[i] = l.size.X
			l.size.X += w
		}
		l.size.X -= columnGap * shrunk
		if l.size.X <= room {
			break
		}
	}
	if len(l.columns) > 0 {
		l.size.Y = vg.Length((len(entries)+len(l.columns)-1)/len(l.columns)) * l.rowHeight()
	}
	return l
}

// icon returns the width of an icon and of the gap beside it.
func (l legend) icon() vg.Length { return (iconWidth + iconGap) * l.shrunk }

func (l legend) rowHeight() vg.Length { return l.style.FontExtents().Height + 3*l.shrunk }

// distinct reports whether no two names that differ were shortened to the same
// text.
func (l legend) distinct() bool {
	for i := range l.names {
		for j := range i {
			if l.names[i] == l.names[j] && l.entries[i].name != l.entries[j].name {
				return false
			}
		}
	}
	return true
}

// draw draws the legend with its upper left corner at a point.
func (l legend) draw(c draw.Canvas, corner vg.Point) {
	height := l.rowHeight()
	for i, e := range l.entries {
		x := corner.X + l.columns[i%len(l.columns)]
		y := corner.Y - height/2 - vg.Length(i/len(l.columns))*height
		box := draw.Canvas{Canvas: c.Canvas, Rectangle: vg.Rectangle{
			Min: vg.Point{X: x, Y: y - height/2}, Max: vg.Point{X: x + iconWidth*l.shrunk, Y: y + height/2},
		}}
		for _, t := range e.icons {
			t.Thumbnail(&box)
		}
		// +1: the eye centres on small letters, not on descenders.
		c.FillText(l.style, vg.Point{X: x + l.icon(), Y: y + 1}, l.names[i])
	}
}

// take cuts the legend's room off the area of the plot.
func (l legend) take(area vg.Rectangle) vg.Rectangle {
	switch {
	case len(l.entries) == 0:
	case l.position == LegendRight:
		area.Max.X -= l.size.X + legendSide
	case l.position == LegendBottom:
		area.Min.Y += l.size.Y + legendGap
	default:
		area.Max.Y -= l.size.Y + legendGap
	}
	return area
}

// Options.Legend.
const (
	LegendTop    = "top"    // above the plot
	LegendBottom = "bottom" // below it
	LegendRight  = "right"  // beside it
	LegendNone   = "none"
)

// legendPositions lists the values of Options.Legend.
func legendPositions() []string {
	return []string{LegendTop, LegendBottom, LegendRight, LegendNone}
}

// chooseLegend lays out the legend so that the data keep most room. It goes
// from a legend of full size above the plot to smaller ones, below and beside
// it, and last to shortened names; the first that leaves the data enough is
// taken, else the one that leaves most. share returns the part of the picture
// that the data have beside a legend.
func (f *Figure) chooseLegend(a *arrangement, height, top, whole vg.Length, share func(legend) float64) legend {
	none := legend{position: LegendNone}
	if len(f.legend) == 0 || f.options.Legend == LegendNone {
		return none
	}
	enough := float64(goodShare)
	if height >= f.natural && f.options.HeightInches == 0 { // the height was made for the legend
		enough = leastShare
	}
	best, most := none, -1.0
	for _, widest := range []vg.Length{1, 0.45, 0.3} { // of the picture
		for _, shrunk := range []vg.Length{1, 0.9, 0.8, 0.7} {
			if shrunk < 1 && (fontSize-1)*shrunk*a.zoom < leastText {
				continue
			}
			for _, position := range []string{LegendTop, LegendBottom, LegendRight} {
				if f.options.Legend != "" && f.options.Legend != position {
					continue
				}
				room := top
				if position != LegendTop {
					room = whole
				}
				l := newLegend(f.legend, position, room, widest*whole, shrunk)
				if l.size.X > room || !l.distinct() {
					continue
				}
				s := share(l)
				if s >= enough {
					return l
				}
				if s > most {
					best, most = l, s
				}
			}
		}
		if most >= tolerableShare {
			return best
		}
	}
	return best
}

// makeRoom adds the height of the legend's rows after the first, so that the
// data keep theirs.
func (f *Figure) makeRoom() {
	if f.options.HeightInches > 0 || f.options.Legend == LegendRight || f.options.Legend == LegendNone {
		f.natural = f.Height
		return
	}
	const axis = 50 // about what labels take on the left
	f.natural = f.Height
	zoom := f.zoom(f.Width, f.Height)
	room := f.Width/zoom - 2*margin - axis
	l := newLegend(f.legend, LegendTop, room, room, 1)
	if len(l.columns) > 0 {
		f.Height += (l.size.Y - l.rowHeight()) * zoom
	}
	f.natural = f.Height
}
