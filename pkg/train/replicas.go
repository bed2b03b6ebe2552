package train

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"lockstep/pkg/collective"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/model"
	"lockstep/pkg/runs"
	"lockstep/pkg/weights"
)

// Outcome is the result of a training in this process, by Replicas or Mirror.
type Outcome struct {
	Devices     []string // devices of the replicas by rank; nil if Replicas returned the Outcome
	GlobalBatch int      // samples per pass over all replicas
	Network     model.Network
	Epochs      []runs.Epoch
	Test        runs.Test
	tensors     []weights.Tensor
}

// Weights returns the trained parameters and running statistics, named as in the network.
func (o *Outcome) Weights() []weights.Tensor { return o.tensors }

// String returns one line per epoch, and the final scores.
func (o *Outcome) String() string {
	var b strings.Builder
	if len(o.Devices) > 0 {
		fmt.Fprintf(&b, "mirrored on %s: global batch %d, %d per replica\n", strings.Join(o.Devices, ", "), o.GlobalBatch, o.GlobalBatch/len(o.Devices))
	}
	for _, e := range o.Epochs {
		fmt.Fprintf(&b, "epoch %d: train loss %.6f, val loss %.6f, %.1f samples/s\n", e.Epoch, e.TrainLoss, e.ValLoss, e.SamplesPerSecond)
	}
	return b.String() + SummarizeTest(o.Test)
}

// Replicas trains with n workers that are goroutines of this process, for example in a notebook
// cell. build builds the network; nil means the config's network. Each worker trains on cfg.Batch
// samples per pass; to choose a global batch and devices, use Mirror. Replicas writes no run
// folder. It returns rank 0's outcome; all ranks have equal parameters.
func Replicas(ctx context.Context, cfg Config, build model.Builder, n int) (*Outcome, error) {
	if n < 1 {
		return nil, fmt.Errorf("train replicas: got %d workers: use at least 1", n)
	}
	return trainReplicas(ctx, slices.Repeat([]Config{cfg}, n), build)
}

// trainReplicas trains with one goroutine per config, and returns rank 0's outcome. The configs may
// differ only in their devices.
func trainReplicas(ctx context.Context, configs []Config, build model.Builder) (*Outcome, error) {
	n := len(configs)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	outcomes := make([]*Outcome, n)
	var wg sync.WaitGroup
	for rank, g := range collective.InProcess(n) {
		wg.Go(func() {
			var err error
			if outcomes[rank], err = trainReplica(ctx, configs[rank], g, build); err != nil {
				cancel(fmt.Errorf("rank %d: %w", rank, err))
			}
		})
	}
	wg.Wait()
	if err := context.Cause(ctx); err != nil {
		return nil, fmt.Errorf("train replicas: %w", err)
	}
	outcomes[0].GlobalBatch = configs[0].Strategy.ReplicaCount(n) * configs[0].Batch
	return outcomes[0], nil
}

func trainReplica(ctx context.Context, cfg Config, g collective.Group, build model.Builder) (o *Outcome, err error) {
	t, err := New(ctx, cfg, g, WorkerOptions{Build: build})
	if err != nil {
		return nil, err
	}
	res, err := t.Run(ctx)
	if err == nil {
		o = &Outcome{Network: t.net, Epochs: res.Epochs, Test: res.Test}
		o.tensors, err = t.trainedTensors()
	}
	return o, errors.Join(err, t.Close())
}

// trainedTensors returns the network's parameters and running statistics.
func (t *Trainer) trainedTensors() ([]weights.Tensor, error) {
	var out []weights.Tensor
	for _, x := range t.train.Program().Tensors {
		if x.Role != plan.Parameter && x.Role != plan.State {
			continue
		}
		v, err := t.train.Get(x.Name)
		if err != nil {
			return nil, err
		}
		w, err := weights.FromFloat64s(x.Name, x.Shape, v, t.cfg.Engine.Precision == "fp32")
		if err != nil {
			return nil, err
		}
		out = append(out, w)
	}
	return out, nil
}
