package train

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"lockstep/pkg/collective"
)

// Check returns an error if a run of w with the given number of workers could not start. It
// reads the config, opens the data and checks the network's sizes, but does not train or
// write files. It writes the config to out as JSON, in the form of run.json; without the
// network if w.Build is set. Invalid input is a *UsageError.
func (w Worker) Check(ctx context.Context, workers int, out io.Writer) error {
	cfg, err := w.Resolve()
	if err != nil {
		return &UsageError{err}
	}
	switch err := w.checkSizes(ctx, cfg, workers); {
	case err != nil && ctx.Err() != nil:
		return err
	case err != nil:
		return &UsageError{err}
	}
	doc, err := cfg.document()
	if err != nil {
		return err
	}
	if w.Build != nil {
		delete(doc, "model") // run.json has the spec that the program made
	}
	return json.NewEncoder(out).Encode(doc)
}

// checkSizes opens the data and builds the network for rank 0 of the given number of workers.
func (w Worker) checkSizes(ctx context.Context, cfg Config, workers int) (err error) {
	if workers < 1 {
		return fmt.Errorf("check %d workers: use at least 1", workers)
	}
	t := &Trainer{cfg: cfg, options: WorkerOptions{Build: w.Build}, group: firstOf{size: workers}}
	if t.samples, err = OpenSamples(ctx, cfg.Data); err != nil {
		return err
	}
	t.cfg.Loader.Kind = "" // the samples are not read
	if err := t.feed(); err != nil {
		return err
	}
	defer t.loader.Close()
	if _, err := t.network(t.loader.ImageShape(), t.loader.TargetShape()); err != nil {
		return err
	}
	_, err = t.network(t.samples.Test.ImageShape(), t.samples.Test.TargetShape())
	return err
}

// firstOf is rank 0 of a group that has a size but cannot exchange anything.
type firstOf struct {
	collective.Group
	size int
}

func (g firstOf) Rank() int { return 0 }
func (g firstOf) Size() int { return g.size }

// A Difference is a config key whose values differ between two runs.
type Difference struct {
	Key      string
	Was, Now any
}

// Differences lists the keys in which now differs from was, the config in run.json
// of a run that is to be resumed, in alphabetical order. Keys that may change
// between the two, and keys that only one of them has, are left out.
func Differences(was, now map[string]any) []Difference {
	all := differences(WithDefaultStrategy(was), WithDefaultStrategy(now), "")
	slices.SortFunc(all, func(a, b Difference) int {
		if a.Key < b.Key {
			return -1
		}
		return 1
	})
	return all
}
