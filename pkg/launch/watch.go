package launch

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"lockstep/pkg/notebook"
)

// pollInterval is the time after which the state of a job is read again.
const pollInterval = 300 * time.Millisecond

// Watch shows one live line per run in a cell or a terminal: epochs done, loss, IoU and
// samples per second. For a program other than lockstep they come from its logs; until these
// contain an epoch, Watch shows the last line of rank 0. While the sweep waits for another sweep, Watch describes that sweep.
// Watch returns when Wait would return, with the same error.
func (j *Job) Watch(ctx context.Context) error {
	var bars []*notebook.Progress
	var waits string
	var display *notebook.Live
	return j.wait(ctx, func() {
		if text := j.sweep.waitsFor(); text != waits && text != "" {
			if waits == "" {
				display = notebook.NewLive()
			}
			waits = text
			_ = display.Show(text) // a failed display must not end the sweep
		}
		for i, s := range j.sweep.status() {
			if i == len(bars) {
				bars = append(bars, nil)
			}
			// The number of epochs is known once the run folder exists.
			if s.State != StateWaiting && (s.Epochs > 0 || s.foreign || s.State != StateRunning) {
				bars[i] = s.showProgress(bars[i])
			}
		}
	})
}

// showProgress updates bar, the progress bar of the run, and returns it. If bar is nil, it
// creates the bar first. It marks the bar as done once the run has ended.
func (s RunStatus) showProgress(bar *notebook.Progress) *notebook.Progress {
	if bar == nil {
		total := s.Epochs
		if s.foreign { // their number may become known only later
			total = 0
		}
		bar = notebook.NewProgress(s.Name, total)
	}
	bar.Set(s.Epoch, s.progressNote())
	if s.State != StateRunning {
		bar.Done(s.progressNote())
	}
	return bar
}

// progressNote returns the text after the progress bar.
func (s RunStatus) progressNote() string {
	var parts []string
	add := func(format string, v float64) {
		if !math.IsNaN(v) {
			parts = append(parts, fmt.Sprintf(format, v))
		}
	}
	switch {
	case s.Epoch > 0:
		if s.foreign { // its epochs may not begin at 1
			parts = append(parts, fmt.Sprintf("epoch %d", s.Last.Epoch))
			add("%.4g s", s.Last.Seconds)
		}
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
