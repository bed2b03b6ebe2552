package steptime

import (
	"testing"

	"pgregory.net/rapid"

	"lockstep/pkg/runs"
)

// TestCoverProperties compares the operations on intervals with counting over a grid of unit
// cells.
func TestCoverProperties(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		draw := func(kind string) []runs.Span {
			var out []runs.Span
			for range rapid.IntRange(0, 6).Draw(rt, "spans") {
				from := rapid.IntRange(0, 20).Draw(rt, "from")
				out = append(out, runs.Span{Kind: kind, Start: float64(from), Seconds: float64(rapid.IntRange(0, 8).Draw(rt, "length"))})
			}
			return out
		}
		a, b := draw(runs.SpanCompute), draw(runs.SpanCommunication)
		holds := func(spans []runs.Span, cell int) bool {
			for _, s := range spans {
				if s.Start <= float64(cell) && float64(cell) < s.Start+s.Seconds {
					return true
				}
			}
			return false
		}
		window := interval{3, 15}
		both, alone := 0.0, 0.0
		for cell := 3; cell < 15; cell++ {
			if holds(a, cell) && holds(b, cell) {
				both++
			} else if holds(a, cell) {
				alone++
			}
		}
		x, y := mergeSpansOfKind(a, runs.SpanCompute), mergeSpansOfKind(b, runs.SpanCommunication)
		if got := x.intersect(y).overlapSeconds(window); got != both {
			rt.Fatalf("%v and %v: %g, expected %g", x, y, got, both)
		}
		if got := x.subtract(y).overlapSeconds(window); got != alone {
			rt.Fatalf("%v minus %v: %g, expected %g", x, y, got, alone)
		}
	})
}
