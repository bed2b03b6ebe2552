package train

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"

	"gorgonia.org/gorgonia"

	"lockstep/pkg/collective"
	"lockstep/pkg/data"
	"lockstep/pkg/engine"
	"lockstep/pkg/model"
	"lockstep/pkg/nn"
	"lockstep/pkg/optim"
	"lockstep/pkg/strategy"
)

// Check is one claim that was tested.
type Check struct {
	Name   string  `json:"name"`
	OK     bool    `json:"ok"`
	Value  float64 `json:"value"` // the number found, NaN where the claim is not a number
	Limit  float64 `json:"limit"` // what it is compared with
	Detail string  `json:"detail"`
}

// String is the check as a line: ok or FAILED, the claim, and what was found.
func (c Check) String() string {
	line := "ok     "
	if !c.OK {
		line = "FAILED "
	}
	line += c.Name
	if !math.IsNaN(c.Value) {
		line += fmt.Sprintf(": %.4g (limit %.4g)", c.Value, c.Limit)
	}
	return line + "; " + c.Detail
}

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

// verifyConfig is small and has everything but batch norm in it, which is part of
// the invariant where it is synchronised alone: see normed.
func verifyConfig() Config {
	c := DefaultConfig()
	c.Name = "verify-dp"
	c.Model = ModelConfig{Kind: "unet2d", Base: 4, Depth: 2, Norm: "none", Bias: true}
	c.Data.Count, c.Data.Height, c.Data.Width, c.Data.TestImages = 25, 32, 32, 1
	c.Data.Augment.Flip, c.Data.Augment.Rotate = true, true
	c.Batch = 2
	c.BucketMiB = 0.01 // several buckets even in a small network
	return c
}

// variant is a way to train, and how far the two sides may differ.
type variant struct {
	name      string
	tolerance float64
	change    func(c *Config)
	build     model.Builder // of a network of its own; nil: the config's
}

// variants are those that VerifyDP compares.
func variants() []variant {
	exact := func(rule string, rate float64, more func(c *Config)) func(c *Config) {
		return func(c *Config) {
			c.Engine.Device, c.Engine.Precision = "reference", "fp64"
			c.Optimizer.Name, c.Optimizer.LearningRate = rule, rate
			if more != nil {
				more(c)
			}
		}
	}
	heavy := func(c *Config) { c.Optimizer.Momentum = 0.9 }
	return []variant{
		{"SGD with momentum, float64 reference engine", toleranceFloat64, exact("sgd", 0.05, heavy), nil},
		{"Adam, float64 reference engine", toleranceFloat64, exact("adam", optim.DefaultConfig().LearningRate, nil), nil},
		{"SGD with momentum, float32 CPU engine", toleranceFloat32, func(c *Config) {
			c.Engine.Device, c.Engine.Precision = "cpu", "fp32"
			c.Optimizer.Name, c.Optimizer.LearningRate, c.Optimizer.Momentum = "sgd", 0.05, 0.9
		}, nil},
		{"Nesterov's momentum, clipped gradients of 2 accumulated batches, averaged parameters, float64 reference engine", toleranceFloat64, exact("sgd", 0.05, func(c *Config) {
			c.Optimizer.Momentum, c.Optimizer.Nesterov, c.Optimizer.ClipNorm = 0.9, true, 0.5
			c.Accumulate, c.EMA.Decay = 2, 0.9
		}), nil},
		{"AdamW on soft Dice and BCE, float64 reference engine", toleranceFloat64, exact("adamw", 1e-3, func(c *Config) {
			c.Optimizer.WeightDecay, c.Model.Dice = 0.01, 0.5
		}), nil},
		{"LARS, float64 reference engine", toleranceFloat64, exact("lars", 1, func(c *Config) {
			c.Optimizer.Momentum, c.Optimizer.WeightDecay, c.Optimizer.Trust = 0.9, 1e-4, 0.01
		}), nil},
		{"LAMB, float64 reference engine", toleranceFloat64, exact("lamb", 0.01, func(c *Config) { c.Optimizer.WeightDecay = 0.01 }), nil},
		{"classes with smoothed labels, float64 reference engine", toleranceFloat64, exact("sgd", 0.05, func(c *Config) {
			c.Optimizer.Momentum = 0.9
			c.Data = labelled()
		}), smoothed},
		{"volumes, float64 reference engine", toleranceFloat64, exact("sgd", 0.05, func(c *Config) {
			c.Model = ModelConfig{Kind: model.KindUNet3D, Base: 2, Depth: 2}
			c.Data = DataConfig{Kind: data.KindFields, Count: 2, Edge: 12, TestImages: 1, Samples: 24, TestSamples: 1, Augment: data.Augment{Rotate: true, Crop: 8}}
		}), nil},
		{"synchronised batch norm, SGD with momentum, float64 reference engine", toleranceFloat64, exact("sgd", 0.05, func(c *Config) {
			normed(c)
			c.Optimizer.Momentum = 0.9
		}), nil},
		{"synchronised batch norm, Adam on 2 accumulated batches, activations recomputed, float64 reference engine", toleranceFloat64, exact("adam", optim.DefaultConfig().LearningRate, func(c *Config) {
			normed(c)
			c.Accumulate, c.Recompute = 2, true
		}), nil},
		{"synchronised batch norm, SGD with momentum, float32 CPU engine", toleranceFloat32, func(c *Config) {
			c.Engine.Device, c.Engine.Precision = "cpu", "fp32"
			c.Optimizer.Name, c.Optimizer.LearningRate, c.Optimizer.Momentum = "sgd", 0.05, 0.9
			c.Data, c.SyncBatchNorm = labelled(), true
		}, smooth},
	}
}

