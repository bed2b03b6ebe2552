package strategy

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"lockstep/pkg/engine"
	"lockstep/pkg/internal/nearest"
	"lockstep/pkg/internal/strictyaml"
	"lockstep/pkg/strategy/stage"
)

// Config selects a strategy and its options. In YAML and in run.json it is the strategy's name,
// or the name with options:
//
//	strategy: ddp
//	strategy: {name: local_sgd, steps: 4}
//
// For an option that is zero, the default is used. It is an error to set an option that the
// strategy does not have.
type Config struct {
	Name string `yaml:"name" json:"name"` // one of Names; empty: NameDDP

	// BroadcastBuffers (ddp) copies rank 0's running statistics of batch norms to all ranks before
	// each batch, as PyTorch's DDP does by default. This does not change the results: the running
	// statistics do not affect training, and evaluations always use those of rank 0.
	BroadcastBuffers bool `yaml:"broadcast_buffers,omitempty" json:"broadcast_buffers"`
	// NoCommunication (ddp) leaves out every exchange of gradients and statistics, to measure the
	// cost of the exchange. Each worker then trains its own network on its shard of the data, so
	// only the times of such a run are meaningful. They include a wait after each step, in which
	// the trainer synchronizes all workers so that all stop after the same step.
	NoCommunication bool `yaml:"no_communication,omitempty" json:"no_communication"`

	// GradientCompression (ddp) is how the workers compress their gradients before the exchange:
	// fp16 or bf16 (rounded to 16 bits). Empty or none means no compression. Each worker adds what
	// it has not sent to its next gradient.
	GradientCompression string `yaml:"gradient_compression,omitempty" json:"gradient_compression"`

	// Steps (local_sgd) is the number K of optimizer steps between two averages of the parameters,
	// counted from the start of the run. 0 means 8. The parameters are also averaged at the end of
	// each epoch.
	Steps int `yaml:"steps,omitempty" json:"steps"`
	// AverageOptimizer (local_sgd) also averages the optimizer's slots, such as the momentum,
	// whenever the parameters are averaged. Without it, each worker keeps its own slots.
	AverageOptimizer bool `yaml:"average_optimizer,omitempty" json:"average_optimizer"`

	// Servers (paramserver) is the number of parameter servers. They run in the processes of the
	// first workers, and each has an equal part of every bucket. 0 means 1.
	Servers int `yaml:"servers,omitempty" json:"servers"`
	// MaxStaleness (paramserver) is 0 for a synchronous server. Otherwise, the server is
	// asynchronous: it applies each worker's gradient as a separate update as soon as it arrives.
	// MaxStaleness limits a gradient's staleness, which is the number of updates since the worker
	// has read the parameters. With N workers of equal speed, the staleness is about N-1; workers
	// wait for each other if MaxStaleness is less.
	MaxStaleness int `yaml:"max_staleness,omitempty" json:"max_staleness"`

	// Replicas (multiworker) is the number of replicas of the network in each process. 0 means 1.
	Replicas int `yaml:"replicas,omitempty" json:"replicas"`

	// CycleTime (horovod) is the minimum time between two negotiations, in milliseconds. 0 means 1.
	CycleTime float64 `yaml:"cycle_time,omitempty" json:"cycle_time"`
	// FusionThreshold (horovod) is the size in MiB up to which gradients are averaged together. 0
	// means 128. A value below the size of two gradients turns fusion off.
	FusionThreshold float64 `yaml:"fusion_threshold,omitempty" json:"fusion_threshold"`
	// CacheCapacity (horovod) is the number of gradients in the response cache. 0 means 1024.
	CacheCapacity int `yaml:"cache_capacity,omitempty" json:"cache_capacity"`
	// Timeline (horovod) writes Horovod's timeline to the run folder, as trace-horovod.json. A
	// resumed run replaces the file. It grows by a few kilobytes per step.
	Timeline bool `yaml:"timeline,omitempty" json:"timeline"`

	// Schedule (pipeline) is the order in which a stage runs the passes of the micro-batches:
	// stage.GPipe or stage.OneForwardOneBackward. Empty means stage.OneForwardOneBackward.
	Schedule string `yaml:"schedule,omitempty" json:"schedule"`
}

