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

// Total accumulates the step spans of a series at one worker count.
type Total struct {
	runs, steps int // steps of all ranks and runs
	span        runs.Step
	overlap     []string // the distinct values of the engine's overlap option
	// firstSteps is the number of steps of rank 0, the rank whose epoch times
	// epochs.csv contains. other is the time of its epochs outside its spans.
	firstSteps int
	other      float64
}

// Add adds the counted steps of a run. It reports whether there were any.
func (t *Total) Add(r runs.Run, spans Spans) bool {
	var own Total
	for rank, steps := range spans.ByRank {
		seen := map[int]bool{}
		for _, step := range steps {
			own.add(step, rank)
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
	t.firstSteps += own.firstSteps
	t.other += own.other
	t.addSpan(own.span)
	if o := overlap(r); !slices.Contains(t.overlap, o) {
		t.overlap = append(t.overlap, o)
	}
	return true
}

func (t *Total) add(x runs.Step, rank int) {
	t.steps++
	t.addSpan(x)
	if rank == 0 {
		t.firstSteps++
		t.other -= spanSeconds(x)
	}
}

func (t *Total) addSpan(x runs.Step) {
	t.span.Data += x.Data
	t.span.Forward += x.Forward
	t.span.Backward += x.Backward
	t.span.Wait += x.Wait
	t.span.AllReduce += x.AllReduce
	t.span.Optimizer += x.Optimizer
}

// Mean returns the mean over the steps. ok is false if there are none.
func (t *Total) Mean(series string, workers int) (mean StepTime, ok bool) {
	if t.steps == 0 {
		return StepTime{}, false
	}
	n := float64(t.steps)
	mean = StepTime{
		Series: series, Workers: workers, Runs: t.runs, Steps: t.steps,
		Data: t.span.Data / n, Forward: t.span.Forward / n, Backward: t.span.Backward / n,
		Wait: t.span.Wait / n, Optimizer: t.span.Optimizer / n, AllReduce: t.span.AllReduce / n,
	}
	if t.firstSteps > 0 {
		mean.Other = t.other / float64(t.firstSteps)
	}
	mean.Step = mean.Data + mean.Forward + mean.Backward + mean.Wait + mean.Optimizer + mean.Other
	mean.Hidden = max(0, mean.AllReduce-mean.Wait)
	mean.WaitShare = mean.Wait / mean.Step
	if mean.Overlap = t.overlap[0]; len(t.overlap) > 1 {
		mean.Overlap = "mixed"
	}
	return mean, true
}

// overlap returns the engine's overlap option in the run's config: "on", "off", or ""
// if unknown.
func overlap(r runs.Run) string {
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
