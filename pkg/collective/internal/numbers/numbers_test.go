package numbers

import (
	"math"
	"slices"
	"testing"
)

// TestAdd compares sums of every length up to 50, with and without vector instructions, also in
// place, with one addition after another.
func TestAdd(t *testing.T) {
	checkAdd[float32](t)
	checkAdd[float64](t)
}

func checkAdd[T Number](t *testing.T) {
	t.Helper()
	for n := range 50 {
		a, b, want := make([]T, n), make([]T, n+1), make([]T, n)
		for i := range n {
			a[i], b[i] = T(i)/3, T(math.Exp(float64(i)))
			want[i] = a[i] + b[i]
		}
		sum := make([]T, n+1)
		sum[n] = -1
		if Add(sum[:n], a, b); !slices.Equal(sum[:n], want) || sum[n] != -1 {
			t.Errorf("%T, %d numbers: sum %v, want %v and an unchanged -1", want, n, sum, want)
		}
		if Add(a, a, b); !slices.Equal(a, want) {
			t.Errorf("%T, %d numbers in place: sum %v, want %v", want, n, a, want)
		}
	}
}
