package logread

import (
	"path/filepath"
	"slices"

	"lockstep/pkg/logread/internal/programfile"
	"lockstep/pkg/runs"
)

// skipCopies marks the files that are copies of run folders among the tasks as
// skipped. Otherwise each of these runs would count twice.
func skipCopies(lists [][]*task) error {
	var folders map[string]bool // absolute paths of the run folders; nil until needed
	for _, t := range slices.Concat(lists...) {
		if t.folder || t.report.Skipped != "" {
			continue
		}
		if !programfile.IsStudyName(t.path) {
			continue
		}
		dir, ok := runs.StudyLogSource(t.path)
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
			t.report.CopyOf, t.report.Skipped = dir, "it is a copy of the run folder "+dir+", which is read instead"
		}
	}
	return nil
}

// findRunFolders returns the set of absolute paths of the run folders among the
// tasks.
func findRunFolders(lists [][]*task) (map[string]bool, error) {
	folders := map[string]bool{}
	for _, t := range slices.Concat(lists...) {
		place, err := filepath.Abs(t.path)
		if err != nil {
			return nil, err
		}
		if t.folder {
			folders[place] = true
		}
	}
	return folders, nil
}
