package launch

import (
	"fmt"
	"path/filepath"
	"strconv"

	"lockstep/pkg/runs"
)

// DefaultStudyLogs as Sweep.StudyLogs stands for the folder study-logs in the
// study's own.
const DefaultStudyLogs = "default"

// studyLogs returns the folder of the run's file in the form of the U-Net
// study: that of the sweep, with a folder for each series where it has several,
// and one for each seed but the first. It is empty if no such files are wanted.
func (r *run) studyLogs() (string, error) {
	s := r.sweep
	if s.StudyLogs == "" {
		return "", nil
	}
	dir := filepath.Join(filepath.Dir(r.dir), "study-logs")
	if s.StudyLogs != DefaultStudyLogs {
		var err error
		if dir, err = runs.ResolveLogs(s.StudyLogs); err != nil {
			return "", err
		}
	}
	if len(s.variants()) > 1 {
		dir = filepath.Join(dir, r.variant.series)
	}
	if r.seed != s.Seeds[0] {
		dir = filepath.Join(dir, "seed"+strconv.FormatInt(r.seed, 10))
	}
	return dir, nil
}

// checkStudyLog refuses, before anything starts, a run whose file would have to
// replace another's.
func (r *run) checkStudyLog(before runs.Info) error {
	dir, err := r.studyLogs()
	if err != nil || dir == "" {
		return err
	}
	before.Series, before.Workers = r.variant.series, r.workers
	return runs.CheckStudyLog(dir, r.dir, before)
}

// writeStudyLog writes the run, which is done, in the form of the U-Net study.
func (r *run) writeStudyLog() error {
	dir, err := r.studyLogs()
	if err != nil || dir == "" {
		return err
	}
	if _, err := runs.WriteStudyLog(dir, r.dir); err != nil {
		return fmt.Errorf("run %s: %w", r.name, err)
	}
	return nil
}
