package steptime

import (
	"slices"

	"lockstep/pkg/runs"
)

// StepTime contains the mean times of the parts of a step; see scaling.StepTime.
type StepTime struct {
	Series  string
	Workers int
	Overlap string
	Runs    int
	Steps   int

	Step      float64
	Data      float64
	Forward   float64
	Backward  float64
	Wait      float64
	Optimizer float64
	Other     float64

	AllReduce float64
	Hidden    float64
	WaitShare float64
}

// StepTotals accumulates the times of the steps of a series at one worker count.
type StepTotals struct {
	runs, steps int // steps of all ranks and runs
	span        runs.Step
	overlap     []string // the distinct values of the engine's overlap option
	// rank0Steps is the number of steps of rank 0, whose epoch times are in epochs.csv. other is
	// the time in seconds within rank 0's epochs that its spans do not cover.
	rank0Steps int
	other      float64
}

// AddRunSteps adds the counted steps of a run. It reports whether there were any.
func (t *StepTotals) AddRunSteps(r runs.Run, spans CountedSteps) bool {
	var own StepTotals
	for rank, steps := range spans.ByRank {
		seen := map[int]bool{}
		for _, step := range steps {
			own.addStep(step, rank)
			if rank == 0 && !seen[step.Epoch] {
				seen[step.Epoch] = true
				own.other += spans.seconds[step.Epoch]
			}
		}
	}
	if own.steps == 0 {
		return false
	}
	t.runs++
	t.steps += own.steps
	t.rank0Steps += own.rank0Steps
	t.other += own.other
	t.addTimes(own.span)
	if o := overlapOption(r); !slices.Contains(t.overlap, o) {
		t.overlap = append(t.overlap, o)
	}
	return true
}

func (t *StepTotals) addStep(x runs.Step, rank int) {
	t.steps++
	t.addTimes(x)
	if rank == 0 {
		t.rank0Steps++
		t.other -= totalSpanSeconds(x)
	}
}

func (t *StepTotals) addTimes(x runs.Step) {
	t.span.Data += x.Data
	t.span.Forward += x.Forward
	t.span.Backward += x.Backward
	t.span.Wait += x.Wait
	t.span.AllReduce += x.AllReduce
	t.span.Optimizer += x.Optimizer
}

// Mean returns the mean over the accumulated steps. ok is false if there are none.
func (t *StepTotals) Mean(series string, workers int) (mean StepTime, ok bool) {
	if t.steps == 0 {
		return StepTime{}, false
	}
	n := float64(t.steps)
	mean = StepTime{
		Series: series, Workers: workers, Runs: t.runs, Steps: t.steps,
		Data: t.span.Data / n, Forward: t.span.Forward / n, Backward: t.span.Backward / n,
		Wait: t.span.Wait / n, Optimizer: t.span.Optimizer / n, AllReduce: t.span.AllReduce / n,
	}
	if t.rank0Steps > 0 {
		mean.Other = t.other / float64(t.rank0Steps)
	}
	mean.Step = mean.Data + mean.Forward + mean.Backward + mean.Wait + mean.Optimizer + mean.Other
	mean.Hidden = max(0, mean.AllReduce-mean.Wait)
	mean.WaitShare = mean.Wait / mean.Step
	if mean.Overlap = t.overlap[0]; len(t.overlap) > 1 {
		mean.Overlap = "mixed"
	}
	return mean, true
}

// overlapOption returns engine.overlap in the run's config: "on", "off", or "" if unknown.
func overlapOption(r runs.Run) string {
	engine, ok := r.Info.Config["engine"].(map[string]any)
	if !ok {
		return ""
	}
	switch on, ok := engine["overlap"].(bool); {
	case !ok:
		return ""
	case on:
		return "on"
	}
	return "off"
}
