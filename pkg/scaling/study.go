package scaling

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"lockstep/pkg/internal/clean"
	"lockstep/pkg/internal/english"
	"lockstep/pkg/logread"
	"lockstep/pkg/runs"
	"lockstep/pkg/scaling/internal/observe"
	"lockstep/pkg/scaling/internal/stats"
)

// Study is what a set of runs shows. It is not changed after it was made.
type Study struct {
	Rule   Rule
	Runs   []runs.Run // every run read, failed ones too
	Points []Point    // by series, then by workers
	// Problems are what could not be used: lines, files, runs that failed.
	Problems []runs.Problem
	// Notes say what a reader of the numbers must know.
	Notes []string

	// Reports say of each file that was read what it is and what of it counts.
	Reports logread.Reports

	paths    []string // as read, to follow them
	options  logread.Options
	unread   []runs.Problem           // of files that gave no run
	measures map[string]observe.Speed // of the speed-up, by series
	cells    []observe.Cell           // what Points were made of, one each
	modes    []Mode                   // by series
	several  bool                     // studies
	order    []string                 // of the series; nil for that of their names
	// disturbed names the runs that count and were disturbed by other load, and says how.
	disturbed []string
	dice      *stats.Dice
	losses    *lossCurves
}

// Read reads the runs in and under each path (run folders, and the logs of
// other programs as logread knows them) into a study by DefaultRule. A relative
// path lies where runs.ResolveLogs says, or else in the working directory.
func Read(paths ...string) (*Study, error) {
	return ReadWith(context.Background(), logread.Options{}, paths...)
}

// ReadWith reads as Read does, with what the options say of names, until the
// context ends.
func ReadWith(ctx context.Context, options logread.Options, paths ...string) (*Study, error) {
	if len(paths) == 0 {
		return nil, errors.New("read study: no path given; name a folder of logs such as logs/demo")
	}
	places := make([]string, len(paths))
	for i, path := range paths {
		place, err := runs.LocateLogs(path)
		if err != nil {
			return nil, fmt.Errorf("read study: %w", err)
		}
		places[i] = place
	}
	logs, err := options.Read(ctx, places...)
	if err != nil {
		return nil, fmt.Errorf("read study: %w", err)
	}
	if len(logs.Runs) == 0 {
		text := fmt.Sprintf("read study: no runs in %s; expected run folders (with run.json) or log_<N>.csv files; lockstep read --explain says what each file is", strings.Join(places, ", "))
		for _, p := range logs.Problems {
			text += "\n  " + p.String()
		}
		return nil, errors.New(text)
	}
	s, err := fromLogs(logs, DefaultRule())
	if err != nil {
		return nil, err
	}
	s.paths, s.options = places, options
	return s, nil
}

// FromRuns makes a study of runs that are in memory already, by DefaultRule.
func FromRuns(all []runs.Run) (*Study, error) { return newStudy(all, nil, DefaultRule()) }

// WithRule returns a study of the same runs by another rule.
func (s *Study) WithRule(rule Rule) (*Study, error) {
	if rule.Validate() == nil && len(s.Points) > 0 && rule.spelled() == s.Rule.spelled() {
		same := *s
		same.Rule = rule
		return &same, nil
	}
	return s.with(s.Runs, rule, s.order)
}

// Only returns a study of the named series, in the order of the names.
func (s *Study) Only(series ...string) (*Study, error) {
	var kept []runs.Run
	for _, name := range series {
		if _, err := s.oneSeries(name); err != nil {
			return nil, fmt.Errorf("choose series: %w", err)
		}
	}
	for _, g := range s.grouped() {
		if !slices.Contains(series, g.Name) {
			continue
		}
		for _, r := range g.Runs { // the study's name may stand in the series' already
			r.Info.Series = g.Name
			r.Info.Study = ""
			kept = append(kept, r)
		}
	}
	if len(kept) == 0 {
		return nil, fmt.Errorf("choose series: none named; there are: %s", english.Quoted(s.Series()))
	}
	return s.with(kept, s.Rule, series)
}

// with returns a study of runs of this one, with the series in an order; nil for
// that of their names.
func (s *Study) with(all []runs.Run, rule Rule, order []string) (*Study, error) {
	out, err := orderedStudy(all, s.unread, rule, order)
	if err != nil {
		return nil, err
	}
	out.Reports, out.paths, out.options = s.Reports, s.paths, s.options
	return out, nil
}

// newStudy computes a study.
func newStudy(all []runs.Run, problems []runs.Problem, rule Rule) (*Study, error) {
	return orderedStudy(all, problems, rule, nil)
}

// orderedStudy computes a study whose series are in an order; nil for that of
// their names.
func orderedStudy(all []runs.Run, problems []runs.Problem, rule Rule, order []string) (*Study, error) {
	if err := rule.Validate(); err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, errors.New("make study: no runs")
	}
	all = named(all)
	s := &Study{order: order, Rule: rule, Runs: all, Problems: slices.Clone(problems), unread: problems, measures: map[string]observe.Speed{}, dice: stats.NewDice(), losses: &lossCurves{}}
	for _, r := range all {
		s.several = s.several || r.Info.Study != all[0].Info.Study
		s.Problems = append(s.Problems, r.Problems...)
		if r.Info.Workers < 1 {
			s.problem(r, "nothing says how many workers the run had, so that it has no place in the study; say it with a pattern (--as), such as 'log_{workers}.csv=native'")
		}
	}
	for _, series := range s.grouped() {
		s.addSeries(series)
	}
	s.noteMeasures()
	if text := s.Disturbed(); text != "" {
		s.note("%s; their times say little about scaling: repeat them on an idle machine", text)
	}
	return s, nil
}

