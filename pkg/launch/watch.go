package launch

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"lockstep/pkg/notebook"
)

// watchTime is the time between two looks at a job.
const watchTime = 300 * time.Millisecond

// Watch shows a line a run, live, in a cell or a terminal: epochs done, loss,
// IoU, samples per second; before, what the sweep waits for. It returns like
// Wait.
func (j *Job) Watch(ctx context.Context) error {
	var bars []*notebook.Progress
	var waits string
	var place *notebook.Live
	return j.wait(ctx, func() {
		if text := j.of.waits(); text != waits && text != "" {
			if waits == "" {
				place = notebook.NewLive()
			}
			waits = text
			_ = place.Show(text) // what cannot be shown must not end what it shows
		}
		for i, s := range j.of.status() {
			if i == len(bars) {
				bars = append(bars, nil)
			}
			// How many epochs there will be is known when the run folder is there.
			if s.State != StateWaiting && (s.Epochs > 0 || s.foreign || s.State != StateRunning) {
				bars[i] = s.show(bars[i])
			}
		}
	})
}

// show brings a run's line up to date. A run that has ended is shown once.
func (s RunStatus) show(bar *notebook.Progress) *notebook.Progress {
	if bar == nil {
		bar = notebook.NewProgress(s.Name, s.Epochs)
	}
	n := s.Epoch
	if s.Epochs == 0 {
		n = s.Lines
	}
	bar.Set(n, s.note())
	if s.State != StateRunning {
		bar.Done(s.note())
	}
	return bar
}

// note is what stands behind the bar.
func (s RunStatus) note() string {
	var parts []string
	add := func(format string, v float64) {
		if !math.IsNaN(v) {
			parts = append(parts, fmt.Sprintf(format, v))
		}
	}
	switch {
	case s.Epoch > 0 && s.Epochs > 0:
		add("loss %.4f", s.Last.TrainLoss)
		add("IoU %.4f", s.Last.IoU)
		add("%.1f samples/s", s.Last.SamplesPerSecond)
	case s.Line != "":
		parts = append(parts, s.Line)
	}
	if s.State != StateRunning && s.State != StateDone {
		parts = append(parts, s.State)
	}
	return strings.Join(parts, "  ")
}
