package identity

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/logread/internal/repeats"
	"lockstep/pkg/runs"
)

// SeriesSeparation describes a series whose runs became several series.
type SeriesSeparation struct {
	Study, Series string   // as before
	Runs          int      // number of runs of the series
	Into          []string // names of the new series, in natural order
	Differences   []string // what differs, with values, such as "batch per worker (32 and 64)"
	// Pattern matches the files of all of the runs and as few others as possible. It is empty if no
	// pattern can, as for run folders.
	Pattern string
	Files   []string // Run.File of each run
}

// SeparateSeries gives runs of a series that are not repeats of each other different series names. It
// changes Info.Series in all, and returns one Separation for each series that it split.
//
// Separate does not change a series that the user has named. Two runs of another series with the
// same number of workers are repeats only if package repeats finds no difference between them and
// their seeds and rates do not contradict it (see unlikelyRepeats). The new names contain the
// differences, at all worker counts. A failed run never causes a separation.
func SeparateSeries(all []runs.Run) []SeriesSeparation {
	type key struct{ study, series string }
	members := map[key][]*runs.Run{}
	var order []key
	for i := range all {
		k := key{all[i].Info.Study, all[i].Info.Series}
		if members[k] == nil {
			order = append(order, k)
		}
		members[k] = append(members[k], &all[i])
	}
	var out []SeriesSeparation
	for _, k := range order {
		g := &runGroup{runs: members[k], labels: make([]string, len(members[k]))}
		if !g.mayNeedSeparation() {
			continue
		}
		for _, d := range repeats.Of(g.runs) {
			g.separateBy(d)
		}
		for _, d := range g.unlikelyRepeats() {
			g.separateBy(d)
		}
		if len(g.differences) > 0 {
			out = append(out, g.renameSeries())
		}
	}
	return out
}

type runGroup struct {
	runs        []*runs.Run
	labels      []string // of each run: what distinguishes its new series
	differences []string
	// folders contains for each run the words in folder names that replace its series name, which
	// came from another folder. It is nil if the name stays.
	folders []string
}

// mayNeedSeparation reports whether two of the runs could be repeats, and the user has not named the series.
func (g *runGroup) mayNeedSeparation() bool {
	counts := map[int]int{}
	repeated := false
	for _, r := range g.runs {
		if r.Origins[runs.PropertySeries].Source == runs.SourceUser {
			return false
		}
		if isComparable(r) {
			counts[r.Info.Workers]++
			repeated = repeated || counts[r.Info.Workers] > 1
		}
	}
	return repeated
}

// isComparable reports whether r is compared with other runs: its number of workers is known, and
// it neither failed nor was canceled.
func isComparable(r *runs.Run) bool {
	return r.Info.Workers > 0 && r.Info.Status != runs.StatusFailed && r.Info.Status != runs.StatusCanceled
}

// repeatKey identifies the runs that are repeats of each other unless something differs.
type repeatKey struct {
	workers int
	label   string
}

// findConflicts returns the distinct known values in which runs with the same worker count and the
// same new series differ, in natural order, or nil if there are none. values[i] is the value of run
// i, or "" if it is unknown.
func (g *runGroup) findConflicts(values []string) (conflicts []string) {
	found := map[repeatKey][]string{}
	for i, r := range g.runs {
		c := repeatKey{r.Info.Workers, g.labels[i]}
		if values[i] != "" && isComparable(r) && !slices.Contains(found[c], values[i]) {
			found[c] = append(found[c], values[i])
		}
	}
	for _, v := range found {
		if len(v) > 1 {
			conflicts = append(conflicts, v...)
		}
	}
	slices.SortFunc(conflicts, runs.NaturalCompare)
	return slices.Compact(conflicts)
}

func (g *runGroup) separateBy(d repeats.Difference) {
	conflicts := g.findConflicts(d.Values)
	if conflicts == nil {
		return
	}
	g.differences = append(g.differences, d.Name+" ("+english.JoinAnd(truncateValues(conflicts))+")")
	values, label := d.Values, d.Label
	// If both forms conflict, use the one with fewer distinct values, since it gives fewer series.
	if s := d.Scaled; s != nil && g.findConflicts(s.Values) != nil && len(shortValueNames(s.Values)) < len(shortValueNames(values)) {
		values, label = s.Values, s.Label
	}
	if d.InFolder && g.folders == nil && g.runs[0].Origins[runs.PropertySeries].Source == runs.SourceFolderName {
		g.folders = make([]string, len(g.runs))
		for i, v := range values {
			g.folders[i] = label(v)
		}
	}
	named := shortValueNames(values)
	for i, v := range values {
		if v == "" {
			continue
		}
		text := label(named[v])
		if rest, ok := strings.CutPrefix(text, g.runs[i].Info.Series); ok && d.Words && g.folders == nil {
			text = strings.Trim(rest, "-_. ")
		}
		g.labels[i] = strings.TrimSpace(g.labels[i] + " " + text)
	}
}

// maxRepeatRateRatio is the largest ratio of the rates of two repeats.
const maxRepeatRateRatio = 3

