package figure

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"lockstep/pkg/runs"
	"lockstep/pkg/scaling"
)

// Timelines compares what each rank did over time in several series, for example with each
// strategy. It draws the rows of Timeline for one run of each series, one below the other, on a
// common axis of time since the start of each run. Options.Run, FirstStep and Steps select the runs
// and their steps.
func (o Options) Timelines(study *scaling.Study) (*Figure, error) {
	const name = "timelines"
	study, err := o.selectSeries(study, name)
	if err != nil {
		return nil, err
	}
	all := o.runsWithSpans(study)
	if len(all) == 0 {
		_, err := o.findRunWithSpans(study)
		return nil, fmt.Errorf("draw figure %s: %w", name, err)
	}
	joined := &timeline{hidden: timelineRowsPerRank * max(0, len(all)-maxTimelineRows/timelineRowsPerRank)}
	all = all[:min(len(all), maxTimelineRows/timelineRowsPerRank)]
	var folders, notes []string
	for _, run := range all {
		t, err := o.layOutTimeline(run, maxTimelineRows/len(all))
		if err != nil {
			return nil, fmt.Errorf("draw figure %s: series %s: %w", name, run.Info.Series, err)
		}
		joined.appendSeries(run.Info.Series, t)
		folders = append(folders, filepath.Base(run.Dir))
		if !slices.Contains(notes, t.note) {
			notes = append(notes, t.note)
		}
	}
	f := o.newFigure(name, "Timeline of each series", "time", "")
	joined.draw(f)
	f.caption = fmt.Sprintf("Activities of each rank over time, with each series; each run begins at 0; n = 1 run per series: %s. %s", strings.Join(folders, ", "), strings.Join(notes, " "))
	if joined.hidden > 0 {
		f.caption += fmt.Sprintf(" %d more rows are not drawn.", joined.hidden)
	}
	return f.finishLayout(study)
}

// runsWithSpans returns for each series the run that Timeline would draw. It omits series that have
// neither step spans nor traces.
func (o Options) runsWithSpans(study *scaling.Study) []*runs.Run {
	var all []*runs.Run
	for _, series := range study.Series() {
		one := o
		one.Series = []string{series}
		if run, err := one.findRunWithSpans(study); err == nil {
			all = append(all, run)
		}
	}
	return all
}

func hasSeveralSeriesWithSpans(s *scaling.Study) bool { return len(Options{}.runsWithSpans(s)) > 1 }

// appendSeries appends the rows of another timeline, and prefixes their names with the series. The
// earliest activity of other is moved to time 0.
func (t *timeline) appendSeries(series string, other *timeline) {
	first := len(t.rows)
	for _, name := range other.rows {
		if name != allReduceRow {
			name = strings.TrimSpace(series + " " + name)
		}
		t.rows = append(t.rows, name)
	}
	begin := other.spans[0].start
	for _, s := range other.spans {
		begin = min(begin, s.start)
	}
	for _, s := range other.spans {
		s.row, s.start, s.end = s.row+first, s.start-begin, s.end-begin
		t.spans = append(t.spans, s)
	}
	t.hidden += other.hidden
}
