package figure

import (
	"slices"
	"sync"

	"lockstep/pkg/figure/internal/element"
	"lockstep/pkg/notebook"
	"lockstep/pkg/scaling"
)

// notebookSeriesStyles contains the style of each series that a notebook has drawn, so that a series
// keeps its color in later figures.
var notebookSeriesStyles struct {
	mu      sync.Mutex
	indices map[string]int // by name of the series
}

// seriesStyleIndex returns the index of a series' style. It depends on all series that were read, not on
// those that a figure draws. In a notebook, a series also keeps the style of its first figure.
func seriesStyleIndex(study *scaling.Study, series string) int {
	own := study.SeriesIndex(series)
	if !notebook.InNotebook() {
		return own
	}
	n := &notebookSeriesStyles
	n.mu.Lock()
	defer n.mu.Unlock()
	if i, known := n.indices[series]; known {
		return i
	}
	var taken []int
	for _, other := range study.Series() {
		if i, known := n.indices[other]; known {
			taken = append(taken, i)
		}
	}
	if slices.Contains(taken, own) {
		for own = 0; slices.Contains(taken, own); own++ {
		}
	}
	if n.indices == nil {
		n.indices = map[string]int{}
	}
	n.indices[series] = own
	return own
}

func seriesStyle(study *scaling.Study, series string) element.SeriesStyle {
	return element.NewSeriesStyle(seriesStyleIndex(study, series))
}

// curveStyles returns the styles of n curves, each of which belongs to a series at a worker count.
// A curve has the style of its series if no series has several curves; otherwise the styles are
// assigned in order.
func curveStyles(study *scaling.Study, n int, seriesOf func(i int) string) []element.SeriesStyle {
	styles, seen := make([]element.SeriesStyle, n), map[string]bool{}
	for i := range styles {
		styles[i] = seriesStyle(study, seriesOf(i))
		seen[seriesOf(i)] = true
	}
	if len(seen) < n {
		for i := range styles {
			styles[i] = element.NewSeriesStyle(i)
		}
	}
	return styles
}
