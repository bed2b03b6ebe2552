package logread

import (
	"path/filepath"

	"lockstep/pkg/logread/internal/table"
	"lockstep/pkg/runs"
)

// skipCopies finds the run folders in and below the paths, and marks the files
// that are copies of them as skipped. Otherwise each of these runs would count
// twice.
func skipCopies(tasks []*task, paths []string) error {
	var folders map[string]bool // absolute paths of the run folders that are read; nil until needed
	for _, t := range tasks {
		if t.folder || t.report.Skipped != "" {
			continue
		}
		if !table.IsStudyName(t.path) {
			continue
		}
		dir, ok := runs.StudyLogSource(t.path)
		if !ok {
			continue
		}
		if folders == nil {
			var err error
			if folders, err = findRunFolders(paths); err != nil {
				return err
			}
		}
		if place, err := filepath.Abs(dir); err == nil && folders[place] {
			t.report.CopyOf, t.report.Skipped = dir, "it is a copy of the run folder "+dir+", which is read instead"
		}
	}
	return nil
}

// findRunFolders returns the set of absolute paths of the run folders in or
// below the paths.
func findRunFolders(paths []string) (map[string]bool, error) {
	folders := map[string]bool{}
	for _, path := range paths {
		tasks, err := listTasks(path)
		if err != nil {
			return nil, err
		}
		for _, t := range tasks {
			place, err := filepath.Abs(t.path)
			if err != nil {
				return nil, err
			}
			if t.folder {
				folders[place] = true
			}
		}
	}
	return folders, nil
}
