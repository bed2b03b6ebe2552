package steptime

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"

	"gonum.org/v1/gonum/stat/distuv"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/runs"
	"lockstep/pkg/scaling/internal/observe"
)

// RankArrivals summarizes when one rank of a run arrives at the collective; see
// scaling.StragglerRow.
type RankArrivals struct {
	Series              string
	Workers             int
	Source              string
	Run                 string
	Rank, Steps         int
	Last                int
	LastShare, Expected float64
	P                   float64
	LateSeconds         float64
	CostSeconds         float64
	CostShare           float64
	Straggler           bool
}

// AnalyzeArrivals determines when each rank of a run arrives at the collectives. It uses the step
// spans, and the traces if every rank has one that marks the steps. It returns nil for a run with
// one worker. The problems say why spans or traces were not used.
func AnalyzeArrivals(series string, r runs.Run, rule observe.MeasurementRule) ([]RankArrivals, []runs.Problem) {
	if r.Info.Workers < 2 {
		return nil, nil
	}
	steps, problems := ReadCountedSteps(r, rule).CompleteSteps()
	rows := summarizeArrivals(series, r, SourceSteps, arrivalsFromSpans(steps))
	traced, bad := arrivalsFromTraces(r)
	return append(rows, summarizeArrivals(series, r, SourceTrace, traced)...), slices.Concat(problems, bad)
}

// stepArrivals contains the times at which the ranks arrived at a step's first collective, in
// seconds from an origin that is common to all ranks, and the mean duration of the step.
type stepArrivals struct {
	at   []float64 // by rank
	step float64
}

// arrivalsFromSpans returns the arrivals in steps, which are indexed by step and then by rank.
func arrivalsFromSpans(steps [][]runs.Step) []stepArrivals {
	var out []stepArrivals
	for _, step := range steps {
		a := stepArrivals{at: make([]float64, len(step))}
		for rank, x := range step {
			a.at[rank] = x.UntilCollective
			a.step += totalSpanSeconds(x) / float64(len(step))
		}
		if slices.Max(a.at) > 0 { // otherwise the spans have no arrivals
			out = append(out, a)
		}
	}
	return out
}

// arrivalsFromTraces returns the arrivals in each step that is marked in the traces of all ranks.
func arrivalsFromTraces(r runs.Run) ([]stepArrivals, []runs.Problem) {
	byRank := spansByRank(r)
	if len(byRank) < 2 {
		return nil, nil
	}
	if len(byRank) != r.Info.Workers {
		return nil, []runs.Problem{{File: r.Dir, Reason: fmt.Sprintf("only %d of %d ranks have a trace, so the last rank of a step is unknown: profile all ranks", len(byRank), r.Info.Workers)}}
	}
	var out []stepArrivals
	for rank := range r.Info.Workers {
		marked := profilerSteps(byRank[rank])
		if rank == 0 {
			out = make([]stepArrivals, len(marked))
		}
		out = out[:min(len(out), len(marked))]
		for i, seconds := range firstCollectiveSeconds(byRank[rank], marked[:len(out)]) {
			out[i].at = append(out[i].at, -seconds)
			out[i].step += (marked[i].to - marked[i].from) / float64(r.Info.Workers)
		}
	}
	out = slices.DeleteFunc(out, func(a stepArrivals) bool { return slices.ContainsFunc(a.at, math.IsNaN) })
	if len(out) == 0 {
		return nil, []runs.Problem{{File: r.Dir, Reason: "no step with a collective is marked in the traces of all ranks, so the last rank of a step is unknown: call the profiler's step()"}}
	}
	return out, nil
}

// firstCollectiveSeconds returns the duration in seconds of a rank's first collective in each step,
// or NaN for a step without one.
func firstCollectiveSeconds(spans []runs.Span, steps []interval) []float64 {
	communication := slices.DeleteFunc(slices.Clone(spans), func(s runs.Span) bool { return s.Kind != runs.SpanCommunication })
	slices.SortStableFunc(communication, func(a, b runs.Span) int { return cmp.Compare(a.Start, b.Start) })
	out := make([]float64, len(steps))
	for i, step := range steps {
		out[i] = math.NaN()
		at, _ := slices.BinarySearchFunc(communication, step.from, func(s runs.Span, from float64) int { return cmp.Compare(s.Start, from) })
		if at < len(communication) && communication[at].Start < step.to {
			out[i] = communication[at].Seconds
		}
	}
	return out
}

