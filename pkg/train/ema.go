package train

import (
	"context"
	"fmt"

	"lockstep/pkg/engine"
	"lockstep/pkg/model"
)

// AverageConfig configures the exponential moving average of the parameters (EMA, Polyak and
// Juditsky 1992): a ← d·a + (1−d)·w after an optimizer step, where a is the average, d the decay
// and w the parameters. The averages are evaluated after each epoch, in addition to the parameters,
// and saved in checkpoints.
type AverageConfig struct {
	Decay float64 `yaml:"decay" json:"decay"` // d; 0: no average
	Every int     `yaml:"every" json:"every"` // optimizer steps per update; 0: 1
}

// Validate returns an error for the first invalid value.
func (a AverageConfig) Validate() error {
	switch {
	case !(a.Decay >= 0 && a.Decay < 1):
		return fmt.Errorf("ema.decay is %g: use at least 0 (no average) and less than 1, such as 0.999", a.Decay)
	case a.Every < 0:
		return fmt.Errorf("ema.every is %d: use the number of optimizer steps per update, or 0 for 1", a.Every)
	}
	return nil
}

// movingAverage computes the averages that AverageConfig configures. A nil movingAverage does
// nothing.
type movingAverage struct {
	config  AverageConfig
	updates int                  // number of updates so far
	names   []string             // parameters, in the order of the program
	values  map[string][]float64 // averages by the name of the parameter
}

const averagePrefix = model.AveragePrefix

// newMovingAverage returns averages that start with the current parameters of exe. It returns nil if
// c.Decay is 0.
func newMovingAverage(c AverageConfig, exe engine.Executable) (*movingAverage, error) {
	if c.Decay == 0 {
		return nil, nil
	}
	a := &movingAverage{config: c, values: map[string][]float64{}}
	for _, p := range exe.Program().Params {
		v, err := exe.Get(p.Name)
		if err != nil {
			return nil, fmt.Errorf("average %s: %w", p.Name, err)
		}
		a.names = append(a.names, p.Name)
		a.values[p.Name] = v
	}
	return a, nil
}

// startMovingAverage starts the moving average, or restores it from the checkpoint of a resumed run.
func (t *Trainer) startMovingAverage() (err error) {
	if t.average, err = newMovingAverage(t.cfg.EMA, t.train); err != nil || t.average == nil || t.resumed == nil || !t.resumed.HasAverages {
		t.resumed = nil // its tensors are not needed anymore
		return err
	}
	t.average.updates = t.resumed.AverageUpdates
	for _, name := range t.average.names {
		v, ok := t.resumed.Tensors[averagePrefix+name]
		if !ok || len(v) != len(t.average.values[name]) {
			return fmt.Errorf("checkpoint %s: average of %s: got %d values, want %d", t.resumed.Path, name, len(v), len(t.average.values[name]))
		}
		t.average.values[name] = v
	}
	t.resumed = nil
	return nil
}

// update updates the averages after the given step, unless AverageConfig.Every skips it. As in
// TensorFlow's ExponentialMovingAverage, the decay after u updates is at most (1+u)/(10+u), so that
// the random initial values do not dominate the averages of a short run.
func (a *movingAverage) update(step int, exe engine.Executable) error {
	if a == nil || step%max(1, a.config.Every) != 0 {
		return nil
	}
	a.updates++
	u := float64(a.updates)
	d := min(a.config.Decay, (1+u)/(10+u))
	for _, name := range a.names {
		w, err := exe.Get(name)
		if err != nil {
			return fmt.Errorf("average %s: %w", name, err)
		}
		v := a.values[name]
		for i := range v {
			v[i] = d*v[i] + (1-d)*w[i]
		}
	}
	return nil
}

// evaluateMovingAverage evaluates the network with the averaged parameters, and then restores the trained
// parameters.
func (t *Trainer) evaluateMovingAverage(ctx context.Context) (Scores, error) {
	trained := map[string][]float64{}
	swap := func(values map[string][]float64) error {
		for _, name := range t.average.names {
			if err := t.train.Set(name, values[name]); err != nil {
				return fmt.Errorf("set %s: %w", name, err)
			}
		}
		return nil
	}
	for _, name := range t.average.names {
		v, err := t.train.Get(name)
		if err != nil {
			return Scores{}, fmt.Errorf("get %s: %w", name, err)
		}
		trained[name] = v
	}
	if err := swap(t.average.values); err != nil {
		return Scores{}, err
	}
	s, err := t.Evaluate(ctx)
	if serr := swap(trained); err == nil {
		err = serr
	}
	return s, err
}
