package steptime

import (
	"cmp"
	"slices"
	"sort"

	"lockstep/pkg/runs"
)

// interval is a half-open time interval [from, to) in seconds.
type interval struct{ from, to float64 }

// intervals is a sorted list of disjoint time intervals.
type intervals []interval

func mergeSpansOfKind(spans []runs.Span, kind string) intervals {
	var all []interval
	for _, s := range spans {
		if s.Kind == kind && s.Seconds > 0 {
			all = append(all, interval{s.Start, s.Start + s.Seconds})
		}
	}
	slices.SortFunc(all, func(a, b interval) int { return cmp.Compare(a.from, b.from) })
	var out intervals
	for _, s := range all {
		if n := len(out); n > 0 && s.from <= out[n-1].to {
			out[n-1].to = max(out[n-1].to, s.to)
			continue
		}
		out = append(out, s)
	}
	return out
}

func (c intervals) intersect(d intervals) intervals {
	var out intervals
	for i, j := 0, 0; i < len(c) && j < len(d); {
		from, to := max(c[i].from, d[j].from), min(c[i].to, d[j].to)
		if from < to {
			out = append(out, interval{from, to})
		}
		if c[i].to < d[j].to {
			i++
		} else {
			j++
		}
	}
	return out
}

func (c intervals) subtract(d intervals) intervals {
	var out intervals
	j := 0
	for _, s := range c {
		from := s.from
		for j < len(d) && d[j].to <= from {
			j++
		}
		for k := j; k < len(d) && d[k].from < s.to; k++ {
			if d[k].from > from {
				out = append(out, interval{from, d[k].from})
			}
			from = max(from, d[k].to)
		}
		if from < s.to {
			out = append(out, interval{from, s.to})
		}
	}
	return out
}

func (c intervals) overlapSeconds(w interval) float64 {
	total := 0.0
	for i := sort.Search(len(c), func(i int) bool { return c[i].to > w.from }); i < len(c) && c[i].from < w.to; i++ {
		total += min(c[i].to, w.to) - max(c[i].from, w.from)
	}
	return total
}
