package train

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"syscall"
	"time"

	"lockstep/pkg/collective"
	"lockstep/pkg/engine"
	"lockstep/pkg/metric"
	"lockstep/pkg/model"
	"lockstep/pkg/runs"
	"lockstep/pkg/strategy"
)

// Result is the outcome of a run.
type Result struct {
	Epochs []runs.Epoch // one per completed epoch; after resuming, only rank 0 has the earlier epochs
	Test   runs.Test    // final scores
}

// Run trains for the configured number of epochs, evaluates the network on the complete held-out
// set after each epoch, and writes the run folder if WorkerOptions.Dir is set.
//
// If ctx is canceled, Run completes the current step and saves a checkpoint. A resumed run
// continues with the next step, and its results are bitwise equal to those without interruption.
// After any other end, such as a kill, a resumed run continues from the newest checkpoint;
// Checkpoint.Every and Checkpoint.EverySteps limit how many steps it repeats.
//
// If a resumed run has no epochs left, and its checkpoints were deleted, Run returns the recorded result.
func (t *Trainer) Run(ctx context.Context) (Result, error) {
	if t.finished != nil {
		return t.finishedResult(), nil
	}
	files, err := t.openRunFiles(ctx)
	if err != nil {
		return Result{}, addDiskAdvice(err, t.options.Dir)
	}
	res, err := t.trainAndEvaluate(ctx, files)
	if err != nil {
		if serr := t.saveAfterEarlyEnd(ctx, files, err); serr != nil {
			err = errors.Join(err, fmt.Errorf("save checkpoint: %w", serr))
		}
	}
	return res, addDiskAdvice(files.close(ctx, err), t.options.Dir)
}

// finishedResult returns the recorded result of t.finished, and logs that the run is not evaluated
// again.
func (t *Trainer) finishedResult() Result {
	if t.options.Log != nil {
		t.options.Log("note: the run is done already; its checkpoints are missing, so that it is not evaluated again")
	}
	res := Result{Epochs: t.finished.Epochs}
	if test := t.finished.Info.Test; test != nil {
		res.Test = *test
	}
	return res
}

// saveAfterEarlyEnd saves a checkpoint after err has ended the run. After an interrupt, it saves
// the state after the last step. Otherwise it saves the last complete epoch, unless that is saved
// already.
func (t *Trainer) saveAfterEarlyEnd(ctx context.Context, files *runFiles, err error) error {
	interrupted := ctx.Err() != nil || errors.Is(err, context.Canceled)
	if !interrupted || !t.progress.savable {
		return t.saveLastEpoch(files)
	}
	t.unsaved = nil // older than the checkpoint of saveMidEpoch
	return t.saveMidEpoch(files)
}

// addDiskAdvice adds advice to an error about a full or read-only disk. dir is the run folder; its
// checkpoints may be on another disk.
func addDiskAdvice(err error, dir string) error {
	var file *fs.PathError
	if errors.As(err, &file) {
		dir = filepath.Dir(file.Path)
	}
	switch {
	case errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT):
		return fmt.Errorf("%w; free space on the disk of %s, then continue with --resume: nothing before the last checkpoint is lost", err, dir)
	case errors.Is(err, syscall.EROFS):
		return fmt.Errorf("%w; make the disk of %s writable again, then continue with --resume", err, dir)
	}
	return err
}

// trainAndEvaluate does the remaining epochs and the final evaluation of the run.
func (t *Trainer) trainAndEvaluate(ctx context.Context, files *runFiles) (Result, error) {
	res := Result{Epochs: files.epochs}
	if err := t.evaluateUntrained(ctx, files); err != nil {
		return res, err
	}
	var last Scores
	for t.epoch < t.cfg.Epochs {
		row, scores, err := t.trainAndSaveEpoch(ctx, files)
		if row.Epoch <= t.epoch { // the epoch is complete
			res.Epochs = append(res.Epochs, row)
		}
		if err != nil {
			return res, err
		}
		last, res.Test = scores, scores.newTest(*files.untrained, t.classNames(scores), files.lastCheckpoint(), row.ValSeconds)
		if t.options.EpochDone != nil {
			if err := t.options.EpochDone(row); err != nil {
				return res, fmt.Errorf("after epoch %d: %w", t.epoch, err)
			}
		}
	}
	// The run was resumed after its last epoch. Do not test the earlier rows, which only rank 0
	// has: all ranks must take the same branch.
	if res.Test.Samples == 0 {
		begin := time.Now()
		var err error
		if last, err = t.Evaluate(ctx); err != nil {
			return res, err
		}
		res.Test = last.newTest(*files.untrained, t.classNames(last), files.lastCheckpoint(), time.Since(begin).Seconds())
	}
	if err := errors.Join(t.writeImageScores(ctx, files, last), t.scoreTestImages(ctx, files)); err != nil {
		return res, err
	}
	if err := files.recordTotalEnergy(ctx); err != nil {
		return res, err
	}
	if err := files.checkRunFilesExist(ctx); err != nil {
		return res, err
	}
	return res, files.writeTestScores(res.Test)
}

