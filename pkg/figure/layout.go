package figure

import (
	"fmt"
	"image/color"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"lockstep/pkg/figure/internal/element"
)

// What a picture needs to be readable.
const (
	leastZoom      = 7.0 / element.FontSize // labels of 7 points, where no size was asked for
	leastText      = 5.5                    // points of any text
	goodShare      = 0.45                   // of the picture, for the data; the legend shrinks or moves to reach it
	tolerableShare = 0.33                   // below it names are shortened as well
	leastShare     = 0.25                   // below it the picture is refused
	leastWidth     = 0.8 * vg.Inch          // of the data
	leastHeight    = 0.5 * vg.Inch
)

// arrangement says where the parts of a figure are. Lengths are those of a
// picture of usual size, which is drawn zoom times as large.
type arrangement struct {
	zoom   vg.Length
	plot   plot.Plot          // without title and labels, with as many ticks as have room
	right  *element.RightAxis // nil without one
	area   vg.Rectangle
	data   vg.Rectangle
	legend element.Legend
	corner vg.Point // upper left of the legend
	texts  []placedText

	// problem says why the picture cannot be read; empty if it can.
	problem string
}

// placedText is the title or the label of an axis.
type placedText struct {
	text  string
	style text.Style
	at    vg.Point
}

// zoom returns how large everything is drawn in a picture of a size, compared
// with one of usual size: less in a smaller one, but more than in proportion,
// so that text can be read.
func (f *Figure) zoom(w, h vg.Length) vg.Length {
	if points := f.options.FontSize; points > 0 {
		return vg.Length(points / element.FontSize)
	}
	const softer = 0.6 // 12 points on 6.4 inches are 8.4 points on 3.5 inches
	smaller := min(float64(w/element.UsualWidth), float64(h/f.natural), 1)
	return vg.Length(max(leastZoom, math.Pow(max(smaller, 0), softer)))
}

// arrange lays the figure out in a rectangle of the picture.
func (f *Figure) arrange(whole vg.Rectangle) *arrangement {
	size := whole.Size()
	a := &arrangement{zoom: f.zoom(size.X, size.Y), plot: *f.plot}
	a.plot.Title.Text, a.plot.BackgroundColor = "", nil // the ground is there
	if f.right != nil {
		axis, its := *f.right.Plot, *f.right
		its.Plot = &axis
		a.right = &its
	}
	inner := element.Scaled(whole, 1/a.zoom)
	inner.Min, inner.Max = inner.Min.Add(vg.Point{X: element.Margin, Y: element.Margin}), inner.Max.Sub(vg.Point{X: element.Margin, Y: element.Margin})
	area := a.placeTitle(f.plot, inner)
	labels := a.placeLabels(inner, &area)
	a.placeLegend(f, inner, area, size)
	a.fitTicks()
	labels()
	a.check(size)
	return a
}

// placeTitle puts the title on top, in as many lines as it needs.
func (a *arrangement) placeTitle(p *plot.Plot, inner vg.Rectangle) vg.Rectangle {
	title, style := p.Title, p.Title.TextStyle
	if title.Text == "" {
		return inner
	}
	lines := element.Wrap(title.Text, inner.Size().X, style.Width)
	a.texts = append(a.texts, placedText{lines, style, vg.Point{X: (inner.Min.X + inner.Max.X) / 2, Y: inner.Max.Y}})
	inner.Max.Y -= style.Rectangle(lines).Size().Y + title.Padding
	return inner
}

// placeLabels takes the labels of the axes off the plot, and their room off the
// area. Gonum makes room for a label as if it stood at the middle of the
// values, which a logarithmic axis has near its end; here labels stand at the
// middle of the axis. The function that it returns places them when it is
// known where that is.
func (a *arrangement) placeLabels(inner vg.Rectangle, area *vg.Rectangle) func() {
	x, y := a.plot.X.Label, a.plot.Y.Label
	a.plot.X.Label.Text, a.plot.Y.Label.Text = "", ""
	if a.right != nil {
		area.Max.X -= a.right.Width()
	}
	left, bottom := area.Min.X, area.Min.Y
	if y.Text != "" {
		area.Min.X += y.TextStyle.Height(y.Text) + y.TextStyle.FontExtents().Descent + y.Padding
	}
	if x.Text != "" {
		area.Min.Y += x.TextStyle.Height(x.Text) + x.Padding
	}
	return func() {
		size := inner.Size()
		center := a.data.Min.Add(a.data.Max).Scale(0.5)
		if y.Text != "" {
			style := a.shrink(y.TextStyle, y.Text, size.Y)
			style.Rotation, style.XAlign, style.YAlign = math.Pi/2, draw.XCenter, draw.YTop
			half := style.Width(y.Text) / 2
			a.texts = append(a.texts, placedText{y.Text, style, vg.Point{X: left, Y: between(center.Y, inner.Min.Y+half, inner.Max.Y-half)}})
		}
		if x.Text != "" {
			style := a.shrink(x.TextStyle, x.Text, size.X)
			half := style.Width(x.Text) / 2
			if a.legend.Position == LegendBottom {
				bottom += a.legend.Size.Y + element.LegendGap
			}
			a.texts = append(a.texts, placedText{x.Text, style, vg.Point{
				X: between(center.X, inner.Min.X+half, inner.Max.X-half), Y: bottom + style.FontExtents().Descent,
			}})
		}
	}
}

