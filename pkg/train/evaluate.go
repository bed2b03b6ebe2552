package train

import (
	"context"
	"fmt"

	"lockstep/pkg/data"
	"lockstep/pkg/engine"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/model"
	"lockstep/pkg/strategy"
)

// Evaluate evaluates the network on the complete held-out set, one shard per rank, and
// returns the scores of all ranks together. As in PyTorch's DDP, all ranks use the running
// statistics of rank 0, so the evaluated network is the one in the checkpoints. All ranks
// must call it.
func (t *Trainer) Evaluate(ctx context.Context) (Scores, error) {
	if err := strategy.BroadcastTensors(ctx, t.train, t.group, t.stateNames()); err != nil {
		return Scores{}, fmt.Errorf("broadcast running statistics: %w", err)
	}
	s, err := score(ctx, t.eval, t.net.Task(), t.samples.Test, t.group.Size(), t.group.Rank())
	if err != nil {
		return Scores{}, err
	}
	sums := s.slice()
	if err := t.sum(ctx, sums); err != nil {
		return Scores{}, err
	}
	return s.ofSums(sums), nil
}

// score evaluates one rank's shard of ds with an evaluation program.
func score(ctx context.Context, exe engine.Executable, task model.Task, ds data.Dataset, world, rank int) (Scores, error) {
	batch, outputs, err := outputSize(exe.Program())
	if err != nil {
		return Scores{}, err
	}
	s := newScores(task, outputs)
	loader, err := data.NewEvaluation(ds, data.EvaluationOptions{World: world, Rank: rank, Batch: batch})
	if err != nil {
		return s, err
	}
	defer loader.Close()
	target := ds.TargetShape()
	m := elements(target)
	out := make([]float32, batch*outputs)
	batches := loader.Epoch(ctx, 0)
	defer batches.Close()
	for batches.Next() {
		b := batches.Batch()
		if err := forward(ctx, exe, b.Image, b.Target, out); err != nil {
			return s, err
		}
		valid := b.Valid()
		if err := s.add(task, out[:valid*outputs], b.Target[:valid*m], valid); err != nil {
			return s, err
		}
	}
	if err := batches.Err(); err != nil {
		return s, fmt.Errorf("load held-out samples: %w", err)
	}
	s.mean()
	return s, nil
}

// outputSize returns a program's batch size, and its number of outputs per sample.
func outputSize(p *plan.Program) (batch, outputs int, err error) {
	in, out := p.Lookup(plan.Input, model.ImageInput), p.Lookup(plan.Output, model.LogitsOutput)
	if in < 0 || out < 0 {
		return 0, 0, fmt.Errorf("evaluate: the network has no input %q or no output %q", model.ImageInput, model.LogitsOutput)
	}
	batch = p.Tensors[in].Shape[0]
	return batch, p.Tensors[out].Elements() / batch, nil
}

// elements returns the number of values in a tensor of the given shape.
func elements(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}

// sum adds v over all ranks, in place.
func (t *Trainer) sum(ctx context.Context, v []float64) error {
	return strategy.AllReduceFloat64s(ctx, t.group, v)
}

// forward runs an evaluation program on one batch.
func forward(ctx context.Context, exe engine.Executable, image, target, logits []float32) error {
	if err := exe.SetInput(model.ImageInput, image); err != nil {
		return err
	}
	if err := exe.SetInput(model.TargetInput, target); err != nil {
		return err
	}
	if _, err := exe.Step(ctx, nil, nil); err != nil {
		return err
	}
	return exe.Output(model.LogitsOutput, logits)
}
