package scaling

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/go-gota/gota/dataframe"
	"gonum.org/v1/gonum/stat"

	"lockstep/pkg/runs"
)

// Values of TimeUseRow.Source.
const (
	SourceSteps = "step spans"
	SourceTrace = "trace"
)

// TimeUseRow is where a step's time goes, in seconds a step: the mean over
// steps and ranks. Step = Data + Compute + Exposed + Idle. Low and High are
// the interval of the mean over the steps that were recorded (not over seeds),
// Min and Max the extremes of the steps, N the steps.
type TimeUseRow struct {
	Series             string
	Workers            int
	Source             string // "step spans" of run folders, or "trace"
	Runs, Ranks, Steps int
	Step               Span
	Data               Span // loading that nothing hides
	Compute            Span
	Exposed            Span // communication that nothing hides
	Hidden             Span // communication while there is computation too; part of Compute
	Idle               Span // nothing of these
}

// TimeUse is where the time of a study's steps goes. A cell shows it as a
// table.
type TimeUse struct {
	Rows     []TimeUseRow
	Problems []runs.Problem
	level    float64
}

// use is one step: data, compute, exposed, hidden, idle, and the whole.
type use [6]float64

const (
	useData = iota
	useCompute
	useExposed
	useHidden
	useIdle
	useStep
)

// TimeUse splits the steps' time into data, compute, exposed and hidden
// communication, and idle: from the step spans of run folders (compute is
// forward, backward and optimiser; idle is what no span holds) and from traces
// (by what the spans of a rank cover; steps are the trace's, or the whole of
// it where it tells none). By the rule, failed runs and epochs left out do not
// count; a trace's steps count all.
func (s *Study) TimeUse() *TimeUse {
	t := &TimeUse{level: s.Rule.level()}
	for i, p := range s.Points {
		for _, source := range []string{SourceSteps, SourceTrace} {
			var series [][]use // of each run, by step: the mean over its ranks
			row := TimeUseRow{Series: p.Series, Workers: p.Workers, Source: source}
			for _, r := range s.cells[i].runs {
				var steps []use
				var ranks int
				if source == SourceTrace {
					steps, ranks = traceUse(r)
				} else {
					var problems []runs.Problem
					steps, problems = s.spanUse(r)
					ranks = r.Info.Workers
					t.Problems = append(t.Problems, problems...)
				}
				if len(steps) > 0 {
					series = append(series, steps)
					row.Runs, row.Steps, row.Ranks = row.Runs+1, row.Steps+len(steps), max(row.Ranks, ranks)
				}
			}
			if row.Runs == 0 {
				continue
			}
			for k, into := range []*Span{&row.Data, &row.Compute, &row.Exposed, &row.Hidden, &row.Idle, &row.Step} {
				*into = overSteps(series, k, t.level)
			}
			t.Rows = append(t.Rows, row)
		}
	}
	return t
}

// spanUse are the steps of a run folder.
func (s *Study) spanUse(r runs.Run) ([]use, []runs.Problem) {
	steps, problems := s.stepsOf(r)
	if len(steps) == 0 {
		return nil, problems
	}
	// What of the epochs no span of rank 0 holds, a step.
	idle, inSpans := 0.0, 0.0
	counted := map[int]bool{}
	for _, step := range steps {
		counted[step[0].Epoch] = true
		inSpans += step[0].Data + step[0].Forward + step[0].Backward + step[0].Wait + step[0].Optimizer
	}
	for _, e := range r.Epochs {
		if counted[e.Epoch] && e.Seconds > 0 {
			idle += e.Seconds
		}
	}
	idle = max(0, idle-inSpans) / float64(len(steps))
	out := make([]use, len(steps))
	for i, step := range steps {
		n := float64(len(step))
		for _, x := range step {
			compute := x.Forward + x.Backward + x.Optimizer
			hidden := max(0, x.AllReduce-x.Wait)
			for k, v := range (use{x.Data, compute, x.Wait, hidden, idle, x.Data + compute + x.Wait + idle}) {
				out[i][k] += v / n
			}
		}
	}
	return out, problems
}

