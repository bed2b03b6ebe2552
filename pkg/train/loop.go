package train

import (
	"context"
	"errors"
	"fmt"
	"math"
	"syscall"
	"time"

	"lockstep/pkg/engine"
	"lockstep/pkg/metric"
	"lockstep/pkg/model"
	"lockstep/pkg/optim"
	"lockstep/pkg/runs"
	"lockstep/pkg/strategy"
)

// Result is the outcome of a run.
type Result struct {
	Epochs []runs.Epoch // one per completed epoch; after resuming, only rank 0 has the earlier ones
	Test   runs.Test    // final scores
}

// Run trains for the configured number of epochs, evaluates the network on the complete
// held-out set after each, and writes the run folder if WorkerOptions.Dir is set.
//
// If ctx is canceled, Run completes the current step and saves a checkpoint. A resumed run
// continues with the next step, and its results are bitwise equal to those of a run without
// interruption. After any other end, such as a kill, a resumed run continues from the
// newest checkpoint and repeats the steps since then; Checkpoint.Every and
// Checkpoint.EverySteps limit how many.
func (t *Trainer) Run(ctx context.Context) (Result, error) {
	rec, err := t.record(ctx)
	if err != nil {
		return Result{}, advise(err, t.options.Dir)
	}
	res, err := t.run(ctx, rec)
	if err != nil {
		if serr := t.saveEarly(ctx, rec, err); serr != nil {
			err = errors.Join(err, fmt.Errorf("save checkpoint: %w", serr))
		}
	}
	return res, advise(rec.close(ctx, err), t.options.Dir)
}

// saveEarly saves a checkpoint after err has ended the run: of the last step if the run was
// interrupted, else of the last complete epoch if it is not saved yet.
func (t *Trainer) saveEarly(ctx context.Context, rec *recorder, err error) error {
	interrupted := ctx.Err() != nil || errors.Is(err, context.Canceled)
	if !interrupted || !t.begun.settled {
		return t.saveUnsaved(rec)
	}
	t.unsaved = nil // older than what saveWithin saves
	return t.saveWithin(rec)
}

// advise adds advice to an error about a full or read-only disk. It returns other errors
// unchanged.
func advise(err error, dir string) error {
	switch {
	case errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT):
		return fmt.Errorf("%w; make room on the disk of %s, then go on with --resume: nothing before the last checkpoint is lost", err, dir)
	case errors.Is(err, syscall.EROFS):
		return fmt.Errorf("%w; make the disk of %s writable again, then go on with --resume", err, dir)
	}
	return err
}

// run trains, evaluates and records all epochs that are not done yet.
func (t *Trainer) run(ctx context.Context, rec *recorder) (Result, error) {
	res := Result{Epochs: rec.epochs}
	untrained := rec.untrained
	if untrained == nil {
		s, err := t.Evaluate(ctx)
		if err != nil {
			return res, fmt.Errorf("evaluate the untrained network: %w", err)
		}
		untrained, t.untrained = &s, &s // saved in checkpoints for resumed runs
		if err := rec.start(s); err != nil {
			return res, err
		}
		if n, ok := t.train.(engine.NoticeReporter); ok {
			for _, notice := range n.Notices() {
				if err := rec.log("note: %s", notice); err != nil {
					return res, err
				}
			}
		}
		if where := t.whereData(); where != "" {
			if err := rec.log("%s", where); err != nil {
				return res, err
			}
		}
		for _, note := range t.samples.Notes {
			if err := rec.log("note: %s", note); err != nil {
				return res, err
			}
		}
	}
	var last Scores
	for t.epoch < t.cfg.Epochs {
		epochBegin := time.Now()
		row, err := t.trainEpoch(ctx, rec)
		if err != nil {
			return res, fmt.Errorf("epoch %d: %w", t.epoch+1, err)
		}
		begin := time.Now()
		if last, err = t.Evaluate(ctx); err != nil {
			return res, fmt.Errorf("evaluate after epoch %d: %w", t.epoch+1, err)
		}
		last.fill(&row)
		row.ValSeconds = time.Since(begin).Seconds()
		averaged := ""
		if t.average != nil {
			s, err := t.evaluateAverage(ctx)
			if err != nil {
				return res, fmt.Errorf("evaluate averaged parameters after epoch %d: %w", t.epoch+1, err)
			}
			averaged = s.line()
		}
		t.epoch++
		res.Epochs = append(res.Epochs, row)
		// Write the row before the checkpoint. If the run is killed between the two, a
		// resumed run trains the epoch again; in the other order, the row would be lost.
		if err := rec.timed(func() error { return rec.epoch(row) }); err != nil {
			return res, err
		}
		if averaged != "" {
			if err := rec.log("  averaged parameters: %s", averaged); err != nil {
				return res, err
			}
		}
		if err := rec.timed(func() error { return t.checkpoint(rec) }); err != nil {
			return res, fmt.Errorf("save checkpoint of epoch %d: %w", t.epoch, err)
		}
		t.begun = progress{}
		if err := rec.noteSlowWriting(t.epoch, time.Since(epochBegin)); err != nil {
			return res, err
		}
		res.Test = last.test(*untrained, rec.lastCheckpoint(), row.ValSeconds)
	}
	// The run was resumed after its last epoch. This condition must not depend on the
	// earlier rows, which only rank 0 has: all ranks must take the same branch.
	if res.Test.Samples == 0 {
		begin := time.Now()
		s, err := t.Evaluate(ctx)
		if err != nil {
			return res, err
		}
		res.Test = s.test(*untrained, rec.lastCheckpoint(), time.Since(begin).Seconds())
	}
	if err := rec.energy(ctx); err != nil {
		return res, err
	}
	if err := rec.intact(ctx); err != nil {
		return res, err
	}
	return res, rec.done(res.Test)
}

