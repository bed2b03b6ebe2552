package scaling

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"

	"lockstep/pkg/internal/clean"
	"lockstep/pkg/internal/english"
	"lockstep/pkg/logread"
	"lockstep/pkg/notebook"
	"lockstep/pkg/runs"
	"lockstep/pkg/scaling/internal/observe"
	"lockstep/pkg/scaling/internal/stats"
)

// Study is the analysis of a set of runs according to a Rule. It is immutable.
type Study struct {
	Rule   Rule
	Runs   []runs.Run // all runs that were read, including failed ones
	Points []Point    // by series, then by workers
	// Problems lists the lines, files and runs that could not be used, each with the reason.
	Problems []runs.Problem
	// Notes contains remarks that a reader needs to interpret the numbers.
	Notes []string

	// Reports describes, for each file, its format and which of its contents are used.
	Reports logread.Reports

	paths           []string // the paths that were read, for Follow
	options         logread.Options
	chosen          []string                        // the series that Only kept, for Follow; nil: all
	fileProblems    []runs.Problem                  // problems of files that contain no run
	readNotes       []string                        // remarks about how the runs were read
	measures        map[string]observe.SpeedMeasure // the measure that each series' speed-up is computed from, by name of the series
	cells           []observe.RunGroup              // the counted runs of each element of Points
	modes           []Mode                          // one per series
	multipleStudies bool                            // the runs are from more than one study
	order           []string                        // order of the series; nil for the natural order of their names
	indices         map[string]int                  // see SeriesIndex
	lacks           []missingData                   // what some runs lack, in the order in which it was found
	disturbed       []disturbedRun
	draws           *stats.ResampleCache
	losses          func() []LossCurve // computes them once; nil in a Study that a caller constructed
	shownIn         <-chan struct{}    // of the cell in which Read has shown the ReadingNotes; nil if none
}

// Read reads all runs in the given paths and their subfolders into a study with DefaultRule. It
// reads run folders, and logs of other programs in the formats that package logread knows. Relative
// paths are resolved by runs.LocateLogs.
func Read(paths ...string) (*Study, error) {
	return ReadWith(context.Background(), logread.Options{}, paths...)
}

// ReadWith is like Read, with options. It returns an error when ctx is done. In a notebook, it
// shows the study's ReadingNotes below the cell.
func ReadWith(ctx context.Context, options logread.Options, paths ...string) (*Study, error) {
	s, err := readStudy(ctx, options, paths...)
	if err != nil || !notebook.InNotebook() || len(s.ReadingNotes()) == 0 {
		return s, err
	}
	lines := formatCautions(s.Cautions())
	for _, n := range s.ReadingNotes()[len(lines):] {
		lines = append(lines, "note: "+n)
	}
	s.shownIn = notebook.Context().Done()
	return s, notebook.Display(clean.EscapeMultiline(strings.Join(lines, "\n")))
}

// readStudy implements ReadWith without showing the notes.
func readStudy(ctx context.Context, options logread.Options, paths ...string) (*Study, error) {
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
		text := fmt.Sprintf("read study: no runs in %s; expected run folders (with run.json) or logs of other programs: %s; lockstep read --explain shows the format of each file, and lockstep read PATH --suggest proposes rules for other logs", strings.Join(places, ", "), strings.Join(logread.FormatNames(), ", "))
		for _, p := range logs.Problems {
			text += "\n  " + p.String()
		}
		return nil, errors.New(text)
	}
	s, err := newStudyFromLogs(logs, DefaultRule())
	if err != nil {
		return nil, err
	}
	s.paths, s.options = places, options
	return s, nil
}

// FromRuns returns a study of runs in memory, with DefaultRule. Runs that are not repeated runs
// with the same settings become separate series; see logread.SeparateSeries.
func FromRuns(all []runs.Run) (*Study, error) {
	all = slices.Clone(all)
	notes := logread.SeparateSeries(all)
	return newStudyFromRuns(all, nil, notes, DefaultRule(), nil)
}

