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
func middleTwo(values []float64) (lo, hi float64) {
	slices.Sort(values)
	n := len(values)
	return values[(n-1)/2], values[n/2]
}

// Mean returns the arithmetic mean.
func Mean(values []float64) float64 { return stat.Mean(values, nil) }
