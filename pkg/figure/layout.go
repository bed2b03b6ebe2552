package figure

import (
	"cmp"
	"fmt"
	"image/color"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"lockstep/pkg/figure/internal/element"
	"lockstep/pkg/scaling"
)

// Limits within which an image is readable.
const (
	minZoom             = 7.0 / element.FontSize // labels of 7 points, unless Options.FontSize is set
	minTextSize         = 5.5                    // smallest size of any text, in points
	enoughDataShare     = 0.45                   // share of the image for the data; the legend shrinks or moves to reach it
	acceptableDataShare = 0.33                   // below this share, names in the legend are shortened too
	minDataShare        = 0.25                   // below this share, the size is a SizeError
	minDataWidth        = 0.8 * vg.Inch          // least width of the data area
	minDataHeight       = 0.5 * vg.Inch          // least height of the data area
)

// figureLayout contains the positions of a figure's parts in an image of default size. The drawing
// is scaled by zoom.
type figureLayout struct {
	zoom   vg.Length
	plot   plot.Plot          // without title and labels, with as many ticks as fit
	right  *element.RightAxis // nil if there is none
	area   vg.Rectangle
	data   vg.Rectangle
	legend element.Legend
	corner vg.Point // upper left corner of the legend
	atEnds bool     // see Figure.hasLineEndLegend
	texts  []placedText

	// problem is the reason why the image is illegible, or "" if it is legible.
	problem string
}

// placedText is a title or an axis label with its style and position.
type placedText struct {
	text  string
	style text.Style
	at    vg.Point
}

// zoomFactor returns the factor by which text and lines are scaled in an image of size w × h. In
// smaller images, text shrinks less than the image, so that it remains legible.
func (f *Figure) zoomFactor(w, h vg.Length) vg.Length {
	if points := f.options.FontSize; points > 0 {
		return vg.Length(points / element.FontSize)
	}
	const softer = 0.6 // 12 points on 6.4 inches are 8.4 points on 3.5 inches
	smaller := min(float64(w/element.DefaultWidth), float64(h/f.natural), 1)
	return vg.Length(max(minZoom, math.Pow(max(smaller, 0), softer)))
}

func (f *Figure) layOut(image vg.Rectangle) *figureLayout {
	size := image.Size()
	a := &figureLayout{zoom: f.zoomFactor(size.X, size.Y), plot: *f.plot, atEnds: f.hasLineEndLegend()}
	a.plot.Title.Text, a.plot.BackgroundColor = "", nil // the background is drawn already
	if f.right != nil {
		axis, its := *f.right.Plot, *f.right
		its.Plot = &axis
		a.right = &its
	}
	inner := element.ScaleRectangle(image, 1/a.zoom)
	inner.Min, inner.Max = inner.Min.Add(vg.Point{X: element.Margin, Y: element.Margin}), inner.Max.Sub(vg.Point{X: element.Margin, Y: element.Margin})
	area := a.placeTitle(f.plot, inner)
	labels := a.placeLabels(inner, &area)
	a.placeLegend(f, inner, area, size)
	a.fitTicks()
	labels()
	a.checkDataAreaSize(size)
	return a
}

// placeTitle places the title at the top of inner, wrapped into as many lines as needed. It returns
// the area below the title.
func (a *figureLayout) placeTitle(p *plot.Plot, inner vg.Rectangle) vg.Rectangle {
	title, style := p.Title, p.Title.TextStyle
	if title.Text == "" {
		return inner
	}
	lines := element.WrapText(title.Text, inner.Size().X, style.Width)
	a.texts = append(a.texts, placedText{lines, style, vg.Point{X: (inner.Min.X + inner.Max.X) / 2, Y: inner.Max.Y}})
	inner.Max.Y -= style.Rectangle(lines).Size().Y + title.Padding
	return inner
}

// placeLabels removes the axis labels from the plot, and reserves space for them in area. The
// caller calls the returned function once the data area is known; it places each label at the
// middle of its axis. Gonum would place a label at the middle of the values, which is near the end
// of a logarithmic axis.
func (a *figureLayout) placeLabels(inner vg.Rectangle, area *vg.Rectangle) func() {
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
			style := a.shrinkToFit(y.TextStyle, y.Text, size.Y)
			style.Rotation, style.XAlign, style.YAlign = math.Pi/2, draw.XCenter, draw.YTop
			half := style.Width(y.Text) / 2
			a.texts = append(a.texts, placedText{y.Text, style, vg.Point{X: left, Y: clamp(center.Y, inner.Min.Y+half, inner.Max.Y-half)}})
		}
		if x.Text != "" {
			style := a.shrinkToFit(x.TextStyle, x.Text, size.X)
			half := style.Width(x.Text) / 2
			if a.legend.Position == LegendBottom {
				bottom += a.legend.Size.Y + element.LegendGap
			}
			a.texts = append(a.texts, placedText{x.Text, style, vg.Point{
				X: clamp(center.X, inner.Min.X+half, inner.Max.X-half), Y: bottom + style.FontExtents().Descent,
			}})
		}
	}
}