// WithRule returns a study of the same runs with another rule.
func (s *Study) WithRule(rule Rule) (*Study, error) {
	if rule.Validate() == nil && len(s.Points) > 0 && rule.withDefaults() == s.Rule.withDefaults() {
		same := *s
		same.Rule = rule
		return &same, nil
	}
	return s.selectRuns(s.Runs, rule, s.order)
}

// Only returns a study of the named series, in the given order.
func (s *Study) Only(series ...string) (*Study, error) {
	var kept []runs.Run
	for _, name := range series {
		if _, err := s.resolveSeries(name); err != nil {
			return nil, fmt.Errorf("choose series: %w", err)
		}
	}
	for _, g := range s.groupBySeries() {
		if slices.Contains(series, g.Name) {
			kept = append(kept, renameSeries(g.Runs, g.Name)...)
		}
	}
	if len(kept) == 0 {
		return nil, fmt.Errorf("choose series: no name given: use one or more of %s", english.QuoteNames(s.Series()))
	}
	out, err := s.selectRuns(kept, s.Rule, series)
	if err != nil {
		return nil, err
	}
	out.chosen = slices.Clone(series)
	return out, nil
}

// selectRuns returns a study of all, a subset of the runs of s. The series are in the given order. If
// order is nil, they are in the natural order of their names.
func (s *Study) selectRuns(all []runs.Run, rule Rule, order []string) (*Study, error) {
	out, err := newStudyFromRuns(all, s.fileProblems, s.readNotes, rule, order)
	if err != nil {
		return nil, err
	}
	out.Reports, out.paths, out.options, out.chosen, out.shownIn = s.Reports, s.paths, s.options, s.chosen, s.shownIn
	if !slices.ContainsFunc(out.Series(), func(name string) bool { _, known := s.indices[name]; return !known }) {
		out.indices = s.indices
	}
	return out, nil
}

// newStudyFromRuns computes a study. The series are in the given order, or in the natural order of
// their names if order is nil. problems belong to files without a run, and notes are remarks about
// how the runs were read.
func newStudyFromRuns(all []runs.Run, problems []runs.Problem, notes []string, rule Rule, order []string) (*Study, error) {
	if err := rule.Validate(); err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, errors.New("create study: no runs given")
	}
	all = cleanNames(all)
	removeInvalidScores(all)
	s := &Study{order: order, Rule: rule, Runs: all, Problems: slices.Clone(problems), fileProblems: problems, readNotes: notes, measures: map[string]observe.SpeedMeasure{}, draws: stats.NewResampleCache()}
	s.losses = sync.OnceValue(s.computeLossCurves)
	lacking := map[string]bool{} // files with a run whose number of workers is unknown, which addMissingData reports
	for _, r := range all {
		lacking[r.File] = lacking[r.File] || r.Info.Workers < 1
	}
	for _, r := range all {
		s.multipleStudies = s.multipleStudies || r.Info.Study != all[0].Info.Study
		for _, p := range r.Problems {
			if !lacking[r.File] || !strings.HasPrefix(p.Reason, unknownWorkersPrefix) {
				s.Problems = append(s.Problems, p)
			}
		}
		if r.Info.Workers < 1 {
			hint := "--as 'NAME_{workers}.EXT'"
			switch source := r.Origins[runs.PropertyNodes].Source; {
			case r.Info.Nodes > 0 && source == runs.SourceContent:
				hint = "--columns 'workers_per_node=NAME' in a table, or --as 'NAME=workers:N'"
			case r.Info.Nodes > 0:
				hint = "--as 'NAME_{nodes}.EXT=workers:{nodes}*N', where N is the number of workers per node"
			}
			s.addMissingData(r, unknownWorkersPrefix+", so the run is in no table; set it with "+hint)
		}
	}
	for _, series := range s.groupBySeries() {
		s.addSeries(series)
	}
	s.reportMissingData()
	s.Problems = mergeEqualProblems(s.Problems)
	s.addSpeedMeasureNotes()
	s.addWideIntervalNotes()
	s.addMissingEpochNotes()
	s.Notes = append(s.ReadingNotes(), s.Notes...)
	s.indices = map[string]int{}
	for i, name := range s.Series() {
		s.indices[name] = i
	}
	return s, nil
}

