package strategy

import (
	"context"
	"errors"

	"lockstep/pkg/collective"
	"lockstep/pkg/engine"
)

// NameDDP is the name of data parallelism with replicated parameters.
const NameDDP = "ddp"

// Exchange is a strategy that a trainer runs with.
type Exchange interface {
	engine.GradSync
	// Stats summarizes what was exchanged since the last call.
	Stats() Stats
	// Strategy returns the strategy's name, for run.json: NameDDP.
	Strategy() string
	// Name returns the transport of the gradients, for run.json.
	Name() string
	Close() error
}

var (
	_ Exchange = (*DDP)(nil)
	_ Exchange = (*NCCL)(nil)
)

// New returns the data parallelism that suits an engine: NCCL if every rank has its own
// GPU and the NCCL library, otherwise DDP through the host. All ranks must call it at
// the same time, and all get the same kind.
func New(ctx context.Context, e engine.Engine, group collective.Group) (Exchange, error) {
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

// Strategy returns NameDDP.
func (d *DDP) Strategy() string { return NameDDP }

// Name returns the name of the group on the host.
func (d *DDP) Name() string { return d.group.Name() }
