package train

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"

	"lockstep/pkg/collective"
	"lockstep/pkg/data"
	"lockstep/pkg/engine"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/nn"
)

// Check returns an error if a run of w with the given number of workers could not start. The error
// is a *UsageError for invalid input. Check reads the config, looks at the data and checks the
// sizes of the network, but does not train, write files, or read or generate all data. It writes
// the config to out in the form of run.json, but omits the key model if w.Build is set.
func (w Worker) Check(ctx context.Context, workers int, out io.Writer) error {
	cfg, err := w.Resolve()
	if err == nil {
		err = CheckEnvironment(os.Getenv)
	}
	if err != nil {
		return &UsageError{err}
	}
	switch err := w.checkDataAndNetwork(ctx, cfg, workers); {
	case err != nil && ctx.Err() != nil:
		return err
	case err != nil:
		return &UsageError{err}
	}
	doc, err := cfg.jsonDocument()
	if err != nil {
		return err
	}
	if w.Build != nil {
		delete(doc, "model") // run.json has the spec that the program made
	}
	return json.NewEncoder(out).Encode(doc)
}

// checkDataAndNetwork opens an outline of the data and builds the network for training and
// evaluation, like rank 0 of the given number of workers.
func (w Worker) checkDataAndNetwork(ctx context.Context, cfg Config, workers int) (err error) {
	if workers < 1 {
		return fmt.Errorf("check config: got %d workers, want at least 1", workers)
	}
	if err := cfg.Strategy.CheckWorkers(workers); err != nil {
		return fmt.Errorf("check config: %w", err)
	}
	t := &Trainer{cfg: cfg, options: WorkerOptions{Build: w.Build}, group: rankZeroGroup{size: workers}}
	if t.samples.OpenedData, err = data.Outline(ctx, cfg.Data); err != nil {
		return err
	}
	t.cfg.Loader.Kind = "" // the samples are not read
	if err := t.openLoader(); err != nil {
		return err
	}
	defer t.loader.Close()
	net, err := t.buildNetwork(t.loader.ImageShape(), t.loader.TargetShape())
	if err != nil {
		return err
	}
	if _, gpu := cfg.Engine.CUDA(); gpu || cfg.Strategy.Staged() {
		p, err := t.lowerNetwork(net, cfg.Batch, nn.Train)
		if err == nil && gpu {
			err = engine.CheckProgram(cfg.Engine.Device, p)
		}
		if err == nil && cfg.Strategy.Staged() {
			_, err = plan.CutIntoStages(p, workers)
		}
		if err != nil {
			return fmt.Errorf("check config: %w", err)
		}
	}
	_, err = t.buildNetwork(t.samples.Test.ImageShape(), t.samples.Test.TargetShape())
	return err
}

// rankZeroGroup acts as rank 0 of a group of the given size that never exchanges anything.
type rankZeroGroup struct {
	collective.Group
	size int
}

func (g rankZeroGroup) Rank() int { return 0 }
func (g rankZeroGroup) Size() int { return g.size }

// A Difference is a config key whose values differ between two runs.
type Difference struct {
	Key      string // path of the key, such as "data.augment.flip"
	Was, Now any    // value in the existing run, and in the new or resumed run
}

// Differences returns the keys whose values differ between two configs, in alphabetical order.
// recorded is the config in an existing run.json, and current the new one. It omits keys that may
// change when a run is resumed, and keys that did not exist in the version of Lockstep that wrote
// recorded.
func Differences(recorded, current map[string]any) []Difference {
	all := compareConfigs(withStrategySettings(recorded), withStrategySettings(current), "")
	slices.SortFunc(all, func(a, b Difference) int {
		if a.Key < b.Key {
			return -1
		}
		return 1
	})
	return all
}
