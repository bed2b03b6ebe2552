package merge

import (
	"fmt"
	"path/filepath"
	"slices"

	"lockstep/pkg/logread/internal/identity"
	"lockstep/pkg/logread/internal/record"
)

// datasetSplitFolders returns the names of folders in which Keras keeps event
// files: each folder has those of one split of the data set.
func datasetSplitFolders() []string {
	return []string{"train", "validation", "valid", "val", "eval", "test"}
}

// joinCompanions adds each companion to the run to which it belongs, and
// returns the companions that form runs themselves.
func (m *merger) joinCompanions(companions, principals []*record.Part) []*record.Part {
	groups := map[string]*record.Part{}
	var own []*record.Part
	for _, p := range companions {
		folder := prefixSplit(p)
		if ranks, ok := m.ranks[p]; ok && !slices.ContainsFunc(principals, func(o *record.Part) bool { return filepath.Dir(o.Run.File) == folder }) {
			folder = filepath.Dir(ranks.path) // each rank has a folder
		}
		if to := m.runFolders[folder]; to != nil {
			p.Report.AddAssumption("belongs to the run in %s", folder)
			to.Run.Spans = append(to.Run.Spans, p.Run.Spans...)
			continue
		}
		to, why := m.findRun(folder, principals)
		if to == nil && groups[folder] != nil {
			to, why = groups[folder], "of the same folder"
		}
		if to == nil {
			p.Run.Dir = folder
			groups[folder] = p
			own = append(own, p)
			if why != "" {
				p.Report.AddAssumption("%s", why)
			}
			continue
		}
		p.Report.AddAssumption("belongs to the run in %s (%s)", to.Run.File, why)
		addMissingPart(to, p)
	}
	return own
}

// prefixSplit returns the folder of the run to which the companion p belongs. If
// the file of p is in the folder of a split of the data set, prefixSplit adds the
// name of the split to the names of the curves and returns the parent folder.
func prefixSplit(p *record.Part) string {
	folder := filepath.Dir(p.Run.File)
	split := filepath.Base(folder)
	if !slices.Contains(datasetSplitFolders(), split) {
		return folder
	}
	for i := range p.Run.Curves {
		p.Run.Curves[i].Name = split + "/" + p.Run.Curves[i].Name
	}
	return filepath.Dir(folder)
}

// findRun searches folder, its parent and its grandparent, in this order, for a
// folder with runs. If that folder has one run, findRun returns the run and a
// description of the match. If it has several runs, findRun returns nil and the
// reason. If no folder has a run, it returns nil and "".
func (m *merger) findRun(folder string, principals []*record.Part) (run *record.Part, why string) {
	if m.folders == nil {
		m.folders = map[string][]*record.Part{}
		for _, p := range principals {
			m.folders[filepath.Dir(p.Run.File)] = append(m.folders[filepath.Dir(p.Run.File)], p)
		}
	}
	for range 3 {
		here := m.folders[folder]
		switch {
		case len(here) == 1:
			return here[0], "the only run of " + folder
		case len(here) > 1:
			return nil, fmt.Sprintf("%s has %d runs, and it is unknown to which of them this file belongs; it becomes a separate run", folder, len(here))
		case folder == filepath.Clean(m.root), identity.IsRunName(filepath.Base(folder)):
			return nil, "" // the name of the folder marks a separate run
		}
		folder = filepath.Dir(folder)
	}
	return nil, ""
}
