// Package estimate estimates how long runs take, from finished runs and from the epochs of a run
// that is training.
package estimate

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

// maxScannedRuns limits the run folders that are read for estimates: the logs folder of a long project may
// be large and slow.
const maxScannedRuns = 1000

// FinishedRun is a run that is done, from which the time of another run can be estimated.
type FinishedRun struct {
	dir  string
	info runs.Info
}

// ReadFinishedRuns returns the finished runs in the study folder dir, followed by those of the
// other studies in the same logs folder. It ignores unreadable folders and runs from other
// machines.
func ReadFinishedRuns(dir string) []FinishedRun {
	ofStudy, _ := runs.Find(dir)
	others, _ := runs.Find(filepath.Dir(dir))
	others = slices.DeleteFunc(others, func(dir string) bool { return slices.Contains(ofStudy, dir) })
	dirs := slices.Concat(ofStudy, others)
	var all []FinishedRun
	for _, dir := range dirs[:min(len(dirs), maxScannedRuns)] {
		if info, err := runs.ReadInfo(dir); err == nil && info.Status == runs.StatusDone && info.Source == "" && info.WallSeconds > 0 && info.Workers > 0 {
			all = append(all, FinishedRun{dir, info})
		}
	}
	return all
}

// PendingRun is a run that has not started.
type PendingRun struct {
	Workers     int
	Epochs      int            // 0 if unknown
	Config      map[string]any // as in run.json; nil for another program
	GlobalBatch bool           // whether the batch in Config depends on the number of workers

	Command []string // of another program; empty for a run with a config
	Threads int      // of each worker of that program
}

// EstimateDuration returns how long the run will probably take. source describes the finished run
// from which d was estimated: among those with the same config or command, the one with the nearest
// number of workers. The estimate assumes that twice as many workers need half the time, so the run
// may take longer. Without such a run, EstimateDuration returns 0 and "".
func (r PendingRun) EstimateDuration(all []FinishedRun) (d time.Duration, source string) {
	var nearest *FinishedRun
	distance := math.Inf(1)
	for i, f := range all {
		if apart := math.Abs(math.Log(float64(f.info.Workers) / float64(r.Workers))); apart < distance && r.trainsLike(f.info) {
			nearest, distance = &all[i], apart
		}
	}
	if nearest == nil {
		return 0, ""
	}
	seconds := nearest.info.WallSeconds * float64(nearest.info.Workers) / float64(r.Workers)
	done := "the complete program"
	if epochs, ok := nearest.info.Config["epochs"].(float64); ok && epochs > 0 {
		seconds *= float64(r.Epochs) / epochs
		done = english.FormatCount(int(epochs), "epoch")
	}
	took := time.Duration(nearest.info.WallSeconds * float64(time.Second))
	source = fmt.Sprintf("%s took %s with %s in run %s", done, roundUpSeconds(took), english.FormatCount(nearest.info.Workers, "worker"),
		filepath.Join(filepath.Base(filepath.Dir(nearest.dir)), filepath.Base(nearest.dir)))
	return roundUpSeconds(time.Duration(seconds * float64(time.Second))), source
}

func roundUpSeconds(d time.Duration) time.Duration {
	return (d + time.Second - 1).Truncate(time.Second)
}

// trainsLike reports whether f trains like r, except for the numbers of workers and epochs and the seed.
func (r PendingRun) trainsLike(f runs.Info) bool {
	if len(r.Command) > 0 || len(f.Command) > 0 {
		return slices.Equal(f.Command, r.Command) && f.ThreadsPerWorker == r.Threads
	}
	return f.Config != nil && !slices.ContainsFunc(train.Differences(f.Config, r.Config), func(d train.Difference) bool {
		isOfSize := d.Key == "epochs" || d.Key == "seed" || d.Key == "batch" && r.GlobalBatch
		return !isOfSize
	})
}

// If the current epoch has taken longer than shortestStall and longer than stalledEpochs times the
// mean epoch, the run has stalled, and its end is unknown.
const (
	stalledEpochs = 10
	shortestStall = 30 * time.Second
)

// EndTime estimates when a run will end, if each remaining epoch takes the mean time of the epochs
// in done. total is the number of epochs of the run, and last the time at which the newest one
// ended. If the current epoch has already taken longer than the mean, EndTime assumes that it ends
// now. It returns the zero time if done, total or last is unknown, or if the run has stalled.
func EndTime(done []runs.Epoch, total int, last time.Time) time.Time {
	return endTimeAt(time.Now(), done, total, last)
}

// endTimeAt implements EndTime for the time now.
func endTimeAt(now time.Time, done []runs.Epoch, total int, last time.Time) time.Time {
	if len(done) == 0 || total == 0 || last.IsZero() {
		return time.Time{}
	}
	sum := 0.0
	for _, e := range done {
		sum += e.Seconds
		if !math.IsNaN(e.ValSeconds) {
			sum += e.ValSeconds
		}
	}
	mean := sum / float64(len(done))
	left := total - len(done)
	if math.IsNaN(mean) || left < 0 {
		return time.Time{}
	}
	after := func(t time.Time, epochs int) time.Time {
		return t.Add(time.Duration(mean * float64(epochs) * float64(time.Second)))
	}
	if left == 0 { // the evaluation after the last epoch
		return now
	}
	if now.After(after(last, stalledEpochs)) && now.Sub(last) > shortestStall {
		return time.Time{}
	}
	current := after(last, 1)
	if current.Before(now) {
		current = now
	}
	return after(current, left-1)
}
