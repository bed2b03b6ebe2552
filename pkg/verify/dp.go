package verify

import (
	"context"
	"fmt"
	"math"
	"reflect"
	"strings"
	"sync"

	"lockstep/pkg/collective"
	"lockstep/pkg/engine"
	"lockstep/pkg/model"
	"lockstep/pkg/strategy"
	"lockstep/pkg/train"
)

// The tolerances are relative to the norm of each parameter. In float64, only the order of
// additions makes a difference; in float32, rounding does.
const (
	toleranceFloat64 = 1e-10
	toleranceFloat32 = 1e-5
	verifySteps      = 20
	// minRelativeChange is the smallest distance, relative to its norm, by which training must
	// change every parameter. It is far above the tolerances: comparing parameters that hardly
	// change would prove nothing.
	minRelativeChange = 1e-4
)

// DPOptions are the options of DataParallelism.
type DPOptions struct {
	Workers int // at least 2
	// Strategy is the exact strategy to check, with options as strategy.Parse describes. If it is
	// empty, ddp is checked completely, and each other exact strategy in one comparison.
	Strategy string
	Device   string // "cuda", or "cuda:1" for all workers on that GPU; empty or "cpu": the CPU and the reference engine
}

// DataParallelism checks the invariant of data parallelism: several workers compute the same
// parameters as one. It trains the same network twice in this process, by N workers and by one
// worker with an N-fold batch, and compares the parameters after 20 steps. Then it repeats this with
// each of four deliberate faults in the N workers, and on the CPU with two faults of the loss in all
// workers. The check of a fault is OK if the difference exceeds the limit.
//
// With the strategy pipeline, the workers are stages of one network. They are compared with one
// worker that has the same batch and the same micro-batches, and the deliberate faults are different.
//
// On a GPU the workers compute in fp32 without TF32. They exchange gradients like the workers of a run:
// through NCCL if each has a separate GPU, else through the host. Workers with a fault always use the host.
func DataParallelism(ctx context.Context, o DPOptions) ([]Check, error) {
	s, err := o.parseStrategy()
	if err != nil {
		return nil, &train.UsageError{Err: fmt.Errorf("verify data parallelism: %w", err)}
	}
	if o.Device == "" || o.Device == "cpu" {
		return verifyVariantsAndFaults(ctx, o.Workers, variantsWithStrategy(newCPUVariants(), o.Strategy, s, o.Workers), func(c *train.Config) {
			configureFaultTest(c)
			c.Strategy = s
		}, train.WorkerOptions{})
	}
	e := engine.Options{Device: o.Device}
	if _, gpu := e.CUDA(); !gpu {
		return nil, fmt.Errorf("verify data parallelism: invalid device %q: use cuda, or cpu (the default)", o.Device)
	}
	if err := s.CheckEngine(e); err != nil {
		return nil, &train.UsageError{Err: fmt.Errorf("verify data parallelism: %w", err)}
	}
	return verifyVariantsAndFaults(ctx, o.Workers, newGPUVariants(o.Device), newGPUConfigurer(o.Device), train.WorkerOptions{})
}

// parseStrategy parses o.Strategy. It returns an error if several workers with the strategy do not
// compute the same as one worker.
func (o DPOptions) parseStrategy() (strategy.Config, error) {
	if o.Strategy == "" {
		return strategy.Config{}, nil
	}
	c, err := strategy.Parse(o.Strategy)
	if err != nil {
		return c, err
	}
	if err := c.CheckWorkers(o.Workers); err != nil {
		return c, err
	}
	if c.Staged() && o.Workers > maxPipelineStages {
		return c, fmt.Errorf("strategy %s: got %d stages, but one of the networks that are compared has only %d layers (convolutions and linear layers): use at most %d workers", c, o.Workers, maxPipelineStages, maxPipelineStages)
	}
	var exact []string
	for _, k := range strategy.Kinds() {
		if k.Exact {
			exact = append(exact, k.Name)
		}
		if k.Name == c.Name && !c.IsExact() {
			err = fmt.Errorf("strategy %s does not claim that N workers equal one with an N-fold batch", c)
		}
	}
	if err != nil {
		return c, fmt.Errorf("%w: use one of %s", err, strings.Join(exact, ", "))
	}
	return c, nil
}

