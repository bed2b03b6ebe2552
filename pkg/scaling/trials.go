package scaling

import (
	"math"
	"slices"
	"strings"

	"lockstep/pkg/runs"
	"lockstep/pkg/scaling/internal/observe"
	"lockstep/pkg/scaling/internal/steptime"
)

// Names of the trials that benchy and lockstep trials run.
const (
	TrialIO        = steptime.TrialIO        // the loader alone
	TrialSynthetic = steptime.TrialSynthetic // training on data in memory
	TrialFull      = steptime.TrialFull      // training with the loader
)

// SplitTrials returns a study in which every trial of a series is a separate series, whose
// throughput is the rate of the trial. Series ddp becomes "ddp, FULL", "ddp, SYNTHETIC" and "ddp,
// IO", or "FULL" and so on if the study has no other series. Series are unchanged if their runs
// have fewer than two kinds of trials, or have epochs with times. If this applies to all series,
// SplitTrials returns s.
func (s *Study) SplitTrials() *Study {
	groups := s.groupBySeries()
	var all []runs.Run
	var order []string
	split := false
	for _, g := range groups {
		var parts []observe.Series
		for _, trial := range []string{TrialFull, TrialSynthetic, TrialIO} {
			name := trial
			if len(groups) > 1 {
				name = g.Name + ", " + trial
			}
			if measured := selectTrialRuns(g, trial, name); len(measured) > 0 {
				parts = append(parts, observe.Series{Name: name, Runs: measured})
			}
		}
		if len(parts) < 2 || slices.ContainsFunc(g.Runs, observe.HasEpochTimes) {
			parts = []observe.Series{{Name: g.Name, Runs: renameSeries(g.Runs, g.Name)}}
		} else {
			split = true
		}
		for _, p := range parts {
			all, order = append(all, p.Runs...), append(order, p.Name)
		}
	}
	if !split {
		return s
	}
	out, _ := s.selectRuns(all, s.Rule, order) // the rule is valid, and there are runs
	return out
}

// newTrialStudy returns a study of the series a and b in which the throughput is the rate of a
// trial. It returns nil if there is no worker count at which both series have the trial.
func (s *Study) newTrialStudy(trial, a, b string) *Study {
	var all []runs.Run
	counts := map[string]map[int]bool{a: {}, b: {}}
	for _, g := range s.groupBySeries() {
		if counts[g.Name] == nil {
			continue
		}
		for _, r := range selectTrialRuns(g, trial, g.Name) {
			counts[g.Name][r.Info.Workers] = true
			all = append(all, r)
		}
	}
	for n := range counts[a] {
		if counts[b][n] {
			out, _ := s.selectRuns(all, s.Rule, []string{a, b}) // the rule is valid, and there are runs
			return out
		}
	}
	return nil
}

// selectTrialRuns returns the runs of g that have the trial. The copies contain only the rate of
// the trial and belong to the series name.
func selectTrialRuns(g observe.Series, trial, name string) []runs.Run {
	nan := math.NaN()
	var out []runs.Run
	for _, r := range renameSeries(g.Runs, name) {
		i := slices.IndexFunc(r.Trials, func(t runs.Trial) bool {
			return strings.EqualFold(t.Name, trial) && t.Rate > 0 && observe.IsFinite(t.Rate)
		})
		if i < 0 {
			continue
		}
		rate := runs.Epoch{ // without a number, so that it always counts
			Seconds: nan, SamplesPerSecond: r.Trials[i].Rate, Line: r.Trials[i].Line, TrainLoss: nan, ValLoss: nan, IoU: nan, Dice: nan,
			ValSeconds: nan, LearningRate: nan, Accuracy: nan, ValAccuracy: nan,
		}
		r.Epochs, r.Trials, r.Curves, r.WallSeconds = []runs.Epoch{rate}, nil, nil, 0
		out = append(out, r)
	}
	return out
}

// renameSeries returns copies of runs that belong to the series name. The name may already contain
// the name of the study.
func renameSeries(all []runs.Run, name string) []runs.Run {
	all = slices.Clone(all)
	for i := range all {
		all[i].Info.Series, all[i].Info.Study = name, ""
	}
	return all
}
