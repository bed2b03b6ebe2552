package element

import (
	"slices"

	"gonum.org/v1/plot/plotter"
)

// LineData contains the points of a logged line, which may be very many. A point is drawn at ((x −
// origin)/unit, y).
type LineData struct {
	X, Y         []float64
	origin, unit float64
}

// NewLineData returns a Trace of the points whose coordinates are finite.
func NewLineData(x, y []float64, origin, unit float64) LineData {
	t := LineData{X: x, Y: y, origin: origin, unit: unit}
	good := 0
	for good < len(x) && IsFinite(x[good]) && IsFinite(y[good]) {
		good++
	}
	if good == len(x) {
		return t
	}
	t.X, t.Y = slices.Clone(x[:good]), slices.Clone(y[:good])
	for i := good; i < len(x); i++ {
		if IsFinite(x[i]) && IsFinite(y[i]) {
			t.X, t.Y = append(t.X, x[i]), append(t.Y, y[i])
		}
	}
	return t
}

// Len returns the number of points.
func (t LineData) Len() int { return len(t.X) }

// drawnPoint returns the coordinates at which point i is drawn.
func (t LineData) drawnPoint(i int) plotter.XY {
	return plotter.XY{X: (t.X[i] - t.origin) / t.unit, Y: t.Y[i]}
}

// CondensedParts is the number of parts into which Condense divides a long line. It keeps
// partPoints points of each part.
const (
	CondensedParts = 600
	partPoints     = 4
)

// Condense returns the points to draw. For a long line, it returns the first, lowest, highest and
// last point of each of CondensedParts parts, so that the line looks the same but the file is
// small.
func (t LineData) Condense() plotter.XYs {
	n := t.Len()
	if n <= partPoints*CondensedParts {
		out := make(plotter.XYs, n)
		for i := range out {
			out[i] = t.drawnPoint(i)
		}
		return out
	}
	out := make(plotter.XYs, 0, partPoints*CondensedParts)
	for k := range CondensedParts {
		start, end := k*n/CondensedParts, (k+1)*n/CondensedParts
		lo, hi := start, start
		for i, v := range t.Y[start:end] {
			if v < t.Y[lo] {
				lo = start + i
			}
			if v > t.Y[hi] {
				hi = start + i
			}
		}
		at := [partPoints]int{start, min(lo, hi), max(lo, hi), end - 1}
		for j, i := range at {
			if j == 0 || i != at[j-1] {
				out = append(out, t.drawnPoint(i))
			}
		}
	}
	return out
}

// Thin returns at most ten evenly spaced points, including the last one.
func (t LineData) Thin() plotter.XYs {
	step := (t.Len() + 9) / 10
	var out plotter.XYs
	for i := t.Len() - 1; i >= 0; i -= step {
		out = append(out, t.drawnPoint(i))
	}
	return out
}

// CondenseBand returns the band to draw. For a long band, it returns the range of each of
// CondensedParts parts.
func CondenseBand(at []Interval) []Interval {
	n := len(at)
	if n <= 2*CondensedParts {
		return at
	}
	out := make([]Interval, 0, 2*CondensedParts)
	for k := range CondensedParts {
		part := at[k*n/CondensedParts : (k+1)*n/CondensedParts]
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
