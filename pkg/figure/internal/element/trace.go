package element

import (
	"slices"

	"gonum.org/v1/plot/plotter"
)

// Trace is the points of a line as they were logged, which may be very many.
// A point lies at (x − origin)/unit, y.
type Trace struct {
	X, Y         []float64
	origin, unit float64
}

// TraceOf is what of x and y can be drawn.
func TraceOf(x, y []float64, origin, unit float64) Trace {
	t := Trace{X: x, Y: y, origin: origin, unit: unit}
	good := 0
	for good < len(x) && Finite(x[good]) && Finite(y[good]) {
		good++
	}
	if good == len(x) {
		return t
	}
	t.X, t.Y = slices.Clone(x[:good]), slices.Clone(y[:good])
	for i := good; i < len(x); i++ {
		if Finite(x[i]) && Finite(y[i]) {
			t.X, t.Y = append(t.X, x[i]), append(t.Y, y[i])
		}
	}
	return t
}

// Len returns the number of points.
func (t Trace) Len() int { return len(t.X) }

// at is where a point lies.
func (t Trace) at(i int) plotter.XY { return plotter.XY{X: (t.X[i] - t.origin) / t.unit, Y: t.Y[i]} }

// Stretches are how many parts a long line is condensed in; stretchPoints is
// how many points are left of each.
const (
	Stretches     = 600
	stretchPoints = 4
)

// Condensed leaves of a long line the first, lowest, highest and last point of
// each of its stretches, which look the same and make a small file.
func (t Trace) Condensed() plotter.XYs {
	n := t.Len()
	if n <= stretchPoints*Stretches {
		out := make(plotter.XYs, n)
		for i := range out {
			out[i] = t.at(i)
		}
		return out
	}
	out := make(plotter.XYs, 0, stretchPoints*Stretches)
	for k := range Stretches {
		start, end := k*n/Stretches, (k+1)*n/Stretches
		lo, hi := start, start
		for i, v := range t.Y[start:end] {
			if v < t.Y[lo] {
				lo = start + i
			}
			if v > t.Y[hi] {
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

// Thin keeps the last point and at most about ten others, evenly.
func (t Trace) Thin() plotter.XYs {
	step := (t.Len() + 9) / 10
	var out plotter.XYs
	for i := t.Len() - 1; i >= 0; i -= step {
		out = append(out, t.at(i))
	}
	return out
}

// CondensedBand leaves of a long band the reach of each stretch, over the
// whole of it.
func CondensedBand(at []Interval) []Interval {
	n := len(at)
	if n <= 2*Stretches {
		return at
	}
	out := make([]Interval, 0, 2*Stretches)
	for k := range Stretches {
		part := at[k*n/Stretches : (k+1)*n/Stretches]
		reach := part[0]
		for _, v := range part {
			reach.Lo, reach.Hi = min(reach.Lo, v.Lo), max(reach.Hi, v.Hi)
		}
		last := reach
		last.X = part[len(part)-1].X
		out = append(out, reach, last)
	}
	return out
}