// named returns a copy of all whose names are fit to be shown in tables, sentences
// and figures. Paths stay as they are.
func named(all []runs.Run) []runs.Run {
	all = slices.Clone(all)
	for i := range all {
		r := &all[i]
		for _, name := range []*string{&r.Info.Study, &r.Info.Series, &r.Info.Host.Name, &r.Info.Accelerator, &r.Kind} {
			*name = clean.Text(*name)
		}
		r.Curves, r.Trials = slices.Clone(r.Curves), slices.Clone(r.Trials)
		for k := range r.Curves {
			r.Curves[k].Name = clean.Text(r.Curves[k].Name)
		}
		for k := range r.Trials {
			r.Trials[k].Name = clean.Text(r.Trials[k].Name)
		}
	}
	return all
}

// grouped sorts the runs into series, in natural order of their names or in
// the order that Only was given. The
// study's name is part of a series' name where there are several studies:
// their runs are not each other's repeats.
func (s *Study) grouped() []observe.Series {
	var groups []observe.Series
	for _, r := range s.Runs {
		if r.Info.Workers < 1 { // newStudy has named it
			continue
		}
		name := s.seriesName(r)
		i := slices.IndexFunc(groups, func(g observe.Series) bool { return g.Name == name })
		if i < 0 {
			groups = append(groups, observe.Series{Name: name})
			i = len(groups) - 1
		}
		groups[i].Runs = append(groups[i].Runs, r)
	}
	slices.SortStableFunc(groups, func(a, b observe.Series) int {
		if s.order != nil {
			return slices.Index(s.order, a.Name) - slices.Index(s.order, b.Name)
		}
		return runs.NaturalCompare(a.Name, b.Name)
	})
	return groups
}

func (s *Study) seriesName(r runs.Run) string {
	name := r.Info.Series
	if name == "" {
		name = "runs"
	}
	if s.several && r.Info.Study != "" {
		return r.Info.Study + " " + name
	}
	return name
}

// Name returns the study's name, or those of several.
func (s *Study) Name() string {
	var names []string
	for _, r := range s.Runs {
		if n := r.Info.Study; n != "" && !slices.Contains(names, n) {
			names = append(names, n)
		}
	}
	slices.SortFunc(names, runs.NaturalCompare)
	return strings.Join(names, ", ")
}

// Series lists the names of the series, in order.
func (s *Study) Series() []string {
	var names []string
	for _, p := range s.Points {
		if !slices.Contains(names, p.Series) {
			names = append(names, p.Series)
		}
	}
	return names
}

// Follow shows the study again each time the logs that it was read from have
// grown, by the same rule, until the context ends or show fails; it shows it
// once at once. Only what was appended is read, and files are asked for by
// polling, so that it works on a network file system. The end of the context
// is no error.
func (s *Study) Follow(ctx context.Context, show func(*Study) error) error {
	if len(s.paths) == 0 {
		return errors.New("follow study: it was not read from files; read one with scaling.Read")
	}
	return follow(ctx, s.options, s.paths, s.Rule, show)
}

// Follow reads and follows folders that may be empty still: show is called
// when the first run is there, then as Study.Follow does.
func Follow(ctx context.Context, show func(*Study) error, paths ...string) error {
	if len(paths) == 0 {
		return errors.New("follow study: no path given; name a folder of logs such as logs/demo")
	}
	return follow(ctx, logread.Options{}, paths, DefaultRule(), show)
}

func follow(ctx context.Context, options logread.Options, paths []string, rule Rule, show func(*Study) error) error {
	if err := rule.Validate(); err != nil {
		return err
	}
	f, err := options.Follow(ctx, paths...)
	if err != nil {
		return fmt.Errorf("follow study: %w", err)
	}
	for f.Next() {
		logs := f.Logs()
		if len(logs.Runs) == 0 {
			continue
		}
		s, err := fromLogs(logs, rule)
		if err != nil {
			return fmt.Errorf("follow study: %w", err)
		}
		s.paths, s.options = slices.Clone(paths), options
		if err := show(s); err != nil {
			return fmt.Errorf("follow study: %w", err)
		}
	}
	if err := f.Err(); err != nil {
		return fmt.Errorf("follow study: %w", err)
	}
	return nil
}

// fromLogs returns the study of what was read. The problems of the runs come back
// in with the runs.
func fromLogs(logs *logread.Logs, rule Rule) (*Study, error) {
	inRun := map[runs.Problem]bool{}
	for _, r := range logs.Runs {
		for _, p := range r.Problems {
			inRun[p] = true
		}
	}
	own := slices.DeleteFunc(slices.Clone(logs.Problems), func(p runs.Problem) bool { return inRun[p] })
	s, err := newStudy(logs.Runs, own, rule)
	if err != nil {
		return nil, err
	}
	s.Reports = logs.Reports
	copies := 0
	for _, r := range logs.Reports {
		if r.CopyOf != "" {
			copies++
		}
	}
	switch {
	case copies == 1:
		s.Notes = append(s.Notes, "1 file is a copy of a run folder that is read too, and does not count")
	case copies > 1:
		s.Notes = append(s.Notes, fmt.Sprintf("%d files are copies of run folders that are read too, and do not count", copies))
	}
	return s, nil
}