// localSteps returns the number of optimizer steps between two averages of local SGD.
func (c Config) localSteps() int { return cmp.Or(c.Steps, defaultLocalSteps) }

func (c Config) serverCount() int { return cmp.Or(c.Servers, 1) }

func (c Config) pipelineSchedule() string { return cmp.Or(c.Schedule, stage.OneForwardOneBackward) }

// Staged reports whether each worker has one stage of the network, so that all workers
// together are a single replica and train on the same batches. Each worker must load its
// stage with Load.
func (c Config) Staged() bool { return c.Name == NamePipeline }

// ReplicaCount returns the number of replicas of the network in a run with the given number of
// workers. Each replica trains on a separate part of the data.
func (c Config) ReplicaCount(workers int) int {
	if c.Staged() {
		return 1
	}
	return workers
}

// ReplicasDiffer reports whether the parameters of the workers may differ between two steps.
func (c Config) ReplicasDiffer() bool {
	return c.NoCommunication || c.Staged() || c.IsAsynchronous() || c.Name == NameLocalSGD && c.localSteps() > 1
}

// IsAsynchronous reports whether workers may be in different steps at the same time. They then wait
// for each other only at the end of an epoch, so there are no checkpoints within an epoch, and
// repeated runs differ.
func (c Config) IsAsynchronous() bool {
	return c.MaxStaleness > 0 || c.Name == NameAsyncPeer
}

// UpdatesPerStep returns the number of parameter updates per optimizer step of all workers: 1 if an
// update uses the mean of their gradients, else the number of workers. The learning rate must not
// be scaled with the number of workers if each gradient is a separate update.
func (c Config) UpdatesPerStep(workers int) int {
	if c.MaxStaleness > 0 {
		return workers
	}
	return 1
}

// SentBytes returns the mean number of bytes that a worker sends in an optimizer step, according to
// the formula Kind.Bytes. parameterBytes is the size of the parameters. ok is false if the formula
// depends on more than these arguments; the strategy is then a SentEstimator.
func (c Config) SentBytes(workers int, parameterBytes float64) (n float64, ok bool) {
	k, err := c.findKind()
	if err != nil || k.SentBytes == nil || c.Lossy() {
		return 0, false
	}
	return k.SentBytes(c, workers, parameterBytes), true
}

// IsExact reports whether N workers compute the same parameters as one worker with an N-fold batch,
// up to rounding. If NeedsSGD returns true, this holds only for SGD without gradient clipping.
func (c Config) IsExact() bool {
	k, err := c.findKind()
	return err == nil && (k.Exact || c.NeedsSGD()) && !c.Unreal() && !c.IsAsynchronous() && !c.Lossy()
}

// NeedsSGD reports whether the workers average parameters after each step, instead of gradients
// before it. The results are the same only if the update is linear in the gradients, as in SGD.
func (c Config) NeedsSGD() bool { return c.Name == NameLocalSGD && c.localSteps() == 1 }

// Unreal reports whether the losses and scores of a run are meaningless, because its workers do not
// communicate.
func (c Config) Unreal() bool { return c.NoCommunication }

// Lossy reports whether gradient_compression makes the update differ from that of one worker with
// an N-fold batch.
func (c Config) Lossy() bool {
	return c.GradientCompression != "" && c.GradientCompression != noCompression
}

// noCompression is the value of gradient_compression for gradients that are not compressed.
const noCompression = "none"

// compressionMethod returns the value of gradient_compression, or noCompression if it is empty.
func (c Config) compressionMethod() string {
	return cmp.Or(c.GradientCompression, noCompression)
}

// Parse parses a strategy's name, possibly followed by options, such as "local_sgd" or
// "local_sgd:steps=4:average_optimizer=true".
func Parse(text string) (Config, error) {
	name, options, hasOptions := strings.Cut(text, ":")
	if name == "" {
		return Config{}, fmt.Errorf("strategy %q: got no name, want a name, such as %s, possibly followed by options, as in local_sgd:steps=4", text, NameDDP)
	}
	document := fmt.Sprintf("{name: '%s'", strings.ReplaceAll(name, "'", "''"))
	if hasOptions {
		for o := range strings.SplitSeq(options, ":") {
			key, value, ok := strings.Cut(o, "=")
			if !ok || key == "" || value == "" {
				return Config{}, fmt.Errorf("strategy %q: got option %q, want option=value", text, o)
			}
			document += ", " + key + ": " + value
		}
	}
	var c struct{ Strategy Config }
	if err := strictyaml.SetField(&c, "strategy="+document+"}", func() any { return struct{ Strategy Config }{} }); err != nil {
		return Config{}, err
	}
	return c.Strategy, c.Strategy.Validate()
}