// between returns v, or the end of the range from lo to hi that is next to it.
func between(v, lo, hi vg.Length) vg.Length { return max(lo, min(v, hi)) }

// shrink makes a style small enough for a text to have room.
func (a *arrangement) shrink(style text.Style, words string, room vg.Length) text.Style {
	if w := style.Width(words); w > room && w > 0 {
		style.Font.Size *= room / w
	}
	if style.Font.Size*a.zoom < leastText {
		a.refuse("the label %q has no room", words)
	}
	return style
}

// refuse notes why the picture cannot be read; the first reason counts.
func (a *arrangement) refuse(format string, args ...any) {
	if a.problem == "" {
		a.problem = fmt.Sprintf(format, args...)
	}
}

// placeLegend chooses the legend and what is left for the plot.
func (a *arrangement) placeLegend(f *Figure, inner, area vg.Rectangle, size vg.Point) {
	bare := a.dataOf(area)
	taken := area.Size().Sub(bare.Size()) // by the axes
	room := inner.Max.X - bare.Min.X
	a.legend = f.chooseLegend(a, size.Y, room, inner.Size().X, func(l element.Legend) float64 {
		left := l.Take(area).Size().Sub(taken).Scale(a.zoom)  // less than 0 on both sides is no area
		if !(left.X >= leastWidth && left.Y >= leastHeight) { // NaN where nothing is left
			return 0
		}
		return float64(left.X * left.Y / (size.X * size.Y))
	})
	a.area = a.legend.Take(area)
	switch a.legend.Position {
	case LegendRight:
		a.corner = vg.Point{X: inner.Max.X - a.legend.Size.X, Y: a.area.Max.Y}
	case LegendBottom:
		a.corner = vg.Point{X: max(inner.Min.X, min(bare.Min.X, inner.Max.X-a.legend.Size.X)), Y: inner.Min.Y + a.legend.Size.Y}
	default:
		a.corner = vg.Point{X: bare.Min.X, Y: area.Max.Y}
	}
}

// dataOf returns where the data lie in an area of the plot.
func (a *arrangement) dataOf(area vg.Rectangle) vg.Rectangle {
	return a.plot.DataCanvas(draw.Canvas{Rectangle: area}).Rectangle
}

// fitTicks leaves as many ticks as have room.
func (a *arrangement) fitTicks() {
	a.data = a.dataOf(a.area)
	a.fitAxis(&a.plot.X, a.data.Size().X, false)
	a.data = a.dataOf(a.area)
	a.fitAxis(&a.plot.Y, a.data.Size().Y, true)
	a.data = a.dataOf(a.area)
	if a.right != nil {
		a.fitAxis(&a.right.Plot.Y, a.data.Size().Y, true)
	}
}

// fitAxis leaves as many ticks of an axis as have room on a length.
func (a *arrangement) fitAxis(axis *plot.Axis, length vg.Length, vertical bool) {
	if t, ok := axis.Tick.Marker.(element.FittingTicks); ok && length > 0 {
		t.Fit(axis, length, vertical, leastText/a.zoom)
	}
	r := element.Ruler{Axis: axis, Length: length, Vertical: vertical}
	ticks := axis.Tick.Marker.Ticks(axis.Min, axis.Max)
	if r.Collide(ticks) || r.Repeated(ticks) {
		a.refuse("the labels of the axis have no room beside each other")
	}
}

// check notes what is wrong with the picture.
func (a *arrangement) check(size vg.Point) {
	data := a.data.Size().Scale(a.zoom)
	share := float64(data.X * data.Y / (size.X * size.Y))
	switch {
	case !(data.X >= leastWidth && data.Y >= leastHeight && a.data.Size().X <= a.area.Size().X && a.data.Size().Y <= a.area.Size().Y):
		// What gonum makes of no room is NaN, or larger than the area.
		a.refuse("the data have no room beside title, labels and legend")
	case share < leastShare:
		a.refuse("only %.0f %% of the picture are left for the data", 100*share)
	}
}

// draw draws what was laid out.
func (a *arrangement) draw(c draw.Canvas) {
	for _, t := range a.texts {
		c.FillText(t.style, t.at, t.text)
	}
	if len(a.legend.Entries) > 0 {
		a.legend.Draw(c, a.corner)
	}
	plotted := draw.Canvas{Canvas: c.Canvas, Rectangle: a.area}
	a.plot.Draw(plotted)
	if a.right != nil {
		a.right.Draw(draw.Canvas{Canvas: c.Canvas, Rectangle: a.data})
	}
}

