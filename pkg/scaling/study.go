package scaling

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"lockstep/pkg/logread"
	"lockstep/pkg/runs"
)

// Values of Rule.Epochs and Rule.Repeats.
const (
	Mean   = "mean"
	Median = "median"
)

// Rule says which measurements count, and how several become one.
type Rule struct {
	// DropFirst is how many epochs at a run's start do not count for time and
	// throughput: the first one also pays for start-up and cold caches.
	DropFirst int
	// Epochs is how the counted epochs of a run become one: "mean", "median",
	// or the number (from 1) of the only epoch that counts, such as "5"; then
	// DropFirst has no meaning. Empty means "mean".
	Epochs string
	// Repeats is how the runs with the same series and workers (other seeds)
	// become one: "median" or "mean". Empty means "median".
	Repeats string
	// SamplesPerEpoch is taken for runs whose logs do not tell it, so that they
	// have a throughput; 0 leaves it unknown.
	SamplesPerEpoch int
}

// DefaultRule leaves the first epoch out, takes the mean over the others and
// the median over repeated runs.
func DefaultRule() Rule { return Rule{DropFirst: 1, Epochs: Mean, Repeats: Median} }

// Validate reports the first field that cannot be.
func (r Rule) Validate() error {
	n, err := strconv.Atoi(r.Epochs)
	switch {
	case r.DropFirst < 0:
		return fmt.Errorf("validate rule: DropFirst is %d: use 0 or more", r.DropFirst)
	case r.Epochs != "" && r.Epochs != Mean && r.Epochs != Median && (err != nil || n < 1):
		return fmt.Errorf("validate rule: Epochs is %q: use %q, %q or the number of an epoch from 1", r.Epochs, Mean, Median)
	case r.Repeats != "" && r.Repeats != Mean && r.Repeats != Median:
		return fmt.Errorf("validate rule: Repeats is %q: use %q or %q", r.Repeats, Mean, Median)
	case r.SamplesPerEpoch < 0:
		return fmt.Errorf("validate rule: SamplesPerEpoch is %d: use 0 (unknown) or more", r.SamplesPerEpoch)
	}
	return nil
}

// String says the rule in words.
func (r Rule) String() string {
	repeats := r.Repeats
	if repeats == "" {
		repeats = Median
	}
	var s string
	switch r.Epochs {
	case "", Mean:
		s = "mean over the epochs of a run"
	case Median:
		s = "median over the epochs of a run"
	default:
		return fmt.Sprintf("epoch %s of each run, %s over repeated runs", r.Epochs, repeats)
	}
	switch r.DropFirst {
	case 0:
	case 1:
		s += ", the first left out"
	default:
		s += fmt.Sprintf(", the first %d left out", r.DropFirst)
	}
	return fmt.Sprintf("%s; %s over repeated runs", s, repeats)
}

// Study is what a set of runs shows. It is not changed after it was made.
type Study struct {
	Rule   Rule
	Runs   []runs.Run // every run read, failed ones too
	Points []Point    // by series, then by workers
	// Problems are what could not be used: lines, files, runs that failed.
	Problems []runs.Problem
	// Notes say what a reader of the numbers must know.
	Notes []string

	byTime []string // series whose speed-up is of seconds, for want of sample counts
}

// Read reads the runs in and under each path (folders of run folders, run
// folders, other tools' logs as logread knows them) into a study by
// DefaultRule. A relative path lies where runs.ResolveLogs says, or else in
// the working directory.
func Read(paths ...string) (*Study, error) {
	if len(paths) == 0 {
		return nil, errors.New("read study: no path given; name a folder of logs such as logs/demo")
	}
	var all []runs.Run
	var problems []runs.Problem
	for _, path := range paths {
		place, err := runs.LocateLogs(path)
		if err != nil {
			return nil, fmt.Errorf("read study: %w", err)
		}
		found, bad, err := logread.Read(place)
		if err != nil {
			return nil, fmt.Errorf("read study: %w", err)
		}
		for _, r := range found { // a path may be named twice, or lie in another
			if !slices.ContainsFunc(all, func(x runs.Run) bool { return x.Dir == r.Dir }) {
				all = append(all, r)
			}
		}
		problems = append(problems, bad...)
	}
	if len(all) == 0 {
		text := fmt.Sprintf("read study: no runs in %s; expected run folders (with run.json) or log_<N>.csv files", strings.Join(paths, ", "))
		for _, p := range problems {
			text += "\n  " + p.String()
		}
		return nil, errors.New(text)
	}
	// The problems of the runs come back in with the runs.
	inRun := func(p runs.Problem) bool {
		return slices.ContainsFunc(all, func(r runs.Run) bool { return slices.Contains(r.Problems, p) })
	}
	return newStudy(all, slices.DeleteFunc(problems, inRun), DefaultRule())
}

// FromRuns makes a study of runs that are in memory already, by DefaultRule.
func FromRuns(all []runs.Run) (*Study, error) { return newStudy(all, nil, DefaultRule()) }

// WithRule is a study of the same runs by another rule.
func (s *Study) WithRule(rule Rule) (*Study, error) { return newStudy(s.Runs, s.fromFiles(), rule) }

// fromFiles are the problems that belong to no run that was read.
func (s *Study) fromFiles() []runs.Problem {
	var own []runs.Problem
	for _, p := range s.Problems {
		inRun := slices.ContainsFunc(s.Runs, func(r runs.Run) bool {
			return p.File == r.Dir || slices.Contains(r.Problems, p)
		})
		if !inRun {
			own = append(own, p)
		}
	}
	return own
}

// newStudy computes a study.
func newStudy(all []runs.Run, problems []runs.Problem, rule Rule) (*Study, error) {
	if err := rule.Validate(); err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, errors.New("make study: no runs")
	}
	s := &Study{Rule: rule, Runs: all, Problems: slices.Clone(problems)}
	for _, r := range all {
		s.Problems = append(s.Problems, r.Problems...)
	}
	for _, series := range s.grouped() {
		s.addSeries(series)
	}
	if len(s.byTime) > 0 {
		s.note("series %s: the logs tell no sample counts; speed-up is t(baseline)/t(N) of the seconds per epoch, which holds when every epoch has the same samples (strong scaling)", strings.Join(s.byTime, ", "))
	}
	return s, nil
}

// seriesRuns are the runs of one series.
type seriesRuns struct {
	name string
	runs []runs.Run
}

// grouped sorts the runs into series, in natural order of their names. The
// study's name is part of a series' name where there are several studies:
// their runs are not each other's repeats.
func (s *Study) grouped() []seriesRuns {
	var groups []seriesRuns
	for _, r := range s.Runs {
		name := s.seriesName(r)
		i := slices.IndexFunc(groups, func(g seriesRuns) bool { return g.name == name })
		if i < 0 {
			groups = append(groups, seriesRuns{name: name})
			i = len(groups) - 1
		}
		groups[i].runs = append(groups[i].runs, r)
	}
	slices.SortStableFunc(groups, func(a, b seriesRuns) int { return runs.NaturalCompare(a.name, b.name) })
	return groups
}

func (s *Study) seriesName(r runs.Run) string {
	name := r.Info.Series
	if name == "" {
		name = "runs"
	}
	other := func(x runs.Run) bool { return x.Info.Study != r.Info.Study }
	if r.Info.Study != "" && slices.ContainsFunc(s.Runs, other) {
		return r.Info.Study + " " + name
	}
	return name
}

// Name is the study's name, or those of several.
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
