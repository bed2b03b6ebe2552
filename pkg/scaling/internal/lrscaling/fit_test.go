package lrscaling

import (
	"math"
	"testing"
)

// TestParabolaVertex checks the maximum of an exact parabola, and of the least-squares parabola
// through (-1, 1), (0, 3), (1, 2.5) and (2, 0). Its normal equations give
// -1.125·x² + 0.775·x + 2.925, so the maximum is at 0.775/2.25.
func TestParabolaVertex(t *testing.T) {
	if v := parabolaVertex([]float64{-1, 0, 2}, []float64{-4, -1, -1}); math.Abs(v-1) > 1e-12 { // -(x-1)²
		t.Errorf("top at %g", v)
	}
	if v := parabolaVertex([]float64{-1, 0, 1, 2}, []float64{1, 3, 2.5, 0}); math.Abs(v-0.775/2.25) > 1e-9 {
		t.Errorf("top at %g", v)
	}
	if v := parabolaVertex([]float64{-1, 0, 1}, []float64{1, 1, 1}); v != 0 {
		t.Errorf("a flat line has its top at %g", v)
	}
}
