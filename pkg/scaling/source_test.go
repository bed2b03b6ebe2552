package scaling

import (
	"slices"
	"strings"
	"testing"

	"lockstep/pkg/runs"
)

// TestSources: the notes of a table state who published or recorded the numbers, once.
func TestSources(t *testing.T) {
	const paper, recorded = "published by a paper", "recorded on 2026-11-29, 2 cores of AMD EPYC"
	for _, c := range []struct {
		name  string
		of    map[string]string // sources, by "series run"
		want  []string
		kinds string
	}{
		{"trained here", map[string]string{"a 1": "", "b 1": ""}, nil, ""},
		{"one source", map[string]string{"a 1": paper, "b 1": paper}, []string{paper}, "published"},
		{"several sources", map[string]string{"a 1": paper, "b 1": recorded, "c 1": ""}, []string{"a: " + paper, "b: " + recorded}, "partly published and recorded"},
		{"part of a series", map[string]string{"a 1": "", "a 2": paper, "a 3": paper}, []string{"2 of 3 runs of a: " + paper}, "partly published"},
		{
			"many series",
			map[string]string{"a 1": paper, "b 1": paper, "c 1": paper, "d 1": paper, "e 1": paper, "z 1": ""},
			[]string{"a, b, c and 2 more series: " + paper},
			"partly published",
		},
	} {
		var all []runs.Run
		for name, source := range c.of {
			series, _, _ := strings.Cut(name, " ")
			all = append(all, runs.Run{Dir: name, Info: runs.Info{Series: series, Source: source, Workers: 1, Status: runs.StatusDone}, WallSeconds: 1})
		}
		slices.SortFunc(all, func(a, b runs.Run) int { return strings.Compare(a.Dir, b.Dir) })
		s, err := FromRuns(all)
		check(t, err)
		if got := s.Sources(); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
		if got := s.SourceKind(); got != c.kinds {
			t.Errorf("%s: got the kind %q, want %q", c.name, got, c.kinds)
		}
		for _, source := range c.want {
			for _, text := range []string{s.String(), s.HTML()} {
				if n := strings.Count(text, "note: "+source); n != 1 {
					t.Errorf("%s: the table has %q %d times:\n%s", c.name, source, n, text)
				}
			}
		}
	}
}
