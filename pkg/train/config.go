package train

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"lockstep/pkg/collective"
	"lockstep/pkg/collective/rendezvous"
	"lockstep/pkg/data"
	"lockstep/pkg/engine"
	"lockstep/pkg/internal/buildid"
	"lockstep/pkg/internal/clean"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/internal/strictyaml"
	"lockstep/pkg/model"
	"lockstep/pkg/optim"
	"lockstep/pkg/runs"
	"lockstep/pkg/strategy"
)

// Config is the complete configuration of a run. run.json records it.
type Config struct {
	Name       string           `yaml:"name" json:"name"`
	Model      ModelConfig      `yaml:"model" json:"model"`
	Data       DataConfig       `yaml:"data" json:"data"`
	Batch      int              `yaml:"batch" json:"batch"`           // samples per worker and pass
	Accumulate int              `yaml:"accumulate" json:"accumulate"` // batches per optimizer step, whose gradients are added up; 0: 1
	Epochs     int              `yaml:"epochs" json:"epochs"`
	Seed       int64            `yaml:"seed" json:"seed"` // random seed for initial weights, sample order and augmentation
	Optimizer  optim.Config     `yaml:"optimizer" json:"optimizer"`
	Schedule   optim.Schedule   `yaml:"schedule" json:"schedule"`
	EMA        AverageConfig    `yaml:"ema" json:"ema"`
	Engine     engine.Options   `yaml:"engine" json:"engine"`
	Loader     LoaderConfig     `yaml:"loader" json:"loader"`
	BucketMiB  float64          `yaml:"bucket_mib" json:"bucket_mib"` // largest size of a gradient bucket
	Recompute  bool             `yaml:"recompute" json:"recompute"`   // recompute activations in the backward pass: needs less memory, computes the same bits
	Checkpoint CheckpointConfig `yaml:"checkpoint" json:"checkpoint"`
	// SyncBatchNorm makes batch norms use the statistics of the global batch, like
	// torch.nn.SyncBatchNorm, so that N workers compute the same as one worker with an N-fold
	// batch. Each batch norm then needs one exchange in the forward pass and one in the backward
	// pass.
	SyncBatchNorm bool `yaml:"sync_batchnorm" json:"sync_batchnorm"`
	// Strategy selects how workers exchange gradients or parameters, with options; see
	// strategy.Kinds. The zero value is strategy.NameDDP, which run.json omits.
	Strategy strategy.Config `yaml:"strategy,omitempty" json:"strategy,omitzero"`
	// TimeoutJoin is how long the workers wait for each other at the start, such as 30s or 5m.
	// Empty means rendezvous.DefaultTimeout. Increase it if a cluster's nodes start at different
	// times.
	TimeoutJoin string `yaml:"timeout_join,omitempty" json:"timeout_join,omitempty"`
	// TimeoutCollective is how long a worker waits for a stopped or slow worker in one exchange,
	// such as 30s or 5m. Empty means collective.DefaultTimeout. The end of a worker process is
	// detected at once, and the loss of its machine within 10 s.
	TimeoutCollective string `yaml:"timeout_collective,omitempty" json:"timeout_collective,omitempty"`
}

// ModelConfig describes the network. The sizes of its input come from the data.
type ModelConfig = model.Config

// DataConfig describes where the samples come from, and how images are cut into tiles.
type DataConfig = data.Config

// LoaderDevice is the loader that keeps the training set in GPU memory; training fails if it does
// not fit. On another engine, it means data.LoaderInMem.
const LoaderDevice = "device"

// LoaderConfig describes how batches are loaded.
type LoaderConfig struct {
	Kind     string   `yaml:"kind,omitempty" json:"kind,omitempty"`   // "lowmem" (also when empty), "inmem", "synthetic" or "device"
	Workers  int      `yaml:"workers" json:"workers"`                 // loading goroutines per training worker; 0: load within the step
	Prefetch int      `yaml:"prefetch" json:"prefetch"`               // number of batches loaded ahead
	Order    []string `yaml:"order,omitempty" json:"order,omitempty"` // order of the loader's stages, see data.LoaderOptions; empty: the default order
	// DeviceMiB is the largest size, in MiB, of an 8-bit training set that is copied to the GPU's
	// memory. The GPU then crops, rotates and normalizes samples, with bitwise the same results as
	// the CPU. Other training sets are loaded batch by batch. If it is 0, all training sets are.
	DeviceMiB float64 `yaml:"device_mib" json:"device_mib"`
}