// verifyVariantsAndFaults checks the invariant for each variant in list. Then it checks that the
// comparison detects deliberate faults, with the config that base sets up.
func verifyVariantsAndFaults(ctx context.Context, workers int, list []trainingVariant, base func(c *train.Config), options train.WorkerOptions) ([]Check, error) {
	if workers < 2 {
		return nil, fmt.Errorf("verify data parallelism: invalid number of workers %d: use at least 2", workers)
	}
	checks, err := verifyVariants(ctx, workers, list, options)
	if err != nil {
		return checks, err
	}
	cfg := newVerifyConfig()
	base(&cfg)
	broken, err := verifyFaults(ctx, workers, cfg, listFaults(cfg), options)
	return append(checks, broken...), err
}

func verifyVariants(ctx context.Context, workers int, list []trainingVariant, options train.WorkerOptions) ([]Check, error) {
	var checks []Check
	for _, v := range list {
		cfg := newVerifyConfig()
		v.change(&cfg)
		options.Build = v.build
		one, err := trainOneWorker(ctx, cfg, workers, nil, options)
		if err != nil {
			return checks, fmt.Errorf("verify %s: %w", v.name, err)
		}
		diff, moved, err := compareWithOneWorker(ctx, one, cfg, workers, nil, options)
		if err != nil {
			return checks, fmt.Errorf("verify %s: %w", v.name, err)
		}
		checks = append(checks, Check{
			Name: describeInvariant(cfg, workers) + ": " + v.name,
			OK:   diff <= v.tolerance && moved >= minRelativeChange, Value: diff, Limit: v.tolerance,
			Detail: fmt.Sprintf("largest relative difference of a parameter after %d steps, in which each moved by at least %.2g of its norm", verifySteps, moved),
		})
	}
	return checks, nil
}

func describeInvariant(cfg train.Config, workers int) string {
	if cfg.Strategy.Staged() {
		return fmt.Sprintf("%d stages equal 1 worker with the same batch and micro-batches", workers)
	}
	return fmt.Sprintf("%d workers equal 1 worker with a %d-fold batch", workers, workers)
}

// verifyFaults returns one check per fault in list, which is OK if the comparison detects the
// fault. cfg trains with SGD: Adam cancels a common factor of all gradients, so the sum in place of
// the mean would hardly change the result.
func verifyFaults(ctx context.Context, workers int, cfg train.Config, list []faultCase, options train.WorkerOptions) ([]Check, error) {
	limit := toleranceFloat64
	if cfg.Engine.Precision != "fp64" {
		limit = toleranceFloat32
	}
	var checks []Check
	var one replicaParameters
	for i, m := range list {
		var err error
		switch {
		case m.everywhere:
			one, err = trainOneWorker(ctx, m.cfg, workers, m.f, options)
		case i == 0 || !reflect.DeepEqual(m.cfg, list[i-1].cfg): // most faults have the same config
			one, err = trainOneWorker(ctx, m.cfg, workers, nil, options)
		}
		var diff float64
		if err == nil {
			diff, _, err = compareWithOneWorker(ctx, one, m.cfg, workers, m.f, options)
		}
		if err != nil {
			return checks, fmt.Errorf("verify that the comparison detects %s: %w", m.name, err)
		}
		checks = append(checks, Check{
			Name: m.name + " is noticed", OK: !(diff <= limit), Value: diff, Limit: limit,
			Detail: "the same comparison with this fault must exceed the tolerance",
		})
	}
	return checks, nil
}

