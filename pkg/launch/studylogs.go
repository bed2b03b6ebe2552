package launch

import (
	"fmt"
	"path/filepath"
	"strconv"

	"lockstep/pkg/launch/internal/runfolder"
	"lockstep/pkg/runs"
)

// DefaultStudyLogs selects the folder study-logs in the study's folder, as the value of
// Sweep.StudyLogs.
const DefaultStudyLogs = "default"

// studyLogFolder returns the folder for the run's study log. Its path is
// <folder>/<series>/seed<S>, where <folder> is the sweep's folder for study logs. /<series>
// is left out if the sweep has only one series, and /seed<S> for the first seed.
// studyLogFolder returns "" if the sweep writes no study logs.
func (r *run) studyLogFolder() (string, error) {
	s := r.sweep
	if r.studyLogs != "" || s.StudyLogs == "" {
		return r.studyLogs, nil
	}
	dir := filepath.Join(filepath.Dir(r.dir), "study-logs")
	if s.StudyLogs != DefaultStudyLogs {
		var err error
		if dir, err = runs.ResolveLogs(s.StudyLogs); err != nil {
			return "", err
		}
	}
	if len(s.seriesAxes().Variants()) > 1 {
		dir = filepath.Join(dir, r.variant.Series)
	}
	if r.seed != s.Seeds[0] {
		dir = filepath.Join(dir, "seed"+strconv.FormatInt(r.seed, 10))
	}
	return dir, nil
}

// checkStudyLog returns an error if the study log of r would overwrite the study log of
// another run. It is called before anything starts. existing is the content of run.json, or
// the zero Info if there is no such file.
func (r *run) checkStudyLog(existing runs.Info) error {
	dir, err := r.studyLogFolder()
	if err != nil || dir == "" {
		return err
	}
	existing.Series, existing.Workers = r.variant.Series, r.workers
	return runs.CheckStudyLog(dir, r.dir, existing)
}

// writeStudyLog writes the study log of the finished run r if the sweep writes study logs.
func (r *run) writeStudyLog() error {
	dir, err := r.studyLogFolder()
	if err != nil || dir == "" {
		return err
	}
	run, err := runs.Read(r.dir)
	if err == nil && len(run.Info.Command) > 0 {
		run, err = runfolder.ReadWithLogs(r.dir)
	}
	if err == nil {
		_, err = runs.WriteStudyLog(dir, run)
	}
	if err != nil {
		return fmt.Errorf("run %s: %w", r.name, err)
	}
	return nil
}
