package element

import (
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// SidewaysShift moves the marks of a series sideways, so that error bars of several series at the
// same x do not cover each other. The zero value moves nothing.
type SidewaysShift struct {
	index, Count int       // index of the series among those with bars, and their number
	xs           []float64 // every x with a bar, ascending
}

// Distances between error bars at the same x.
const (
	maxBarStep  = vg.Length(5.6) // largest distance of two neighboring bars
	maxBarSpan  = vg.Length(24)  // largest distance of the first and the last bar
	maxGapShare = 0.4            // the same, as a fraction of the distance to the next x
)

func (b SidewaysShift) barDistance(c draw.Canvas, p *plot.Plot) vg.Length {
	between := vg.Length(b.Count - 1)
	step := min(maxBarStep, maxBarSpan/between)
	tx, _ := p.Transforms(&c)
	for i := 1; i < len(b.xs); i++ {
		step = min(step, maxGapShare*(tx(b.xs[i])-tx(b.xs[i-1]))/between)
	}
	return step
}

// horizontalOffset returns how far the series is moved to the right, or to the left if negative.
func (b SidewaysShift) horizontalOffset(c draw.Canvas, p *plot.Plot) vg.Length {
	if b.Count < 2 {
		return 0
	}
	return (vg.Length(b.index) - vg.Length(b.Count-1)/2) * b.barDistance(c, p)
}

type shiftedPlotter struct {
	plot.Plotter
	SidewaysShift
}

func (m shiftedPlotter) Plot(c draw.Canvas, p *plot.Plot) {
	shift := m.horizontalOffset(c, p)
	c.Min.X, c.Max.X = c.Min.X+shift, c.Max.X+shift
	m.Plotter.Plot(c, p)
}

func (m shiftedPlotter) GlyphBoxes(p *plot.Plot) []plot.GlyphBox {
	boxer, ok := m.Plotter.(plot.GlyphBoxer)
	if !ok {
		return nil
	}
	boxes := slices.Clone(boxer.GlyphBoxes(p))
	if m.Count < 2 {
		return boxes
	}
	widest := min(maxBarStep, maxBarSpan/vg.Length(m.Count-1))
	shift := vg.Point{X: (vg.Length(m.index) - vg.Length(m.Count-1)/2) * widest}
	for i := range boxes {
		boxes[i].Rectangle = boxes[i].Rectangle.Add(shift)
	}
	return boxes
}

// ShiftPlotters returns plotters that draw the given plotters moved sideways.
func (b SidewaysShift) ShiftPlotters(all []plot.Plotter) []plot.Plotter {
	if b.Count < 2 {
		return all
	}
	out := make([]plot.Plotter, len(all))
	for i, p := range all {
		out[i] = shiftedPlotter{p, b}
	}
	return out
}

// NewSidewaysShifts returns the shift of each series, whose error bars are given by index. No
// series is shifted unless two series have a bar at the same x.
func NewSidewaysShifts(bars [][]Interval) []SidewaysShift {
	out := make([]SidewaysShift, len(bars))
	var xs []float64
	with, shared := 0, false
	for _, at := range bars {
		any := false
		for _, v := range at {
			if !(v.Hi > v.Lo) || !IsFinite(v.X) {
				continue
			}
			any = true
			near := func(x float64) bool { return math.Abs(x-v.X) <= 1e-9*math.Abs(v.X) }
			shared = shared || slices.ContainsFunc(xs, near)
			if !slices.ContainsFunc(xs, near) {
				xs = append(xs, v.X)
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
		if slices.ContainsFunc(at, func(v Interval) bool { return v.Hi > v.Lo }) {
			out[i] = SidewaysShift{index: place, Count: with, xs: xs}
			place++
		}
	}
	return out
}
