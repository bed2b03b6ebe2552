package enginetest

import (
	"math"
	"slices"
	"testing"

	"lockstep/pkg/engine"
)

// CheckNear fails the test if a value of got differs from want by more than tol times the
// largest magnitude in want. The failure message contains name.
func CheckNear(t testing.TB, name string, got, want []float64, tol float64) {
	t.Helper()
	top := 1e-30
	for _, v := range want {
		top = max(top, math.Abs(v))
	}
	for i := range want {
		if d := math.Abs(got[i] - want[i]); !(d <= tol*top) {
			t.Fatalf("%s[%d] is %v, the reference has %v (greatest %v)", name, i, got[i], want[i], top)
		}
	}
}

// MaxMagnitude returns the largest absolute value in v, or 0 if v is empty.
func MaxMagnitude(v []float64) (m float64) {
	for _, f := range v {
		m = max(m, math.Abs(f))
	}
	return m
}

// SnapshotTensors returns copies of all persistent tensors of x by name.
func SnapshotTensors(t testing.TB, x engine.Executable) map[string][]float64 {
	t.Helper()
	all := map[string][]float64{}
	for _, name := range x.Names() {
		v, err := x.Get(name)
		if err != nil {
			t.Fatal(err)
		}
		all[name] = v
	}
	return all
}

// CheckUnchanged fails the test if a persistent tensor of x differs from before, a result of
// SnapshotTensors.
func CheckUnchanged(t testing.TB, x engine.Executable, before map[string][]float64) {
	t.Helper()
	for name, v := range SnapshotTensors(t, x) {
		if !slices.Equal(v, before[name]) {
			t.Errorf("%s has changed", name)
		}
	}
}