// CheckpointConfig describes when rank 0 saves checkpoints, and how many are kept.
type CheckpointConfig struct {
	Every      int `yaml:"every" json:"every"`             // epochs between two checkpoints; the last epoch is always saved
	EverySteps int `yaml:"every_steps" json:"every_steps"` // optimizer steps between two checkpoints within an epoch; 0: none
	Keep       int `yaml:"keep" json:"keep"`               // number of newest end-of-epoch checkpoints to keep; 0: all; with 1, none is left if it is damaged
}

// DefaultConfig returns the config of a small U-Net on generated images of cells.
func DefaultConfig() Config {
	return Config{
		Name:       "unet2d-cells",
		Model:      model.Config{Kind: model.KindUNet2D, Base: 8, Depth: 3, Norm: "batch"},
		Data:       DataConfig{Kind: "cells", Count: 40, Height: 128, Width: 128, DataSeed: 1, TestImages: 8},
		Batch:      4,
		Accumulate: 1,
		Epochs:     5,
		Seed:       1,
		Optimizer:  optim.DefaultConfig(),
		Engine:     engine.DefaultOptions(),
		Loader:     LoaderConfig{Workers: 1, Prefetch: 2, DeviceMiB: 1024},
		BucketMiB:  25,
		Checkpoint: CheckpointConfig{Every: 1, Keep: 2},
	}
}

var validNamePattern = regexp.MustCompile(`^([\pL\pN][\pL\pN ._+-]*)?$`)

// Validate returns an error for the first invalid value, with a valid value to use instead.
func (c Config) Validate() error {
	bad := func(format string, a ...any) error {
		return fmt.Errorf("validate config %s: "+format, append([]any{clean.EscapeText(c.Name)}, a...)...)
	}
	if !validNamePattern.MatchString(c.Name) {
		return fmt.Errorf("validate config: name is %q, but it must be usable as the name of a folder: use letters, digits, spaces and . _ + -, and begin with a letter or digit", c.Name)
	}
	if err := c.Model.Validate(); err != nil {
		return bad("%w", err)
	}
	switch {
	case c.Batch < 1:
		return bad("batch is %d: use at least 1 image per worker", c.Batch)
	case c.Accumulate < 0:
		return bad("accumulate is %d: use the number of batches per optimizer step", c.Accumulate)
	case c.Seed < 0:
		return bad("seed is %d: use a whole number from 0", c.Seed)
	case c.Epochs < 1:
		return bad("epochs is %d: use at least 1", c.Epochs)
	case !(c.BucketMiB > 0):
		return bad("bucket_mib is %g: use more than 0", c.BucketMiB)
	case !(c.Loader.DeviceMiB >= 0) || c.Loader.DeviceMiB > 1<<30:
		return bad("loader.device_mib is %g: use the MiB of a GPU's memory that the training set may take, or 0 to load each batch", c.Loader.DeviceMiB)
	case c.Loader.Kind == LoaderDevice && c.Loader.DeviceMiB == 0:
		return bad("loader.kind is device, but loader.device_mib is 0: use the MiB of the GPU's memory that the training set may take")
	case c.Checkpoint.Every < 1 || c.Checkpoint.EverySteps < 0 || c.Checkpoint.Keep < 0:
		return bad("checkpoint.every is %d, every_steps %d and keep %d: use at least 1, 0 and 0", c.Checkpoint.Every, c.Checkpoint.EverySteps, c.Checkpoint.Keep)
	}
	for _, t := range []struct{ key, value string }{{"timeout_join", c.TimeoutJoin}, {"timeout_collective", c.TimeoutCollective}} {
		if d, err := time.ParseDuration(t.value); t.value != "" && (err != nil || d <= 0) {
			return bad("%s is %q: use a positive duration, such as 30s or 5m", t.key, t.value)
		}
	}
	if err := c.Strategy.Validate(); err != nil {
		return bad("%w", err)
	}
	if err := c.Strategy.CheckEngine(c.Engine); err != nil {
		return bad("%w", err)
	}
	if c.EMA.Decay != 0 && c.Strategy.ReplicasDiffer() {
		return bad("ema.decay is %g, but with strategy %s the workers' parameters differ within an epoch: use ema.decay=0", c.EMA.Decay, c.Strategy)
	}
	if n, rule := c.Optimizer.ClipNorm, c.Optimizer.Name; c.Strategy.IsAsynchronous() && c.Strategy.Servers > 1 && (n != 0 || rule == optim.RuleLARS || rule == optim.RuleLAMB) {
		return bad("optimizer %s with clip_norm %g needs norms over all servers, but with strategy %s each server updates at other times: use strategy.servers=1", rule, n, c.Strategy)
	}
	switch {
	case c.Strategy.Staged() && c.SyncBatchNorm:
		return bad("sync_batchnorm is true, but with strategy %s there is only one replica of each batch norm: use sync_batchnorm=false", c.Strategy)
	case c.Strategy.Staged() && c.Recompute:
		return bad("recompute is true, but strategy %s keeps the activations between the two passes of a micro-batch: use recompute=false", c.Strategy)
	}
	if c.Checkpoint.EverySteps > 0 && c.Strategy.IsAsynchronous() {
		return bad("checkpoint.every_steps is %d, but with strategy %s the workers are in different steps within an epoch: use checkpoint.every_steps=0", c.Checkpoint.EverySteps, c.Strategy)
	}
	if err := checkExactIntegers(reflect.ValueOf(c), ""); err != nil {
		return bad("%w", err)
	}
	if name, value := c.Data.Augment.CPUOption(); name != "" {
		if _, cuda := c.Engine.CUDA(); cuda {
			return bad("data.augment.%s is %g, but engine.device is %s, and a GPU cannot apply it: use data.augment.%s=0, or engine.device=cpu", name, value, c.Engine.Device, name)
		}
	}
	for _, v := range []interface{ Validate() error }{c.Data, c.LoaderOptions(), c.Optimizer, c.Schedule, c.EMA, c.Engine} {
		if err := v.Validate(); err != nil {
			return bad("%w", err)
		}
	}
	return nil
}

