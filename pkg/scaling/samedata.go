package scaling

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/runs"
)

type dataUse struct {
	worker runs.Worker // describes the data
	names  []string
}

// listDataUses returns the data sets that the runs used, in the order of their first use. It omits
// runs that did not record their data. A run that was resumed with other data is listed for each
// data set.
func listDataUses(all []runs.Run) []dataUse {
	var uses []dataUse
	for _, r := range all {
		name := filepath.Base(r.Dir)
		for _, w := range r.Starts {
			if w.DataHash == "" {
				continue
			}
			i := slices.IndexFunc(uses, func(u dataUse) bool { return u.worker.DataHash == w.DataHash })
			if i < 0 {
				uses = append(uses, dataUse{worker: w})
				i = len(uses) - 1
			}
			if !slices.Contains(uses[i].names, name) {
				uses[i].names = append(uses[i].names, name)
			}
		}
	}
	return uses
}

func (s *Study) differentDataNotes() []string {
	var studies []string
	byStudy := map[string][]runs.Run{}
	for _, r := range s.Runs {
		study := cmp.Or(r.Info.Study, filepath.Dir(r.Dir)) // Only has joined several studies if it has none
		if byStudy[study] == nil {
			studies = append(studies, study)
		}
		byStudy[study] = append(byStudy[study], r)
	}
	var notes []string
	for _, study := range studies {
		if uses := listDataUses(byStudy[study]); len(uses) > 1 {
			notes = append(notes, fmt.Sprintf("the runs of %s were trained on different data, so their losses, scores and perhaps times cannot be compared: %s", filepath.Base(study), describeDataUses(uses)))
		}
	}
	return notes
}

func describeDataUses(uses []dataUse) string {
	var parts []string
	for _, u := range uses[:min(maxListedDataUses, len(uses))] {
		names := u.names
		if n := len(names) - maxListedRuns; n > 0 {
			names = append(slices.Clone(names[:maxListedRuns]), fmt.Sprintf("%d more", n))
		}
		parts = append(parts, fmt.Sprintf("%s on %s", english.JoinAnd(names), u.worker.DescribeData()))
	}
	if n := len(uses) - maxListedDataUses; n > 0 {
		parts = append(parts, fmt.Sprintf("the others on %d more data sets", n))
	}
	return strings.Join(parts, "; ")
}

const (
	maxListedDataUses = 4
	maxListedRuns     = 3
)
