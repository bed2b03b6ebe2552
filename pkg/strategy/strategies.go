package strategy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"lockstep/pkg/collective"
	"lockstep/pkg/engine"
	"lockstep/pkg/internal/nearest"
)

// NameDDP is the name of data parallelism with replicated parameters, the default strategy.
const NameDDP = "ddp"

// Strategy is a strategy that a config can choose by its name.
type Strategy struct {
	Name  string // value of the key strategy in configs and in run.json
	About string // explanation for the command's help
	// Exact reports whether N workers compute the same parameters as one worker with an
	// N-fold batch, up to rounding. "lockstep verify dp" then checks that they do.
	Exact bool
	// New creates the strategy of one worker with the engine e. All ranks of group call it
	// at the same time.
	New func(ctx context.Context, e engine.Engine, group collective.Group) (Exchange, error)
}

// All returns the strategies that a config can choose. The first one is the default.
func All() []Strategy {
	return []Strategy{
		{NameDDP, "every worker has all parameters and uses the mean of all workers' gradients, which are reduced during the backward pass", true, newDDPOrNCCL},
	}
}

// Names returns the names of all strategies.
func Names() []string {
	var names []string
	for _, s := range All() {
		names = append(names, s.Name)
	}
	return names
}

// findStrategy returns the strategy with the given name. The empty name is the default
// strategy.
func findStrategy(name string) (Strategy, error) {
	name = cmp.Or(name, NameDDP)
	all := All()
	i := slices.IndexFunc(all, func(s Strategy) bool { return s.Name == name })
	if i < 0 {
		return Strategy{}, fmt.Errorf("unknown strategy %q%s: use one of %s", name, nearest.Hint(name, Names()), strings.Join(Names(), ", "))
	}
	return all[i], nil
}

// Validate returns an error unless name is empty or the name of a strategy.
func Validate(name string) error {
	_, err := findStrategy(name)
	return err
}

// New creates the named strategy of one worker with the engine e; the empty name is
// NameDDP. All ranks of group must call it at the same time with the same name.
func New(ctx context.Context, name string, e engine.Engine, group collective.Group) (Exchange, error) {
	s, err := findStrategy(name)
	if err != nil {
		return nil, err
	}
	return s.New(ctx, e, group)
}

// newDDPOrNCCL returns an *NCCL if every rank has a separate GPU and the NCCL library, else
// a *DDP, which exchanges gradients through the host. All ranks get the same type.
func newDDPOrNCCL(ctx context.Context, e engine.Engine, group collective.Group) (Exchange, error) {
	gpu, ok := e.(GPU)
	if !ok || group.Size() == 1 {
		return NewDDP(ctx, group), nil
	}
	n, err := NewNCCL(ctx, gpu, group, NCCLOptions{})
	if errors.Is(err, ErrSharedGPU) || errors.Is(err, ErrNoNCCL) {
		return NewDDP(ctx, group), nil
	}
	if err != nil {
		return nil, err
	}
	return n, nil
}