// evaluateUntrained evaluates the untrained network and logs the notes about the run. It skips this
// if the checkpoint of a resumed run has the scores.
func (t *Trainer) evaluateUntrained(ctx context.Context, files *runFiles) error {
	if files.untrained == nil {
		s, err := t.Evaluate(ctx)
		if err != nil {
			return fmt.Errorf("evaluate the untrained network: %w", err)
		}
		t.untrained = &s // saved in checkpoints for resumed runs
		if err := errors.Join(files.logRunStart(s), files.logClassScoreNote(s)); err != nil {
			return err
		}
		for _, notice := range t.can.Notices {
			if err := files.logNote(notice); err != nil {
				return err
			}
		}
		if where := t.describeDataPlacement(); where != "" {
			if err := files.log("%s", where); err != nil {
				return err
			}
		}
		for _, note := range t.samples.Notes {
			if err := files.logNote(note); err != nil {
				return err
			}
		}
	}
	if b := t.options.binding; b != nil && b.Disturbed != "" {
		return files.logNote(b.DisturbanceNote())
	}
	return nil
}

// trainAndSaveEpoch does the remaining steps of the current epoch, evaluates the network, writes the
// epoch's row, and saves a checkpoint if one is due. If it returns an error after the evaluation,
// t.epoch counts the epoch.
func (t *Trainer) trainAndSaveEpoch(ctx context.Context, files *runFiles) (row runs.Epoch, scores Scores, err error) {
	begin := time.Now()
	if row, err = t.trainEpoch(ctx, files); err != nil {
		return row, scores, fmt.Errorf("epoch %d: %w", t.epoch+1, err)
	}
	evaluation := time.Now()
	if scores, err = t.Evaluate(ctx); err != nil {
		return row, scores, fmt.Errorf("evaluate after epoch %d: %w", t.epoch+1, err)
	}
	scores.fillEpochRow(&row)
	row.ValSeconds = time.Since(evaluation).Seconds()
	averaged := ""
	if t.average != nil {
		s, err := t.evaluateMovingAverage(ctx)
		if err != nil {
			return row, scores, fmt.Errorf("evaluate averaged parameters after epoch %d: %w", t.epoch+1, err)
		}
		averaged = "averaged parameters: " + s.format()
	}
	bubbles, err := t.measureBubbles(ctx)
	if err != nil {
		return row, scores, fmt.Errorf("measure the bubbles of epoch %d: %w", t.epoch+1, err)
	}
	t.epoch++
	// Write the row before the checkpoint. After a kill between the two, a resumed run trains
	// the epoch again; in the other order, the row would be lost.
	if err := files.measureWriteTime(func() error { return files.writeEpoch(row, scores.classScores(t.classNames(scores))) }); err != nil {
		return row, scores, err
	}
	if err := errors.Join(files.logEpochDetail(bubbles), files.logExchangeTotals(), files.logEpochDetail(averaged)); err != nil {
		return row, scores, err
	}
	if err := files.measureWriteTime(func() error { return t.saveCheckpointIfDue(files) }); err != nil {
		return row, scores, fmt.Errorf("save checkpoint of epoch %d: %w", t.epoch, err)
	}
	t.progress = epochProgress{}
	return row, scores, files.logSlowWriting(t.epoch, time.Since(begin))
}

