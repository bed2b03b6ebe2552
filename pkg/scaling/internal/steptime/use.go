package steptime

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"gonum.org/v1/gonum/stat"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/runs"
	"lockstep/pkg/scaling/internal/observe"
	"lockstep/pkg/scaling/internal/stats"
)

// TimeUse describes how the steps of a series at one worker count spend their time; see
// scaling.TimeUseRow.
type TimeUse struct {
	Series             string
	Workers            int
	Source             string
	Runs, Ranks, Steps int
	Step               stats.Estimate
	Data               stats.Estimate
	Compute            stats.Estimate
	Exposed            stats.Estimate
	Hidden             stats.Estimate
	Idle               stats.Estimate
}

// stepActivitySeconds contains the seconds of one step by activity. The constants useData to useStep are
// the indexes.
type stepActivitySeconds [6]float64

const (
	useData = iota
	useCompute
	useExposed
	useHidden
	useIdle
	useStep
)

// MeasureTimeUse computes how the steps of the runs in c spend their time, from one source; see
// scaling.Study.TimeUse. Runs is 0 if no run has steps. level is the confidence level of the
// intervals.
func MeasureTimeUse(c observe.RunGroup, rule observe.MeasurementRule, source string, level float64) (TimeUse, []runs.Problem) {
	row := TimeUse{Source: source}
	var all []runs.Problem
	var series [][]stepActivitySeconds // for each run, its steps: means over the ranks
	for _, r := range c.Runs {
		var steps []stepActivitySeconds
		var ranks int
		if source == SourceTrace {
			steps, ranks = timeUseFromTraces(r)
		} else {
			var problems []runs.Problem
			steps, problems = timeUseFromSpans(r, rule)
			ranks = r.Info.Workers
			all = append(all, problems...)
		}
		if len(steps) > 0 {
			series = append(series, steps)
			row.Runs, row.Steps, row.Ranks = row.Runs+1, row.Steps+len(steps), max(row.Ranks, ranks)
		}
	}
	if row.Runs == 0 {
		return row, all
	}
	for k, into := range []*stats.Estimate{&row.Data, &row.Compute, &row.Exposed, &row.Hidden, &row.Idle, &row.Step} {
		*into = meanActivityOverSteps(series, k, level)
	}
	return row, all
}

func timeUseFromSpans(r runs.Run, rule observe.MeasurementRule) ([]stepActivitySeconds, []runs.Problem) {
	steps, problems := ReadCountedSteps(r, rule).CompleteSteps()
	if len(steps) == 0 {
		return nil, problems
	}
	// The time of the epochs outside all spans of rank 0 is divided among the steps.
	idle, held := 0.0, 0.0
	counted := map[int]bool{}
	for _, step := range steps {
		counted[step[0].Epoch] = true
		held += totalSpanSeconds(step[0])
	}
	for _, e := range r.Epochs {
		if counted[e.Epoch] && e.Seconds > 0 {
			idle += e.Seconds
		}
	}
	idle = max(0, idle-held) / float64(len(steps))
	out := make([]stepActivitySeconds, len(steps))
	for i, step := range steps {
		n := float64(len(step))
		for _, x := range step {
			compute := x.Forward + x.Backward + x.Optimizer
			hidden := max(0, x.AllReduce-x.Wait)
			for k, v := range (stepActivitySeconds{x.Data, compute, x.Wait, hidden, idle, x.Data + compute + x.Wait + idle}) {
				out[i][k] += v / n
			}
		}
	}
	return out, problems
}

// timeUseFromTraces returns the time use of each step in a run's traces, averaged over the ranks,
// and the number of ranks that have a trace.
func timeUseFromTraces(r runs.Run) ([]stepActivitySeconds, int) {
	byRank := spansByRank(r)
	var sums []stepActivitySeconds
	var ranks []int
	for _, rank := range slices.Sorted(maps.Keys(byRank)) { // sorted, so that every program rounds the sums in the same way
		spans := byRank[rank]
		compute := mergeSpansOfKind(spans, runs.SpanCompute)
		communication, data := mergeSpansOfKind(spans, runs.SpanCommunication), mergeSpansOfKind(spans, runs.SpanData)
		exposed, hidden := communication.subtract(compute), communication.intersect(compute)
		loading := data.subtract(compute).subtract(communication)
		for i, w := range stepIntervals(spans) {
			u := stepActivitySeconds{loading.overlapSeconds(w), compute.overlapSeconds(w), exposed.overlapSeconds(w), hidden.overlapSeconds(w)}
			u[useStep] = w.to - w.from
			u[useIdle] = max(0, u[useStep]-u[useData]-u[useCompute]-u[useExposed])
			if i == len(sums) {
				sums, ranks = append(sums, stepActivitySeconds{}), append(ranks, 0)
			}
			ranks[i]++
			for k, v := range u {
				sums[i][k] += v
			}
		}
	}
	for i := range sums {
		for k := range sums[i] {
			sums[i][k] /= float64(ranks[i])
		}
	}
	return sums, len(byRank)
}