// faulty is what VerifyDP breaks.
func faulty(c *Config) {
	c.Engine.Device, c.Engine.Precision = "reference", "fp64"
	c.Optimizer.Name, c.Optimizer.LearningRate, c.Optimizer.Momentum = "sgd", 0.05, 0.9
}

// normed gives c's network synchronised batch norms.
func normed(c *Config) { c.Model.Norm, c.Model.Bias, c.SyncBatchNorm = "batch", false, true }

// labelled are data for a classifier.
func labelled() DataConfig {
	return DataConfig{Kind: data.KindShapes, Count: 25, Edge: 16, Classes: 4, TestImages: 1, Augment: data.Augment{Flip: true}}
}

// smooth is a small classifier with batch norm whose gradient has no jumps: those
// of a ReLU and of a maximum turn the last bit of a float32 activation, once in a
// while, into a difference of the whole gradient of an element, which batch norm
// spreads. In float64 such a tie does not come up.
func smooth(g *nn.Graph, image *gorgonia.Node) *gorgonia.Node {
	x := image
	for i, channels := range []int{6, 12} {
		name := fmt.Sprint("block", i)
		x = g.Conv(name+".conv", x, nn.Convolution{Out: channels, Kernel: []int{3}, Pad: []int{1}})
		x = g.AvgPool(g.Tanh(g.BatchNorm(name+".norm", x)), nn.Pool{Kernel: []int{2}})
	}
	z := g.Linear("head", g.GlobalAvgPool(x), nn.Dense{Out: 4, Bias: true})
	g.SetLoss(g.SoftmaxCrossEntropy(z, g.Inputs()[1].Node, 0))
	return z
}

// smoothed is a small classifier without batch norm.
func smoothed(g *nn.Graph, image *gorgonia.Node) *gorgonia.Node {
	x := g.ReLU(g.Conv("conv", image, nn.Convolution{Out: 6, Kernel: []int{3}, Pad: []int{1}, Bias: true}))
	z := g.Linear("head", g.GlobalAvgPool(x), nn.Dense{Out: 4, Bias: true})
	g.SetLoss(g.SoftmaxCrossEntropy(z, g.Inputs()[1].Node, 0.1))
	return z
}

// VerifyDP trains the same network with 1 worker and an N-fold batch and with
// N workers, in this process, and compares the parameters after 20 steps; then
// it breaks the exchange in four ways and shows that each is noticed. The
// checks of a broken exchange are OK when the difference is above the limit.
func VerifyDP(ctx context.Context, workers int) ([]Check, error) {
	return verifyOn(ctx, workers, variants(), faulty, Place{})
}

// VerifyDPOn is VerifyDP on a GPU ("cuda", or "cuda:1" for all workers on that one), in
// fp32 without TF32. The workers exchange as those of a run do: by NCCL where each has a
// GPU, else through the host, as do all that are broken on purpose.
func VerifyDPOn(ctx context.Context, workers int, device string) ([]Check, error) {
	o := engine.Options{Device: device}
	if _, gpu := o.CUDA(); !gpu {
		return nil, fmt.Errorf("verify data parallelism: device %q is no GPU: use cuda, or leave it out for the CPU", device)
	}
	return verifyOn(ctx, workers, variantsOnGPU(device), onGPU32(device), Place{})
}

// verifyOn compares the ways to train, and breaks the one that base makes.
func verifyOn(ctx context.Context, workers int, list []variant, base func(c *Config), place Place) ([]Check, error) {
	if workers < 2 {
		return nil, fmt.Errorf("verify data parallelism: workers is %d: use at least 2", workers)
	}
	checks, err := verifyVariants(ctx, workers, list, place)
	if err != nil {
		return checks, err
	}
	broken, err := verifyFaults(ctx, workers, base, place)
	return append(checks, broken...), err
}

