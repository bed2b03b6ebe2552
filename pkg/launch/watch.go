package launch

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"lockstep/pkg/launch/internal/live"
	"lockstep/pkg/launch/internal/output"
	"lockstep/pkg/launch/internal/runfolder"
	"lockstep/pkg/logread"
	"lockstep/pkg/runs"
	"lockstep/pkg/scaling"
)

const (
	// pollInterval is the time between two readings of the state of a job.
	pollInterval = 300 * time.Millisecond
	// tableInterval is the shortest time between two updates of the table.
	tableInterval = time.Second
	// curveInterval is the shortest time between two computations of the speed-up curve.
	curveInterval = 5 * time.Second
	// maxCurveShare limits the fraction of the time that is spent on the curve.
	maxCurveShare = 0.02
)

// Watch shows a live table with one row per run: workers, state, epoch, samples per second, loss,
// IoU, elapsed time and estimated end. A replay also has a heading. For a program other than
// lockstep the epochs come from its logs; until these contain an epoch, Watch shows the last line
// of rank 0. Below the table are the reasons why runs wait or have failed, what the sweep waits
// for, and notes about the data of the runs. At the end, the study's cautions follow, such as
// disturbed runs.
//
// Once a series has finished epochs at two worker counts, Watch also shows the speed-up so far, as
// figure.Speedup computes it from all runs in the study's folder. A cell shows the figure, and a
// terminal its numbers.
//
// In a cell or on a terminal (standard error), Watch replaces the table and the speed-up in place.
// To a file or a pipe, it writes plain lines from time to time. So as not to disturb the measured
// runs, Watch reads only files that have changed, updates the table at most once a second, computes
// the curve only after a new epoch and at most every 5 s, and spends at most 2 % of the time on
// either.
//
// Watch returns when Wait would return, with the same error. If ctx ends first, as when the cell is
// interrupted, the sweep continues. If the curve cannot be computed, Watch goes on without it.
func (j *Job) Watch(ctx context.Context) error { return j.WatchOn(ctx, os.Stderr) }

// WatchOn is like Watch, but writes to w instead of standard error in a program without a
// notebook's kernel. w may be a terminal.
func (j *Job) WatchOn(ctx context.Context, w io.Writer) error {
	v := &jobWatcher{job: j, view: live.NewView(w)}
	err := j.wait(ctx, v.updateDisplay)
	v.showFinalState()
	return err
}

type jobWatcher struct {
	job  *Job
	view live.View

	nextTable, nextCurve time.Time // neither is shown again before
	curve                *live.SpeedupCurve
	cautions             []string   // about the study, once the sweep has ended
	progress             string     // the epochs and states of the runs when curve was computed
	others               []runs.Run // the other runs of the study, once they were read
	othersRead           bool
}

// updateDisplay shows the current state, but not too often.
func (v *jobWatcher) updateDisplay() {
	now := time.Now()
	if now.Before(v.nextTable) {
		return
	}
	v.nextTable = now.Add(tableInterval)
	all := v.job.backend.status()
	if !now.Before(v.nextCurve) {
		v.updateCurve(all)
	}
	v.view.Show(v.buildTable(all), v.curve, false)
}

// showFinalState shows the last state. If the sweep has ended, the curve comes from the complete run
// folders.
func (v *jobWatcher) showFinalState() {
	all := v.job.backend.status()
	if over, _ := v.job.backend.hasEnded(); over {
		dir, err := filepath.Abs(v.job.dir)
		if err != nil {
			dir = v.job.dir
		}
		if study, err := readStudy(dir); err == nil {
			v.cautions = study.Cautions()
			if curve, err := live.NewSpeedupCurve(study, false, v.view.DrawsFigures()); err == nil {
				v.curve = curve
			}
		}
	}
	v.view.Show(v.buildTable(all), v.curve, true)
}

func readStudy(dir string) (*scaling.Study, error) {
	logs, err := logread.Options{}.Read(context.Background(), dir)
	if err != nil {
		return nil, err
	}
	return scaling.FromRuns(logs.Runs)
}

