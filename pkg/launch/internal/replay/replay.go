// Package replay finds sweeps that were recorded or published, and writes their run folders again, epoch by epoch.
package replay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/internal/nearest"
	"lockstep/pkg/launch/internal/runfolder"
	"lockstep/pkg/logread"
	"lockstep/pkg/runs"
)

// FindRuns returns the runs to replay, in the order in which they are executed. name is a published
// table or a recorded study, such as "unet2d-cells" or "recorded/unet2d-cells". FindRuns returns an
// error if the logs do not contain what a replay needs; see describeMissing.
func FindRuns(ctx context.Context, name string) ([]runs.Run, error) {
	var names []string
	for _, logs := range runs.ShippedLogs() {
		short := LogsName(logs)
		if slices.Contains([]string{short, logs, strings.TrimSuffix(logs, ".csv")}, strings.TrimPrefix(filepath.ToSlash(name), "logs/")) {
			return readRuns(ctx, logs)
		}
		if _, err := readRuns(ctx, logs); err == nil {
			names = append(names, short)
		}
	}
	return nil, fmt.Errorf("unknown name %q%s: use %s", name, nearest.Hint(name, names), english.JoinOr(names))
}

// LogsName returns the name of logs without their folder and extension, such as "unet2d-cells".
func LogsName(logs string) string { return strings.TrimSuffix(path.Base(logs), ".csv") }

func readRuns(ctx context.Context, logs string) ([]runs.Run, error) {
	place, err := runs.LocateLogs(logs)
	if err != nil {
		return nil, err
	}
	found, err := logread.Options{}.Read(ctx, place)
	if err != nil {
		return nil, err
	}
	for i := range found.Runs {
		info := &found.Runs[i].Info
		info.Study, info.Source = cmp.Or(info.Study, LogsName(logs)), cmp.Or(info.Source, "read from "+place)
		if lack := describeMissing(found.Runs[i].Epochs); lack != "" {
			return nil, fmt.Errorf("%s has %s; a replay needs at least two consecutive epochs", logs, lack)
		}
	}
	slices.SortStableFunc(found.Runs, func(a, b runs.Run) int {
		return cmp.Or(cmp.Compare(a.Info.Seed, b.Info.Seed), cmp.Compare(a.Info.Workers, b.Info.Workers))
	})
	return found.Runs, nil
}

// describeMissing returns "" if a run can be replayed, which takes the durations of at least two
// consecutive epochs. Otherwise it describes the durations that the run has instead.
func describeMissing(epochs []runs.Epoch) string {
	n := 0
	for n < len(epochs) && epochs[n].Seconds > 0 && epochs[n].Epoch == epochs[0].Epoch+n {
		n++
	}
	switch {
	case n == 0:
		return "no seconds of epochs"
	case n == 1:
		return "the seconds of one epoch per run"
	case n < len(epochs):
		return fmt.Sprintf("the seconds of %d of %d epochs of a run", n, len(epochs))
	}
	return ""
}

// EpochSeconds returns the duration of an epoch with its validation.
func EpochSeconds(e runs.Epoch) float64 {
	if math.IsNaN(e.ValSeconds) {
		return e.Seconds
	}
	return e.Seconds + e.ValSeconds
}

// WriteRun writes the run folder dir as if r were being trained. It calls wait before it writes an
// epoch; if wait returns an error, the run ends with it. The lines about epochs go to out.log and
// to rank0, the output of rank 0.
func WriteRun(r runs.Run, dir string, rank0 io.Writer, wait func(runs.Epoch) error) error {
	info := r.Info
	info.Status, info.Error, info.Started, info.Ended = "", "", time.Time{}, time.Time{}
	info.WallSeconds, info.EnergyJoules, info.Test, info.Load = 0, 0, nil, nil // known at the end
	w, err := runs.Create(dir, info)
	if err != nil {
		return err
	}
	err = w.Log("note: %s", info.Source)
	for i := 0; i < len(r.Epochs) && err == nil; i++ {
		e := r.Epochs[i]
		if err = wait(e); err == nil {
			err = errors.Join(w.AppendEpoch(e), logEpoch(w, rank0, e))
		}
	}
	if err == nil {
		err = w.UpdateInfo(func(i *runs.Info) {
			i.WallSeconds, i.EnergyJoules, i.Test, i.Load = r.WallSeconds, r.Info.EnergyJoules, r.Info.Test, r.Info.Load
		})
	}
	return errors.Join(err, w.Finish(runfolder.StatusForError(err), err))
}

// logEpoch writes the lines about an epoch, worded as in Lockstep's own training.
func logEpoch(w *runs.Writer, rank0 io.Writer, e runs.Epoch) error {
	lines := []string{fmt.Sprintf("Time taken for epoch %d is %v sec, avg %v samples/sec", e.Epoch, e.Seconds, e.SamplesPerSecond)}
	for _, v := range []struct {
		format string
		value  float64
	}{
		{"  Avg train loss=%f", e.TrainLoss},
		{"  Avg val loss=%f", e.ValLoss},
		{"  Total validation time: %v sec", e.ValSeconds},
		{"  IoU=%f", e.IoU},
		{"  Dice=%f", e.Dice},
		{"  accuracy=%f", e.Accuracy},
		{"  val accuracy=%f", e.ValAccuracy},
	} {
		if !math.IsNaN(v.value) {
			lines = append(lines, fmt.Sprintf(v.format, v.value))
		}
	}
	var err error
	for _, line := range lines {
		_, e := fmt.Fprintln(rank0, line)
		err = errors.Join(err, e, w.Log("%s", line))
	}
	return err
}
