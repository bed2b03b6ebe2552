package scaling

import (
	"fmt"
	"slices"
	"strings"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/runs"
	"lockstep/pkg/scaling/internal/observe"
)

// Sources returns phrases about where runs come from that were not trained here (see
// [runs.Info].Source). If this applies to all runs, it is a single "published by …"; otherwise
// there is one phrase per source with its series, such as "resnet50v2: recorded on …". It returns
// nil if all runs were trained here. The study's notes, captions and report contain the phrases.
func (s *Study) Sources() []string {
	const most = 3 // series that are named
	// The source of runs that were trained here is "".
	sources := observe.Distinct(s.Runs, func(r runs.Run) string { return r.Info.Source })
	switch {
	case len(sources) == 1 && sources[0] == "":
		return nil
	case len(sources) == 1:
		return sources
	}
	var phrases []string
	for _, source := range sources {
		var names []string
		for _, g := range s.groupBySeries() {
			n := 0
			for _, r := range g.Runs {
				if r.Info.Source == source {
					n++
				}
			}
			switch {
			case n == len(g.Runs):
				names = append(names, g.Name)
			case n > 0:
				names = append(names, fmt.Sprintf("%d of %s of %s", n, english.FormatCount(len(g.Runs), "run"), g.Name))
			}
		}
		if n := len(names) - most; n > 1 {
			names = append(names[:most], fmt.Sprintf("%d more series", n))
		}
		if source != "" && len(names) > 0 {
			phrases = append(phrases, english.JoinAnd(names)+": "+source)
		}
	}
	return phrases
}

// SourceKind returns the first words of the study's sources for a title, such as "published" or
// "recorded". They follow "partly" if some runs were trained here. It returns "" if all runs were
// trained here.
func (s *Study) SourceKind() string {
	var kinds []string
	partly := ""
	for _, r := range s.Runs {
		if kind, _, _ := strings.Cut(r.Info.Source, " "); kind == "" {
			partly = "partly "
		} else if !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
	}
	if kinds == nil {
		return ""
	}
	return partly + english.JoinAnd(kinds)
}
