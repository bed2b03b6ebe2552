package comparison

import (
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/model"
)

// AllocateBatch allocates memory for a batch of images and targets, the inputs of the
// program p. classes is the number of values that a target can have: the number of
// classes, or 2 for binary targets.
func AllocateBatch(p *plan.Program) (image, target []float32, classes int) {
	id := p.Lookup(plan.Input, model.TargetInput)
	image = make([]float32, p.Tensors[p.Lookup(plan.Input, model.ImageInput)].Elements())
	target = make([]float32, p.Tensors[id].Elements())
	return image, target, max(2, p.ClassCount(id))
}