// summarizeArrivals combines the arrivals in all steps into one row per rank. It returns nil if
// there are no steps.
func summarizeArrivals(series string, r runs.Run, source string, steps []stepArrivals) []RankArrivals {
	n := r.Info.Workers
	rows := make([]RankArrivals, n)
	total := 0.0
	counted := len(steps)
	for _, step := range steps {
		last, latest, next, sum := 0, math.Inf(-1), math.Inf(-1), 0.0
		for rank, at := range step.at {
			sum += at
			switch {
			case at > latest:
				last, latest, next = rank, at, latest
			case at > next:
				next = at
			}
		}
		total += step.step
		for rank, at := range step.at {
			others := (sum - at) / float64(n-1)
			rows[rank].LateSeconds += at - others
		}
		if latest > next { // in a tie, no rank delays the others
			rows[last].Last++
			rows[last].CostSeconds += latest - next
		}
	}
	if counted == 0 {
		return nil
	}
	for rank := range rows {
		x := &rows[rank]
		x.Series, x.Workers, x.Source, x.Run, x.Rank, x.Steps = series, n, source, r.Dir, rank, counted
		x.LastShare, x.Expected = float64(x.Last)/float64(counted), 1/float64(n)
		x.LateSeconds /= float64(counted)
		x.CostSeconds /= float64(counted)
		if total > 0 {
			x.CostShare = x.CostSeconds / (total / float64(len(steps)))
		}
		// P(at least Last) = 1 − P(at most Last − 1).
		x.P = 1
		if x.Last > 0 {
			x.P = distuv.Binomial{N: float64(counted), P: x.Expected}.Survival(float64(x.Last) - 1)
		}
		x.Straggler = x.P < 0.01/float64(n) && x.LateSeconds > 0
	}
	return rows
}

// DescribeWorstStraggler describes the straggler that costs the other ranks the most time, or says that
// there is none.
func DescribeWorstStraggler(rows []RankArrivals) string {
	if len(rows) == 0 {
		return "no run with several workers has counted step spans, or traces of all ranks"
	}
	found := slices.DeleteFunc(slices.Clone(rows), func(r RankArrivals) bool { return !r.Straggler })
	if len(found) == 0 {
		return "no rank arrives last at the collective more often than expected by chance"
	}
	worst := slices.MaxFunc(found, func(a, b RankArrivals) int {
		if a.CostSeconds < b.CostSeconds {
			return -1
		}
		return 1
	})
	return fmt.Sprintf("rank %d of %s arrives last at the collective in %s of %s (expected by chance: %s), and costs the other ranks %s ms per step (%s of a step)%s",
		worst.Rank, worst.Run, english.FormatPercent(math.Round(1000*worst.LastShare)/1000), english.FormatCount(worst.Steps, "step"),
		english.FormatPercent(math.Round(1000*worst.Expected)/1000), english.FormatNumber(1000*worst.CostSeconds), english.FormatPercent(math.Round(1000*worst.CostShare)/1000),
		describeRepeatedStraggler(rows, worst))
}

// describeRepeatedStraggler returns the end of a sentence that says in which repeated runs the same
// rank is a straggler too. It returns "" if there are no repeats.
func describeRepeatedStraggler(rows []RankArrivals, worst RankArrivals) string {
	repeats, same, other := 0, 0, map[string]bool{}
	for _, r := range rows {
		if r.Series != worst.Series || r.Workers != worst.Workers || r.Source != worst.Source || r.Run == worst.Run {
			continue
		}
		switch {
		case r.Rank == worst.Rank:
			repeats++
			if r.Straggler {
				same++
			}
		case r.Straggler:
			other[r.Run] = true
		}
	}
	if repeats == 0 {
		return ""
	}
	all := fmt.Sprintf(" of the %d repeated runs of %s at %s", repeats+1, worst.Series, english.FormatCount(worst.Workers, "worker"))
	switch {
	case same == repeats:
		return "; it is a straggler in each" + all
	case same == 0 && len(other) == 0:
		return "; it is a straggler in this one only" + all + ", and the others show none"
	case same == 0:
		return "; it is a straggler in this one only" + all + ", and another rank is in " + strconv.Itoa(len(other))
	}
	return fmt.Sprintf("; it is a straggler in %d%s", same+1, all)
}
