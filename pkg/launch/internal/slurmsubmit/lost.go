package slurmsubmit

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"lockstep/pkg/launch/internal/queue"
	"lockstep/pkg/launch/internal/slurm"
)

// FindLostJobs returns, by run folder, the ids of jobs that a launcher submitted but could not
// record because it was killed in between. dirs lists the run folders to look at. FindLostJobs asks
// Slurm only if one of them has a submission without an id.
func FindLostJobs(ctx context.Context, client slurm.Client, dirs []string) (map[string]string, error) {
	submissions := map[string]string{} // by run folder
	for _, dir := range dirs {
		if f, err := readDescription(dir); err == nil && f.Job == "" && f.Submission != "" {
			submissions[dir] = f.Submission
		}
	}
	if len(submissions) == 0 {
		return nil, nil
	}
	scripts, err := client.JobsByScript(ctx)
	if err != nil {
		return nil, err
	}
	found := map[string]string{}
	for dir, submission := range submissions {
		if id := scripts[filepath.Join(dir, scriptName)]; id != "" {
			found[dir] = id
			continue
		}
		prefix := filepath.Join(filepath.Dir(dir), queue.RecordsFolder, submission+"-")
		for path, id := range scripts {
			name, isScript := strings.CutSuffix(path, ".sh")
			if !isScript || !strings.HasPrefix(path, prefix) {
				continue
			}
			list, err := os.ReadFile(name + ".txt")
			if task := slices.Index(strings.Split(string(list), "\n"), dir); err == nil && task >= 0 {
				if found[dir] = id; strings.HasPrefix(path, prefix+arrayPrefix) {
					found[dir] = slurm.ArrayTaskID(id, task)
				}
			}
		}
	}
	return found, nil
}

// HasSubmittedJobs reports whether a launcher has submitted a run in the study's folder to Slurm, or was
// about to.
func HasSubmittedJobs(study string) bool {
	paths, err := filepath.Glob(filepath.Join(queue.EscapeGlob(study), "*", descriptionName))
	return err == nil && len(paths) > 0
}
