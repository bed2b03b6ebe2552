package launch

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"time"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/runs"
	"lockstep/pkg/train"
)

// maxEstimateRuns limits the number of run folders that are read for estimates, because the logs
// folder of a long project may be large and on a slow disk.
const maxEstimateRuns = 1000

// finishedRun is a run that is done, from which the time of another run can be estimated.
type finishedRun struct {
	dir  string
	info runs.Info
}

// readFinishedRuns returns the finished runs of the study and then those of the other studies in
// the logs folder. A folder that cannot be read is left out.
func (p *slurmPlan) readFinishedRuns() []finishedRun {
	ofStudy, _ := runs.Find(p.dir)
	others, _ := runs.Find(filepath.Dir(p.dir))
	others = slices.DeleteFunc(others, func(dir string) bool { return slices.Contains(ofStudy, dir) })
	dirs := slices.Concat(ofStudy, others)
	var all []finishedRun
	for _, dir := range dirs[:min(len(dirs), maxEstimateRuns)] {
		if info, err := runs.ReadInfo(dir); err == nil && info.Status == runs.StatusDone && info.WallSeconds > 0 && info.Workers > 0 {
			all = append(all, finishedRun{dir, info})
		}
	}
	return all
}

// estimate returns how long the run will probably take, and from what this is known: from the run
// with the same config, or the same command, whose number of workers is nearest. It assumes that
// twice the workers need half the time, so that the run may take longer. It returns 0 if there is no
// such run, or if the run continues an interrupted one.
func (r *run) estimate(all []finishedRun) (d time.Duration, source string) {
	if r.resume {
		return 0, ""
	}
	var nearest *finishedRun
	distance := math.Inf(1)
	for i, f := range all {
		if apart := math.Abs(math.Log(float64(f.info.Workers) / float64(r.workers))); apart < distance && r.isLike(f.info) {
			nearest, distance = &all[i], apart
		}
	}
	if nearest == nil {
		return 0, ""
	}
	seconds := nearest.info.WallSeconds * float64(nearest.info.Workers) / float64(r.workers)
	done := "the complete program"
	if epochs, ok := nearest.info.Config["epochs"].(float64); ok && epochs > 0 {
		seconds *= float64(r.plannedEpochs()) / epochs
		done = english.Count(int(epochs), "epoch")
	}
	took := time.Duration(nearest.info.WallSeconds * float64(time.Second))
	source = fmt.Sprintf("%s took %s with %s in run %s", done, roundSeconds(took), english.Count(nearest.info.Workers, "worker"),
		filepath.Join(filepath.Base(filepath.Dir(nearest.dir)), filepath.Base(nearest.dir)))
	return roundSeconds(time.Duration(seconds * float64(time.Second))), source
}

// roundSeconds rounds d up to seconds.
func roundSeconds(d time.Duration) time.Duration {
	return (d + time.Second - 1).Truncate(time.Second)
}

// isLike reports whether the run f trains like r, except for the numbers of workers and epochs and
// the seed.
func (r *run) isLike(f runs.Info) bool {
	if r.sweep.isForeign() || len(f.Command) > 0 {
		return slices.Equal(f.Command, r.command) && f.ThreadsPerWorker == r.sweep.Threads
	}
	return f.Config != nil && !slices.ContainsFunc(train.Differences(f.Config, r.config), func(d train.Difference) bool {
		isOfSize := d.Key == "epochs" || d.Key == "seed" || d.Key == "batch" && r.sweep.GlobalBatch > 0
		return !isOfSize
	})
}