// trainEpoch does the remaining steps of the current epoch. It returns the epoch's row without the
// scores of the evaluation.
func (t *Trainer) trainEpoch(ctx context.Context, files *runFiles) (runs.Epoch, error) {
	row := runs.Epoch{Epoch: t.epoch + 1, Accuracy: math.NaN(), ValAccuracy: math.NaN()}
	work, end := withDelayedCancel(ctx, stepGracePeriod)
	defer end()
	before := t.progress.asUnsavable(t.group.Size())
	t.progress = before
	if before.steps > 0 {
		row.LearningRate = t.learningRate(t.epoch, before.steps-1)
	}
	feed := t.newBatchFeeder(work, before.steps*t.cfg.batchesPerStep())
	defer feed.stop()
	steps := t.stepsPerEpoch()
	lossSum, right := before.losses[t.group.Rank()], 0.0
	batches := 0 // that this rank has trained on
	if t.countsSamples() {
		batches = min(before.steps*t.cfg.batchesPerStep(), t.sampler.Steps())
	}
	if t.group.Rank() == 0 { // before.right is the sum over all ranks
		right = before.right
	}
	// Start all ranks together. Otherwise, rank 0's work before the epoch, such as a checkpoint,
	// would be part of the others' first step.
	files.usage.SetEpoch(t.epoch + 1)
	files.startLoadMeasurement()
	if err := t.group.Barrier(work); err != nil {
		return row, err
	}
	t.countSentBytes() // before the epoch
	sums, last := exchangeTotals{}, (*runs.Step)(nil)
	begin := time.Now()
	for i := before.steps; i < steps; i++ {
		row.LearningRate = t.learningRate(t.epoch, i)
		span, err := t.runOptimizerStep(work, feed, i, row.LearningRate, &right)
		if err != nil {
			return row, fmt.Errorf("batch %d: %w", i+1, err)
		}
		if !t.countsSamples() {
			span.Samples = 0
		}
		lossSum += span.Loss * float64(span.Samples/t.cfg.Batch)
		batches += span.Samples / t.cfg.Batch
		sums.addStep(span)
		if i+1 == steps {
			last = &span // written below, with what is sent until the end of the epoch
		} else if err := files.writeStep(span); err != nil {
			return row, err
		}
		if t.options.Progress != nil {
			t.options.Progress(t.epoch+1, i+1, steps)
		}
		if i+1 < steps {
			seconds := before.seconds + time.Since(begin).Seconds()
			if err := t.saveOrStopBetweenSteps(ctx, work, files, epochProgress{steps: i + 1, seconds: seconds, right: right}, lossSum); err != nil {
				return row, err
			}
		}
	}
	if err := feed.err(); err != nil {
		return row, fmt.Errorf("load batches: %w", err)
	}
	if err := t.equalizeParameters(work); err != nil {
		return row, err
	}
	if last != nil {
		rest := t.countSentBytes()
		last.Sent += rest
		sums.sent += float64(rest)
		if err := files.writeStep(*last); err != nil {
			return row, err
		}
	}
	// The epoch ends when the slowest rank has finished.
	if err := t.group.Barrier(work); err != nil {
		return row, err
	}
	row.Seconds = before.seconds + time.Since(begin).Seconds()
	files.finishLoadMeasurement(row.Epoch)
	if err := t.prepareCheckpoint(work, files, epochProgress{steps: steps, seconds: row.Seconds, right: right, batches: batches, exchanged: sums}, lossSum); err != nil {
		return row, err
	}
	row.Samples = t.progress.batches * t.cfg.Batch
	row.PaddingSamples = t.sampler.Padding()
	row.SamplesPerSecond = float64(row.Samples) / row.Seconds
	for _, sum := range t.progress.losses {
		row.TrainLoss += sum
	}
	row.TrainLoss /= float64(t.progress.batches)
	if t.net.Task() == model.Classification {
		row.Accuracy = t.progress.right / float64(row.Samples)
	}
	return row, nil
}

// countsSamples reports whether this rank counts its samples and losses. All stages of a pipeline
// train on the same batches, so only the first one counts them.
func (t *Trainer) countsSamples() bool { return !t.cfg.Strategy.Staged() || t.group.Rank() == 0 }

// equalizeParameters makes the parameters equal on all ranks at the end of an epoch.
func (t *Trainer) equalizeParameters(ctx context.Context) error {
	if err := t.strategy.Equalize(ctx, t.train); err != nil {
		return fmt.Errorf("make the parameters equal on all ranks: %w", err)
	}
	return nil
}

