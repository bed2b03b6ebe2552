package scaling

import (
	"fmt"
	"testing"

	"lockstep/pkg/runs"
)

// BenchmarkStudy computes a study of 1,000 runs in memory with 10 epochs each: 40 series of
// 5 worker counts with 5 seeds each.
func BenchmarkStudy(b *testing.B) {
	var all []runs.Run
	for series := range 40 {
		for _, n := range []int{1, 2, 4, 8, 16} {
			for seed := range 5 {
				x := 10 + float64(seed)/10
				r := weak(n, int64(seed), x+0.01*float64(series), x, x, x, x, x, x, x, x, x)
				r.Info.Series, r.Dir = fmt.Sprint("s", series), fmt.Sprint(series, n, seed)
				all = append(all, r)
			}
		}
	}
	for b.Loop() {
		if _, err := FromRuns(all); err != nil {
			b.Fatal(err)
		}
	}
}
