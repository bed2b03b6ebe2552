// Package steptime analyzes the time of training steps from the step spans of run folders, from
// traces and from trials: the parts of a step, the exposed part of the communication, and the ranks
// that delay the others.
package steptime

import (
	"fmt"
	"math"
	"slices"

	"lockstep/pkg/runs"
	"lockstep/pkg/scaling/internal/observe"
)

// Values of the source of step times.
const (
	SourceSteps = "step spans"
	SourceTrace = "trace"
)

// CountedSteps contains the steps of a run that the rule counts.
type CountedSteps struct {
	ByRank   [][]runs.Step // nil for a rank that could not be read
	Problems []runs.Problem

	seconds  map[int]float64 // training time of each counted epoch
	unread   bool            // some rank could not be read
	problems int             // number of Problems up to the first rank that could not be read
}

// ReadCountedSteps reads the step spans of a run. ByRank is nil if the run has none.
func ReadCountedSteps(r runs.Run, rule observe.MeasurementRule) CountedSteps {
	s := CountedSteps{seconds: map[int]float64{}}
	if len(r.Workers) == 0 {
		return s
	}
	counts := rule.CountedEpochFilter(r)
	for i, e := range r.Epochs {
		if counts(i) && e.Seconds > 0 {
			s.seconds[e.Epoch] = e.Seconds
		}
	}
	s.ByRank = make([][]runs.Step, r.Info.Workers)
	for rank := range s.ByRank {
		_, steps, problems, err := runs.ReadSteps(r.Dir, rank)
		s.Problems = append(s.Problems, problems...)
		if err != nil {
			s.Problems = append(s.Problems, runs.Problem{File: r.Dir, Reason: fmt.Sprintf("the spans of rank %d do not count: %v", rank, err)})
			if !s.unread {
				s.unread, s.problems = true, len(s.Problems)
			}
			continue
		}
		s.ByRank[rank] = slices.DeleteFunc(steps, func(step runs.Step) bool { return !(s.seconds[step.Epoch] > 0) })
	}
	if !s.unread {
		s.problems = len(s.Problems)
	}
	return s
}

// CompleteSteps returns the steps that all ranks recorded, indexed by step and then by rank, and
// the problems found in the files. It returns no steps if the file of any rank could not be read.
func (s CountedSteps) CompleteSteps() ([][]runs.Step, []runs.Problem) {
	if s.unread {
		return nil, s.Problems[:s.problems]
	}
	byStep := map[int][]runs.Step{}
	for rank, steps := range s.ByRank {
		for _, step := range steps {
			// If a rank lacks a step, later ranks do not add it either, so the step stays incomplete.
			if len(byStep[step.Step]) == rank {
				byStep[step.Step] = append(byStep[step.Step], step)
			}
		}
	}
	var numbers []int
	for n, ranks := range byStep {
		if len(ranks) == len(s.ByRank) {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	out := make([][]runs.Step, len(numbers))
	for i, n := range numbers {
		out[i] = byStep[n]
	}
	return out, s.Problems
}

func totalSpanSeconds(x runs.Step) float64 {
	return x.Data + x.Forward + x.Backward + x.Wait + x.Optimizer
}

// AllReduceTimes returns the seconds of each step's all-reduce without the wait for slower ranks.
// It takes the shortest time of all ranks, because the last rank to arrive does not wait. Steps
// without an all-reduce are omitted.
func AllReduceTimes(steps [][]runs.Step) []float64 {
	var out []float64
	for _, step := range steps {
		least := math.Inf(1)
		for _, rank := range step {
			least = min(least, rank.AllReduce)
		}
		if least > 0 && observe.IsFinite(least) {
			out = append(out, least)
		}
	}
	return out
}
