package launch

import (
	"fmt"
	"path/filepath"
	"strconv"

	"lockstep/pkg/launch/internal/runfolder"
	"lockstep/pkg/runs"
)

// DefaultStudyLogs is the value of Sweep.StudyLogs for the folder study-logs in the study's folder.
const DefaultStudyLogs = "default"

// studyLogFolder returns the folder for the study log of r: <folder>/<series>/seed<S>, where
// <folder> is the sweep's folder for study logs, without /<series> if the sweep has only one, and
// without /seed<S> for the first seed. It returns "" if the sweep writes no study logs.
func (s *Sweep) studyLogFolder(r *PlannedRun) (string, error) {
	if s.StudyLogs == "" {
		return "", nil
	}
	dir := filepath.Join(filepath.Dir(r.Dir), "study-logs")
	if s.StudyLogs != DefaultStudyLogs {
		var err error
		if dir, err = runs.ResolveLogs(s.StudyLogs); err != nil {
			return "", err
		}
	}
	if len(s.seriesAxes().Variants()) > 1 {
		dir = filepath.Join(dir, r.Series)
	}
	if r.Seed != s.Seeds[0] {
		dir = filepath.Join(dir, "seed"+strconv.FormatInt(r.Seed, 10))
	}
	return dir, nil
}

// checkStudyLog returns an error if the study log of r would overwrite that of another run.
// existing is the content of run.json, or zero if there is none. checkStudyLog is called before
// anything starts.
func (r *PlannedRun) checkStudyLog(existing runs.Info) error {
	if r.StudyLogs == "" {
		return nil
	}
	existing.Series, existing.Workers = r.Series, r.Workers
	return runs.CheckStudyLog(r.StudyLogs, r.Dir, existing)
}

func (r *PlannedRun) writeStudyLog() error {
	if r.StudyLogs == "" {
		return nil
	}
	run, err := runs.Read(r.Dir)
	if err == nil && len(run.Info.Command) > 0 {
		run, err = runfolder.ReadWithLogs(r.Dir)
	}
	if err == nil {
		_, err = runs.WriteStudyLog(r.StudyLogs, run)
	}
	if err != nil {
		return fmt.Errorf("run %s: %w", r.Name, err)
	}
	return nil
}
