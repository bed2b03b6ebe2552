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

// Evaluate evaluates the network on the complete held-out set, one shard per rank, and returns the
// scores of all ranks together. As in PyTorch's DDP, all ranks use the running statistics of rank
// 0, which are also saved in checkpoints. All ranks must call it.
func (t *Trainer) Evaluate(ctx context.Context) (Scores, error) {
	if err := strategy.BroadcastTensors(ctx, t.train, t.group, t.runningStatNames()); err != nil {
		return Scores{}, fmt.Errorf("broadcast running statistics: %w", err)
	}
	s, err := evaluateShard(ctx, t.eval, t.net.Task(), t.samples.Test, t.group.Size(), t.group.Rank())
	if err != nil {
		return Scores{}, err
	}
	sums := s.toSlice()
	if err := t.allReduce(ctx, sums); err != nil {
		return Scores{}, err
	}
	s = s.withSums(sums)
	return s, s.checkPixelsCounted()
}

// evaluateShard evaluates one rank's shard of ds. exe is a program for evaluation.
func evaluateShard(ctx context.Context, exe engine.Executable, task model.Task, ds data.Dataset, world, rank int) (Scores, error) {
	batch, outputs, err := batchAndOutputSize(exe.Program())
	if err != nil {
		return Scores{}, err
	}
	m := numElements(ds.TargetShape())
	s := newScores(task, outputs, m)
	loader, err := data.NewEvaluationLoader(ds, data.EvaluationOptions{World: world, Rank: rank, Batch: batch})
	if err != nil {
		return s, err
	}
	defer loader.Close()
	out := make([]float32, batch*outputs)
	batches := loader.Epoch(ctx, 0)
	defer batches.Close()
	for batches.Next() {
		b := batches.Batch()
		if err := runForward(ctx, exe, b.Image, b.Target, out); err != nil {
			return s, err
		}
		valid := b.ValidCount()
		if err := s.addSamples(task, out[:valid*outputs], b.Target[:valid*m], valid, func(i int) int { return data.ImageOf(ds, b.Indices[i]) }); err != nil {
			return s, err
		}
	}
	if err := batches.Err(); err != nil {
		return s, fmt.Errorf("load held-out samples: %w", err)
	}
	s.averageLoss()
	return s, nil
}

// batchAndOutputSize returns the batch size of p and its number of outputs per sample.
func batchAndOutputSize(p *plan.Program) (batch, outputs int, err error) {
	in, out := p.FindTensor(plan.Input, model.ImageInput), p.FindTensor(plan.Output, model.LogitsOutput)
	if in < 0 || out < 0 {
		return 0, 0, fmt.Errorf("evaluate network: the program lacks the input %q or the output %q", model.ImageInput, model.LogitsOutput)
	}
	batch = p.Tensors[in].Shape[0]
	return batch, p.Tensors[out].Elements() / batch, nil
}

func numElements(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}

func (t *Trainer) allReduce(ctx context.Context, v []float64) error {
	return strategy.AllReduceFloat64s(ctx, t.group, v)
}

func runForward(ctx context.Context, exe engine.Executable, image, target, logits []float32) error {
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