// strategyOption is an option of a Config that only some strategies have.
type strategyOption struct {
	name  string // in YAML
	set   bool
	value any // value that is in effect
}

// options returns all options of c.
func (c Config) options() []strategyOption {
	return []strategyOption{
		{"broadcast_buffers", c.BroadcastBuffers, c.BroadcastBuffers},
		{"no_communication", c.NoCommunication, c.NoCommunication},
		{"gradient_compression", c.Lossy(), c.compressionMethod()},
		{"steps", c.Steps != 0, float64(c.localSteps())},
		{"average_optimizer", c.AverageOptimizer, c.AverageOptimizer},
		{"servers", c.Servers != 0, float64(c.serverCount())},
		{"max_staleness", c.MaxStaleness != 0, float64(c.MaxStaleness)},
		{"replicas", c.Replicas != 0, float64(cmp.Or(c.Replicas, 1))},
		{"cycle_time", c.CycleTime != 0, c.cycleMilliseconds()},
		{"fusion_threshold", c.FusionThreshold != 0, c.fusionThresholdMiB()},
		{"cache_capacity", c.CacheCapacity != 0, float64(c.responseCacheCapacity())},
		{"timeline", c.Timeline, c.Timeline},
		{"schedule", c.Schedule != "", c.pipelineSchedule()},
	}
}

// findKind returns the kind of strategy that c.Name selects.
func (c Config) findKind() (Kind, error) {
	name := cmp.Or(c.Name, NameDDP)
	all := Kinds()
	i := slices.IndexFunc(all, func(k Kind) bool { return k.Name == name })
	if i < 0 {
		return Kind{}, fmt.Errorf("unknown strategy %q%s: use one of %s", name, nearest.Hint(name, Names()), strings.Join(Names(), ", "))
	}
	return all[i], nil
}

// Validate returns an error for an unknown strategy or an invalid option. The error lists valid
// values.
func (c Config) Validate() error {
	k, err := c.findKind()
	if err != nil {
		return err
	}
	for _, o := range c.options() {
		if o.set && !slices.Contains(k.Options, o.name) {
			return fmt.Errorf("strategy.%s does not apply to strategy %s: leave it out (%s)", o.name, k.Name, k.listOptions())
		}
	}
	if k.check != nil {
		return k.check(c)
	}
	return nil
}

// listOptions returns the names of the options of this kind of strategy, for error messages.
func (k Kind) listOptions() string {
	if len(k.Options) == 0 {
		return "this strategy has no options"
	}
	return "this strategy has " + strings.Join(k.Options, ", ")
}

// CheckEngine returns an error if the strategy cannot train on the engine that o describes.
func (c Config) CheckEngine(o engine.Options) error {
	if _, gpu := o.CUDA(); gpu && !c.isDefault() {
		return fmt.Errorf("strategy %s on device %s: the strategy has not been tested on a GPU yet: use device cpu or reference, or strategy %s without options", c, o.Device, NameDDP)
	}
	if o.Precision == "fp16" && !c.isDefault() {
		return fmt.Errorf("strategy %s with precision fp16: only strategy %s without options supports loss scaling: use precision fp32 or bf16", c, NameDDP)
	}
	if c.Staged() && o.Precision != "fp32" && o.Precision != "fp64" {
		return fmt.Errorf("strategy %s with precision %s: stages exchange activations in fp32 or fp64 only: use one of these", c, o.Precision)
	}
	return nil
}

// CheckWorkers returns an error if the strategy does not support the given number of workers.
func (c Config) CheckWorkers(workers int) error {
	k, err := c.findKind()
	if err != nil || k.checkWorkers == nil {
		return err
	}
	return k.checkWorkers(c, workers)
}

// isDefault reports whether c is NameDDP without options.
func (c Config) isDefault() bool {
	return cmp.Or(c.Name, NameDDP) == NameDDP && !slices.ContainsFunc(c.options(), func(o strategyOption) bool { return o.set })
}

