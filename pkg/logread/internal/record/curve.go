package record

import (
	"slices"

	"lockstep/pkg/runs"
)

// maxPoints limits the points of a curve; a figure shows no more. Of a longer
// curve every second, fourth, … point is kept.
const maxPoints = 1 << 18

// Curve gathers the points of a runs.Curve in bounded memory.
type Curve struct {
	runs.Curve
	timed  bool
	stride int64 // every stride-th point is kept
	Points int64
	due    int64 // number of points before the next one that is kept
}

// NewCurve returns an empty curve. timed says whether its points have times.
func NewCurve(name string, rank int, timed bool) *Curve {
	return &Curve{Curve: runs.Curve{Name: name, Rank: rank}, timed: timed, stride: 1}
}

// Add adds a point. at is ignored if the curve has no times.
func (c *Curve) Add(step int64, v, t float64) {
	c.Points++
	if c.Points <= c.due {
		return
	}
	c.due += c.stride
	if len(c.Steps) >= maxPoints {
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
			c.due = c.Points - 1 - now + c.stride
			return
		}
		c.due = c.Points - 1 + c.stride
	}
	if n := len(c.Steps); n == cap(c.Steps) {
		more := min(n+16, maxPoints-n) // append alone would copy a long curve five times
		c.Steps, c.Values = slices.Grow(c.Steps, more), slices.Grow(c.Values, more)
		if c.timed {
			c.Times = slices.Grow(c.Times, more)
		}
	}
	c.Steps = append(c.Steps, step) // one assignment per slice: a combined one costs write barriers
	c.Values = append(c.Values, v)
	if c.timed {
		c.Times = append(c.Times, t)
	}
}

// Finish returns the curve and notes in the report if points were dropped.
func (c *Curve) Finish(r *Report) runs.Curve {
	if c.stride > 1 {
		r.Assume("%s has %d points; every %dth is kept", c.Name, c.Points, c.stride)
	}
	return c.Curve
}

// ForgetFrom removes the points from a step on. A session that restarts at a
// step repeats them (tensorboard/backend/event_processing, purge on
// SessionLog.START).
func (c *Curve) ForgetFrom(step int64) {
	n := 0
	for i, s := range c.Steps {
		if s < step {
			c.Steps[n], c.Times[n], c.Values[n] = s, c.Times[i], c.Values[i]
			n++
		}
	}
	c.Steps, c.Times, c.Values = c.Steps[:n], c.Times[:n], c.Values[:n]
}

// MaxCurveNames limits the curves of a run.
const MaxCurveNames = 1000
