package verify

import (
	"context"
	"fmt"
	"math"
	"sync"

	"lockstep/pkg/collective"
	"lockstep/pkg/engine"
	"lockstep/pkg/train"
)

// The tolerances of the invariant, relative to the norm of each parameter:
// float64 leaves only the order of additions, float32 SGD its rounding.
const (
	toleranceFloat64 = 1e-10
	toleranceFloat32 = 1e-5
	verifySteps      = 20
	// leastMove is how far training must move every parameter, relative to its
	// norm, for the comparison to mean something: far above the tolerances.
	leastMove = 1e-4
)

// DPOptions are the options of DP.
type DPOptions struct {
	Workers int    // at least 2
	Device  string // "cuda", or "cuda:1" for all workers on that GPU; empty or "cpu": the CPU and the reference engine
}

// DP proves the invariant of data parallelism. It trains the same network with 1 worker
// and an N-fold batch and with N workers, in this process, and compares the parameters
// after 20 steps; then it breaks data parallelism in four ways and shows that each is
// noticed. The check of a fault is OK if the difference is above the limit.
//
// On a GPU the workers compute in fp32 without TF32. They exchange as the workers of a
// run do: by NCCL if each has a GPU of its own, else through the host. Workers with a
// fault always exchange through the host.
func DP(ctx context.Context, o DPOptions) ([]Check, error) {
	if o.Device == "" || o.Device == "cpu" {
		return verifyOn(ctx, o.Workers, variants(), faulty, train.WorkerOptions{})
	}
	e := engine.Options{Device: o.Device}
	if _, gpu := e.CUDA(); !gpu {
		return nil, fmt.Errorf("verify data parallelism: device %q is no GPU: use cuda, or leave it out for the CPU", o.Device)
	}
	return verifyOn(ctx, o.Workers, variantsOnGPU(o.Device), onGPU32(o.Device), train.WorkerOptions{})
}

// verifyOn compares the ways to train, and breaks the one that base makes.
func verifyOn(ctx context.Context, workers int, list []variant, base func(c *train.Config), options train.WorkerOptions) ([]Check, error) {
	if workers < 2 {
		return nil, fmt.Errorf("verify data parallelism: workers is %d: use at least 2", workers)
	}
	checks, err := verifyVariants(ctx, workers, list, options)
	if err != nil {
		return checks, err
	}
	broken, err := verifyFaults(ctx, workers, base, options)
	return append(checks, broken...), err
}

func verifyVariants(ctx context.Context, workers int, list []variant, options train.WorkerOptions) ([]Check, error) {
	var checks []Check
	for _, v := range list {
		cfg := verifyConfig()
		v.change(&cfg)
		options.Build = v.build
		diff, moved, err := compare(ctx, cfg, workers, nil, options)
		if err != nil {
			return checks, fmt.Errorf("verify %s: %w", v.name, err)
		}
		checks = append(checks, Check{
			Name: fmt.Sprintf("%d workers equal 1 worker with a %d-fold batch: %s", workers, workers, v.name),
			OK:   diff <= v.tolerance && moved >= leastMove, Value: diff, Limit: v.tolerance,
			Detail: fmt.Sprintf("largest relative difference of a parameter after %d steps, in which each moved by at least %.2g of its norm", verifySteps, moved),
		})
	}
	return checks, nil
}

// verifyFaults uses SGD: Adam divides a common factor of all gradients out, so
// that a sum in place of the mean would hardly show.
func verifyFaults(ctx context.Context, workers int, base func(c *train.Config), options train.WorkerOptions) ([]Check, error) {
	cfg := verifyConfig()
	base(&cfg)
	limit := toleranceFloat64
	if cfg.Engine.Precision != "fp64" {
		limit = toleranceFloat32
	}
	norms := cfg
	normed(&norms)
	var checks []Check
	for _, m := range []struct {
		name string
		f    fault
		cfg  train.Config
	}{
		{"a sum in place of the mean", sumForMean, cfg},
		{"a bucket that is not reduced", skipBucket, cfg},
		{"equal shards on all ranks", equalShards, cfg},
		{"batch norms that do not exchange their statistics", ownNorms, norms},
	} {
		diff, _, err := compare(ctx, m.cfg, workers, m.f, options)
		if err != nil {
			return checks, fmt.Errorf("verify that %s is noticed: %w", m.name, err)
		}
		checks = append(checks, Check{
			Name: m.name + " is noticed", OK: !(diff <= limit), Value: diff, Limit: limit,
			Detail: "the same comparison with this fault must exceed the tolerance",
		})
	}
	return checks, nil
}

// compare is the largest relative difference (2-norm) of a parameter between
// one worker with the whole batch and workers with a part each, and the least
// relative distance that a parameter went.
func compare(ctx context.Context, cfg train.Config, workers int, f fault, options train.WorkerOptions) (diff, moved float64, err error) {
	whole := cfg
	whole.Batch = cfg.Batch * workers
	one, err := replicas(ctx, whole, 1, nil, options)
	if err != nil {
		return 0, 0, err
	}
	many, err := replicas(ctx, cfg, workers, f, options)
	if err != nil {
		return 0, 0, err
	}
	moved = math.Inf(1)
	for name, w := range one[0].after {
		moved = min(moved, distance(one[0].before[name], w))
		for _, got := range many { // every rank's parameters, not only rank 0's
			if d := distance(w, got.after[name]); !(d <= diff) { // NaN counts as different
				diff = d
			}
		}
	}
	return diff, moved, nil
}

// distance is ‖a−b‖₂/‖a‖₂.
func distance(a, b []float64) float64 {
	var d, n float64
	for i := range a {
		d += (a[i] - b[i]) * (a[i] - b[i])
		n += a[i] * a[i]
	}
	return math.Sqrt(d / n)
}

// replicated is a rank's parameters by name, before and after training.
type replicated struct{ before, after map[string][]float64 }

// replicas trains verifySteps steps with a goroutine per rank, and returns
// each rank's parameters.
func replicas(ctx context.Context, cfg train.Config, workers int, f fault, options train.WorkerOptions) ([]replicated, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	groups := collective.InProcess(workers)
	params := make([]replicated, workers)
	var wg sync.WaitGroup
	for rank, g := range groups {
		wg.Go(func() {
			options := options
			options.LocalRank = rank
			var err error
			if params[rank], err = replica(ctx, cfg, g, f, options); err != nil {
				cancel(fmt.Errorf("rank %d: %w", rank, err))
			}
		})
	}
	wg.Wait()
	return params, context.Cause(ctx)
}

func replica(ctx context.Context, cfg train.Config, g collective.Group, f fault, options train.WorkerOptions) (r replicated, err error) {
	if f != nil {
		f(&options)
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
	if err := enliven(t); err != nil {
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

// enliven scales the initial weights from PyTorch's default, whose signal
// fades from layer to layer without batch norm, to He's variance of 2/fan-in
// (He et al. 2015, eq. 10), six times as large: every layer learns then.
func enliven(t *train.Trainer) error {
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