func clamp(v, lo, hi vg.Length) vg.Length { return max(lo, min(v, hi)) }

// shrinkToFit returns style, with a smaller font if label is wider than maxWidth. It records a
// problem if the label would be illegible.
func (a *figureLayout) shrinkToFit(style text.Style, label string, maxWidth vg.Length) text.Style {
	if w := style.Width(label); w > maxWidth && w > 0 {
		style.Font.Size *= maxWidth / w
	}
	if style.Font.Size*a.zoom < minTextSize {
		a.setLegibilityProblem("the label %q does not fit", label)
	}
	return style
}

// setLegibilityProblem records why the image is illegible, unless a reason is recorded already.
func (a *figureLayout) setLegibilityProblem(format string, args ...any) {
	if a.problem == "" {
		a.problem = fmt.Sprintf(format, args...)
	}
}

// placeLegend chooses the size and position of the legend, and sets a.area to the area that remains
// for the plot.
func (a *figureLayout) placeLegend(f *Figure, inner, area vg.Rectangle, size vg.Point) {
	bare := a.dataArea(area)
	taken := area.Size().Sub(bare.Size()) // space for the axes
	room := inner.Max.X - bare.Min.X
	a.legend = f.layOutLegend(a, size.Y, room, inner.Size().X, func(l element.Legend) float64 {
		left := l.RemainingArea(area).Size().Sub(taken).Scale(a.zoom) // both may be negative, so check before multiplying
		if !(left.X >= minDataWidth && left.Y >= minDataHeight) {     // NaN if nothing remains
			return 0
		}
		return float64(left.X * left.Y / (size.X * size.Y))
	})
	a.area = a.legend.RemainingArea(area)
	switch a.legend.Position {
	case LegendRight:
		a.corner = vg.Point{X: inner.Max.X - a.legend.Size.X, Y: a.area.Max.Y}
	case LegendBottom:
		a.corner = vg.Point{X: max(inner.Min.X, min(bare.Min.X, inner.Max.X-a.legend.Size.X)), Y: inner.Min.Y + a.legend.Size.Y}
	default:
		a.corner = vg.Point{X: bare.Min.X, Y: area.Max.Y}
	}
}

func (a *figureLayout) dataArea(area vg.Rectangle) vg.Rectangle {
	return a.plot.DataCanvas(draw.Canvas{Rectangle: area}).Rectangle
}

func (a *figureLayout) fitTicks() {
	a.data = a.dataArea(a.area)
	a.fitAxisTicks(&a.plot.X, a.data.Size().X, false)
	a.data = a.dataArea(a.area)
	a.fitAxisTicks(&a.plot.Y, a.data.Size().Y, true)
	a.data = a.dataArea(a.area)
	if a.right != nil {
		a.fitAxisTicks(&a.right.Plot.Y, a.data.Size().Y, true)
	}
}

func (a *figureLayout) fitAxisTicks(axis *plot.Axis, length vg.Length, vertical bool) {
	if t, ok := axis.Tick.Marker.(element.FittingTicks); ok && length > 0 {
		t.Fit(axis, length, vertical, minTextSize/a.zoom)
	}
	r := element.LabelMeasurer{Axis: axis, Length: length, Vertical: vertical}
	ticks := axis.Tick.Marker.Ticks(axis.Min, axis.Max)
	if r.HasOverlap(ticks) || r.HasAmbiguousLabels(ticks) {
		a.setLegibilityProblem("the labels of the axis overlap")
	}
}

func (a *figureLayout) checkDataAreaSize(size vg.Point) {
	data := a.data.Size().Scale(a.zoom)
	share := float64(data.X * data.Y / (size.X * size.Y))
	switch {
	case !(data.X >= minDataWidth && data.Y >= minDataHeight && a.data.Size().X <= a.area.Size().X && a.data.Size().Y <= a.area.Size().Y):
		// Without enough space, gonum's data area is NaN or larger than the plot.
		a.setLegibilityProblem("title, labels and legend leave no space for the data")
	case share < minDataShare:
		a.setLegibilityProblem("only %.0f %% of the image remains for the data", 100*share)
	}
}