// draw draws the figure into a part of a picture.
func (f *Figure) draw(c draw.Canvas) {
	if len(f.panels) > 0 {
		f.drawPanels(c)
		return
	}
	if f.plot.BackgroundColor != nil {
		c.SetColor(f.plot.BackgroundColor)
		c.Fill(c.Rectangle.Path())
	}
	f.drawPlot(c)
}

// drawOnWhite draws the figure where the ground is white already, which it
// mostly wants.
func (f *Figure) drawOnWhite(c draw.Canvas) {
	if f.plot != nil && f.plot.BackgroundColor == color.White {
		f.drawPlot(c)
		return
	}
	f.draw(c)
}

// drawPlot draws what stands on the ground.
func (f *Figure) drawPlot(c draw.Canvas) {
	a := f.arrange(c.Rectangle)
	a.draw(element.Zoomed(c, a.zoom))
}

// tooSmall says why nobody could read the figure in a picture of a size; it is
// empty if it can be read.
func (f *Figure) tooSmall(w, h vg.Length) string {
	whole := vg.Rectangle{Max: vg.Point{X: w, Y: h}}
	if len(f.panels) == 0 {
		return f.arrange(whole).problem
	}
	for i, place := range f.places(f.belowTitle(whole)) {
		size := place.Size()
		if problem := f.panels[i].tooSmall(size.X, size.Y); problem != "" {
			return "panel (" + letter(i) + "): " + problem
		}
	}
	return ""
}

// SizeError is the error of a figure that nobody could read at its size.
type SizeError struct {
	Figure        string
	Width, Height float64 // inches
	Problem       string  // what has no room
	// LeastWidth and LeastHeight are the smallest size that can be read, in
	// inches; 0 if none up to 40 inches can.
	LeastWidth, LeastHeight float64
}

// Error implements error.
func (e *SizeError) Error() string {
	text := fmt.Sprintf("draw figure %s: %.3g × %.3g inches are too small: %s; ", e.Figure, e.Width, e.Height, e.Problem)
	if e.LeastWidth > 0 {
		return text + fmt.Sprintf("use at least %.1f × %.1f inches, or draw fewer series", e.LeastWidth, e.LeastHeight)
	}
	return text + "draw fewer series, or another legend or font size"
}

// readable returns a SizeError if nobody could read the figure at its size.
func (f *Figure) readable() error {
	problem := f.tooSmall(f.Width, f.Height)
	if problem == "" {
		return nil
	}
	e := &SizeError{Figure: f.name, Width: f.Width.Points() / 72, Height: f.Height.Points() / 72, Problem: problem}
	least := math.Inf(1)
	for _, grow := range []vg.Point{{Y: 1}, {X: 1}, {X: 1, Y: 1}} { // higher, wider, both
		w, h, ok := f.grown(grow)
		if area := w * h; ok && area < least-1e-9 {
			least, e.LeastWidth, e.LeastHeight = area, w, h
		}
	}
	return e
}

// grown returns the least size in inches, to a tenth, at which the figure can
// be read when it grows in the directions that are not 0.
func (f *Figure) grown(grow vg.Point) (w, h float64, ok bool) {
	const most = 40 * vg.Inch
	up := func(l vg.Length, by vg.Length) vg.Length { // to the next tenth of an inch
		if by == 0 {
			return l
		}
		return vg.Length(math.Ceil(float64(l/vg.Inch)*10-1e-9)) / 10 * vg.Inch
	}
	at := func(factor float64) (vg.Length, vg.Length) {
		bigger := func(l, by vg.Length) vg.Length { return up(l*(1+by*vg.Length(factor-1)), by) }
		return bigger(f.Width, grow.X), bigger(f.Height, grow.Y)
	}
	for factor := 1.03; ; factor *= 1.03 {
		x, y := at(factor)
		if x > most || y > most {
			return 0, 0, false
		}
		if f.tooSmall(x, y) == "" {
			return float64(x / vg.Inch), float64(y / vg.Inch), true
		}
	}
}

// sized gives the figure the room for its legend, and refuses a size at which
// nobody could read it.
func (f *Figure) sized() (*Figure, error) {
	o, p := f.options, f.plot
	p.X.Label.Text, p.Y.Label.Text = replaced(p.X.Label.Text, o.XLabel), replaced(p.Y.Label.Text, o.YLabel)
	if f.right != nil {
		label := &f.right.Plot.Y.Label
		label.Text = replaced(label.Text, o.RightLabel)
	}
	if o.NoTitle {
		p.Title.Text = ""
	}
	f.makeRoom()
	if err := f.readable(); err != nil {
		return nil, err
	}
	return f, nil
}
