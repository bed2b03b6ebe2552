package figure

import (
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// beside moves the marks of a series sideways, so that error bars of several
// series at equal x do not cover each other. The zero value moves nothing.
type beside struct {
	place, of int       // of the series that have bars
	xs        []float64 // where any of them has one, ascending
}

// Room of the bars at one x.
const (
	besideStep = vg.Length(5.6) // between two bars, at most
	besideAll  = vg.Length(24)  // between the first and the last, at most
	besideGap  = 0.4            // the same, as a part of the distance to the next x
)

// step returns the distance of neighboring bars.
func (b beside) step(c draw.Canvas, p *plot.Plot) vg.Length {
	between := vg.Length(b.of - 1)
	step := min(besideStep, besideAll/between)
	tx, _ := p.Transforms(&c)
	for i := 1; i < len(b.xs); i++ {
		step = min(step, besideGap*(tx(b.xs[i])-tx(b.xs[i-1]))/between)
	}
	return step
}

// shift returns how far the series is moved to the right.
func (b beside) shift(c draw.Canvas, p *plot.Plot) vg.Length {
	if b.of < 2 {
		return 0
	}
	return (vg.Length(b.place) - vg.Length(b.of-1)/2) * b.step(c, p)
}

// moved draws a series' marks beside those of the others.
type moved struct {
	plot.Plotter
	beside
}

// Plot implements plot.Plotter.
func (m moved) Plot(c draw.Canvas, p *plot.Plot) {
	shift := m.shift(c, p)
	c.Min.X, c.Max.X = c.Min.X+shift, c.Max.X+shift
	m.Plotter.Plot(c, p)
}

// GlyphBoxes implements plot.GlyphBoxer.
func (m moved) GlyphBoxes(p *plot.Plot) []plot.GlyphBox {
	boxer, ok := m.Plotter.(plot.GlyphBoxer)
	if !ok {
		return nil
	}
	boxes := slices.Clone(boxer.GlyphBoxes(p))
	if m.of < 2 {
		return boxes
	}
	widest := min(besideStep, besideAll/vg.Length(m.of-1))
	shift := vg.Point{X: (vg.Length(m.place) - vg.Length(m.of-1)/2) * widest}
	for i := range boxes {
		boxes[i].Rectangle = boxes[i].Rectangle.Add(shift)
	}
	return boxes
}

// moveAll returns plotters that draw at the series' place.
func (b beside) moveAll(all []plot.Plotter) []plot.Plotter {
	if b.of < 2 {
		return all
	}
	out := make([]plot.Plotter, len(all))
	for i, p := range all {
		out[i] = moved{p, b}
	}
	return out
}

// besides returns the place of each series by its bars: none is moved unless
// two series have a bar at the same x.
func besides(bars [][]interval) []beside {
	out := make([]beside, len(bars))
	var xs []float64
	with, shared := 0, false
	for _, at := range bars {
		any := false
		for _, v := range at {
			if !(v.hi > v.lo) || !finite(v.x) {
				continue
			}
			any = true
			near := func(x float64) bool { return math.Abs(x-v.x) <= 1e-9*math.Abs(v.x) }
			shared = shared || slices.ContainsFunc(xs, near)
			if !slices.ContainsFunc(xs, near) {
				xs = append(xs, v.x)
			}
		}
		if any {
			with++
		}
	}
	if !shared || with < 2 {
		return out
	}
	slices.Sort(xs)
	place := 0
	for i, at := range bars {
		if slices.ContainsFunc(at, func(v interval) bool { return v.hi > v.lo }) {
			out[i] = beside{place: place, of: with, xs: xs}
			place++
		}
	}
	return out
}

// sideBySide says in a caption why points are not above their tick.
const sideBySide = " Series with bars are drawn side by side at equal counts."

// measured is the marks of a series and its error bars.
type measured struct {
	bars  whiskers
	marks []plot.Plotter
}

// addMeasured draws series whose bars stand beside each other. It returns what
// the caption says of it.
func (f *Figure) addMeasured(all []measured) (note string) {
	bars := make([][]interval, len(all))
	for i, m := range all {
		bars[i] = m.bars.at
	}
	for i, place := range besides(bars) {
		m := all[i]
		m.bars.beside = place
		f.plot.Add(m.bars)
		f.plot.Add(place.moveAll(m.marks)...)
		if place.of > 1 {
			note = sideBySide
		}
	}
	return note
}
