package autotune

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"lockstep/pkg/internal/device"
)

// confirmFastest returns the index of the fastest candidate whose result agrees with the
// result of a different cuDNN engine. It is used for 3-D convolutions, because some engines
// of cuDNN 9.8 to 9.15 compute them incorrectly. It returns best, the fastest candidate, if
// only one engine was timed, or, with a notice, if no two results agree.
func (t *Tuner) confirmFastest(c Convolution, all []Candidate, best int, times []float64, r Runner) (int, error) {
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
	if err := r.FillOperandsWithNoise(); err != nil {
		return best, err
	}
	results := map[int][]float32{}
	for at, i := range order {
		var err error
		if results[i], err = r.Result(all[i]); err != nil {
			return best, err
		}
		for _, j := range order[:at] {
			if all[i].Plan.Engine != all[j].Plan.Engine && resultsAgree(results[i], results[j], c.Type, t.TF32) {
				return j, nil
			}
		}
	}
	t.Notice(fmt.Sprintf("no two of cuDNN's algorithms give the same result of the 3-D convolution %s: its results may be wrong; another version of cuDNN may help", c.Key))
	return best, nil
}

// resultsAgree reports whether a and b differ only by rounding: |a[i] − b[i]| is at most
// t·(|a[i]| + rms(a)) for each i, where rms is the root mean square, and t is 1e-3 (fp32),
// 1e-2 (fp16 and TF32) or 5e-2 (bf16).
func resultsAgree(a, b []float32, typ device.ElementType, tf32 bool) bool {
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
