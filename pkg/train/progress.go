package train

import (
	"context"
	"fmt"
	"slices"
	"time"

	"lockstep/pkg/internal/process"
	"lockstep/pkg/model"
	"lockstep/pkg/train/internal/checkpoint"
)

type epochProgress struct {
	epoch     int            // number of complete epochs before the current epoch
	steps     int            // number of completed steps of the current epoch
	seconds   float64        // duration of these steps
	losses    []float64      // sum of the losses of these steps, by rank
	batches   int            // number of batches on which all ranks have trained, or this rank if savable is false
	exchanged exchangeTotals // what was exchanged in an epoch: by all ranks, or by this rank if savable is false
	right     float64        // number of correctly classified samples: of this rank, or of all ranks if savable is true
	savable   bool           // the parameters are the result of these steps, and every rank has written its steps
}

// asUnsavable returns p with savable set to false. If p has no losses, they are set to world
// zeros.
func (p epochProgress) asUnsavable(world int) epochProgress {
	if p.losses == nil {
		p.losses = make([]float64, world)
	}
	p.savable = false
	return p
}

// stepGracePeriod is how long the current step, with its exchange between ranks, may continue after
// an interrupt. It is shorter than the 10 s within which a launcher expects its workers to end.
const stepGracePeriod = 6 * time.Second

// withDelayedCancel returns a context that is canceled d after ctx. The delay does not include time
// during which this process is stopped.
func withDelayedCancel(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
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

// saveOrStopBetweenSteps saves a checkpoint if Checkpoint.EverySteps requires it. If any rank was
// interrupted, it returns an error on all ranks, so that all stop after the same step. done is this
// rank's progress, and lossSum the sum of its losses in this epoch. ctx ends at an interrupt, and
// work somewhat later.
//
// With an asynchronous strategy, each interrupted rank returns an error independently and without a
// checkpoint, because agreeing after each step would make the ranks synchronous.
func (t *Trainer) saveOrStopBetweenSteps(ctx, work context.Context, files *runFiles, done epochProgress, lossSum float64) error {
	if t.cfg.Strategy.IsAsynchronous() {
		if ctx.Err() != nil {
			return fmt.Errorf("ended in step %d of %d, whose workers are not in the same step: a resumed run repeats the epoch: %w", done.steps+1, t.stepsPerEpoch(), context.Cause(ctx))
		}
		return nil
	}
	stop := []float64{0}
	if ctx.Err() != nil {
		stop[0] = 1
	}
	if t.group.Size() > 1 {
		if err := t.allReduce(work, stop); err != nil {
			return err
		}
	}
	every := t.cfg.Checkpoint.EverySteps
	due := every > 0 && done.steps%every == 0
	if stop[0] == 0 && !due {
		return nil
	}
	if err := t.prepareCheckpoint(work, files, done, lossSum); err != nil {
		return err
	}
	if stop[0] > 0 {
		why := context.Cause(ctx)
		if why == nil {
			why = fmt.Errorf("another worker was interrupted: %w", context.Canceled)
		}
		return fmt.Errorf("ended after step %d of %d: %w", done.steps, t.stepsPerEpoch(), why)
	}
	err := files.measureWriteTime(func() error { return t.saveMidEpoch(files) })
	t.progress.savable = false
	if err != nil {
		return fmt.Errorf("save checkpoint after step %d: %w", done.steps, err)
	}
	return nil
}

// prepareCheckpoint prepares for a checkpoint or the end of the epoch. Rank 0 gets the strategy's state,
// every rank writes its steps to disk, and all ranks exchange their sums of losses.
func (t *Trainer) prepareCheckpoint(ctx context.Context, files *runFiles, done epochProgress, lossSum float64) error {
	var err error
	if t.options.Dir != "" {
		if t.strategyState, err = t.strategy.State(ctx, t.train); err != nil {
			return fmt.Errorf("collect the state of the strategy: %w", err)
		}
	}
	if files.steps != nil {
		if err := files.measureWriteTime(files.steps.Flush); err != nil {
			return err
		}
	}
	n := t.group.Size()
	sums := make([]float64, 2*n+4)
	x := &done.exchanged
	sums[t.group.Rank()], sums[n+t.group.Rank()] = lossSum, x.oldest
	rest := sums[2*n:]
	copy(rest, []float64{done.right, float64(done.batches), x.sent, x.staleness})
	if err := t.allReduce(ctx, sums); err != nil {
		return err
	}
	done.epoch, done.losses, done.right, done.batches = t.epoch, sums[:n], rest[0], int(rest[1])
	*x = exchangeTotals{rest[2], rest[3], slices.Max(sums[n : 2*n])}
	done.savable = true
	t.progress = done
	return nil
}

func (t *Trainer) saveMidEpoch(files *runFiles) error {
	if t.options.Dir == "" {
		return nil
	}
	s, err := t.takeCheckpointSnapshot()
	if err != nil {
		return err
	}
	p := t.progress
	s.SavePoint, s.Seconds, s.Losses = checkpoint.SavePoint{Epochs: p.epoch, Steps: p.steps}, p.seconds, p.losses
	if t.net.Task() == model.Classification {
		s.Right = &p.right
	}
	return t.writeCheckpoint(files, s)
}

// checkpointProgress returns the progress within an epoch at which c was saved. It is zero if c was saved
// at the end of an epoch.
func checkpointProgress(c checkpoint.Checkpoint) epochProgress {
	if c.Steps == 0 {
		return epochProgress{}
	}
	p := epochProgress{epoch: c.Epochs, steps: c.Steps, seconds: c.Seconds, losses: c.Losses}
	if c.Right != nil {
		p.right = *c.Right
	}
	return p
}