// onGPU32 has SGD compute in fp32 on a GPU, with cuDNN's first suggestions, which are the
// same for every worker, and small images: nothing of this is about speed.
func onGPU32(device string) func(c *Config) {
	return func(c *Config) {
		c.Engine.Device, c.Engine.Precision, c.Engine.TF32, c.Engine.Convolution = device, "fp32", false, "heuristic"
		c.Data.Height, c.Data.Width = 16, 16
		c.Optimizer.Name, c.Optimizer.LearningRate, c.Optimizer.Momentum = "sgd", 0.05, 0.9
	}
}

// variantsOnGPU are those that VerifyDPOn compares.
func variantsOnGPU(device string) []variant {
	on := func(more func(c *Config)) func(c *Config) {
		return func(c *Config) {
			onGPU32(device)(c)
			more(c)
		}
	}
	return []variant{
		{"SGD with momentum, float32 on the GPU", toleranceFloat32, onGPU32(device), nil},
		{"Nesterov's momentum, clipped gradients of 2 accumulated batches, float32 on the GPU", toleranceFloat32, on(func(c *Config) {
			c.Optimizer.Nesterov, c.Optimizer.ClipNorm, c.Accumulate = true, 0.5, 2
		}), nil},
		{"synchronised batch norm, float32 on the GPU", toleranceFloat32, on(func(c *Config) { c.Data, c.SyncBatchNorm = labelled(), true }), smooth},
		{"synchronised batch norm of 2 accumulated batches, activations recomputed, float32 on the GPU", toleranceFloat32, on(func(c *Config) {
			c.Data, c.SyncBatchNorm, c.Accumulate, c.Recompute = labelled(), true, 2, true
		}), smooth},
	}
}

func verifyVariants(ctx context.Context, workers int, list []variant, place Place) ([]Check, error) {
	var checks []Check
	for _, v := range list {
		cfg := verifyConfig()
		v.change(&cfg)
		place.Build = v.build
		diff, moved, err := compare(ctx, cfg, workers, fault{}, place)
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
func verifyFaults(ctx context.Context, workers int, base func(c *Config), place Place) ([]Check, error) {
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
		cfg  Config
	}{
		{"a sum in place of the mean", fault{sync: strategy.FaultSumForMean}, cfg},
		{"a bucket that is not reduced", fault{sync: strategy.FaultSkipBucket}, cfg},
		{"equal shards on all ranks", fault{equalShards: true}, cfg},
		{"batch norms that do not exchange their statistics", fault{sync: strategy.FaultOwnNorms}, norms},
	} {
		diff, _, err := compare(ctx, m.cfg, workers, m.f, place)
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
func compare(ctx context.Context, cfg Config, workers int, f fault, place Place) (diff, moved float64, err error) {
	whole := cfg
	whole.Batch = cfg.Batch * workers
	one, err := replicas(ctx, whole, 1, fault{}, place)
	if err != nil {
		return 0, 0, err
	}
	many, err := replicas(ctx, cfg, workers, f, place)
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
func replicas(ctx context.Context, cfg Config, workers int, f fault, place Place) ([]replicated, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	groups := collective.InProcess(workers)
	params := make([]replicated, workers)
	var wg sync.WaitGroup
	for rank, g := range groups {
		wg.Go(func() {
			place := place
			place.LocalRank = rank
			var err error
			if params[rank], err = replica(ctx, cfg, g, f, place); err != nil {
				cancel(fmt.Errorf("rank %d: %w", rank, err))
			}
		})
	}
	wg.Wait()
	return params, context.Cause(ctx)
}

func replica(ctx context.Context, cfg Config, g collective.Group, f fault, place Place) (r replicated, err error) {
	t, err := newTrainer(ctx, cfg, g, place, f)
	if err != nil {
		return r, err
	}
	defer func() {
		if cerr := t.Close(); err == nil {
			err = cerr
		}
	}()
	if err := t.enliven(); err != nil {
		return r, err
	}
	if r.before, err = t.parameters(); err != nil {
		return r, err
	}
	for t.step < verifySteps {
		if err := t.someSteps(ctx, verifySteps); err != nil {
			return r, err
		}
	}
	r.after, err = t.parameters()
	return r, err
}

// enliven scales the initial weights from PyTorch's default, whose signal
// fades from layer to layer without batch norm, to He's variance of 2/fan-in
// (He et al. 2015, eq. 10), six times as large: every layer learns then.
func (t *Trainer) enliven() error {
	params, err := t.parameters()
	if err != nil {
		return err
	}
	for name, v := range params {
		for i := range v {
			v[i] *= math.Sqrt(6)
		}
		if of, averaged := strings.CutPrefix(name, averagePrefix); averaged {
			t.average.values[of] = v
			continue
		}
		if err := t.train.Set(name, v); err != nil {
			return err
		}
	}
	return nil
}

// parameters are the parameters by name, and what is averaged of them.
func (t *Trainer) parameters() (map[string][]float64, error) {
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

// someSteps does the steps of the next epoch, up to limit steps in all.
func (t *Trainer) someSteps(ctx context.Context, limit int) error {
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