func spansByRank(r runs.Run) map[int][]runs.Span {
	byRank := map[int][]runs.Span{}
	for _, s := range r.Spans {
		byRank[s.Rank] = append(byRank[s.Rank], s)
	}
	return byRank
}

func profilerSteps(spans []runs.Span) []interval {
	var out []interval
	for _, s := range spans {
		if s.Kind == runs.SpanOther && strings.HasPrefix(s.Name, "ProfilerStep") && s.Seconds > 0 {
			out = append(out, interval{s.Start, s.Start + s.Seconds})
		}
	}
	slices.SortFunc(out, func(a, b interval) int { return cmp.Compare(a.from, b.from) })
	return out
}

// stepIntervals returns the time intervals of the steps that are marked in a rank's trace. If none
// are marked, the complete trace is one step.
func stepIntervals(spans []runs.Span) []interval {
	marked := profilerSteps(spans)
	if len(marked) > 0 {
		return marked
	}
	whole := interval{math.Inf(1), math.Inf(-1)}
	for _, s := range spans {
		if s.Kind != runs.SpanOther {
			whole.from, whole.to = min(whole.from, s.Start), max(whole.to, s.Start+s.Seconds)
		}
	}
	if whole.from < whole.to {
		return []interval{whole}
	}
	return nil
}

// meanActivityOverSteps returns the mean of one activity over the steps of all runs. part is an index of
// stepActivitySeconds. The interval is from the moving-block bootstrap (Künsch, The jackknife and the
// bootstrap for general stationary observations, Annals of Statistics 17, 1989): consecutive steps
// are correlated, so blocks of about n^(1/3) consecutive steps are drawn, separately for each run.
func meanActivityOverSteps(series [][]stepActivitySeconds, part int, level float64) stats.Estimate {
	out := stats.Estimate{Min: math.Inf(1), Max: math.Inf(-1), Low: math.NaN(), High: math.NaN()}
	var seed []float64
	sums := make([][]float64, len(series)) // cumulative sums before each step
	for i, steps := range series {
		sums[i] = make([]float64, len(steps)+1)
		for k, u := range steps {
			v := u[part]
			sums[i][k+1] = sums[i][k] + v
			out.Min, out.Max = min(out.Min, v), max(out.Max, v)
		}
		out.Value += sums[i][len(steps)]
		out.N += len(steps)
		seed = append(seed, sums[i][len(steps)])
	}
	out.Value /= float64(out.N)
	const rounding = 1e-12 // relative differences below it are rounding errors
	switch {
	case out.Max-out.Min <= rounding*math.Abs(out.Value):
		out.Low, out.High = out.Value, out.Value
		return out
	case out.N < 2*len(series):
		return out
	}
	rng := rand.New(rand.NewPCG(seedFromValues(seed), uint64(part)))
	means := make([]float64, stats.BootstrapResamples)
	for i := range means {
		total := 0.0
		for _, before := range sums {
			n := len(before) - 1
			block := max(1, int(math.Round(math.Cbrt(float64(n)))))
			for drawn := 0; drawn < n; drawn += block {
				length := min(block, n-drawn)
				at := rng.IntN(n - length + 1)
				total += before[at+length] - before[at]
			}
		}
		means[i] = total / float64(out.N)
	}
	slices.Sort(means)
	tail := (1 - level) / 2
	out.Low, out.High = stat.Quantile(tail, stat.LinInterp, means, nil), stat.Quantile(1-tail, stat.LinInterp, means, nil)
	return out
}

// seedFromValues returns a hash of values for use as a random seed, so that the same logs give the
// same interval to the last digit.
func seedFromValues(values []float64) uint64 {
	h := fnv.New64a()
	for _, v := range values {
		_, _ = h.Write(binary.LittleEndian.AppendUint64(nil, math.Float64bits(v))) // a hash does not fail
	}
	return h.Sum64()
}

// Sentence states the percentage of the step time that each part takes.
func (r TimeUse) Sentence() string {
	share := func(s stats.Estimate) string {
		return english.FormatPercent(math.Round(1000*s.Value/r.Step.Value) / 1000)
	}
	text := fmt.Sprintf("%s at %s: %s of a step is compute, %s waiting for data, %s exposed communication, %s idle",
		r.Series, english.FormatCount(r.Workers, "worker"), share(r.Compute), share(r.Data), share(r.Exposed), share(r.Idle))
	if talk := r.Exposed.Value + r.Hidden.Value; talk > 0 && r.Workers > 1 {
		text += fmt.Sprintf("; %s of the communication is hidden", english.FormatPercent(math.Round(1000*r.Hidden.Value/talk)/1000))
	}
	return text
}