func (a *figureLayout) draw(c draw.Canvas) {
	for _, t := range a.texts {
		c.FillText(t.style, t.at, t.text)
	}
	switch {
	case len(a.legend.Entries) == 0:
	case a.atEnds && a.legend.Position == LegendRight:
		a.legend.DrawAtLineEnds(c, &a.plot, a.data, a.corner.X)
	default:
		a.legend.Draw(c, a.corner)
	}
	plotted := draw.Canvas{Canvas: c.Canvas, Rectangle: a.area}
	a.plot.Draw(plotted)
	if a.right != nil {
		a.right.Draw(draw.Canvas{Canvas: c.Canvas, Rectangle: a.data})
	}
}

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

// drawOnWhite draws the figure on a canvas that is already white. It fills the background only if
// it has another color.
func (f *Figure) drawOnWhite(c draw.Canvas) {
	if f.plot != nil && f.plot.BackgroundColor == color.White {
		f.drawPlot(c)
		return
	}
	f.draw(c)
}

// drawPlot draws the figure without its background.
func (f *Figure) drawPlot(c draw.Canvas) {
	a := f.layOut(c.Rectangle)
	a.draw(element.NewZoomCanvas(c, a.zoom))
}

// sizeProblem returns the reason why the figure is illegible at the size w × h, or "" if it is
// legible.
func (f *Figure) sizeProblem(w, h vg.Length) string {
	whole := vg.Rectangle{Max: vg.Point{X: w, Y: h}}
	if len(f.panels) == 0 {
		return f.layOut(whole).problem
	}
	for i, place := range f.panelRects(f.areaBelowTitle(whole)) {
		size := place.Size()
		if problem := f.panels[i].sizeProblem(size.X, size.Y); problem != "" {
			return "panel (" + panelLetters(i) + "): " + problem
		}
	}
	return ""
}

// SizeError is the error returned for a figure that would be illegible at its size.
type SizeError struct {
	Figure        string
	Width, Height float64 // inches
	Problem       string  // what does not fit
	// LeastWidth and LeastHeight are the smallest legible size in inches, or 0 if the figure is
	// illegible at every size up to 40 inches.
	LeastWidth, LeastHeight float64
}

func (e *SizeError) Error() string {
	text := fmt.Sprintf("draw figure %s: %.3g × %.3g inches are too small: %s; ", e.Figure, e.Width, e.Height, e.Problem)
	if e.LeastWidth > 0 {
		return text + fmt.Sprintf("use at least %.1f × %.1f inches, or draw fewer series", e.LeastWidth, e.LeastHeight)
	}
	return text + "draw fewer series, or another legend or font size"
}

// checkSize returns a SizeError if the figure would be illegible at its size.
func (f *Figure) checkSize() error {
	problem := f.sizeProblem(f.Width, f.Height)
	if problem == "" {
		return nil
	}
	e := &SizeError{Figure: f.name, Width: f.Width.Points() / 72, Height: f.Height.Points() / 72, Problem: problem}
	least := math.Inf(1)
	for _, grow := range []vg.Point{{Y: 1}, {X: 1}, {X: 1, Y: 1}} { // higher, wider, both
		w, h, ok := f.findSmallestLegibleSize(grow)
		if area := w * h; ok && area < least-1e-9 {
			least, e.LeastWidth, e.LeastHeight = area, w, h
		}
	}
	return e
}

// findSmallestLegibleSize returns the smallest legible size in inches, rounded up to a tenth. It varies the
// width if grow.X is 1, and the height if grow.Y is 1. ok is false if 40 inches do not suffice.
func (f *Figure) findSmallestLegibleSize(grow vg.Point) (w, h float64, ok bool) {
	const most = 40 * vg.Inch
	up := func(l vg.Length, by vg.Length) vg.Length { // rounds up to a tenth of an inch
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
		if f.sizeProblem(x, y) == "" {
			return float64(x / vg.Inch), float64(y / vg.Inch), true
		}
	}
}

// finishLayout completes a figure: it applies the texts in the options, adds the space that the
// legend needs, and sets the method and the origin of the study's runs for the caption. It returns
// a SizeError if the figure would be illegible.
func (f *Figure) finishLayout(study *scaling.Study) (*Figure, error) {
	f.origin, f.method = dataOriginNote(study), methodNote(study)
	o, p := f.options, f.plot
	p.X.Label.Text, p.Y.Label.Text = cmp.Or(o.XLabel, p.X.Label.Text), cmp.Or(o.YLabel, p.Y.Label.Text)
	if f.right != nil {
		label := &f.right.Plot.Y.Label
		label.Text = cmp.Or(o.RightLabel, label.Text)
	}
	if o.NoTitle {
		p.Title.Text = ""
	}
	f.enlargeForLegend()
	if err := f.checkSize(); err != nil {
		return nil, err
	}
	return f, nil
}
