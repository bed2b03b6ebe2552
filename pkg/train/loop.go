package train

import (
	"context"
	"errors"
	"fmt"
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
// Cancelling ctx ends the run between two steps; what was completed stays.
func (t *Trainer) Run(ctx context.Context) (Result, error) {
	rec, err := t.record(ctx)
	if err != nil {
		return Result{}, err
	}
	res, err := t.run(ctx, rec)
	return res, rec.close(ctx, err)
}

func (t *Trainer) run(ctx context.Context, rec *recorder) (Result, error) {
	res := Result{Epochs: rec.epochs}
	untrained := rec.untrained
	if untrained == nil {
		s, err := t.Evaluate(ctx)
		if err != nil {
			return res, fmt.Errorf("evaluate the untrained network: %w", err)
		}
		untrained = &s
		if err := rec.start(s); err != nil {
			return res, err
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
		checkpoint := ""
		if t.epoch%t.cfg.Checkpoint.Every == 0 || t.epoch == t.cfg.Epochs {
			if checkpoint, err = t.save(); err != nil {
				return res, fmt.Errorf("save checkpoint of epoch %d: %w", t.epoch, err)
			}
		}
		if err := rec.epoch(row, checkpoint); err != nil {
			return res, err
		}
		res.Test = last.test(*untrained, checkpoint, row.ValSeconds)
	}
	if len(res.Epochs) > 0 && res.Test.Samples == 0 { // resumed after its last epoch
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