// cleanNames returns a copy of the runs in which all names are safe to show. Paths are not changed.
func cleanNames(all []runs.Run) []runs.Run {
	all = slices.Clone(all)
	for i := range all {
		r := &all[i]
		for _, name := range []*string{&r.Info.Study, &r.Info.Series, &r.Info.Source, &r.Info.Host.Name, &r.Info.Accelerator, &r.Kind} {
			*name = clean.EscapeText(*name)
		}
		r.Curves, r.Trials = slices.Clone(r.Curves), slices.Clone(r.Trials)
		for k := range r.Curves {
			r.Curves[k].Name = clean.EscapeText(r.Curves[k].Name)
		}
		for k := range r.Trials {
			r.Trials[k].Name = clean.EscapeText(r.Trials[k].Name)
		}
	}
	return all
}

// removeInvalidScores removes losses and scores that are not meaningful, so that no table, figure
// or comparison shows them. It does not change the runs' own slices.
func removeInvalidScores(all []runs.Run) {
	for i := range all {
		r := &all[i]
		if r.Info.Unreal == "" {
			continue
		}
		r.Info.Test, r.Info.Final, r.Curves, r.Classes = nil, nil, nil, nil
		r.Epochs = slices.Clone(r.Epochs)
		for k := range r.Epochs {
			e := &r.Epochs[k]
			for _, score := range []*float64{&e.TrainLoss, &e.ValLoss, &e.IoU, &e.Dice, &e.Accuracy, &e.ValAccuracy} {
				*score = math.NaN()
			}
		}
	}
}