// trainEpoch does the remaining steps of the current epoch, and returns its row without the
// scores.
func (t *Trainer) trainEpoch(ctx context.Context, rec *recorder) (runs.Epoch, error) {
	row := runs.Epoch{Epoch: t.epoch + 1, Accuracy: math.NaN(), ValAccuracy: math.NaN()}
	work, end := lag(ctx, stepPatience)
	defer end()
	before := t.begun.within(t.group.Size())
	t.begun = before
	if before.steps > 0 {
		row.LearningRate = t.rate(t.epoch, before.steps-1)
	}
	feed := t.feedFrom(work, before.steps*t.cfg.parts())
	defer feed.stop()
	steps := t.steps()
	lossSum, right := before.losses[t.group.Rank()], 0.0
	if t.group.Rank() == 0 { // before.right is the sum over all ranks
		right = before.right
	}
	// Start all ranks together. Otherwise, the time that rank 0 alone spends before the
	// epoch, for example on a checkpoint, would be part of the first step of the others.
	rec.beginLoad()
	if err := t.group.Barrier(work); err != nil {
		return row, err
	}
	begin := time.Now()
	for i := before.steps; i < steps; i++ {
		row.LearningRate = t.rate(t.epoch, i)
		span, err := t.update(work, feed, i, row.LearningRate, &right)
		if err != nil {
			return row, fmt.Errorf("batch %d: %w", i+1, err)
		}
		lossSum += span.Loss * float64(span.Samples/t.cfg.Batch)
		if err := rec.step(span); err != nil {
			return row, err
		}
		if t.options.Progress != nil {
			t.options.Progress(t.epoch+1, i+1, steps)
		}
		if i+1 < steps {
			seconds := before.seconds + time.Since(begin).Seconds()
			if err := t.betweenSteps(ctx, work, rec, progress{steps: i + 1, seconds: seconds, right: right}, lossSum); err != nil {
				return row, err
			}
		}
	}
	if err := feed.err(); err != nil {
		return row, fmt.Errorf("load batches: %w", err)
	}
	// The epoch ends when the slowest rank has finished.
	if err := t.group.Barrier(work); err != nil {
		return row, err
	}
	row.Seconds = before.seconds + time.Since(begin).Seconds()
	rec.endLoad(row.Epoch)
	row.Samples = t.sampler.Steps() * t.cfg.Batch * t.group.Size()
	row.PaddingSamples = t.sampler.Padding()
	row.SamplesPerSecond = float64(row.Samples) / row.Seconds
	if err := t.settle(work, rec, progress{steps: steps, seconds: row.Seconds, right: right}, lossSum); err != nil {
		return row, err
	}
	for _, sum := range t.begun.losses {
		row.TrainLoss += sum
	}
	row.TrainLoss /= float64(t.sampler.Steps() * t.group.Size())
	if t.net.Task() == model.Classification {
		row.Accuracy = t.begun.right / float64(row.Samples)
	}
	return row, nil
}

