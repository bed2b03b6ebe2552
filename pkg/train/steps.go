package train

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"lockstep/pkg/data"
	"lockstep/pkg/model"
)

// Loader returns the loader of this rank's training batches; Close closes it.
func (t *Trainer) Loader() *data.Loader { return t.loader }

// Staged returns the copy of the data on this machine that the trainer reads, or nil
// if the config has no data.stage.
func (t *Trainer) Staged() *data.Staged { return t.staged }

// Synchronize waits until the engine's device has done every step that was started.
func (t *Trainer) Synchronize() error {
	if t.step == 0 {
		return nil
	}
	_, outputs, err := outputSize(t.train.Program())
	if err != nil {
		return err
	}
	return t.train.Output(model.LogitsOutput, make([]float32, outputs*t.cfg.Batch)) // waits for the device
}

// TrainTo trains until the worker has done steps optimizer steps in all. It neither
// evaluates nor writes anything. All ranks must call it.
func (t *Trainer) TrainTo(ctx context.Context, steps int) error {
	for t.step < steps {
		if err := t.stepEpoch(ctx, steps); err != nil {
			return err
		}
	}
	return nil
}

// stepEpoch does the steps of the next epoch, until the worker has done limit steps
// in all.
func (t *Trainer) stepEpoch(ctx context.Context, limit int) error {
	feed := t.feedFrom(ctx, 0)
	defer feed.stop()
	for i, right := 0, 0.0; t.step < limit && i < t.steps(); i++ {
		if _, err := t.update(ctx, feed, i, t.rate(t.epoch, i), &right); err != nil {
			return err
		}
	}
	t.epoch++
	return nil
}

// Parameters returns copies of the parameters by name, and of their moving averages by
// the name in a checkpoint ("ema." and the parameter's).
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

// SetParameters sets the parameters and moving averages in values, which has the names
// of Parameters. The trainer keeps the slices of averages.
func (t *Trainer) SetParameters(values map[string][]float64) error {
	for name, v := range values {
		if of, averaged := strings.CutPrefix(name, averagePrefix); averaged {
			if t.average == nil {
				return fmt.Errorf("set %s: the config averages no parameters", name)
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
