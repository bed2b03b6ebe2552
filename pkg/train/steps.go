package train

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"lockstep/pkg/data"
	"lockstep/pkg/model"
)

// Loader returns the loader of this rank's training batches. Trainer.Close closes it.
func (t *Trainer) Loader() *data.Loader { return t.loader }

// Staged returns the copy of the data that the trainer reads, or nil without data.stage.
func (t *Trainer) Staged() *data.Staged { return t.staged }

// Synchronize waits until the device has completed all steps. A GPU may still compute after Step
// has returned.
func (t *Trainer) Synchronize() error {
	if t.step == 0 || t.can.NoOutputs {
		return nil
	}
	_, outputs, err := batchAndOutputSize(t.train.Program())
	if err != nil {
		return err
	}
	return t.train.Output(model.LogitsOutput, make([]float32, outputs*t.cfg.Batch)) // waits for the device
}

// TrainTo trains until the worker has completed the given number of optimizer steps since the start
// of the run. It neither evaluates nor writes files. All ranks must call it.
func (t *Trainer) TrainTo(ctx context.Context, steps int) error {
	for t.step < steps {
		if err := t.trainStepsOfEpoch(ctx, steps); err != nil {
			return err
		}
	}
	return nil
}

// trainStepsOfEpoch does the steps of the next epoch. It ends early at step limit, counted from the
// start of the run.
func (t *Trainer) trainStepsOfEpoch(ctx context.Context, limit int) error {
	feed := t.newBatchFeeder(ctx, 0)
	defer feed.stop()
	for i, right := 0, 0.0; t.step < limit && i < t.stepsPerEpoch(); i++ {
		if _, err := t.runOptimizerStep(ctx, feed, i, t.learningRate(t.epoch, i), &right); err != nil {
			return err
		}
	}
	t.epoch++
	// When TrainTo returns, no server may be running, and every rank must have all parameters.
	if t.cfg.Strategy.IsAsynchronous() || t.cfg.Strategy.Staged() {
		return t.equalizeParameters(ctx)
	}
	return nil
}

// Parameters returns copies of the parameters by name. It also returns their moving averages, by
// "ema." followed by the parameter's name.
func (t *Trainer) Parameters() (map[string][]float64, error) {
	params := map[string][]float64{}
	if t.average != nil {
		for name, v := range t.average.values {
			params[averagePrefix+name] = slices.Clone(v)
		}
	}
	for _, p := range t.train.Program().Params {
		v, err := t.train.Get(p.Name)
		if err != nil {
			return nil, err
		}
		params[p.Name] = v
	}
	return params, nil
}

// SetParameters sets parameters and moving averages, named as in Parameters. The trainer keeps the
// slices of averages without copying them.
func (t *Trainer) SetParameters(values map[string][]float64) error {
	for name, v := range values {
		if of, averaged := strings.CutPrefix(name, averagePrefix); averaged {
			if t.average == nil {
				return fmt.Errorf("set %s: the config has no moving averages: set ema.decay", name)
			}
			t.average.values[of] = v
			continue
		}
		if err := t.train.Set(name, v); err != nil {
			return err
		}
	}
	return nil
}
