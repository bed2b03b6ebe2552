package train

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"lockstep/pkg/engine"
	"lockstep/pkg/model"
	"lockstep/pkg/runs"
)

// Result is what a run came to.
type Result struct {
	Epochs []runs.Epoch
	Test   runs.Test
}

// Run trains to the configured number of epochs, evaluates after each over the
// whole held-out set, and writes the run folder when Place.Dir names one.
// Cancelling ctx ends the run within a step. Whatever ends it early, the epochs
// that were done are saved: one that is resumed trains from the beginning of
// the epoch that was under way, and ends with the bits of one that was not
// disturbed.
func (t *Trainer) Run(ctx context.Context) (Result, error) {
	rec, err := t.record(ctx)
	if err != nil {
		return Result{}, advise(err, t.place.Dir)
	}
	res, err := t.run(ctx, rec)
	if err != nil {
		if serr := t.saveUnsaved(rec); serr != nil {
			err = errors.Join(err, fmt.Errorf("save checkpoint: %w", serr))
		}
	}
	return res, advise(rec.close(ctx, err), t.place.Dir)
}

// advise adds what to do about a disk that takes no more.
func advise(err error, dir string) error {
	switch {
	case errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT):
		return fmt.Errorf("%w; make room on the disk of %s, then go on with --resume: nothing before the last checkpoint is lost", err, dir)
	case errors.Is(err, syscall.EROFS):
		return fmt.Errorf("%w; make the disk of %s writable again, then go on with --resume", err, dir)
	}
	return err
}

func (t *Trainer) run(ctx context.Context, rec *recorder) (Result, error) {
	res := Result{Epochs: rec.epochs}
	untrained := rec.untrained
	if untrained == nil {
		s, err := t.Evaluate(ctx)
		if err != nil {
			return res, fmt.Errorf("evaluate the untrained network: %w", err)
		}
		untrained, t.untrained = &s, &s // checkpoints keep it for a run that is resumed
		if err := rec.start(s); err != nil {
			return res, err
		}
		for _, note := range t.samples.Notes {
			if err := rec.log("note: %s", note); err != nil {
				return res, err
			}
		}
	}
	var last Scores
	for t.epoch < t.cfg.Epochs {
		row, err := t.trainEpoch(ctx, rec)
		if err != nil {
			return res, fmt.Errorf("epoch %d: %w", t.epoch+1, err)
		}
		begin := time.Now()
		if last, err = t.Evaluate(ctx); err != nil {
			return res, fmt.Errorf("evaluate after epoch %d: %w", t.epoch+1, err)
		}
		row.ValLoss, row.IoU, row.Dice = last.Loss, last.IoU(), last.Dice()
		row.ValSeconds = time.Since(begin).Seconds()
		t.epoch++
		res.Epochs = append(res.Epochs, row)
		// The row first: an epoch whose row has no checkpoint is trained again
		// by a run that is resumed, but a row that is missing stays missing.
		if err := rec.epoch(row); err != nil {
			return res, err
		}
		if err := t.checkpoint(ctx, rec); err != nil {
			return res, fmt.Errorf("save checkpoint of epoch %d: %w", t.epoch, err)
		}
		res.Test = last.test(*untrained, rec.lastCheckpoint(), row.ValSeconds)
	}
	// Resumed after its last epoch. Rank 0 alone has the rows of before, so they
	// must not decide what all ranks do.
	if res.Test.Samples == 0 {
		begin := time.Now()
		s, err := t.Evaluate(ctx)
		if err != nil {
			return res, err
		}
		res.Test = s.test(*untrained, rec.lastCheckpoint(), time.Since(begin).Seconds())
	}
	return res, rec.done(res.Test)
}

// trainEpoch does every step of the next epoch.
func (t *Trainer) trainEpoch(ctx context.Context, rec *recorder) (runs.Epoch, error) {
	row := runs.Epoch{Epoch: t.epoch + 1}
	batches := t.loader.Epoch(ctx, t.epoch)
	defer batches.Close()
	steps := t.sampler.Steps()
	var lossSum float64
	// All begin together: what rank 0 alone did before, such as a checkpoint,
	// would else be the others' wait in their first step.
	if err := t.group.Barrier(ctx); err != nil {
		return row, err
	}
	begin := time.Now()
	for i := 0; ; i++ {
		waiting := time.Now()
		if !batches.Next() {
			break
		}
		b := batches.Batch()
		span := runs.Step{Epoch: t.epoch + 1, Samples: t.cfg.Batch, Data: time.Since(waiting).Seconds()}
		row.LearningRate = t.rate(t.epoch, i)
		if err := t.Step(ctx, b.Image, b.Target, row.LearningRate, &span); err != nil {
			return row, fmt.Errorf("batch %d: %w", i+1, err)
		}
		lossSum += span.Loss
		if err := rec.step(span); err != nil {
			return row, err
		}
		if t.place.Progress != nil {
			t.place.Progress(t.epoch+1, i+1, steps)
		}
	}
	if err := batches.Err(); err != nil {
		return row, fmt.Errorf("load batches: %w", err)
	}
	// The epoch is over when the slowest rank is done.
	if err := t.group.Barrier(ctx); err != nil {
		return row, err
	}
	row.Seconds = time.Since(begin).Seconds()
	row.Samples = steps * t.cfg.Batch * t.group.Size()
	row.PaddingSamples = t.sampler.Padding()
	row.SamplesPerSecond = float64(row.Samples) / row.Seconds
	sum := []float64{lossSum}
	if err := t.sum(ctx, sum); err != nil {
		return row, err
	}
	row.TrainLoss = sum[0] / float64(steps*t.group.Size())
	return row, nil
}

// Step does one optimiser step on a batch of this rank: image [batch,C,H,W],
// target [batch,1,H,W], and fills span (may be nil) with its times and loss.
func (t *Trainer) Step(ctx context.Context, image, target []float32, rate float64, span *runs.Step) error {
	begin := time.Now()
	if err := t.train.SetInput(model.ImageInput, image); err != nil {
		return err
	}
	if err := t.train.SetInput(model.TargetInput, target); err != nil {
		return err
	}
	input := time.Since(begin)
	update := t.cfg.Optimizer.Update(rate, t.step+1)
	timing, err := t.train.Step(ctx, t.sync, &update)
	if errors.Is(err, engine.ErrNonFinite) {
		return fmt.Errorf("%w; training diverged at learning rate %g: try a tenth of it, or schedule.warmup_epochs", err, rate)
	}
	if err != nil {
		return err
	}
	t.step++
	if span != nil {
		stats := t.sync.Stats()
		span.Step, span.Loss = t.step, t.train.Loss()
		span.Data += input.Seconds()
		span.Forward, span.Backward = timing.Forward.Seconds(), timing.Backward.Seconds()
		span.Wait, span.Optimizer = timing.Wait.Seconds(), timing.Optimizer.Seconds()
		span.AllReduce = stats.AllReduce.Seconds()
		if !stats.FirstBucket.IsZero() {
			span.UntilCollective = stats.FirstBucket.Sub(begin).Seconds()
		}
	}
	return nil
}
