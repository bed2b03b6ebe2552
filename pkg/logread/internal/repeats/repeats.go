// Package repeats separates runs that are not repeats of each other. Runs of one series with
// the same number of workers are repeats only if they agree in everything that is known
// about them.
package repeats

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/runs"
)

// Separation describes a series whose runs became several series.
type Separation struct {
	Study, Series string   // as before
	Runs          int      // number of runs of the series
	Into          []string // names of the new series, in natural order
	Differences   []string // what differs, with values, such as "batch per worker (32 and 64)"
	// Pattern matches the files of all of the runs and of no more files than necessary. It
	// is empty if no pattern can, as for run folders.
	Pattern string
	Files   []string // Run.File of each run
}

// Separate gives runs that are not repeats of each other different names of their series. It
// changes Info.Series in all, and returns one Separation for each series that it separated.
//
// Among the runs of a series with the same number of workers, those separate that differ in
// the model, the batch, the learning rate, the nodes, the samples per epoch, the planned epochs, the
// unit of their throughput, or a number in their names that is neither workers nor seed. Failed runs do not
// separate others. A property that separates runs at one worker count names the series of
// the runs at all worker counts. A series that the user has named is not separated.
func Separate(all []runs.Run) []Separation {
	type key struct{ study, series string }
	members := map[key][]int{}
	var order []key
	for i := range all {
		k := key{all[i].Info.Study, all[i].Info.Series}
		if members[k] == nil {
			order = append(order, k)
		}
		members[k] = append(members[k], i)
	}
	var out []Separation
	for _, k := range order {
		g := newGroup(all, members[k])
		if g == nil {
			continue
		}
		for _, p := range properties() {
			g.separateBy(p)
		}
		g.separateByNames()
		if len(g.differences) > 0 {
			out = append(out, g.rename())
		}
	}
	return out
}

// group contains the runs of one series.
type group struct {
	runs        []*runs.Run
	labels      []string // of each run: what distinguishes its new series
	differences []string
}

// newGroup returns the group of the runs with the given indices in all. It returns nil if no
// two of them could be repeats, or if the user has named the series.
func newGroup(all []runs.Run, indices []int) *group {
	if len(indices) < 2 {
		return nil
	}
	g := &group{labels: make([]string, len(indices))}
	counts := map[int]int{}
	repeated := false
	for _, i := range indices {
		r := &all[i]
		if r.Origins[runs.PropertySeries].Source == runs.SourceUser {
			return nil
		}
		g.runs = append(g.runs, r)
		if canSeparate(r) {
			counts[r.Info.Workers]++
			repeated = repeated || counts[r.Info.Workers] > 1
		}
	}
	if !repeated {
		return nil
	}
	return g
}

// canSeparate reports whether a run can separate runs into series: its number of workers is
// known, and it did not fail.
func canSeparate(r *runs.Run) bool {
	return r.Info.Workers > 0 && r.Info.Status != runs.StatusFailed && r.Info.Status != runs.StatusCanceled
}

// findConflicts returns the distinct known values at each worker count at which runs of the
// same new series differ, in natural order. values has one element per run; "" is unknown.
// It returns nil if no runs differ.
func (g *group) findConflicts(values []string) []string {
	type cell struct {
		workers int
		label   string
	}
	found := map[cell][]string{}
	var out []string
	for i, r := range g.runs {
		c := cell{r.Info.Workers, g.labels[i]}
		if values[i] == "" || !canSeparate(r) || slices.Contains(found[c], values[i]) {
			continue
		}
		found[c] = append(found[c], values[i])
	}
	for _, v := range found {
		if len(v) > 1 {
			out = append(out, v...)
		}
	}
	slices.SortFunc(out, runs.NaturalCompare)
	return slices.Compact(out)
}

// separateBy separates the runs that differ in a property.
func (g *group) separateBy(p property) {
	values := make([]string, len(g.runs))
	for i, r := range g.runs {
		values[i] = p.value(r)
	}
	if p.tolerance > 0 {
		mergeCloseValues(values, p.tolerance)
	}
	conflicts := g.findConflicts(values)
	if conflicts == nil {
		return
	}
	g.differences = append(g.differences, p.name+" ("+english.List(shorten(conflicts))+")")
	best := values
	if p.scaled != nil { // the property that is constant over worker counts gives fewer series
		scaled := make([]string, len(g.runs))
		for i, r := range g.runs {
			scaled[i] = p.scaled(r)
		}
		if g.findConflicts(scaled) != nil && countDistinct(scaled) < countDistinct(values) {
			best, p = scaled, p.withLabel(p.scaledLabel)
		}
	}
	g.addLabels(best, p.label)
}

