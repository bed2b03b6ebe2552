package steptime

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/stat/distuv"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/runs"
	"lockstep/pkg/scaling/internal/observe"
)

// Rank describes when one rank of a run arrives at the collective; see
// scaling.StragglerRow.
type Rank struct {
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

// Ranks returns the arrivals of each rank of a run with several workers, from step
// spans and from traces of all ranks that mark the steps.
func Ranks(series string, r runs.Run, rule observe.Rule) ([]Rank, []runs.Problem) {
	if r.Info.Workers < 2 {
		return nil, nil
	}
	steps, problems := Read(r, rule).Complete()
	rows := arrivalsOf(series, r, SourceSteps, stepArrivals(steps))
	traced, bad := traceArrivals(r)
	return append(rows, arrivalsOf(series, r, SourceTrace, traced)...), slices.Concat(problems, bad)
}

// arrivals contains the times at which the ranks of a step arrived at its first
// collective, in seconds from an origin that is common to all ranks, and the mean
// duration of the step.
type arrivals struct {
	at   []float64 // by rank
	step float64
}

// stepArrivals returns the arrivals of a run folder's steps.
func stepArrivals(steps [][]runs.Step) []arrivals {
	var out []arrivals
	for _, step := range steps {
		a := arrivals{at: make([]float64, len(step))}
		for rank, x := range step {
			a.at[rank] = x.UntilCollective
			a.step += spanSeconds(x) / float64(len(step))
		}
		if slices.Max(a.at) > 0 { // otherwise an older version wrote the spans without arrivals
			out = append(out, a)
		}
	}
	return out
}

// traceArrivals returns the arrivals of the steps that the traces of a run's ranks
// mark.
func traceArrivals(r runs.Run) ([]arrivals, []runs.Problem) {
	byRank := map[int][]runs.Span{}
	for _, s := range r.Spans {
		byRank[s.Rank] = append(byRank[s.Rank], s)
	}
	if len(byRank) < 2 {
		return nil, nil
	}
	if len(byRank) != r.Info.Workers {
		return nil, []runs.Problem{{File: r.Dir, Reason: fmt.Sprintf("the traces of %d of %d ranks do not tell who comes last: profile all ranks", len(byRank), r.Info.Workers)}}
	}
	var out []arrivals
	for rank := range r.Info.Workers {
		marked := markedSteps(byRank[rank])
		if rank == 0 {
			out = make([]arrivals, len(marked))
		}
		out = out[:min(len(out), len(marked))]
		for i, seconds := range firstCollectives(byRank[rank], marked[:len(out)]) {
			out[i].at = append(out[i].at, -seconds)
			out[i].step += (marked[i].to - marked[i].from) / float64(r.Info.Workers)
		}
	}
	out = slices.DeleteFunc(out, func(a arrivals) bool { return slices.ContainsFunc(a.at, math.IsNaN) })
	if len(out) == 0 {
		return nil, []runs.Problem{{File: r.Dir, Reason: "the traces mark no step with a collective in it at all ranks, so that they do not tell who comes last: call the profiler's step()"}}
	}
	return out, nil
}

// firstCollectives returns the duration of a rank's first collective in each step, NaN
// for a step without one. The steps are in ascending order.
func firstCollectives(spans []runs.Span, steps []interval) []float64 {
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

// arrivalsOf returns one row per rank of a run, or nil if there are no steps.
func arrivalsOf(series string, r runs.Run, source string, steps []arrivals) []Rank {
	n := r.Info.Workers
	rows := make([]Rank, n)
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

// WorstStraggler describes in a sentence the straggler that costs the others the most
// time.
func WorstStraggler(rows []Rank) string {
	if len(rows) == 0 {
		return "no run of several workers has step spans that count, or traces of all ranks"
	}
	found := slices.DeleteFunc(slices.Clone(rows), func(r Rank) bool { return !r.Straggler })
	if len(found) == 0 {
		return "no rank is the last at the collective more often than chance makes it"
	}
	worst := slices.MaxFunc(found, func(a, b Rank) int {
		if a.CostSeconds < b.CostSeconds {
			return -1
		}
		return 1
	})
	return fmt.Sprintf("rank %d of %s is the last at the collective in %s of %s (%s by chance), and costs the others %s ms a step (%s of it)",
		worst.Rank, worst.Run, english.Percent(math.Round(1000*worst.LastShare)/1000), english.Count(worst.Steps, "step"),
		english.Percent(math.Round(1000*worst.Expected)/1000), english.Short(1000*worst.CostSeconds), english.Percent(math.Round(1000*worst.CostShare)/1000))
}
