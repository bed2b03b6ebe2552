package scaling

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"lockstep/pkg/runs"
)

// compare notes where the runs of a series differ in what must be equal for
// their times to be compared, and runs that look like the same one twice.
func (s *Study) compare(g seriesRuns) {
	for _, c := range []struct {
		what  string
		value func(runs.Run) string // empty where unknown
	}{
		{"threads per worker", func(r runs.Run) string { return known(r.Info.ThreadsPerWorker) }},
		{"batch per worker", func(r runs.Run) string { return known(r.Info.BatchPerWorker) }},
		{"training samples", func(r runs.Run) string { return known(r.Info.SamplesPerEpoch) }},
		{"parameters", func(r runs.Run) string { return known(r.Info.Parameters) }},
		{"model", func(r runs.Run) string { return document(r, "model") }},
		{"data", func(r runs.Run) string { return document(r, "data") }},
		{"engine", func(r runs.Run) string { return r.Info.Engine }},
		{"collective", func(r runs.Run) string {
			if r.Info.Workers < 2 { // it has none
				return ""
			}
			return r.Info.Collective
		}},
		{"host", func(r runs.Run) string { return r.Info.Host.Name }},
	} {
		s.compareValue(g, c.what, c.value)
	}
	for i, a := range g.runs {
		for _, b := range g.runs[:i] {
			if a.Info.Workers == b.Info.Workers && a.Info.Seed == b.Info.Seed {
				s.note("series %s: %s and %s have the same workers (%d) and seed (%d); they count as repeats",
					g.name, b.Dir, a.Dir, a.Info.Workers, a.Info.Seed)
			}
		}
	}
}

// compareValue notes the values of one thing, and the first run with each.
func (s *Study) compareValue(g seriesRuns, what string, value func(runs.Run) string) {
	var values, where []string
	for _, r := range g.runs {
		v := value(r)
		if v != "" && !slices.Contains(values, v) {
			values = append(values, v)
			if len(v) > 40 { // a document: its text says too much for a line
				where = append(where, runName(r))
			} else {
				where = append(where, fmt.Sprintf("%s in %s", v, runName(r)))
			}
		}
	}
	if len(values) > 1 {
		s.note("series %s: %s differs between runs (%s); compare their times with care", g.name, what, strings.Join(where, ", "))
	}
}

// known is n as text, empty for 0.
func known(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}

// document is a part of the config as text, with its keys in order.
func document(r runs.Run, key string) string {
	part, ok := r.Info.Config[key]
	if !ok {
		return ""
	}
	text, err := json.Marshal(part)
	if err != nil {
		return ""
	}
	return string(text)
}
