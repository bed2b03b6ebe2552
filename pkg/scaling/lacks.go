package scaling

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/runs"
)

// unknownWorkersPrefix is the beginning of the problem that logread reports for a log without a
// number of workers. A study reports it once for all such runs.
const unknownWorkersPrefix = "the number of workers is unknown"

type missingData struct {
	reason string   // what is missing and what to do
	dirs   []string // of the runs
}

func (s *Study) addMissingData(r runs.Run, reason string) {
	i := slices.IndexFunc(s.lacks, func(l missingData) bool { return l.reason == reason })
	if i < 0 {
		i, s.lacks = len(s.lacks), append(s.lacks, missingData{reason: reason})
	}
	s.lacks[i].dirs = append(s.lacks[i].dirs, r.Dir)
}

// reportMissingData adds one problem for each kind of missing data. It names the first run that
// lacks the data, the reason, and the other runs.
func (s *Study) reportMissingData() {
	const most = 3 // other runs that are named
	for _, l := range s.lacks {
		text, others := l.reason, l.dirs[1:]
		if n := len(others); n > 0 {
			text += fmt.Sprintf("; likewise %s: %s", english.FormatCount(n, "more run"), strings.Join(others[:min(n, most)], ", "))
			if n > most {
				text += fmt.Sprintf(" and %d more", n-most)
			}
		}
		s.Problems = append(s.Problems, runs.Problem{File: l.dirs[0], Reason: text})
	}
}

// mergeEqualProblems replaces equal problems of several files by one problem that states the number of
// files.
func mergeEqualProblems(all []runs.Problem) (grouped []runs.Problem) {
	const few = 3
	counts := map[string]int{}
	for _, p := range all {
		if p.Line == 0 {
			counts[p.Reason]++
		}
	}
	for _, p := range all {
		switch n := counts[p.Reason]; {
		case p.Line > 0 || n > 0 && n <= few:
			grouped = append(grouped, p)
		case n > few:
			counts[p.Reason] = -1 // listed
			p.Reason += "; likewise " + english.FormatCount(n-1, "more file")
			grouped = append(grouped, p)
		}
	}
	return grouped
}

// explainUncountedRun returns why no epoch of a run counts, and what the user can do about it. The
// run has n epochs, at least one of them with a time.
func (r Rule) explainUncountedRun(n int) string {
	text := fmt.Sprintf("0 of %d epochs count by the rule (%s)", n, r.describeCountedEpochs())
	_, err := strconv.Atoi(r.Epochs)
	switch {
	case err == nil:
		return text + "; choose another epoch with --epochs"
	case r.DropFirst > 0:
		return text + "; count the first epochs too with --drop-first 0"
	}
	return text + "; train more epochs"
}
