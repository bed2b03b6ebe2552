package stats

import (
	"slices"

	"gonum.org/v1/gonum/stat"
)

// Median returns the middle value, or the mean of the two middle values.
func Median(values []float64) float64 { return medianInPlace(slices.Clone(values)) }

// medianInPlace returns the median of values. It reorders values.
func medianInPlace(values []float64) float64 {
	lo, hi := middleTwo(values)
	return (lo + hi) / 2
}

// middleTwo returns the two middle values, equal for an odd number of values. It reorders values.
// It is optimized for the few values of a bootstrap, which calls it very often.
func middleTwo(values []float64) (lo, hi float64) {
	n := len(values)
	if n <= 12 {
		for i := 1; i < n; i++ { // insertion sort
			v, k := values[i], i
			for ; k > 0 && values[k-1] > v; k-- {
				values[k] = values[k-1]
			}
			values[k] = v
		}
		return values[(n-1)/2], values[n/2]
	}
	selectNth(values, n/2)
	hi = values[n/2]
	if n%2 == 1 {
		return hi, hi
	}
	return slices.Max(values[:n/2]), hi
}

// selectNth moves the k-th smallest value, from 0, to index k, smaller or equal values before it,
// and the others after it (Hoare, Algorithm 65: Find, Communications of the ACM 4, 1961).
func selectNth(values []float64, k int) {
	for l, r := 0, len(values)-1; l < r; {
		a, b, c := values[l], values[(l+r)/2], values[r]
		pivot := max(min(a, b), min(max(a, b), c)) // median of three
		i, j := l, r
		for i <= j {
			for values[i] < pivot {
				i++
			}
			for values[j] > pivot {
				j--
			}
			if i <= j {
				values[i], values[j] = values[j], values[i]
				i, j = i+1, j-1
			}
		}
		switch {
		case k <= j:
			r = j
		case k >= i:
			l = i
		default:
			return
		}
	}
}

// Mean returns the arithmetic mean.
func Mean(values []float64) float64 { return stat.Mean(values, nil) }
