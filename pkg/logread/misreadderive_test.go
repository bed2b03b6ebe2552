package logread

import (
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"lockstep/pkg/logread/internal/fields"
)

// numbers is a sorted list of numbers.
type numbers []float64

var thousandsPattern = regexp.MustCompile(`[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]+)?`)

var numberPattern = regexp.MustCompile(`(?i)(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[-+]?[0-9]+)?|nan|inf(?:inity)?`)

// numbersIn returns the numbers in a text, without their signs.
func numbersIn(text []byte) numbers {
	var list numbers
	for _, m := range append(numberPattern.FindAll(text, -1), thousandsPattern.FindAll(text, -1)...) {
		if v, err := strconv.ParseFloat(strings.ReplaceAll(string(m), ",", ""), 64); err == nil {
			list = append(list, v)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// has reports whether the list contains v up to rounding.
func (l numbers) has(v float64) bool {
	if math.IsNaN(v) {
		return len(l) > 0 && math.IsNaN(l[0])
	}
	v = math.Abs(v)
	i, _ := slices.BinarySearch(l, v*(1-1e-12))
	return i < len(l) && l[i] <= v*(1+1e-12)
}

// hasSum reports whether v is the sum of n numbers of the list.
func (l numbers) hasSum(v float64, n int) bool {
	if n == 1 {
		return l.has(v)
	}
	return slices.ContainsFunc(l, func(x float64) bool { return x <= v && l.hasSum(v-x, n-1) })
}

// hasSignedSum is like hasSum for a list with numbers of both signs.
func (l numbers) hasSignedSum(v float64, n int) bool {
	if n == 1 {
		return l.hasNear(v, 1e-12*math.Abs(v))
	}
	return slices.ContainsFunc(l, func(x float64) bool { return l.hasSignedSum(v-x, n-1) })
}

// hasDifference reports whether v is the difference of two numbers of the list, which
// contains times in the unit.
func (l numbers) hasDifference(v, unit float64) bool {
	return slices.ContainsFunc(l, func(x float64) bool { return l.hasNear(x+v/unit, 1e-3) }) // times since 1970 have few digits
}

// hasNear reports whether the list contains v up to a difference.
func (l numbers) hasNear(v, difference float64) bool {
	i, _ := slices.BinarySearch(l, v-difference)
	return i < len(l) && l[i] <= v+difference
}

// hasProduct reports whether v is the product of two numbers of the list, up to the rounding
// of a count.
func (l numbers) hasProduct(v float64) bool {
	return slices.ContainsFunc(l, func(x float64) bool {
		i, _ := slices.BinarySearch(l, (v-0.51)/x)
		return x > 0 && i < len(l) && l[i] <= (v+0.51)/x
	})
}

// hasQuotient reports whether v is the quotient of two numbers of the list.
func (l numbers) hasQuotient(v float64) bool {
	return slices.ContainsFunc(l, func(x float64) bool { return x > 0 && l.has(v*x) })
}

// maxMixedRanks is the largest number of ranks whose values are in one of the mutated files.
const maxMixedRanks = 4

// derivation describes how a value can be derived from the numbers of its run's files.
type derivation struct {
	name *regexp.Regexp // of the value
	why  string
	ok   func(r Row, l numbers, same []Row) bool
	// changesPlace is set if a value that was derived in this way may have been read with
	// another name, epoch, step or rank.
	changesPlace bool
}

// derivations lists the values that are not in the files as they are shown. same contains
// all rows of the run.
func derivations() []derivation {
	ranks := func(v float64, l numbers, mean bool) bool {
		if mean { // files of different programs may be mixed, of which one prints percentages
			both := slices.Clone(l)
			for _, x := range l {
				both = append(both, x/100)
			}
			slices.Sort(both)
			l = both
		}
		signed := slices.Clone(l)
		for _, x := range l {
			signed = append(signed, -x)
		}
		slices.Sort(signed)
		for n := 2; mean && n < maxMixedRanks; n++ {
			if signed.hasSignedSum(v*float64(n), n) {
				return true
			}
		}
		for n := 2; n <= maxMixedRanks; n++ {
			sum := v
			if mean {
				sum *= float64(n)
			}
			if l.hasSum(sum, n) {
				return true
			}
		}
		return false
	}
	trials := func(name string, same []Row) (list []float64) {
		for _, r := range same {
			if r.Name == name+"_trial_samples_per_second" {
				list = append(list, r.Value)
			}
		}
		return list
	}
	return []derivation{
		{name: regexp.MustCompile(`^(train|val)_loss$|^(val_)?accuracy$|^iou$|^dice$`), why: "the mean over the ranks", ok: func(r Row, l numbers, _ []Row) bool { return ranks(r.Value, l, true) }, changesPlace: true},
		{name: regexp.MustCompile(`^(samples|samples_per_second)$`), why: "the sum over the ranks", ok: func(r Row, l numbers, _ []Row) bool { return ranks(r.Value, l, false) }},
		{name: regexp.MustCompile(`^samples$`), why: "seconds × samples per second", ok: func(r Row, l numbers, _ []Row) bool { return l.hasProduct(r.Value) }},
		{name: regexp.MustCompile(`seconds$`), why: "the difference of two times in s or ms", ok: func(r Row, l numbers, _ []Row) bool {
			return l.hasDifference(r.Value, 1) || l.hasDifference(r.Value, 1e-3)
		}},
		{name: regexp.MustCompile(`^step_seconds$`), why: "the difference of two times since the start, divided by the number of steps", ok: func(r Row, _ numbers, same []Row) bool {
			times := curvesOf(same, fields.Elapsed)
			return slices.ContainsFunc(times, func(rows []Row) bool {
				i := slices.IndexFunc(rows, func(o Row) bool { return o.Step == r.Step })
				return i > 0 && isNear(r.Value*float64(rows[i].Step-rows[i-1].Step), rows[i].Value-rows[i-1].Value)
			})
		}, changesPlace: true},
		{name: regexp.MustCompile(`^seconds$`), why: "the difference of two times, of several epochs", ok: func(r Row, l numbers, _ []Row) bool {
			return slices.ContainsFunc([]float64{2, 3, 4, 5}, func(n float64) bool { return l.hasDifference(n*r.Value, 1) || l.has(n*r.Value) })
		}},
		{name: regexp.MustCompile(`_seconds/`), why: "a duration in µs, or the difference of two times, to the nanosecond", ok: func(r Row, l numbers, _ []Row) bool {
			return r.Value == 0 || l.hasNear(r.Value*1e6, 1e-3) || l.hasDifference(r.Value, 1e-6)
		}},
		{name: regexp.MustCompile(`^wall_seconds$`), why: "hours, minutes and seconds, or the sum of the times of a resumed run", ok: func(r Row, l numbers, _ []Row) bool {
			isClock := func(v float64) bool {
				seconds := math.Round(math.Mod(v, 60)*1e9) / 1e9
				return l.has(seconds) && l.has(math.Mod(math.Floor(v/60), 60)) || l.has(seconds) && l.has(math.Floor(v/60))
			}
			return isClock(r.Value) || l.hasSum(r.Value, 2) || slices.ContainsFunc(l, func(x float64) bool { return isClock(r.Value - x) })
		}},
		{name: regexp.MustCompile(`_trial_samples_per_second$`), why: "the rate of a worker × the workers", ok: func(r Row, l numbers, _ []Row) bool {
			return slices.ContainsFunc(l, func(workers float64) bool { return workers >= 1 && l.has(r.Value/workers) })
		}},
		{name: regexp.MustCompile(`^[A-Z]+_samples_per_second$`), why: "the mean over the trials, or the rate of a worker × the workers", ok: func(r Row, l numbers, same []Row) bool {
			if slices.ContainsFunc(l, func(workers float64) bool { return workers >= 1 && l.has(r.Value/workers) }) {
				return true
			}
			mean, _, n := deviation(trials(strings.TrimSuffix(r.Name, "_samples_per_second"), same))
			return n > 0 && math.Abs(mean-r.Value) <= 1e-9*mean
		}, changesPlace: true},
		{name: regexp.MustCompile(`_spread_samples_per_second$`), why: "the standard deviation of the trials; 1.96 times it, of a worker or of all", ok: func(r Row, l numbers, same []Row) bool {
			_, squares, n := deviation(trials(strings.TrimSuffix(r.Name, "_spread_samples_per_second"), same))
			return l.has(r.Value*1.96) || l.has(r.Value*1.96/float64(max(1, r.Workers))) ||
				n > 0 && math.Abs(r.Value-math.Sqrt(squares/n)) < 1e-6 || n > 1 && math.Abs(r.Value-math.Sqrt(squares/(n-1))) < 1e-6
		}},
		{name: regexp.MustCompile(`loss$|accuracy$|^lr$`), why: "the value of the last step of an epoch", ok: func(r Row, _ numbers, same []Row) bool {
			return r.Epoch > 0 && slices.ContainsFunc(same, func(o Row) bool { return o.Epoch == 0 && o.Step >= 0 && o.Value == r.Value })
		}, changesPlace: true},
		{name: regexp.MustCompile(`accuracy$|^iou$|^dice$`), why: "a percentage, or the mean of the ranks' percentages", ok: func(r Row, l numbers, _ []Row) bool {
			return l.has(r.Value*100) || ranks(r.Value*100, l, true)
		}},
		{name: regexp.MustCompile(`seconds$`), why: "ms or µs", ok: func(r Row, l numbers, _ []Row) bool { return l.has(r.Value*1e3) || l.has(r.Value*1e6) }},
		{name: regexp.MustCompile(`seconds$`), why: "minutes and seconds, or hours, minutes and seconds", ok: func(r Row, l numbers, _ []Row) bool {
			minutes := math.Floor(r.Value / 60)
			return l.has(r.Value-60*minutes) && (l.has(minutes) || l.has(math.Mod(minutes, 60)) && l.has(math.Floor(minutes/60)))
		}},
		{name: regexp.MustCompile(`^seconds$`), why: "steps × the time of a step, or steps / steps per second", ok: func(r Row, l numbers, _ []Row) bool {
			return l.hasQuotient(r.Value) || slices.ContainsFunc(l, func(steps float64) bool {
				return steps == math.Floor(steps) && (l.has(r.Value/steps) || l.has(r.Value/(steps+1)))
			})
		}},
		{name: regexp.MustCompile(`^(samples|tokens)_per_second$`), why: "samples or tokens of a step / its time in s or ms", ok: func(r Row, l numbers, _ []Row) bool {
			return l.hasQuotient(r.Value) || l.hasQuotient(r.Value/1e3)
		}},
		{name: regexp.MustCompile(`^samples_per_second$`), why: "the steps of an epoch over the time that their rates give, or the mean of these", ok: func(r Row, _ numbers, same []Row) bool {
			return r.Epoch > 0 && slices.ContainsFunc(curvesOf(same, fields.SamplesPerSecond), func(rows []Row) bool {
				for first := range rows {
					var n, sum, seconds float64
					for _, o := range rows[first:] {
						n, sum, seconds = n+1, sum+o.Value, seconds+1/o.Value
						if isNear(r.Value, n/seconds) || isNear(r.Value, sum/n) {
							return true
						}
					}
				}
				return false
			})
		}, changesPlace: true},
		{name: regexp.MustCompile(`^padding_samples$`), why: "0", ok: func(r Row, _ numbers, _ []Row) bool { return r.Value == 0 }},
	}
}

// deviation returns the mean of a list, the sum of the squared deviations from it, and the
// number of values.
func deviation(list []float64) (mean, squares, n float64) {
	n = float64(len(list))
	for _, x := range list {
		mean += x / n
	}
	for _, x := range list {
		squares += (x - mean) * (x - mean)
	}
	return mean, squares, n
}

// curvesOf returns the rows of the curves of a field, one list for each name and rank, in the order of the steps.
func curvesOf(rows []Row, field string) [][]Row {
	curves := map[string][]Row{}
	for _, r := range rows {
		if f := fields.LookupColumn(r.Name); r.Step >= 0 && f != nil && f.Name == field {
			key := fmt.Sprint(r.Name, r.Rank)
			curves[key] = append(curves[key], r)
		}
	}
	return slices.Collect(maps.Values(curves))
}

// isNear reports whether two numbers are equal but for rounding.
func isNear(a, b float64) bool { return math.Abs(a-b) <= 1e-9*math.Abs(b) }