// IsZero reports whether c is NameDDP without options, which run.json omits.
func (c Config) IsZero() bool { return c.isDefault() }

// String returns the strategy's name and the options that are set, such as "local_sgd steps=4".
func (c Config) String() string {
	text := cmp.Or(c.Name, NameDDP)
	for _, o := range c.options() {
		if o.set {
			text += fmt.Sprintf(" %s=%v", o.name, o.value)
		}
	}
	return text
}

// YAML returns c as a YAML value, such as "zero1" or "{name: local_sgd, steps: 4}".
func (c Config) YAML() string {
	text := "name: " + cmp.Or(c.Name, NameDDP)
	for _, o := range c.options() {
		if o.set {
			text += fmt.Sprintf(", %s: %v", o.name, o.value)
		}
	}
	if name, options, _ := strings.Cut(strings.TrimPrefix(text, "name: "), ","); options == "" {
		return name
	}
	return "{" + text + "}"
}

// Settings returns the name and all options of the strategy, including defaults. The keys are those
// of configs: "strategy", "strategy.steps" and so on. The values have the types that json.Unmarshal
// produces.
func (c Config) Settings() map[string]any {
	settings := map[string]any{"strategy": cmp.Or(c.Name, NameDDP)}
	for name, v := range c.optionValues() {
		settings["strategy."+name] = v
	}
	return settings
}

// optionValues returns the values of the strategy's options, including defaults, by name.
func (c Config) optionValues() map[string]any {
	values := map[string]any{}
	k, err := c.findKind()
	for _, o := range c.options() {
		if err != nil && o.set || slices.Contains(k.Options, o.name) {
			values[o.name] = o.value
		}
	}
	return values
}

// MarshalJSON encodes c as its name if it is NameDDP without options, or if the strategy has no
// options. Otherwise it encodes an object with the values of all options, including defaults.
func (c Config) MarshalJSON() ([]byte, error) {
	values := c.optionValues()
	if c.isDefault() || len(values) == 0 {
		return json.Marshal(cmp.Or(c.Name, NameDDP))
	}
	values["name"] = cmp.Or(c.Name, NameDDP)
	return json.Marshal(values)
}

// UnmarshalJSON decodes a name, or an object with a name and options. If it finds an option that
// Lockstep no longer has, it decodes the others and returns a *RemovedOptionError.
func (c *Config) UnmarshalJSON(text []byte) error {
	if strings.HasPrefix(strings.TrimSpace(string(text)), `"`) {
		*c = Config{}
		return json.Unmarshal(text, &c.Name)
	}
	type plain Config
	recorded := struct {
		*plain
		BackupWorkers int `json:"backup_workers"`
	}{plain: (*plain)(c)}
	if err := json.Unmarshal(text, &recorded); err != nil {
		return err
	}
	if n := recorded.BackupWorkers; n > 0 {
		return &RemovedOptionError{fmt.Sprintf("strategy.backup_workers=%d", n)}
	}
	if method := c.GradientCompression; strings.HasPrefix(method, "topk") || strings.HasPrefix(method, "powersgd") {
		c.GradientCompression = ""
		return &RemovedOptionError{"strategy.gradient_compression=" + method}
	}
	return nil
}

// RemovedOptionError reports that a strategy in run.json has an option that Lockstep no longer has.
// The run can still be read and its network can still predict, but it cannot be resumed.
type RemovedOptionError struct {
	Option string // such as "strategy.backup_workers=1"
}

// Error implements error.
func (e *RemovedOptionError) Error() string {
	return e.Option + " was removed from Lockstep: train again without it, in another run folder"
}

// ScalarKey returns the key that is set if a single value is given for a complete Config in YAML.
func (Config) ScalarKey() string { return "name" }

// UnmarshalYAML decodes a name, or a name and options. A name resets the options, because they
// belong to the previous strategy.
func (c *Config) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		*c = Config{Name: n.Value}
		return nil
	}
	type plain Config
	var named struct {
		Name string `yaml:"name"`
	}
	if err := n.Decode(&named); err != nil {
		return err
	}
	if named.Name != "" {
		*c = Config{}
	}
	return n.Decode((*plain)(c))
}
