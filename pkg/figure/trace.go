package figure

import (
	"slices"

	"gonum.org/v1/plot/plotter"
)

// trace is the points of a line as they were logged, which may be very many.
// A point lies at (x − origin)/unit, y.
type trace struct {
	x, y         []float64
	origin, unit float64
}

// traceOf is what of x and y can be drawn.
func traceOf(x, y []float64, origin, unit float64) trace {
	t := trace{x: x, y: y, origin: origin, unit: unit}
	good := 0
	for good < len(x) && finite(x[good]) && finite(y[good]) {
		good++
	}
	if good == len(x) {
		return t
	}
	t.x, t.y = slices.Clone(x[:good]), slices.Clone(y[:good])
	for i := good; i < len(x); i++ {
		if finite(x[i]) && finite(y[i]) {
			t.x, t.y = append(t.x, x[i]), append(t.y, y[i])
		}
	}
	return t
}

func (t trace) len() int { return len(t.x) }

// at is where a point lies.
func (t trace) at(i int) plotter.XY { return plotter.XY{X: (t.x[i] - t.origin) / t.unit, Y: t.y[i]} }

// stretches are how many parts a long line is condensed in; stretchPoints is
// how many points are left of each.
const (
	stretches     = 600
	stretchPoints = 4
)

// condensed leaves of a long line the first, lowest, highest and last point of
// each of its stretches, which look the same and make a small file.
func (t trace) condensed() plotter.XYs {
	n := t.len()
	if n <= stretchPoints*stretches {
		out := make(plotter.XYs, n)
		for i := range out {
			out[i] = t.at(i)
		}
		return out
	}
	out := make(plotter.XYs, 0, stretchPoints*stretches)
	for k := range stretches {
		start, end := k*n/stretches, (k+1)*n/stretches
		lo, hi := start, start
		for i, v := range t.y[start:end] {
			if v < t.y[lo] {
				lo = start + i
			}
			if v > t.y[hi] {
				hi = start + i
			}
		}
		at := [stretchPoints]int{start, min(lo, hi), max(lo, hi), end - 1}
		for j, i := range at {
			if j == 0 || i != at[j-1] {
				out = append(out, t.at(i))
			}
		}
	}
	return out
}

// thin keeps the last point and at most about ten others, evenly.
func (t trace) thin() plotter.XYs {
	step := (t.len() + 9) / 10
	var out plotter.XYs
	for i := t.len() - 1; i >= 0; i -= step {
		out = append(out, t.at(i))
	}
	return out
}

// condensedBand leaves of a long band the reach of each stretch, over the
// whole of it.
func condensedBand(at []interval) []interval {
	n := len(at)
	if n <= 2*stretches {
		return at
	}
	out := make([]interval, 0, 2*stretches)
	for k := range stretches {
		part := at[k*n/stretches : (k+1)*n/stretches]
		reach := part[0]
		for _, v := range part {
			reach.lo, reach.hi = min(reach.lo, v.lo), max(reach.hi, v.hi)
		}
		last := reach
		last.x = part[len(part)-1].x
		out = append(out, reach, last)
	}
	return out
}