// addLabels appends to the label of each run that of its value. values may have unknown
// values, which have no label.
func (g *group) addLabels(values []string, label func(string) string) {
	named := nameValues(values)
	for i, v := range values {
		if v != "" {
			g.labels[i] = strings.TrimPrefix(g.labels[i]+" "+label(named[v]), " ")
		}
	}
}

// maxLabel is the maximum length of a value in the name of a series.
const maxLabel = 32

// nameValues returns a short name for each value: the value itself, or its number if any of
// them is long, such as the settings of a model.
func nameValues(values []string) map[string]string {
	var distinct []string
	long := false
	for _, v := range values {
		if v != "" && !slices.Contains(distinct, v) {
			distinct = append(distinct, v)
			long = long || len(v) > maxLabel
		}
	}
	slices.SortFunc(distinct, runs.NaturalCompare)
	names := map[string]string{}
	for i, v := range distinct {
		names[v] = v
		if long {
			names[v] = strconv.Itoa(i + 1)
		}
	}
	return names
}

// shorten returns at most five values, each with at most maxLabel characters.
func shorten(values []string) []string {
	const most = 5
	var out []string
	for _, v := range values[:min(len(values), most)] {
		if r := []rune(v); len(r) > maxLabel {
			v = string(r[:maxLabel]) + "…"
		}
		out = append(out, v)
	}
	if n := len(values) - most; n > 0 {
		out = append(out, fmt.Sprintf("%d more", n))
	}
	return out
}

// countDistinct returns the number of distinct known values.
func countDistinct(values []string) int {
	known := slices.DeleteFunc(slices.Clone(values), func(v string) bool { return v == "" })
	slices.Sort(known)
	return len(slices.Compact(known))
}

// mergeCloseValues replaces numbers that differ by at most the relative tolerance by the
// smallest of them.
func mergeCloseValues(values []string, tolerance float64) {
	var known []float64
	for _, v := range values {
		if f, err := strconv.ParseFloat(v, 64); err == nil {
			known = append(known, f)
		}
	}
	slices.Sort(known)
	smallest := map[float64]float64{}
	for i, f := range known {
		smallest[f] = f
		if i > 0 {
			if low := smallest[known[i-1]]; f <= low*(1+tolerance) {
				smallest[f] = low
			}
		}
	}
	for i, v := range values {
		if f, err := strconv.ParseFloat(v, 64); err == nil {
			values[i] = formatNumber(smallest[f])
		}
	}
}

// rename adds the label of each run to the name of its series, and returns a description of
// the series that the runs were separated into.
func (g *group) rename() Separation {
	info := g.runs[0].Info
	s := Separation{Study: info.Study, Series: info.Series, Runs: len(g.runs), Differences: g.differences, Pattern: g.commonPattern()}
	for i, r := range g.runs {
		r.Info.Series = strings.TrimSpace(info.Series + " " + g.labels[i])
		if !slices.Contains(s.Into, r.Info.Series) {
			s.Into = append(s.Into, r.Info.Series)
		}
		s.Files = append(s.Files, cmp.Or(r.File, r.Dir))
	}
	slices.SortFunc(s.Into, runs.NaturalCompare)
	return s
}

// String returns a sentence without a period: which runs were separated, why, and how to join
// them.
func (s Separation) String() string {
	const most = 6
	names := s.Into[:min(len(s.Into), most)]
	list := english.Quote(names)
	if n := len(s.Into) - most; n > 0 {
		list += fmt.Sprintf(" and %d more", n)
	}
	text := fmt.Sprintf("series %q: its %s became %d series (%s), because runs with equally many workers are repeats only if they agree, and these differ in %s",
		s.Series, english.Count(s.Runs, "run"), len(s.Into), list, english.List(s.Differences))
	if s.Pattern != "" && !strings.ContainsAny(s.Series, ",{}'") {
		text += fmt.Sprintf("; to join them: --as '%s=series:%s'", s.Pattern, s.Series)
	}
	return text
}
