package train

import (
	"context"
	"fmt"
	"math"

	"lockstep/pkg/data"
	"lockstep/pkg/engine"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/metric"
	"lockstep/pkg/model"
	"lockstep/pkg/runs"
	"lockstep/pkg/strategy"
)

// Scores are counts and loss over the whole held-out set, equal on all ranks.
type Scores struct {
	metric.Counts
	Samples int     // tiles, or images where they are not cut
	Loss    float64 // mean over all pixels
}

// Evaluate scores the present parameters on the whole held-out set, a shard a
// rank, with running statistics. The running statistics are rank 0's, as in
// PyTorch's DDP, so that all ranks score the network that is saved.
func (t *Trainer) Evaluate(ctx context.Context) (Scores, error) {
	if err := strategy.BroadcastTensors(ctx, t.train, t.group, t.stateNames()); err != nil {
		return Scores{}, fmt.Errorf("broadcast running statistics: %w", err)
	}
	s, err := score(ctx, t.eval, t.samples.Test, t.group.Size(), t.group.Rank())
	if err != nil {
		return Scores{}, err
	}
	sums := append(s.Slice(), float64(s.Samples), s.Loss*float64(s.Samples))
	if err := t.sum(ctx, sums); err != nil {
		return Scores{}, err
	}
	n := len(sums)
	s.Counts = metric.FromSlice(sums[:n-2])
	s.Samples = int(sums[n-2])
	s.Loss = sums[n-1] / sums[n-2]
	return s, nil
}

// score counts one rank's shard of ds with an evaluation program.
func score(ctx context.Context, exe engine.Executable, ds data.Dataset, world, rank int) (Scores, error) {
	var s Scores
	p := exe.Program()
	batch := p.Tensors[p.Lookup(plan.Input, model.ImageInput)].Shape[0]
	loader, err := data.NewEvaluation(ds, data.EvaluationConfig{World: world, Rank: rank, Batch: batch})
	if err != nil {
		return s, err
	}
	defer loader.Close()
	ts := ds.TargetShape()
	m := ts[0] * ts[1] * ts[2]
	logits := make([]float32, batch*m)
	batches := loader.Epoch(ctx, 0)
	defer batches.Close()
	for batches.Next() {
		b := batches.Batch()
		if err := forward(ctx, exe, b.Image, b.Target, logits); err != nil {
			return s, err
		}
		valid := b.Valid()
		s.AddLogits(logits[:valid*m], b.Target[:valid*m])
		for k := range valid {
			s.Loss += bceWithLogits(logits[k*m:(k+1)*m], b.Target[k*m:(k+1)*m])
		}
		s.Samples += valid
	}
	if err := batches.Err(); err != nil {
		return s, fmt.Errorf("load held-out samples: %w", err)
	}
	if s.Samples > 0 {
		s.Loss /= float64(s.Samples)
	}
	return s, nil
}

// bceWithLogits is the mean of max(z,0) − z·t + log(1+e^−|z|), as plan.OpBCEWithLogits.
func bceWithLogits(z, t []float32) float64 {
	sum := 0.0
	for i := range z {
		v := float64(z[i])
		sum += max(v, 0) - v*float64(t[i]) + math.Log1p(math.Exp(-math.Abs(v)))
	}
	return sum / float64(len(z))
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

// constantIoU is the IoU of the better of the all-0 and all-1 predictors.
func (s Scores) constantIoU() float64 {
	iou, _ := s.Constant()
	return iou
}

// test is run.json's record of s, beside the scores of the untrained network.
func (s Scores) test(untrained Scores, checkpoint string, seconds float64) runs.Test {
	iou, dice := s.Constant()
	return runs.Test{
		Samples: s.Samples, Loss: s.Loss, IoU: s.IoU(), Dice: s.Dice(),
		IoUConstant: iou, DiceConstant: dice,
		IoUUntrained: untrained.IoU(), DiceUntrained: untrained.Dice(),
		Checkpoint: checkpoint, Seconds: seconds,
	}
}