// updateCurve computes the curve again if an epoch is new or a run has ended. On failure, the last
// curve stays.
func (v *jobWatcher) updateCurve(all []RunStatus) {
	var b strings.Builder
	for _, s := range all {
		fmt.Fprintln(&b, s.Epoch, s.State)
	}
	if b.String() == v.progress {
		return
	}
	begin := time.Now()
	v.progress = b.String()
	study, err := scaling.FromRuns(v.readRuns(all))
	if err == nil {
		var curve *live.SpeedupCurve
		if curve, err = live.NewSpeedupCurve(study, true, v.view.DrawsFigures()); err == nil && curve != nil {
			v.curve = curve
		}
	}
	v.nextCurve = time.Now().Add(max(curveInterval, time.Duration(float64(time.Since(begin))/maxCurveShare)))
}

// readRuns returns the runs in the study's folder that have epochs. The runs of the sweep come from
// all, their status. The other runs are read only once.
func (v *jobWatcher) readRuns(all []RunStatus) []runs.Run {
	if !v.othersRead {
		v.othersRead = true
		found, err := runs.Find(v.job.dir)
		if err != nil {
			found = nil
		}
		for _, dir := range found {
			if slices.ContainsFunc(all, func(s RunStatus) bool { return s.Dir == dir }) {
				continue
			}
			read, err := runs.Read(dir)
			if err == nil && len(read.Info.Command) > 0 {
				read, err = runfolder.ReadWithLogs(dir)
			}
			if err == nil {
				v.others = append(v.others, read)
			}
		}
	}
	read := slices.Clone(v.others)
	for _, s := range all {
		if s.read != nil {
			read = append(read, *s.read)
		}
	}
	return slices.DeleteFunc(read, func(r runs.Run) bool { return len(r.Epochs) == 0 })
}

func (v *jobWatcher) buildTable(all []RunStatus) live.RunTable {
	t := live.RunTable{Heading: v.job.heading}
	waits := v.job.backend.waitsFor()
	if slices.ContainsFunc(all, func(s RunStatus) bool { return s.Waits != "" }) {
		waits = "" // the rows have the reasons
	}
	if waits != "" {
		t.Notes = strings.Split(waits, "\n")
	}
	for _, s := range all {
		if s.read != nil {
			for _, note := range s.read.Info.Notes {
				if note = "note: " + note; !slices.Contains(t.Notes, note) { // repeated runs have equal notes
					t.Notes = append(t.Notes, note)
				}
			}
		}
		r := s.toRow()
		if s.State == StateWaiting && s.Job == "" && waits == "" {
			r.Note = "one at a time, in this order"
		}
		t.Rows = append(t.Rows, r)
	}
	for _, caution := range v.cautions {
		t.Notes = append(t.Notes, "caution: "+caution)
	}
	return t
}

func (s RunStatus) toRow() live.RunRow {
	r := live.RunRow{
		Run: s.Name, Workers: s.Workers, Job: s.Job, State: s.State, Note: s.Waits, Epoch: s.Epoch, Epochs: s.Epochs,
		SamplesPerSecond: math.NaN(), Loss: math.NaN(), IoU: math.NaN(), Elapsed: time.Duration(s.Seconds * float64(time.Second)), End: s.Ends,
	}
	if s.Epoch > 0 {
		r.SamplesPerSecond, r.Loss, r.IoU = s.Last.SamplesPerSecond, s.Last.TrainLoss, s.Last.IoU
	}
	switch {
	case s.State == StateNotStarted:
		r.Note = "the sweep ended before; the same launch starts it"
	case s.Err != nil && s.State != StateDone:
		r.Note = output.SummarizeError(s.Err.Error(), !s.isProgram)
		r.Note = strings.TrimPrefix(r.Note, "run "+s.Name+": ")
	case s.Err == nil && s.Epoch == 0 && r.Note == "":
		r.Note = s.Line
	}
	return r
}
