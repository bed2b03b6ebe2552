package train

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"lockstep/pkg/internal/process"
	"lockstep/pkg/model"
)

// progress is how far the epoch under way has come.
type progress struct {
	epoch   int       // before which as many were done
	steps   int       // done of it
	seconds float64   // that they took
	losses  []float64 // their sum, by rank
	right   float64   // samples classified right: of this rank, of all ranks once it is settled
	settled bool      // the parameters are those after these steps, and every rank has written them
}

// within is p for a run of world ranks.
func (p progress) within(world int) progress {
	if p.losses == nil {
		p.losses = make([]float64, world)
	}
	p.settled = false
	return p
}

// stepPatience is how long after an interrupt the step under way may last, and
// its exchange with the other ranks, before it is given up. The launcher gives
// its workers 10 s to end.
const stepPatience = 6 * time.Second

// lag returns a context that ends d after ctx does; while this process is stopped
// the time stands still.
func lag(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	late, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		patience, end := process.WithTimeout(late, d)
		defer end()
		<-patience.Done()
		cancel(context.Cause(ctx)) // late may have ended already
	})
	return late, func() {
		stop()
		cancel(context.Canceled)
	}
}

// betweenSteps saves a checkpoint where one is due, and ends the run where one
// of the ranks was interrupted: all after the same step.
func (t *Trainer) betweenSteps(ctx, work context.Context, rec *recorder, done progress, lossSum float64) error {
	stop := []float64{0}
	if ctx.Err() != nil {
		stop[0] = 1
	}
	if t.group.Size() > 1 {
		if err := t.sum(work, stop); err != nil {
			return err
		}
	}
	every := t.cfg.Checkpoint.EverySteps
	due := every > 0 && done.steps%every == 0
	if stop[0] == 0 && !due {
		return nil
	}
	if err := t.settle(work, rec, done, lossSum); err != nil {
		return err
	}
	if stop[0] > 0 {
		why := context.Cause(ctx)
		if why == nil {
			why = fmt.Errorf("another worker was interrupted: %w", context.Canceled)
		}
		return fmt.Errorf("ended after step %d of %d: %w", done.steps, t.steps(), why)
	}
	err := rec.timed(func() error { return t.saveWithin(rec) })
	t.begun.settled = false
	if err != nil {
		return fmt.Errorf("save checkpoint after step %d: %w", done.steps, err)
	}
	return nil
}

// settle makes what was done of the epoch fit to be saved: every rank has
// written its steps, and all know the sum of each one's losses.
func (t *Trainer) settle(ctx context.Context, rec *recorder, done progress, lossSum float64) error {
	if rec.steps != nil {
		if err := rec.timed(rec.steps.Flush); err != nil {
			return err
		}
	}
	n := t.group.Size()
	sums := make([]float64, n+1)
	sums[t.group.Rank()], sums[n] = lossSum, done.right
	if err := t.sum(ctx, sums); err != nil {
		return err
	}
	done.epoch, done.losses, done.right = t.epoch, sums[:n], sums[n]
	done.settled = true
	t.begun = done
	return nil
}

// saveWithin saves the epoch that is under way.
func (t *Trainer) saveWithin(rec *recorder) error {
	if t.options.Dir == "" {
		return nil
	}
	s, err := t.capture()
	if err != nil {
		return err
	}
	p := t.begun
	s.name = filepath.Join(checkpointDir, fmt.Sprintf("epoch-%04d-step-%06d.safetensors", p.epoch+1, p.steps))
	if t.group.Rank() == 0 {
		losses, err := json.Marshal(p.losses)
		if err != nil {
			return err
		}
		s.metadata["epoch"] = strconv.Itoa(p.epoch)
		s.metadata["epoch_steps"] = strconv.Itoa(p.steps)
		s.metadata["epoch_seconds"] = strconv.FormatFloat(p.seconds, 'g', -1, 64)
		s.metadata["epoch_losses"] = string(losses)
		if t.net.Task() == model.Classification {
			s.metadata["epoch_right"] = strconv.FormatFloat(p.right, 'g', -1, 64)
		}
	}
	return t.save(s)
}

// readProgress is what a checkpoint says about the epoch that was under way.
func readProgress(epoch int, metadata map[string]string) (p progress, err error) {
	steps, ok := metadata["epoch_steps"]
	if !ok {
		return progress{}, nil
	}
	p.epoch = epoch
	if p.steps, err = strconv.Atoi(steps); err != nil {
		return p, fmt.Errorf("epoch_steps: %w", err)
	}
	if p.seconds, err = strconv.ParseFloat(metadata["epoch_seconds"], 64); err != nil {
		return p, fmt.Errorf("epoch_seconds: %w", err)
	}
	if err := json.Unmarshal([]byte(metadata["epoch_losses"]), &p.losses); err != nil {
		return p, fmt.Errorf("epoch_losses: %w", err)
	}
	if right, ok := metadata["epoch_right"]; ok {
		if p.right, err = strconv.ParseFloat(right, 64); err != nil {
			return p, fmt.Errorf("epoch_right: %w", err)
		}
	}
	return p, nil
}
