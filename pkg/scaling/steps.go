package scaling

import (
	"fmt"
	"slices"

	"lockstep/pkg/runs"
)

// stepsOf are the steps of a run that the rule counts, by step and then by
// rank, with what of the files could not be used. Steps that not every rank
// left are left out.
func (s *Study) stepsOf(r runs.Run) ([][]runs.Step, []runs.Problem) {
	if len(r.Workers) == 0 {
		return nil, nil
	}
	counted := map[int]bool{}
	counts := s.counting(r)
	for i, e := range r.Epochs {
		if counts(i) && e.Seconds > 0 {
			counted[e.Epoch] = true
		}
	}
	var problems []runs.Problem
	byStep := map[int][]runs.Step{}
	for rank := range r.Info.Workers {
		_, steps, bad, err := runs.ReadSteps(r.Dir, rank)
		problems = append(problems, bad...)
		if err != nil {
			problems = append(problems, runs.Problem{File: r.Dir, Reason: fmt.Sprintf("the spans of rank %d do not count: %v", rank, err)})
			return nil, problems
		}
		for _, step := range steps {
			// A rank that left out a step has no place in it, and neither have those after it.
			if counted[step.Epoch] && len(byStep[step.Step]) == rank {
				byStep[step.Step] = append(byStep[step.Step], step)
			}
		}
	}
	var numbers []int
	for n, ranks := range byStep {
		if len(ranks) == r.Info.Workers {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	out := make([][]runs.Step, len(numbers))
	for i, n := range numbers {
		out[i] = byStep[n]
	}
	return out, problems
}