// LoaderOptions returns the options of the loader of training batches.
func (c Config) LoaderOptions() data.LoaderOptions {
	l := c.Loader
	if l.Kind == LoaderDevice {
		l.Kind = data.LoaderInMem
	}
	return data.LoaderOptions{Kind: l.Kind, Workers: l.Workers, Prefetch: l.Prefetch, Order: l.Order, Augment: c.Data.Augment, Seed: c.Seed, IgnoreOutside: c.Data.NetworkClasses() > 0}
}

// SamplerOptions returns the options of a rank's sampler. samples is the size of the training set,
// and world the number of ranks.
func (c Config) SamplerOptions(samples, world, rank int) data.SamplerOptions {
	return data.SamplerOptions{
		Samples: samples, World: world, Rank: rank,
		BatchPerWorker: c.Batch, Seed: c.Seed, Shuffle: true, DropLast: c.Data.DropLast,
	}
}

// LoweringOptions returns the options for compiling the network into a program.
func (c Config) LoweringOptions() plan.Options {
	return plan.Options{Fuse: c.Engine.Fuse, BucketBytes: c.Strategy.BucketBytes(int(c.BucketMiB * (1 << 20))), Recompute: c.Recompute, SyncBatchNorm: c.SyncBatchNorm}
}

// JoinOptions returns the options with which a worker joins the run, including the options of its
// group.
func (c Config) JoinOptions() rendezvous.Options {
	// Empty means 0, the default; Validate rejects all other invalid values.
	join, _ := time.ParseDuration(c.TimeoutJoin)
	exchange, _ := time.ParseDuration(c.TimeoutCollective)
	return rendezvous.Options{
		BuildID: buildid.ID, Timeout: join, Advice: "if ranks start later than that, raise timeout_join (--timeout-join)",
		Group: collective.Options{Timeout: exchange},
	}
}

// batchesPerStep returns the number of batches per optimizer step.
func (c Config) batchesPerStep() int { return max(1, c.Accumulate) }

func (c Config) strategyName() string { return cmp.Or(c.Strategy.Name, strategy.NameDDP) }

// runFolder returns the default run folder of a run with the given number of workers.
func (c Config) runFolder(workers int) string {
	return fmt.Sprintf("logs/%s/%s-n%d-s%d", c.Name, c.strategyName(), workers, c.Seed)
}

