package stage

// Schedules of a pipeline: the order in which a stage runs the forward and backward passes of the
// micro-batches of one optimizer step. The results are bitwise the same for all schedules.
const (
	// GPipe runs all forward passes before all backward passes (Huang et al. 2019,
	// arXiv:1811.06965). A stage then keeps the activations of all micro-batches.
	GPipe = "gpipe"
	// OneForwardOneBackward alternates between one forward and one backward pass as soon as it can
	// (Narayanan et al. 2019, PipeDream, section 3.2; with one update per optimizer step as
	// in PipeDream-Flush). Stage s of S then keeps the activations of at most S−s
	// micro-batches.
	OneForwardOneBackward = "1f1b"
)

// microBatchPass is the forward or the backward pass of one micro-batch.
type microBatchPass struct {
	backward bool
	batch    int // from 1
}

// stageSchedule returns the passes of one stage in the order in which the stage runs them. name is
// the name of the schedule.
func stageSchedule(name string, stages, stage, batches int) []microBatchPass {
	ahead := batches // forward passes before the first backward pass
	if name == OneForwardOneBackward {
		ahead = min(batches, stages-stage)
	}
	var list []microBatchPass
	for m := 1; m <= batches+ahead-1; m++ {
		if m <= batches {
			list = append(list, microBatchPass{false, m})
		}
		if done := m - ahead + 1; done >= 1 {
			list = append(list, microBatchPass{true, done})
		}
	}
	return list
}

// Bubble returns the fraction of an optimizer step in which each stage is idle if the passes of all
// stages take the same time and messages take none: (S−1)/(M+S−1) for S stages and M micro-batches
// (Huang et al. 2019, section 2.3).
func Bubble(stages, batches int) float64 {
	return float64(stages-1) / float64(batches+stages-1)
}
