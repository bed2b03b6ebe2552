package files

import (
	"path/filepath"
	"slices"

	"lockstep/pkg/logread/internal/programfile"
	"lockstep/pkg/runs"
)

// SkipCopies marks the files that are copies of run folders among the tasks as
// skipped. Otherwise each of these runs would count twice.
func SkipCopies(lists [][]*Task) error {
	var folders map[string]bool // absolute paths of the run folders; nil until needed
	for _, t := range slices.Concat(lists...) {
		if t.Folder || t.Report.Skipped != "" {
			continue
		}
		if programfile.StudyEvidence(t.Path) == nil {
			continue
		}
		dir, ok := runs.StudyLogSource(t.Path)
		if !ok {
			continue
		}
		if folders == nil {
			var err error
			if folders, err = findRunFolders(lists); err != nil {
				return err
			}
		}
		if place, err := filepath.Abs(dir); err == nil && folders[place] {
			t.Report.CopyOf, t.Report.Skipped = dir, "it is a copy of the run folder "+dir+", which is read instead"
		}
	}
	return nil
}

// findRunFolders returns the set of absolute paths of the run folders among the
// tasks.
func findRunFolders(lists [][]*Task) (map[string]bool, error) {
	folders := map[string]bool{}
	for _, t := range slices.Concat(lists...) {
		place, err := filepath.Abs(t.Path)
		if err != nil {
			return nil, err
		}
		if t.Folder {
			folders[place] = true
		}
	}
	return folders, nil
}
