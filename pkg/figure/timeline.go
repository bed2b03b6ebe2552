package figure

import (
	"cmp"
	"errors"
	"fmt"
	"image/color"
	"math"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/go-gota/gota/dataframe"
	"github.com/go-gota/gota/series"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"

	"lockstep/pkg/figure/internal/element"
	"lockstep/pkg/runs"
	"lockstep/pkg/scaling"
)

func activityColor(kind string) color.NRGBA {
	p := element.Palette()
	switch kind {
	case "data":
		return p[4]
	case "forward":
		return p[5]
	case "compute", "backward":
		return p[0]
	case "exposed", "communication":
		return p[1]
	case "all-reduce", "hidden":
		return p[2]
	case "optimizer":
		return p[3]
	}
	return color.NRGBA{R: 215, G: 215, B: 215, A: 255}
}

// timelineActivity is a colored interval in a row of the timeline. Times are in seconds.
type timelineActivity struct {
	row        int
	kind, name string
	start, end float64
}

type timeline struct {
	rows   []string // names, from top to bottom
	spans  []timelineActivity
	hidden int // number of rows that are not drawn
	note   string
}

// maxTimelineRows is the largest number of rows of a legible timeline.
const maxTimelineRows = 24

// Timeline draws what each rank of a run did over time. There is one row per rank (for a trace: per
// thread or stream), colored by the kind of activity. It draws the step spans of a run folder, or
// the spans of a trace. Options.Run, FirstStep and Steps select the run and its steps.
func (o Options) Timeline(study *scaling.Study) (*Figure, error) {
	const name = "timeline"
	if study == nil || len(study.Runs) == 0 {
		return nil, fmt.Errorf("draw figure %s: no study with runs; read one with scaling.Read", name)
	}
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("draw figure %s: %w", name, err)
	}
	run, err := o.findRunWithSpans(study)
	if err != nil {
		return nil, fmt.Errorf("draw figure %s: %w", name, err)
	}
	t, err := o.layOutTimeline(run, maxTimelineRows)
	if err != nil {
		return nil, fmt.Errorf("draw figure %s: %w", name, err)
	}
	f := o.newFigure(name, "Timeline of "+filepath.Base(run.Dir), "time", "")
	t.draw(f)
	f.caption = fmt.Sprintf("Activities of each rank of %s over time; n = 1 run. %s", filepath.Base(run.Dir), t.note)
	if t.hidden > 0 {
		f.caption += fmt.Sprintf(" %d more rows are not drawn.", t.hidden)
	}
	return f.finishLayout(study)
}

// findRunWithSpans returns the run selected by Options.Run, or else the one with the most ranks.
func (o Options) findRunWithSpans(study *scaling.Study) (*runs.Run, error) {
	var best *runs.Run
	ranks := 0
	for i := range study.Runs {
		r := &study.Runs[i]
		n := r.Info.Workers
		if len(r.Spans) > 0 {
			for _, s := range r.Spans {
				n = max(n, s.Rank+1)
			}
		} else if len(r.Workers) == 0 {
			continue
		}
		if len(o.Series) > 0 && !slices.Contains(o.Series, r.Info.Series) {
			continue
		}
		if o.Run != "" && !strings.Contains(r.Dir, o.Run) {
			continue
		}
		if n > ranks {
			best, ranks = r, n
		}
	}
	switch {
	case best != nil:
		return best, nil
	case o.Run != "":
		return nil, fmt.Errorf("no run with step spans or a trace has %q in its name", o.Run)
	}
	return nil, errors.New("no run has step spans (steps-<rank>.jsonl of a run folder) or a trace")
}

// selectTimelineSteps returns the first and the last step to draw. The run has the steps first to last.
func (o Options) selectTimelineSteps(first, last int) (from, to int) {
	n := cmp.Or(o.Steps, 3)
	from = cmp.Or(o.FirstStep, max(first, (first+last-n+1)/2))
	return from, from + n - 1
}

// layOutTimeline lays out the step spans or the trace of a run in at most the given number of rows.
func (o Options) layOutTimeline(run *runs.Run, rows int) (*timeline, error) {
	if len(run.Spans) > 0 {
		return o.layOutTrace(run, rows)
	}
	return o.layOutSteps(run, rows)
}

// timelineRowsPerRank is the number of rows for each rank whose step spans are drawn: one for its phases,
// and below it one for the time inside the all-reduce.
const timelineRowsPerRank = 2