// groupBySeries groups the runs into series, in the order passed to Only, or else in the natural
// order of their names. If there are several studies, each series name includes the name of its
// study, because runs of different studies are not repeated runs. The name that a user gave to a series stays.
func (s *Study) groupBySeries() []observe.Series {
	var groups []observe.Series
	for _, r := range s.Runs {
		if r.Info.Workers < 1 { // newStudyFromRuns has reported it
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
	name := cmp.Or(r.Info.Series, "runs")
	switch study := r.Info.Study; {
	case !s.multipleStudies || study == "" || r.Origins[runs.PropertySeries].Source == runs.SourceUser:
		return name
	case equalIgnoringSeparators(study, name):
		return study
	default:
		return study + " " + name
	}
}

// equalIgnoringSeparators reports whether the names of a study and of a series differ only in
// separators. For example, a series named after its folder unet_b32 may be called unet-b32.
func equalIgnoringSeparators(study, series string) bool {
	equal := strings.NewReplacer("_", "-", " ", "-", ".", "-")
	return equal.Replace(study) == equal.Replace(series)
}

// Assumptions returns what was assumed about the runs because no log states it. There is one phrase
// for each property and source, such as "workers of 4 runs assumed from file names". The study's
// notes, captions and report contain the phrases.
func (s *Study) Assumptions() []string { return runs.Assumptions(s.Runs) }

// ReadingNotes returns the study's notes about how it was read: its Cautions and Sources, which
// series were separated and how to join them, which files are copies, what was assumed, and which
// runs had different data.
func (s *Study) ReadingNotes() []string {
	notes := slices.Concat(s.Cautions(), s.Sources(), s.readNotes)
	if assumed := s.Assumptions(); assumed != nil {
		notes = append(notes, strings.Join(assumed, "; ")+"; --strict refuses assumptions, and lockstep read --explain shows each of them")
	}
	return append(notes, s.differentDataNotes()...)
}

// unshownNotes returns the study's notes that Read has not yet shown in the current notebook cell.
func (s *Study) unshownNotes() []string {
	if s.shownIn == nil || !notebook.InNotebook() || s.shownIn != notebook.Context().Done() {
		return s.Notes
	}
	shown := s.ReadingNotes()
	return slices.DeleteFunc(slices.Clone(s.Notes), func(n string) bool { return slices.Contains(shown, n) })
}

// Name returns the name of the study. Several names are joined by commas.
func (s *Study) Name() string {
	names := observe.DistinctTexts(s.Runs, func(r runs.Run) string { return r.Info.Study })
	slices.SortFunc(names, runs.NaturalCompare)
	return strings.Join(names, ", ")
}

// Series returns the names of the series, in order.
func (s *Study) Series() []string {
	return observe.Distinct(s.Points, func(p Point) string { return p.Series })
}

// SeriesIndex returns the index of a series among all series that were read, or 0 for an unknown
// name. Studies returned by Only keep the indices, so that figures keep the color of each series.
func (s *Study) SeriesIndex(series string) int { return s.indices[series] }

// Follow calls show at once, and again with an updated study each time its logs have grown. The
// updated study keeps the rule and the series selected by Only. Follow returns nil when ctx ends,
// or the error of show. It reads only appended data and polls the files, so it works on network
// file systems.
func (s *Study) Follow(ctx context.Context, show func(*Study) error) error {
	if len(s.paths) == 0 {
		return errors.New("follow study: the study was not read from files: read it with scaling.Read")
	}
	return followStudy(ctx, s.options, s.paths, s.Rule, func(now *Study) error {
		if s.chosen == nil {
			return show(now)
		}
		there := slices.DeleteFunc(slices.Clone(s.chosen), func(name string) bool { return !slices.Contains(now.Series(), name) })
		if len(there) == 0 {
			return nil
		}
		only, err := now.Only(there...)
		if err != nil {
			return err
		}
		only.chosen = s.chosen
		return show(only)
	})
}

// Follow waits until the first run appears in the given folders, which may still be empty. Then it
// calls show like Study.Follow.
func Follow(ctx context.Context, show func(*Study) error, paths ...string) error {
	if len(paths) == 0 {
		return errors.New("follow study: no path given; name a folder of logs such as logs/demo")
	}
	return followStudy(ctx, logread.Options{}, paths, DefaultRule(), show)
}

func followStudy(ctx context.Context, options logread.Options, paths []string, rule Rule, show func(*Study) error) error {
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
		s, err := newStudyFromLogs(logs, rule)
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

// newStudyFromLogs computes the study of logs. It passes on only the problems that belong to no
// run, because newStudyFromRuns adds the problems of the runs.
func newStudyFromLogs(logs *logread.Logs, rule Rule) (*Study, error) {
	inRun := map[runs.Problem]bool{}
	for _, r := range logs.Runs {
		for _, p := range r.Problems {
			inRun[p] = true
		}
	}
	own := slices.DeleteFunc(slices.Clone(logs.Problems), func(p runs.Problem) bool { return inRun[p] })
	notes := slices.Clone(logs.Notes)
	copies, resumed, repeated := 0, 0, 0
	for _, r := range logs.Reports {
		if r.CopyOf != "" {
			copies++
		}
		resumed, repeated = resumed+r.Resumptions, repeated+r.Repetitions
	}
	if resumed > 0 {
		notes = append(notes, fmt.Sprintf("resumptions of runs: %d; where their numbers repeat, the later values count; lockstep read --explain shows where", resumed))
	}
	if repeated > 0 {
		notes = append(notes, fmt.Sprintf("parts of files that repeat earlier values: %d; they count once; lockstep read --explain shows where", repeated))
	}
	switch {
	case copies == 1:
		notes = append(notes, "1 file is a copy of a run folder that is read too, and does not count")
	case copies > 1:
		notes = append(notes, fmt.Sprintf("%d files are copies of run folders that are read too, and do not count", copies))
	}
	s, err := newStudyFromRuns(logs.Runs, own, notes, rule, nil)
	if err != nil {
		return nil, err
	}
	s.Reports = logs.Reports
	return s, nil
}