// With returns a validated copy of c with the given overrides, each of the form "key=value".
func (c Config) With(overrides ...string) (Config, error) {
	c, err := c.applyOverrides(overrides)
	if err != nil {
		return Config{}, err
	}
	if err := c.Validate(); err != nil {
		return Config{}, err
	}
	return c, nil
}

// applyOverrides is like With, but does not validate. It sets model.kind and the strategy's name
// first, because these reset the model's other fields and the strategy's options.
func (c Config) applyOverrides(overrides []string) (Config, error) {
	setsKind := func(o string) bool {
		key, _, _ := strings.Cut(o, "=")
		return key == "model.kind" || key == "strategy" || key == "strategy.name"
	}
	ordered := slices.DeleteFunc(slices.Clone(overrides), func(o string) bool { return !setsKind(o) })
	ordered = append(ordered, slices.DeleteFunc(slices.Clone(overrides), setsKind)...)
	for _, o := range ordered {
		if err := strictyaml.SetField(&c, o, func() any { return defaultsForModel(c.Model.Kind) }); err != nil {
			return Config{}, fmt.Errorf("set %q: %w", o, err)
		}
	}
	return c, nil
}

// ConfigOf returns the validated config in info, the content of run.json. It ignores strategy
// options that Lockstep no longer has.
func ConfigOf(info runs.Info) (Config, error) {
	doc := info.Config
	var removed *strategy.RemovedOptionError
	if s, err := StrategyOf(doc); errors.As(err, &removed) {
		doc = maps.Clone(doc)
		doc["strategy"] = s
	}
	text, err := json.Marshal(doc)
	if err != nil {
		return Config{}, err
	}
	var c Config
	if err := json.Unmarshal(text, &c); err != nil {
		return c, fmt.Errorf("read config of run.json: %w", err)
	}
	if c.Data.Kind == data.KindPairs && c.Data.Reading == 0 {
		c.Data.Reading = data.ReadingGray // the run is older than the setting
	}
	return c, c.Validate()
}

// ForData returns c with the settings that the data determine, for both the network and the data.
func (c Config) ForData() (Config, error) {
	c.Data.SideMultiple = c.Model.SideMultiple()
	if c.Data.Kind != data.KindPairs || c.Model.Kind != model.KindUNet2D {
		return c, nil
	}
	classes := c.Data.NetworkClasses()
	if n := c.Model.Classes; n != 0 && n != classes {
		if classes == 0 {
			return c, fmt.Errorf("model.classes is %d, but the masks have two classes, for which the network has one output: leave model.classes out, or name the classes in data.mask_values", n)
		}
		return c, fmt.Errorf("model.classes is %d, but data.mask_values names %d classes (%s): leave model.classes out", n, classes, strings.Join(c.Data.MaskClasses(), ", "))
	}
	c.Model.Classes = classes
	return c, nil
}

// defaultsForModel returns the default config for a model of the given kind. The sizes of the
// network are zero unless it is the default kind.
func defaultsForModel(kind string) Config {
	c := DefaultConfig()
	if c.Model.Kind != kind {
		c.Model = ModelConfig{Kind: kind}
	}
	return c
}

// maxExactInteger is 2^53. All integers up to it are represented exactly by a float64, and thus by
// every JSON reader.
const maxExactInteger = 1 << 53

// checkExactIntegers returns an error if v contains an integer that run.json cannot represent
// exactly. A run with such an integer could not be resumed or verified. key is the path of v in the
// config.
func checkExactIntegers(v reflect.Value, key string) error {
	switch {
	case v.CanInt():
		if n := v.Int(); n > maxExactInteger || n < -maxExactInteger {
			return fmt.Errorf("%s is %d, but run.json represents integers exactly only up to 2^53: use at most %d", key, n, int64(maxExactInteger))
		}
	case v.Kind() == reflect.Pointer && !v.IsNil():
		return checkExactIntegers(v.Elem(), key)
	case v.Kind() == reflect.Slice:
		for i := range v.Len() {
			if err := checkExactIntegers(v.Index(i), fmt.Sprintf("%s[%d]", key, i)); err != nil {
				return err
			}
		}
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() {
				if err := checkExactIntegers(v.Field(i), strings.TrimPrefix(key+"."+strictyaml.FieldKey(f), ".")); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