const allReduceRow = "all-reduce"

// layOutSteps lays out the step spans of a run folder. The files contain durations but no start
// times. Ranks leave a collective together, so the end of each collective is drawn at the same time
// for all ranks.
func (o Options) layOutSteps(run *runs.Run, rows int) (*timeline, error) {
	t := &timeline{}
	byRank := make([]map[int]runs.Step, run.Info.Workers)
	first, last := math.MaxInt, 0
	for rank := range byRank {
		_, steps, _, err := runs.ReadSteps(run.Dir, rank)
		if err != nil {
			return nil, err
		}
		byRank[rank] = map[int]runs.Step{}
		for _, s := range steps {
			byRank[rank][s.Step] = s
			first, last = min(first, s.Step), max(last, s.Step)
		}
	}
	if last == 0 {
		return nil, fmt.Errorf("the step files of %s contain no steps", run.Dir)
	}
	from, to := o.selectTimelineSteps(first, last)
	shown := min(len(byRank), max(1, rows/timelineRowsPerRank))
	t.hidden = len(byRank) - shown
	for rank := range shown {
		t.rows = append(t.rows, "rank "+strconv.Itoa(rank), allReduceRow)
	}
	ready := make([]float64, len(byRank)) // when a rank's last step ended
	drawn := 0
	for n := from; n <= to; n++ {
		end := 0.0 // when all ranks leave the collective
		for rank, steps := range byRank {
			s, ok := steps[n]
			if !ok {
				continue
			}
			end = max(end, ready[rank]+s.Data+s.Forward+s.Backward+s.Wait)
		}
		if end == 0 {
			continue
		}
		drawn++
		for rank := range shown {
			if s, ok := byRank[rank][n]; ok {
				ready[rank] = t.addStepActivities(rank, s, end)
			}
		}
	}
	if drawn == 0 {
		return nil, fmt.Errorf("%s has no steps from %d to %d; it has steps %d to %d", run.Dir, from, to, first, last)
	}
	t.note = fmt.Sprintf("Steps %d to %d, from the step spans of each rank, which are drawn so that all ranks leave a collective together; white: time in no span. The lower row of a rank is the time inside the all-reduce.", from, from+drawn-1)
	if len(byRank) == 1 {
		t.note = fmt.Sprintf("Steps %d to %d, from the step spans.", from, from+drawn-1)
	}
	return t, nil
}

// addStepActivities adds the activities of a step. end is the time at which the step's collective ends. It
// returns the time at which the step ends.
func (t *timeline) addStepActivities(rank int, s runs.Step, end float64) float64 {
	row := timelineRowsPerRank * rank
	add := func(row int, kind string, start, seconds float64) float64 {
		if seconds > 0 {
			t.spans = append(t.spans, timelineActivity{row, kind, "step " + strconv.Itoa(s.Step), start, start + seconds})
		}
		return start + max(0, seconds)
	}
	at := end - s.Data - s.Forward - s.Backward - s.Wait
	at = add(row, "data", at, s.Data)
	at = add(row, "forward", at, s.Forward)
	at = add(row, "backward", at, s.Backward)
	at = add(row, "exposed", at, s.Wait)
	add(row+1, "all-reduce", at-s.AllReduce, s.AllReduce)
	return add(row, "optimizer", at, s.Optimizer)
}

