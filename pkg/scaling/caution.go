package scaling

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/runs"
)

// Cautions returns sentences that restrict what the measured times mean: which series trained
// without communication, which workers shared cores, and which runs were disturbed by other load.
// Notes, reports and comparisons begin with them.
func (s *Study) Cautions() []string { return s.cautionsAbout(s.Series()) }

func (s *Study) cautionsAbout(series []string) []string {
	out := s.noCommunicationNotes(series)
	if text := s.describeSharedCores(series); text != "" {
		out = append(out, text+"; their times say little about scaling: run at most one thread per core")
	}
	if text := s.describeDisturbances(series, false); text != "" {
		out = append(out, text+"; their times say little about scaling: repeat them on an idle machine")
	}
	return append(out, s.processAndProfilerNotes(series)...)
}

func (s *Study) selectSingleProcessSeries(series []string) []string {
	return slices.DeleteFunc(slices.Clone(series), func(name string) bool {
		return !slices.ContainsFunc(s.Runs, func(r runs.Run) bool {
			return r.Info.Workers > 1 && r.Info.Processes == 1 && s.seriesName(r) == name
		})
	})
}

// SizeName returns what the study's sizes count, for an axis label: "nodes" if Rule.Per is "node",
// "workers in one process" if every series has runs with all workers in one process, or else
// "workers".
func (s *Study) SizeName() string {
	switch {
	case s.Rule.Per == PerNode:
		return "nodes"
	case len(s.selectSingleProcessSeries(s.Series())) == len(s.Series()):
		return "workers in one process"
	}
	return "workers"
}

// processAndProfilerNotes returns sentences that name the series whose workers ran in one process, and
// the runs that were slowed down by a profiler.
func (s *Study) processAndProfilerNotes(series []string) []string {
	var profiled, out []string
	for _, r := range s.Runs {
		if name := s.seriesName(r); r.Info.Profiler != "" && slices.Contains(series, name) {
			profiled = append(profiled, fmt.Sprintf("%s with %s, seed %d (%s)", name, english.FormatCount(r.Info.Workers, "worker"), r.Info.Seed, r.Info.Profiler))
		}
	}
	if names := s.selectSingleProcessSeries(series); len(names) > 0 {
		out = append(out, fmt.Sprintf("the workers of %s are in one process", english.JoinAnd(names)))
	}
	if len(profiled) > 0 {
		out = append(out, "times of profiled runs include the profiler's work: "+english.JoinAnd(profiled))
	}
	return out
}

func formatCautions(cautions []string) []string {
	var lines []string
	for _, text := range cautions {
		lines = append(lines, "caution: "+text)
	}
	return lines
}

// noCommunicationNotes returns one note for each series whose workers did not communicate. The
// losses and scores of such series are meaningless.
func (s *Study) noCommunicationNotes(series []string) []string {
	reasons := map[string]string{}
	for _, r := range s.Runs {
		if r.Info.Unreal != "" {
			reasons[s.seriesName(r)] = r.Info.Unreal
		}
	}
	var notes []string
	for _, name := range series {
		if why := reasons[name]; why != "" {
			notes = append(notes, fmt.Sprintf("losses and scores of %s with more than 1 worker are not real and are left out; only its times are: %s", name, why))
		}
	}
	return notes
}

// ConditionsNote returns a sentence for captions about the workers that shared cores and the runs
// that were disturbed by other load, or "" if there are none.
func (s *Study) ConditionsNote() string {
	var texts []string
	for _, text := range []string{s.describeSharedCores(s.Series()), s.describeDisturbances(s.Series(), true)} {
		if text != "" {
			texts = append(texts, text)
		}
	}
	return strings.Join(texts, "; ")
}

// describeSharedCores describes the workers of the given series that had fewer cores than threads,
// such as "4 and 8 workers shared 2 cores". It returns "" if there are none or if the logs do not
// state the number of cores.
func (s *Study) describeSharedCores(series []string) string {
	var texts []string
	names := map[string][]string{} // by text, the series to which it applies
	for _, name := range series {
		var cores []int
		workers := map[int][]string{} // by number of cores
		several := map[int]bool{}     // by number of cores: a run was on several machines
		for _, p := range s.Points {
			if p.Series != name || p.SharedCores == 0 {
				continue
			}
			if !slices.Contains(cores, p.SharedCores) {
				cores = append(cores, p.SharedCores)
			}
			text := strconv.Itoa(p.Workers)
			if p.ThreadsPerWorker > 1 {
				text += fmt.Sprintf(" × %d threads", p.ThreadsPerWorker)
			}
			workers[p.SharedCores] = append(workers[p.SharedCores], text)
			several[p.SharedCores] = several[p.SharedCores] || p.Nodes > 1
		}
		var parts []string
		for _, n := range cores {
			part := fmt.Sprintf("%s workers shared %s", english.JoinAnd(workers[n]), english.FormatCount(n, "core"))
			if several[n] {
				part += " of a machine"
			}
			parts = append(parts, part)
		}
		if text := strings.Join(parts, ", "); text != "" {
			if names[text] == nil {
				texts = append(texts, text)
			}
			names[text] = append(names[text], name)
		}
	}
	for i, text := range texts {
		if len(names[text]) < len(s.Series()) {
			texts[i] = strings.Join(names[text], ", ") + ": " + text
		}
	}
	return strings.Join(texts, "; ")
}

type disturbedRun struct{ series, name, load string }

// describeDisturbances describes the counted runs of the given series that were disturbed by other
// load on their machine, such as "2 of 6 runs disturbed by other load: …". It returns "" if there
// are none. If brief is set, it omits how much they were disturbed.
func (s *Study) describeDisturbances(series []string, brief bool) string {
	const most = 4 // runs that are named
	var texts []string
	for _, r := range s.disturbed {
		switch {
		case !slices.Contains(series, r.series):
		case brief:
			texts = append(texts, r.name)
		default:
			texts = append(texts, fmt.Sprintf("%s (%s)", r.name, r.load))
		}
	}
	n, counted := len(texts), 0
	if n == 0 {
		return ""
	}
	for _, p := range s.Points {
		if slices.Contains(series, p.Series) {
			counted += p.Runs
		}
	}
	if brief && n == counted {
		return fmt.Sprintf("%d of %s disturbed by other load", n, english.FormatCount(counted, "run"))
	}
	if n > most {
		texts = append(texts[:most], fmt.Sprintf("%d more", n-most))
	}
	return fmt.Sprintf("%d of %s disturbed by other load: %s", n, english.FormatCount(counted, "run"), english.JoinAnd(texts))
}
