package steptime

import (
	"cmp"
	"slices"
	"sort"

	"lockstep/pkg/runs"
)

// stretch is a half-open time interval [from, to) in seconds.
type stretch struct{ from, to float64 }

// cover is a sorted list of disjoint time intervals.
type cover []stretch

// coverOf returns the union of the spans of one kind.
func coverOf(spans []runs.Span, kind string) cover {
	var all []stretch
	for _, s := range spans {
		if s.Kind == kind && s.Seconds > 0 {
			all = append(all, stretch{s.Start, s.Start + s.Seconds})
		}
	}
	slices.SortFunc(all, func(a, b stretch) int { return cmp.Compare(a.from, b.from) })
	var out cover
	for _, s := range all {
		if n := len(out); n > 0 && s.from <= out[n-1].to {
			out[n-1].to = max(out[n-1].to, s.to)
			continue
		}
		out = append(out, s)
	}
	return out
}

// and returns the intersection of c and d.
func (c cover) and(d cover) cover {
	var out cover
	for i, j := 0, 0; i < len(c) && j < len(d); {
		from, to := max(c[i].from, d[j].from), min(c[i].to, d[j].to)
		if from < to {
			out = append(out, stretch{from, to})
		}
		if c[i].to < d[j].to {
			i++
		} else {
			j++
		}
	}
	return out
}

// minus returns the part of c outside d.
func (c cover) minus(d cover) cover {
	var out cover
	j := 0
	for _, s := range c {
		from := s.from
		for j < len(d) && d[j].to <= from {
			j++
		}
		for k := j; k < len(d) && d[k].from < s.to; k++ {
			if d[k].from > from {
				out = append(out, stretch{from, d[k].from})
			}
			from = max(from, d[k].to)
		}
		if from < s.to {
			out = append(out, stretch{from, s.to})
		}
	}
	return out
}

// within returns the length of the intersection of c and a window, in seconds.
func (c cover) within(w stretch) float64 {
	total := 0.0
	for i := sort.Search(len(c), func(i int) bool { return c[i].to > w.from }); i < len(c) && c[i].from < w.to; i++ {
		total += min(c[i].to, w.to) - max(c[i].from, w.from)
	}
	return total
}