// layOutTrace lays out the spans of a trace. If the trace marks its steps, only the spans of the
// selected steps are laid out.
func (o Options) layOutTrace(run *runs.Run, rows int) (*timeline, error) {
	t := &timeline{note: "Spans of the trace; the clocks of the ranks are as they were recorded."}
	step := regexp.MustCompile(`(?i)^(profilerstep|step|train_?step|iteration)[ #_]*\d*$`)
	var steps []runs.Span
	lowest := math.MaxInt
	for _, s := range run.Spans {
		lowest = min(lowest, s.Rank)
	}
	for _, s := range run.Spans {
		if s.Rank == lowest && s.Kind == runs.SpanOther && step.MatchString(strings.TrimSpace(s.Name)) {
			steps = append(steps, s)
		}
	}
	slices.SortStableFunc(steps, func(a, b runs.Span) int { return cmp.Compare(a.Start, b.Start) })
	from, to := math.Inf(-1), math.Inf(1)
	if len(steps) > 0 {
		a, b := o.selectTimelineSteps(1, len(steps))
		if a > len(steps) {
			return nil, fmt.Errorf("the trace %s has %d steps, but --first-step is %d", run.Dir, len(steps), a)
		}
		b = min(b, len(steps))
		from, to = steps[a-1].Start, steps[b-1].Start+steps[b-1].Seconds
		t.note = fmt.Sprintf("Steps %d to %d of the trace; the clocks of the ranks are as they were recorded.", a, b)
	}
	type lane struct {
		rank int
		name string
	}
	var lanes []lane
	var kept []runs.Span
	for _, s := range run.Spans {
		if s.Kind == runs.SpanOther || s.Start+s.Seconds < from || s.Start > to {
			continue
		}
		kept = append(kept, s)
		if l := (lane{s.Rank, s.Lane}); !slices.Contains(lanes, l) {
			lanes = append(lanes, l)
		}
	}
	if len(kept) == 0 {
		return nil, fmt.Errorf("the trace %s has no span of data, compute or communication in the selected steps", run.Dir)
	}
	slices.SortFunc(lanes, func(a, b lane) int {
		return cmp.Or(a.rank-b.rank, runs.NaturalCompare(a.name, b.name))
	})
	t.hidden = max(0, len(lanes)-rows)
	lanes = lanes[:min(len(lanes), rows)]
	for _, l := range lanes {
		t.rows = append(t.rows, strings.TrimSpace(fmt.Sprintf("rank %d %s", l.rank, l.name)))
	}
	for _, s := range kept {
		if row := slices.Index(lanes, lane{s.Rank, s.Lane}); row >= 0 {
			t.spans = append(t.spans, timelineActivity{row, s.Kind, s.Name, max(s.Start, from), min(s.Start+s.Seconds, to)})
		}
	}
	return t, nil
}

// draw draws the rows, the first one at the top, and computes the table: row, kind, name,
// start_seconds, seconds.
func (t *timeline) draw(f *Figure) {
	at := element.EmptyExtent()
	for _, s := range t.spans {
		at.Add(s.start, s.end)
	}
	unitName, unit := element.ChooseTimeUnit(at.Hi - at.Lo)
	f.plot.X.Label.Text = "time (" + unitName + ")"
	for _, kind := range []string{"data", "forward", "backward", "compute", "exposed", "communication", "all-reduce", "optimizer"} { // in the order of the legend
		b := element.DataRectangles{Fill: activityColor(kind)}
		for _, s := range t.spans {
			if s.kind != kind {
				continue
			}
			half := 0.4
			if kind == "all-reduce" {
				half = 0.25
			}
			y := -float64(s.row)
			b.At = append(b.At, element.DataRectangle{X0: (s.start - at.Lo) / unit, Y0: y - half, X1: (s.end - at.Lo) / unit, Y1: y + half})
		}
		if len(b.At) > 0 {
			f.plot.Add(b)
			f.legend = append(f.legend, element.LegendEntry{Name: strings.Replace(kind, "exposed", "exposed communication", 1), Icons: []plot.Thumbnailer{b}})
		}
	}
	ticks := make(element.RowTicks, len(t.rows))
	for i, name := range t.rows {
		ticks[i] = element.ShortenText(name, 110, f.plot.Y.Tick.Label.Width)
	}
	f.plot.Y.Tick.Marker = ticks
	f.plot.Y.Tick.Length = 0
	f.plot.Y.Min, f.plot.Y.Max = -float64(len(t.rows))+0.4, 0.6
	f.plot.X.Min, f.plot.X.Max = 0, (at.Hi-at.Lo)/unit
	if f.options.HeightInches == 0 {
		const rowHeight, axes = 20, 75
		f.Height = max(axes+rowHeight*4, axes+rowHeight*vg.Length(len(t.rows))) * f.zoomFactor(f.Width, f.natural)
	}
	f.table = t.table()
}

func (t *timeline) table() dataframe.DataFrame {
	var rows, kinds, names []string
	var start, seconds []float64
	for _, s := range t.spans {
		row := t.rows[s.row]
		if row == allReduceRow {
			row = t.rows[s.row-1] + " " + row
		}
		rows, kinds, names = append(rows, row), append(kinds, s.kind), append(names, s.name)
		start, seconds = append(start, s.start), append(seconds, s.end-s.start)
	}
	return dataframe.New(series.New(rows, series.String, "row"), series.New(kinds, series.String, "kind"), series.New(names, series.String, "name"),
		series.New(start, series.Float, "start_seconds"), series.New(seconds, series.Float, "seconds"))
}