// runOptimizerStep does one optimizer step on the next Config.Accumulate batches. i is its index in
// the epoch, from 0, and rate the learning rate. It adds the number of correctly classified samples
// to *right, and returns the step's times and mean loss.
func (t *Trainer) runOptimizerStep(ctx context.Context, feed *batchFeeder, i int, rate float64, right *float64) (runs.Step, error) {
	parts := min(t.cfg.batchesPerStep(), t.sampler.Steps()-i*t.cfg.batchesPerStep())
	span := runs.Step{Epoch: t.epoch + 1, Samples: parts * t.cfg.Batch}
	correct := 0.0
	for part := range parts {
		waiting := time.Now()
		ok, err := t.train.NextBatch(feed)
		if err != nil {
			return span, err
		}
		if !ok {
			if err := feed.err(); err != nil {
				return span, fmt.Errorf("load batches: %w", err)
			}
			return span, errors.New("load batches: the loader returned too few batches for the epoch")
		}
		span.Data += time.Since(waiting).Seconds()
		if t.started.IsZero() { // the step began when its batch was loaded
			t.started = waiting
			if feed.loaded.After(waiting) {
				t.started = feed.loaded
			}
		}
		targets := feed.targets // before the step, during which the engine may load the next batch
		if err := t.trainBatch(ctx, t.newStrategyStep(part+1, parts, rate), &span); err != nil {
			return span, err
		}
		if targets != nil && !t.can.NoOutputs {
			n, err := t.countCorrect(targets)
			if err != nil {
				return span, err
			}
			correct += n
		}
	}
	if span.Samples > 0 { // else the strategy has left out the batches
		*right += correct
	}
	span.Loss /= float64(parts)
	return span, nil
}

// countCorrect returns how many samples of the last batch the network classified correctly before
// its parameters were updated. labels contains the classes of the samples.
func (t *Trainer) countCorrect(labels []float32) (float64, error) {
	n := len(t.outputs) / len(labels)
	if err := t.train.Output(model.LogitsOutput, t.outputs); err != nil {
		return 0, err
	}
	h, err := metric.CountClasses(t.outputs, labels, n)
	return float64(h.Right), err
}

// Step does one optimizer step on a batch of this rank with the given learning rate. If span is not
// nil, it adds the step's times in seconds and its loss to span. For segmentation, image is
// [batch,C,H,W] and target [batch,1,H,W].
func (t *Trainer) Step(ctx context.Context, image, target []float32, rate float64, span *runs.Step) error {
	if span == nil {
		span = &runs.Step{}
	}
	t.started = time.Now()
	if err := t.train.SetInput(model.ImageInput, image); err != nil {
		return err
	}
	if err := t.train.SetInput(model.TargetInput, target); err != nil {
		return err
	}
	span.Data += time.Since(t.started).Seconds()
	return t.trainBatch(ctx, t.newStrategyStep(1, 1, rate), span)
}

// newStrategyStep describes one of the batches of the next optimizer step. batch is counted from 1.
func (t *Trainer) newStrategyStep(batch, batches int, rate float64) strategy.Step {
	return strategy.Step{Batch: batch, Batches: batches, Update: t.cfg.Optimizer.Update(rate, t.step+1)}
}

// trainBatch computes the gradients of a batch whose inputs are already set, and adds its times and
// loss to span. After the last batch of the step, it also updates the parameters.
func (t *Trainer) trainBatch(ctx context.Context, step strategy.Step, span *runs.Step) error {
	collective.SetStep(t.group, t.step+1)
	timing, err := t.strategy.Step(ctx, t.train, step)
	collective.SetStep(t.group, 0)
	if errors.Is(err, engine.ErrNonFinite) {
		return fmt.Errorf("%w; training diverged at learning rate %g: try a tenth of it, or schedule.warmup_epochs", err, step.Update.LearningRate)
	}
	if err != nil {
		return err
	}
	span.Loss += t.train.Loss()
	span.Forward += timing.Forward.Seconds()
	span.Backward += timing.Backward.Seconds()
	span.Wait += timing.Wait.Seconds()
	span.Optimizer += timing.Optimizer.Seconds()
	if step.Batch < step.Batches {
		return nil
	}
	t.step++
	span.Step = t.step
	stats := t.strategy.Stats()
	span.Sent = t.countSentBytes()
	span.AllReduce, span.Staleness = stats.AllReduce.Seconds(), stats.Staleness
	if !stats.First.IsZero() {
		span.UntilCollective = stats.First.Sub(t.started).Seconds()
	}
	t.started = time.Time{}
	return t.average.update(t.step, t.train)
}
