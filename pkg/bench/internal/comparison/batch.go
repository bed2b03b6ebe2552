package comparison

import (
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/model"
)

// AllocateBatch allocates a batch of images and targets for p. classes is the number of values that a target
// can have, 2 if targets are binary.
func AllocateBatch(p *plan.Program) (image, target []float32, classes int) {
	id := p.FindTensor(plan.Input, model.TargetInput)
	image = make([]float32, p.Tensors[p.FindTensor(plan.Input, model.ImageInput)].Elements())
	target = make([]float32, p.Tensors[id].Elements())
	return image, target, max(2, p.ClassCount(id))
}
