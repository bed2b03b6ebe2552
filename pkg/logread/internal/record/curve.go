package record

import (
	"cmp"
	"slices"

	"lockstep/pkg/logread/internal/scan"
	"lockstep/pkg/runs"
)

// maxCurvePoints is the largest number of points that are kept of a curve, more than a figure can
// show. Of longer curves, only every second, fourth, eighth, … point is kept.
const maxCurvePoints = 1 << 18

// Curve collects the points of a runs.Curve in bounded memory.
type Curve struct {
	runs.Curve
	timed     bool
	stride    int64 // every stride-th point is kept
	Points    int64 // number of points added, including those that were dropped
	keepAfter int64 // value of Points after which the next point is kept
	lines     *scan.LineReader
	next      *Curve // that got a point after the latest point of this one; see Curves
}

// NewCurve returns an empty curve. timed states whether its points have times.
func NewCurve(name string, rank int, timed bool) *Curve {
	return &Curve{Curve: runs.Curve{Name: name, Rank: rank}, timed: timed, stride: 1}
}

// AddPoint adds a point: its step, its value v and its time t in seconds since 1970, which is ignored
// if the curve has no times.
func (c *Curve) AddPoint(step int64, v, t float64) {
	c.Points++
	if c.Points <= c.keepAfter {
		return
	}
	c.keepAfter += c.stride
	if len(c.Steps) >= maxCurvePoints {
		n := 0
		for i := 0; i < len(c.Steps); i += 2 {
			c.Steps[n], c.Values[n] = c.Steps[i], c.Values[i]
			if c.timed {
				c.Times[n] = c.Times[i]
			}
			n++
		}
		c.Steps, c.Values = c.Steps[:n], c.Values[:n]
		if c.timed {
			c.Times = c.Times[:n]
		}
		c.stride *= 2
		if now := (c.Points - 1) % c.stride; now != 0 {
			c.keepAfter = c.Points - 1 - now + c.stride
			return
		}
		c.keepAfter = c.Points - 1 + c.stride
	}
	if n := len(c.Steps); n == cap(c.Steps) {
		more := n + 16
		if c.lines != nil {
			more = c.lines.EstimateRemainingValues(n)
		}
		more = min(more, maxCurvePoints-n)
		c.Steps, c.Values = Grow(c.Steps, more), Grow(c.Values, more)
		if c.timed {
			c.Times = Grow(c.Times, more)
		}
	}
	c.Steps = append(c.Steps, step) // one assignment per slice: a combined one costs write barriers
	c.Values = append(c.Values, v)
	if c.timed {
		c.Times = append(c.Times, t)
	}
}

// Grow returns s with space for more values. Unlike slices.Grow, it does not touch new memory,
// which is zero, so that the system need not provide what remains unused.
func Grow[T any](s []T, more int) []T { return append(make([]T, 0, len(s)+more), s...) }

// Finish returns the curve. It adds an assumption to the report if points were dropped.
func (c *Curve) Finish(r *Report) runs.Curve {
	if c.stride > 1 {
		r.AddAssumption("%s has %d points; every %dth is kept", c.Name, c.Points, c.stride)
	}
	return c.Curve
}

// RemovePointsFrom removes the points of c at and after step. A session that restarts there logs
// them again; TensorBoard also removes them (SessionLog.START in backend/event_processing).
func RemovePointsFrom(c *runs.Curve, step int64) {
	n := 0
	for i, s := range c.Steps {
		if s < step {
			c.Steps[n], c.Values[n] = s, c.Values[i]
			if len(c.Times) > 0 {
				c.Times[n] = c.Times[i]
			}
			n++
		}
	}
	c.Steps, c.Values, c.Times = c.Steps[:n], c.Values[:n], c.Times[:min(n, len(c.Times))]
}

// AppendResumedCurve appends the points of next to c. It first removes the points of c at and after the
// first step of next.
func AppendResumedCurve(c *runs.Curve, next runs.Curve) {
	if len(next.Steps) > 0 {
		RemovePointsFrom(c, slices.Min(next.Steps))
	}
	c.Steps, c.Values, c.Times = append(c.Steps, next.Steps...), append(c.Values, next.Values...), append(c.Times, next.Times...)
}

// Clear removes all points.
func (c *Curve) Clear() { *c = *NewCurve(c.Name, c.Rank, c.timed) }

// Curves contains the curves of a run, in the order of their first points.
type Curves struct {
	All   []*Curve
	Most  int              // largest number of curves; 0 means MaxCurveNames
	Lines *scan.LineReader // that reads the points, whose number it can estimate; nil if unknown
	index map[curveKey]*Curve
	last  *Curve // that FindOrAdd has returned last
}

type curveKey struct {
	name string
	rank int
}

// MaxCurveNames is the largest number of curves that are kept per run.
const MaxCurveNames = 1000

// FindOrAdd returns the curve with a name and a rank, and adds it if it is new; timed states
// whether a new curve has times. It returns nil if there are too many curves. It first tries the
// curve that followed the last one before, since programs log their values in the same order.
func (c *Curves) FindOrAdd(name []byte, rank int, timed bool) *Curve {
	if c.last != nil && c.last.next != nil && c.last.next.Name == string(name) && c.last.next.Rank == rank {
		c.last = c.last.next
		return c.last
	}
	found := c.index[curveKey{string(name), rank}]
	if found == nil {
		if len(c.All) >= cmp.Or(c.Most, MaxCurveNames) {
			return nil
		}
		found = NewCurve(string(name), rank, timed)
		found.lines = c.Lines
		c.All = append(c.All, found)
		PutInMap(&c.index, curveKey{found.Name, rank}, found)
	}
	if c.last != nil {
		c.last.next = found
	}
	c.last = found
	return found
}

// Find returns the curve with a name and a rank, or nil.
func (c *Curves) Find(name string, rank int) *Curve { return c.index[curveKey{name, rank}] }

// First returns the first curve with a name, or nil.
func (c *Curves) First(name string) *Curve {
	if i := slices.IndexFunc(c.All, func(o *Curve) bool { return o.Name == name }); i >= 0 {
		return c.All[i]
	}
	return nil
}
