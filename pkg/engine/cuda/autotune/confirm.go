package autotune

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"lockstep/pkg/internal/device"
)

// confirmed returns the fastest candidate whose result another engine of cuDNN's confirms,
// best where only one engine was timed. It is asked of 3-D convolutions, some of whose
// engines had wrong results in cuDNN 9.8 to 9.15. Where no two results agree, best stays,
// with a notice.
func (t *Tuner) confirmed(c Convolution, all []Candidate, best int, times []float64, r Runner) (int, error) {
	var order []int
	for i, ms := range times {
		if ms > 0 {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(times[i], times[j]) })
	if !slices.ContainsFunc(order, func(i int) bool { return all[i].Plan.Engine != all[best].Plan.Engine }) {
		return best, nil
	}
	if err := r.Disturb(); err != nil {
		return best, err
	}
	results := map[int][]float32{}
	for at, i := range order {
		var err error
		if results[i], err = r.Result(all[i]); err != nil {
			return best, err
		}
		for _, j := range order[:at] {
			if all[i].Plan.Engine != all[j].Plan.Engine && agree(results[i], results[j], c.Type, t.TF32) {
				return j, nil
			}
		}
	}
	t.Notice(fmt.Sprintf("no two of cuDNN's algorithms give the same result of the 3-D convolution %s: its results may be wrong; another version of cuDNN may help", c.Key))
	return best, nil
}

// agree reports whether two results differ by roundings alone: by a part of their root mean
// square that is some times the unit roundoff of the operands' type.
func agree(a, b []float32, typ device.Type, tf32 bool) bool {
	tolerance := 1e-3
	switch {
	case typ == device.BF16:
		tolerance = 5e-2
	case typ == device.F16, tf32:
		tolerance = 1e-2
	}
	square := 0.0
	for _, v := range a {
		square += float64(v) * float64(v)
	}
	rms := math.Sqrt(square / float64(max(1, len(a))))
	for i := range a {
		if d := math.Abs(float64(a[i]) - float64(b[i])); !(d <= tolerance*(rms+math.Abs(float64(a[i])))) {
			return false
		}
	}
	return true
}