// update does optimizer step i of the epoch on the next Accumulate batches, and adds the
// number of correctly classified samples to *right.
func (t *Trainer) update(ctx context.Context, feed *feeder, i int, rate float64, right *float64) (runs.Step, error) {
	parts := min(t.cfg.parts(), t.sampler.Steps()-i*t.cfg.parts())
	span := runs.Step{Epoch: t.epoch + 1, Samples: parts * t.cfg.Batch}
	t.gather.Begin(parts)
	for part := range parts {
		waiting := time.Now()
		if !feed.next() {
			if err := feed.err(); err != nil {
				return span, fmt.Errorf("load batches: %w", err)
			}
			return span, errors.New("load batches: the epoch ended early")
		}
		t.waited(waiting)
		image, target := feed.batch()
		span.Data += time.Since(waiting).Seconds()
		if err := t.part(ctx, image, target, rate, part == parts-1, &span); err != nil {
			return span, err
		}
		if feed.label {
			n, err := t.rightOf(feed.labels())
			if err != nil {
				return span, err
			}
			*right += n
		}
	}
	span.Loss /= float64(parts)
	return span, nil
}

// rightOf returns how many samples of the last batch were classified correctly, by the
// network before the step.
func (t *Trainer) rightOf(labels []float32) (float64, error) {
	n := len(t.outputs) / len(labels)
	if err := t.train.Output(model.LogitsOutput, t.outputs); err != nil {
		return 0, err
	}
	h, err := metric.CountClasses(t.outputs, labels, n)
	return float64(h.Right), err
}

// Step does one optimizer step on a batch of this rank, and adds its times and loss to
// span, which may be nil. For segmentation, image has the shape [batch,C,H,W] and target
// [batch,1,H,W]. image is nil if the engine already has the batch, for example because it
// has prefetched it.
func (t *Trainer) Step(ctx context.Context, image, target []float32, rate float64, span *runs.Step) error {
	if span == nil {
		span = &runs.Step{}
	}
	t.gather.Begin(1)
	return t.part(ctx, image, target, rate, true, span)
}

// part trains on one batch of an optimizer step, and adds its times and its loss to span.
// If last is set, it also updates the parameters.
func (t *Trainer) part(ctx context.Context, image, target []float32, rate float64, last bool, span *runs.Step) error {
	begin := time.Now()
	if t.started.IsZero() {
		t.started = begin
	}
	if image != nil {
		if err := t.train.SetInput(model.ImageInput, image); err != nil {
			return err
		}
		if err := t.train.SetInput(model.TargetInput, target); err != nil {
			return err
		}
	}
	input := time.Since(begin)
	var update *optim.Update
	if last {
		u := t.cfg.Optimizer.Update(rate, t.step+1)
		update = &u
	}
	timing, err := t.train.Step(ctx, t.gradients(), update)
	if errors.Is(err, engine.ErrNonFinite) {
		return fmt.Errorf("%w; training diverged at learning rate %g: try a tenth of it, or schedule.warmup_epochs", err, rate)
	}
	if err != nil {
		return err
	}
	span.Loss += t.train.Loss()
	span.Data += input.Seconds()
	span.Forward += timing.Forward.Seconds()
	span.Backward += timing.Backward.Seconds()
	span.Wait += timing.Wait.Seconds()
	span.Optimizer += timing.Optimizer.Seconds()
	if !last {
		return nil
	}
	t.step++
	span.Step = t.step
	if s, ok := t.sync.(strategy.ParameterSync); ok {
		begin := time.Now()
		if err := s.AfterStep(ctx, t.train, t.step); err != nil {
			return fmt.Errorf("exchange parameters after step %d: %w", t.step, err)
		}
		span.Wait += time.Since(begin).Seconds()
	}
	stats := t.sync.Stats()
	span.AllReduce = stats.AllReduce.Seconds()
	if !stats.First.IsZero() {
		span.UntilCollective = stats.First.Sub(t.started).Seconds()
	}
	t.started = time.Time{}
	return t.average.after(t.step, t.train)
}

// gradients returns the receiver of the engine's gradients: the accumulator if an optimizer
// step has several batches, else the strategy.
func (t *Trainer) gradients() engine.GradSync {
	if t.cfg.parts() > 1 {
		return t.gather
	}
	return t.sync
}