// traceUse are the steps of a run's trace, and its ranks.
func traceUse(r runs.Run) ([]use, int) {
	byRank := map[int][]runs.Span{}
	for _, s := range r.Spans {
		byRank[s.Rank] = append(byRank[s.Rank], s)
	}
	var sums []use
	var ranks []int
	for _, rank := range slices.Sorted(maps.Keys(byRank)) { // in order: rounding must not differ from one program to the next
		spans := byRank[rank]
		compute := coverOf(spans, runs.SpanCompute)
		talk, data := coverOf(spans, runs.SpanCommunication), coverOf(spans, runs.SpanData)
		exposed, hidden := talk.minus(compute), talk.and(compute)
		loading := data.minus(compute).minus(talk)
		for i, w := range windows(spans) {
			u := use{loading.within(w), compute.within(w), exposed.within(w), hidden.within(w)}
			u[useStep] = w.to - w.from
			u[useIdle] = max(0, u[useStep]-u[useData]-u[useCompute]-u[useExposed])
			if i == len(sums) {
				sums, ranks = append(sums, use{}), append(ranks, 0)
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

// markedSteps are those that a rank's trace marks, in order.
func markedSteps(spans []runs.Span) []stretch {
	var out []stretch
	for _, s := range spans {
		if s.Kind == runs.SpanOther && strings.HasPrefix(s.Name, "ProfilerStep") && s.Seconds > 0 {
			out = append(out, stretch{s.Start, s.Start + s.Seconds})
		}
	}
	slices.SortFunc(out, func(a, b stretch) int { return cmp.Compare(a.from, b.from) })
	return out
}

// windows are the steps of a rank's trace, or the whole of it.
func windows(spans []runs.Span) []stretch {
	marked := markedSteps(spans)
	if len(marked) > 0 {
		return marked
	}
	whole := stretch{math.Inf(1), math.Inf(-1)}
	for _, s := range spans {
		if s.Kind != runs.SpanOther {
			whole.from, whole.to = min(whole.from, s.Start), max(whole.to, s.Start+s.Seconds)
		}
	}
	if whole.from < whole.to {
		return []stretch{whole}
	}
	return nil
}

// overSteps is the mean of a part over the steps of all runs. Its interval is
// that of the moving-block bootstrap (Künsch, The jackknife and the bootstrap
// for general stationary observations, Annals of Statistics 17, 1989): steps
// that follow each other are alike, so that blocks of about n^(1/3) of them
// are drawn, in each run of its own.
func overSteps(series [][]use, part int, level float64) Span {
	out := Span{Min: math.Inf(1), Max: math.Inf(-1), Low: math.NaN(), High: math.NaN()}
	var seed []float64
	sums := make([][]float64, len(series)) // before each step
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
	const rounding = 1e-12 // of sums over spans: so little is no difference
	switch {
	case out.Max-out.Min <= rounding*math.Abs(out.Value):
		out.Low, out.High = out.Value, out.Value
		return out
	case out.N < 2*len(series):
		return out
	}
	rng := rand.New(rand.NewPCG(seedOf(seed), uint64(part)))
	means := make([]float64, resamples)
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

// seedOf makes the draws a function of the data: the same logs give the same
// interval to the last digit.
func seedOf(values []float64) uint64 {
	h := fnv.New64a()
	for _, v := range values {
		_, _ = h.Write(binary.LittleEndian.AppendUint64(nil, math.Float64bits(v))) // a hash does not fail
	}
	return h.Sum64()
}

func (t *TimeUse) grid() grid[TimeUseRow] {
	g := grid[TimeUseRow]{what: "time use", rows: t.Rows, columns: []column[TimeUseRow]{
		{name: "series", brief: true, text: func(r TimeUseRow) string { return r.Series }},
		{name: "workers", brief: true, count: func(r TimeUseRow) int { return r.Workers }},
		{name: "source", brief: true, text: func(r TimeUseRow) string { return r.Source }},
		{name: "runs", count: func(r TimeUseRow) int { return r.Runs }},
		{name: "ranks", brief: true, count: func(r TimeUseRow) int { return r.Ranks }},
		{name: "steps", brief: true, count: func(r TimeUseRow) int { return r.Steps }},
	}}
	for _, part := range []struct {
		name string
		span func(TimeUseRow) Span
	}{
		{"step", func(r TimeUseRow) Span { return r.Step }},
		{"data", func(r TimeUseRow) Span { return r.Data }},
		{"compute", func(r TimeUseRow) Span { return r.Compute }},
		{"exposed", func(r TimeUseRow) Span { return r.Exposed }},
		{"hidden", func(r TimeUseRow) Span { return r.Hidden }},
		{"idle", func(r TimeUseRow) Span { return r.Idle }},
	} {
		g.columns = append(g.columns, column[TimeUseRow]{
			name: part.name + "_seconds", title: part.name + "_ms", brief: true,
			value: func(r TimeUseRow) float64 { return part.span(r).Value },
			show: func(r TimeUseRow) string {
				v := part.span(r)
				text := short(1000 * v.Value)
				if half := 500 * (v.High - v.Low); half > 0 {
					text += " ±" + strconv.FormatFloat(half, 'g', 2, 64)
				}
				return text
			},
		},
			column[TimeUseRow]{name: part.name + "_seconds_low", value: func(r TimeUseRow) float64 { return part.span(r).Low }},
			column[TimeUseRow]{name: part.name + "_seconds_high", value: func(r TimeUseRow) float64 { return part.span(r).High }})
	}
	for _, r := range t.Rows {
		g.remarks = append(g.remarks, r.say())
	}
	g.remarks = append(g.remarks,
		"step = data + compute + exposed + idle; exposed is communication that nothing hides, hidden is communication during compute",
		fmt.Sprintf("±: %s interval of the mean over the steps recorded (moving-block bootstrap), not over seeds", percent(t.level)))
	for _, p := range t.Problems {
		g.remarks = append(g.remarks, "problem: "+p.String())
	}
	return g
}

// say names the largest part that is not computing.
func (r TimeUseRow) say() string {
	share := func(s Span) string { return percent(math.Round(1000*s.Value/r.Step.Value) / 1000) }
	text := fmt.Sprintf("%s at %s: %s of a step is compute, %s waiting for data, %s exposed communication, %s idle",
		r.Series, plural(r.Workers, "worker"), share(r.Compute), share(r.Data), share(r.Exposed), share(r.Idle))
	if talk := r.Exposed.Value + r.Hidden.Value; talk > 0 && r.Workers > 1 {
		text += fmt.Sprintf("; %s of the communication is hidden", percent(math.Round(1000*r.Hidden.Value/talk)/1000))
	}
	return text
}

// Table has a row a series, number of workers and source: series, workers,
// source, runs, ranks, steps, and in seconds a step, each with _low and _high,
// step_seconds, data_seconds, compute_seconds, exposed_seconds,
// hidden_seconds, idle_seconds.
func (t *TimeUse) Table() dataframe.DataFrame { return t.grid().table() }

// String is the table for people, in milliseconds.
func (t *TimeUse) String() string { return t.grid().String() }

// HTML is the table for a notebook's cell.
func (t *TimeUse) HTML() string { return t.grid().html() }

// Write writes the rows as "table", "csv" or "json".
func (t *TimeUse) Write(w io.Writer, format string) error { return t.grid().write(w, format) }
