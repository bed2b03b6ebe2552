package strategy

import (
	"context"

	"lockstep/pkg/collective"
	"lockstep/pkg/engine"
)

// NameDDP is the name of data parallelism with replicated parameters, the default strategy.
const NameDDP = "ddp"

// Kind is a kind of strategy that a config can choose by its name.
type Kind struct {
	Name      string // value of the key strategy in configs and in run.json
	About     string // explanation in one paragraph
	Guarantee string // what the result of a training is equal to, or what the strategy gives up
	// Bytes is the number of bytes that each worker sends per optimizer step, as a formula
	// of P (bytes of the parameters) and N (workers). Sums of statistics, losses and norms
	// are not counted: they do not depend on P.
	Bytes   string
	Options []string // names of its options, fields of Config
	// Exact reports whether N workers compute the same parameters as one worker with an
	// N-fold batch, up to rounding. "lockstep verify dp" then checks that they do.
	Exact bool

	check        func(c Config) error              // validates the options; nil: all values are valid
	checkWorkers func(c Config, workers int) error // nil: any number of workers
	// new creates the strategy of one worker with the engine e. All ranks of group call it
	// at the same time.
	new func(ctx context.Context, c Config, e engine.Engine, group collective.Group) (Strategy, error)
}

// Kinds returns the strategies that a config can choose. The first one is the default.
func Kinds() []Kind {
	return []Kind{{
		Name: NameDDP,
		About: "Data parallelism with replicated parameters: every worker has all parameters and computes the gradients of its own batch. " +
			"The gradients are averaged over the workers in buckets, while the backward pass computes the next bucket, and every worker's optimizer applies the same update.",
		Guarantee: "equal to one worker with an N-fold batch, up to rounding",
		Bytes:     "2·(N−1)/N·P",
		Exact:     true,
		new:       newDDPOrNCCL,
	}}
}

// Names returns the names of all strategies.
func Names() []string {
	var names []string
	for _, k := range Kinds() {
		names = append(names, k.Name)
	}
	return names
}

// New creates the strategy of one worker with the engine e. All ranks of group must call it
// at the same time with the same config.
func New(ctx context.Context, c Config, e engine.Engine, group collective.Group) (Strategy, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if err := c.CheckWorkers(group.Size()); err != nil {
		return nil, err
	}
	k, err := c.findKind()
	if err != nil {
		return nil, err
	}
	return k.new(ctx, c, e, group)
}