// trainOneWorker trains one worker with the batches of all workers combined. f is a fault or nil.
func trainOneWorker(ctx context.Context, cfg train.Config, workers int, f faultInjector, options train.WorkerOptions) (replicaParameters, error) {
	cfg.Batch, cfg.Strategy = cfg.Batch*cfg.Strategy.ReplicaCount(workers), strategy.Config{} // the engine's own update
	one, err := trainReplicas(ctx, cfg, 1, f, options)
	return one[0], err
}

// compareWithOneWorker trains several workers that divide the batch, or the network, and have the fault
// f. It compares them with one, the result of trainOneWorker: diff is the largest relative
// difference (2-norm) of a parameter over all ranks; moved is the smallest relative distance by
// which the training of one changed a parameter.
func compareWithOneWorker(ctx context.Context, one replicaParameters, cfg train.Config, workers int, f faultInjector, options train.WorkerOptions) (diff, moved float64, err error) {
	many, err := trainReplicas(ctx, cfg, workers, f, options)
	if err != nil {
		return 0, 0, err
	}
	moved = math.Inf(1)
	for name, w := range one.after {
		moved = min(moved, relativeDistance(one.before[name], w))
		for _, got := range many { // every rank's parameters, not only rank 0's
			if d := relativeDistance(w, got.after[name]); !(d <= diff) { // NaN counts as different
				diff = d
			}
		}
	}
	return diff, moved, nil
}

// relativeDistance returns ‖a−b‖₂/‖a‖₂.
func relativeDistance(a, b []float64) float64 {
	var d, n float64
	for i := range a {
		d += (a[i] - b[i]) * (a[i] - b[i])
		n += a[i] * a[i]
	}
	return math.Sqrt(d / n)
}

type replicaParameters struct{ before, after map[string][]float64 }

// trainReplicas trains for verifySteps steps with one goroutine per rank, and returns each rank's
// parameters.
func trainReplicas(ctx context.Context, cfg train.Config, workers int, f faultInjector, options train.WorkerOptions) ([]replicaParameters, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	groups := collective.InProcessNodes(workers, cfg.Strategy.ReplicasPerProcess(workers))
	params := make([]replicaParameters, workers)
	var wg sync.WaitGroup
	for rank, g := range groups {
		wg.Go(func() {
			options := options
			options.LocalRank = rank
			var err error
			if params[rank], err = trainReplica(ctx, cfg, g, f, options); err != nil {
				cancel(fmt.Errorf("rank %d: %w", rank, err))
			}
		})
	}
	wg.Wait()
	return params, context.Cause(ctx)
}

// trainReplica trains one rank for verifySteps steps.
func trainReplica(ctx context.Context, cfg train.Config, g collective.Group, f faultInjector, options train.WorkerOptions) (r replicaParameters, err error) {
	if f != nil {
		f(&options)
	}
	if cfg.Model.Kind == model.KindUNet2D && cfg.Model.Classes > 0 {
		options.Samples = newClassMaskSamples()
	}
	t, err := train.New(ctx, cfg, g, options)
	if err != nil {
		return r, err
	}
	defer func() {
		if cerr := t.Close(); err == nil {
			err = cerr
		}
	}()
	if err := scaleInitialWeights(t); err != nil {
		return r, err
	}
	if r.before, err = t.Parameters(); err != nil {
		return r, err
	}
	if err := t.TrainTo(ctx, verifySteps); err != nil {
		return r, err
	}
	r.after, err = t.Parameters()
	return r, err
}

// scaleInitialWeights multiplies the initial weights, PyTorch's default, by √6, so that their
// variance is 2/fan-in (He et al. 2015, eq. 10). Otherwise, without batch norm, activations would
// shrink from layer to layer, and some layers would hardly learn.
func scaleInitialWeights(t *train.Trainer) error {
	params, err := t.Parameters()
	if err != nil {
		return err
	}
	for _, v := range params {
		for i := range v {
			v[i] *= math.Sqrt(6)
		}
	}
	return t.SetParameters(params)
}
