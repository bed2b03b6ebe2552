package verdict

import (
	"fmt"
	"slices"
	"strings"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/runs"
	"lockstep/pkg/scaling/internal/observe"
)

type runTrait struct {
	name  string
	value func(runs.Run) string // "" if unknown
}

func workTraits() []runTrait {
	return []runTrait{
		{"the number of threads per worker", func(r runs.Run) string { return formatNonZero(r.Info.ThreadsPerWorker) }},
		{"the number of training samples", func(r runs.Run) string { return formatNonZero(r.Info.SamplesPerEpoch) }},
		{"the number of parameters", func(r runs.Run) string { return formatNonZero(r.Info.Parameters) }},
		{"model", func(r runs.Run) string { return observe.ConfigSectionJSON(r, "model") }},
		{"data", func(r runs.Run) string { return observe.ConfigSectionWithout(r, "data", dataPathKeys()...) }},
		{"the path of the data", func(r runs.Run) string {
			if _, known := r.LastData(); known { // the same data may be at several paths
				return ""
			}
			return observe.ConfigValues(r, "data", dataPathKeys()...)
		}},
		{"binding", func(r runs.Run) string {
			if r.Info.Binding == nil {
				return ""
			}
			return r.Info.Binding.Mode
		}},
		{"device", func(r runs.Run) string { return r.Info.Accelerator }},
		{"host", func(r runs.Run) string { return r.Info.Host.Name }},
	}
}

func dataPathKeys() []string { return []string{"path", "test_path"} }

// dataContentTrait compares the content of the training data. Runs that differ in it are named in
// the study's notes.
func dataContentTrait() runTrait {
	return runTrait{"the content of the data", func(r runs.Run) string {
		w, known := r.LastData()
		if !known {
			return ""
		}
		return runs.ShortHash(w.DataHash)
	}}
}

// batchPerWorkerTrait compares the batch per worker, which must be equal at equal worker counts.
func batchPerWorkerTrait() runTrait {
	return runTrait{"batch per worker", func(r runs.Run) string {
		each, _ := observe.BatchSizes(r)
		return formatNonZero(each)
	}}
}

// samplesPerEpochTrait compares the samples per epoch, which must be equal at equal worker counts.
func samplesPerEpochTrait() runTrait {
	return runTrait{"the number of samples per epoch", func(r runs.Run) string { return formatNonZero(observe.SamplesPerEpoch(r)) }}
}

// UnfairnessNotes returns notes about differences within a series that make a comparison of times
// unfair, and about runs that seem to be in the series twice.
func UnfairnessNotes(g observe.Series, mode ScalingMode) []string {
	var notes noteList
	for _, c := range append(workTraits(),
		runTrait{"engine", func(r runs.Run) string { return r.Info.Engine }},
		runTrait{"collective", func(r runs.Run) string {
			if r.Info.Workers < 2 { // a single worker needs no collective
				return ""
			}
			return r.Info.Collective
		}}) {
		notes.noteDifferingTrait(g, c)
	}
	if mode.Batch == FixedNeither || hasOneWorkerCount(g) { // weak or strong scaling would let one of the batches grow
		notes.noteDifferingTrait(g, batchPerWorkerTrait())
	}
	notes.noteSamplesPerEpoch(g, mode)
	notes.noteDuplicateRuns(g)
	return notes
}

type noteList []string

func (n *noteList) add(format string, a ...any) { *n = append(*n, fmt.Sprintf(format, a...)) }

// noteDuplicateRuns adds a note if several runs have the same worker count and seed.
func (n *noteList) noteDuplicateRuns(g observe.Series) {
	type place struct {
		workers int
		seed    string
	}
	same := map[place][]string{}
	var order []place
	for _, r := range g.Runs {
		p := place{r.Info.Workers, fmt.Sprintf("seed (%d)", r.Info.Seed)}
		if _, known := r.Origins[runs.PropertySeed]; !known && r.Info.Schema == 0 && r.Origins != nil { // run.json has it
			p.seed = "no known seed"
		}
		if same[p] == nil {
			order = append(order, p)
		}
		same[p] = append(same[p], r.Dir)
	}
	for _, p := range order {
		if dirs := same[p]; len(dirs) > 1 {
			n.add("series %s: %s and %s have the same workers (%d) and %s; they count as repeats",
				g.Name, dirs[0], strings.Join(dirs[1:], ", "), p.workers, p.seed)
		}
	}
}

func hasOneWorkerCount(g observe.Series) bool {
	return !slices.ContainsFunc(g.Runs, func(r runs.Run) bool { return r.Info.Workers != g.Runs[0].Info.Workers })
}

// noteSamplesPerEpoch adds a note if the samples per epoch differ between repeated runs, or are
// neither constant nor proportional to the workers.
func (n *noteList) noteSamplesPerEpoch(g observe.Series, mode ScalingMode) {
	if mode.Samples == FixedNeither {
		n.noteDifferingTrait(g, samplesPerEpochTrait())
		return
	}
	byWorkers := map[int]runs.Run{}
	for _, r := range g.Runs {
		first, seen := byWorkers[r.Info.Workers]
		if !seen {
			byWorkers[r.Info.Workers] = r
			continue
		}
		if a, b := observe.SamplesPerEpoch(first), observe.SamplesPerEpoch(r); a > 0 && b > 0 && a != b && !observe.HasFailed(first) && !observe.HasFailed(r) {
			n.add("series %s: the samples per epoch differ between repeats at %s (%d in %s, %d in %s); compare their times with care",
				g.Name, english.FormatCount(r.Info.Workers, "worker"), a, observe.RunName(first), b, observe.RunName(r))
			return
		}
	}
}

// noteDifferingTrait adds a note if the runs of a series differ in a trait. The note lists the
// values, each with the first run that has it.
func (n *noteList) noteDifferingTrait(g observe.Series, c runTrait) {
	var values, where []string
	for _, r := range g.Runs {
		v := c.value(r)
		if v != "" && !slices.Contains(values, v) {
			values = append(values, v)
			if len(v) > 40 { // the text of a config section would be too long for one line
				where = append(where, observe.RunName(r))
			} else {
				where = append(where, fmt.Sprintf("%s in %s", v, observe.RunName(r)))
			}
		}
	}
	if len(values) > 1 {
		n.add("series %s: %s differs between runs (%s); compare their times with care", g.Name, c.name, strings.Join(where, ", "))
	}
}

// describeDifferingTraits returns the traits in which a and b, the runs of two series at the same
// worker count, should be equal but differ. It includes the values if they are short.
func describeDifferingTraits(a, b observe.RunGroup) []string {
	var out []string
	for _, c := range append([]runTrait{batchPerWorkerTrait(), samplesPerEpochTrait(), dataContentTrait()}, workTraits()...) {
		x, y := c.distinctValues(a.Runs), c.distinctValues(b.Runs)
		if len(x) == 0 || len(y) == 0 || slices.Equal(x, y) {
			continue
		}
		if c.name == "host" && slices.ContainsFunc(x, func(v string) bool { return slices.Contains(y, v) }) {
			continue // jobs of a cluster run on different nodes each time
		}
		one, other := strings.Join(x, ", "), strings.Join(y, ", ")
		if len(one)+len(other) > 60 { // sections of a config are too long to show
			out = append(out, c.name)
			continue
		}
		out = append(out, fmt.Sprintf("%s (%s and %s)", c.name, one, other))
	}
	return out
}

func (c runTrait) distinctValues(all []runs.Run) []string {
	out := observe.DistinctTexts(all, c.value)
	slices.SortFunc(out, runs.NaturalCompare)
	return out
}

func formatNonZero(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}