// unlikelyRepeats returns the differences "same seed" and "different rate" between runs that
// otherwise look like repeats. Rates differ if their ratio exceeds maxRepeatRateRatio. Run folders, runs
// in memory, and runs whose paths differ only in the repeat or seed always count as repeats. The
// Values number the runs with the same seed and the groups of similar rates.
func (g *runGroup) unlikelyRepeats() []repeats.Difference {
	seeds := repeats.Difference{Name: "runs with the same seed", Values: make([]string, len(g.runs)), Label: repeatNumberLabel}
	rates := repeats.Difference{Name: "rates that differ by more than 3 times", Values: make([]string, len(g.runs)), Label: repeatNumberLabel}
	cells := map[repeatKey][]int{}
	for i, r := range g.runs {
		c := repeatKey{r.Info.Workers, g.labels[i] + "\x00" + r.Kind} // the results of two programs may be of one run
		if isComparable(r) && !repeats.IsRunFolder(r) && r.File != "" {
			cells[c] = append(cells[c], i)
		}
	}
	for _, members := range cells {
		seen := map[int64]int{}   // runs with the seed
		var clusters [][2]float64 // the least and the largest rate
		for _, i := range members {
			r := g.runs[i]
			if path := repeats.PathWithoutRepeat(r); path != "" && slices.ContainsFunc(members, func(o int) bool { return o != i && repeats.PathWithoutRepeat(g.runs[o]) == path }) {
				continue
			}
			if _, known := r.Origins[runs.PropertySeed]; known {
				seen[r.Info.Seed]++
				seeds.Values[i] = strconv.Itoa(seen[r.Info.Seed])
			}
			rate := medianRate(r)
			if !(rate > 0) {
				continue
			}
			at := slices.IndexFunc(clusters, func(c [2]float64) bool { return max(c[1], rate) <= maxRepeatRateRatio*min(c[0], rate) })
			if at < 0 {
				at = len(clusters)
				clusters = append(clusters, [2]float64{rate, rate})
			}
			clusters[at] = [2]float64{min(clusters[at][0], rate), max(clusters[at][1], rate)}
			rates.Values[i] = strconv.Itoa(at + 1)
		}
	}
	return []repeats.Difference{seeds, rates}
}

// repeatNumberLabel returns the label for run number n of several runs that differ only in this number.
func repeatNumberLabel(n string) string {
	if n == "1" {
		return ""
	}
	return "(" + n + ")"
}

// medianRate returns the median rate of a run in epochs per second or, if its epochs have no times, in
// samples per second of its epochs or trials. It returns 0 if the run has none.
func medianRate(r *runs.Run) float64 {
	var epochs, rates, trials []float64
	for _, e := range r.Epochs {
		if e.Seconds > 0 {
			epochs = append(epochs, 1/e.Seconds)
		}
		if e.SamplesPerSecond > 0 {
			rates = append(rates, e.SamplesPerSecond)
		}
	}
	for _, t := range r.Trials {
		if t.Rate > 0 && t.Name == r.Trials[0].Name {
			trials = append(trials, t.Rate)
		}
	}
	for _, all := range [][]float64{epochs, rates, trials} {
		if slices.Sort(all); len(all) > 0 {
			return all[len(all)/2]
		}
	}
	return 0
}

// maxLabelLength is the maximum length of a value in the name of a series.
const maxLabelLength = 32

// shortValueNames returns a short name for each value: the value itself, or numbers for all if one is
// long, such as the settings of a model.
func shortValueNames(values []string) map[string]string {
	distinct := slices.DeleteFunc(slices.Clone(values), func(v string) bool { return v == "" })
	slices.SortFunc(distinct, runs.NaturalCompare)
	distinct = slices.Compact(distinct)
	long := slices.ContainsFunc(distinct, func(v string) bool { return len(v) > maxLabelLength })
	named := map[string]string{}
	for i, v := range distinct {
		if named[v] = v; long {
			named[v] = strconv.Itoa(i + 1)
		}
	}
	return named
}

// truncateValues returns at most five values, each with at most maxLabelLength characters.
func truncateValues(values []string) (short []string) {
	const most = 5
	for _, v := range values[:min(len(values), most)] {
		if r := []rune(v); len(r) > maxLabelLength {
			v = string(r[:maxLabelLength]) + "…"
		}
		short = append(short, v)
	}
	if n := len(values) - most; n > 0 {
		short = append(short, fmt.Sprintf("%d more", n))
	}
	return short
}

// renameSeries adds the label of each run to its series name, and describes the new series.
func (g *runGroup) renameSeries() SeriesSeparation {
	info := g.runs[0].Info
	s := SeriesSeparation{Study: info.Study, Series: info.Series, Runs: len(g.runs), Differences: g.differences, Pattern: repeats.CommonPattern(g.runs)}
	for i, r := range g.runs {
		if r.Info.Series = strings.TrimSpace(info.Series + " " + g.labels[i]); g.folders != nil && g.folders[i] != "" && r.Origins != nil {
			r.Info.Series, r.Origins = g.labels[i], maps.Clone(r.Origins)
			r.Origins[runs.PropertySeries] = runs.Origin{Source: runs.SourceFolderName, Detail: g.folders[i]}
		}
		if !slices.Contains(s.Into, r.Info.Series) {
			s.Into = append(s.Into, r.Info.Series)
		}
		s.Files = append(s.Files, cmp.Or(r.File, r.Dir))
	}
	slices.SortFunc(s.Into, runs.NaturalCompare)
	return s
}

// String returns a sentence without a period: which runs were separated, why, and how to join them.
func (s SeriesSeparation) String() string {
	const most = 6
	list := english.QuoteNames(s.Into[:min(len(s.Into), most)])
	if n := len(s.Into) - most; n > 0 {
		list += fmt.Sprintf(" and %d more", n)
	}
	text := fmt.Sprintf("series %q: its %s became %d series (%s), because runs with equally many workers are repeats only if they agree, and these differ in %s",
		s.Series, english.FormatCount(s.Runs, "run"), len(s.Into), list, english.JoinAnd(s.Differences))
	if s.Pattern != "" && !strings.ContainsAny(s.Series, ",{}'") {
		text += fmt.Sprintf("; to join them: --as '%s=series:%s'", s.Pattern, s.Series)
	}
	return text
}
