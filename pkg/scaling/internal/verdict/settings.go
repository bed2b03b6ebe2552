package verdict

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"lockstep/pkg/runs"
	"lockstep/pkg/scaling/internal/lrscaling"
	"lockstep/pkg/scaling/internal/observe"
)

// DifferingSetting is a setting in which the series of a study differ.
type DifferingSetting struct {
	Setting string
	Values  []string // one per series; "-" if unknown
}

// DifferingSettings returns the settings in which the series differ at equal worker counts.
// Properties of every run, such as the learning rate and the batch, come first, then keys of the
// configs. It returns nil for fewer than two series.
func DifferingSettings(groups []observe.Series) []DifferingSetting {
	if len(groups) < 2 {
		return nil
	}
	traits := append([]runTrait{
		{"learning rate", func(r runs.Run) string {
			rate := observe.LearningRate(r)
			if !(rate > 0) {
				return ""
			}
			return lrscaling.FormatRate(rate)
		}},
		batchPerWorkerTrait(),
		{"global batch", func(r runs.Run) string { _, global := observe.BatchSizes(r); return formatNonZero(global) }},
		{"engine", func(r runs.Run) string { return r.Info.Engine }},
		{"strategy", func(r runs.Run) string { return r.Info.Strategy }},
	}, workTraits()...)
	traits = slices.DeleteFunc(traits, func(t runTrait) bool { return t.name == "model" || t.name == "data" }) // their keys are compared separately, below
	first, varies := map[string]string{}, map[string]bool{}
	for _, g := range groups {
		for _, r := range g.Runs {
			for key, v := range flattenConfig(r) {
				if _, seen := first[key]; !seen {
					first[key] = v
				}
				if first[key] != v && len(varies) < maxComparedConfigKeys {
					varies[key] = true
				}
			}
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(varies), runs.NaturalCompare) {
		traits = append(traits, runTrait{key, func(r runs.Run) string { return flattenConfig(r)[key] }})
	}
	var out []DifferingSetting
	for _, t := range traits {
		if row, differs := t.compareSeries(groups); differs {
			out = append(out, row)
		}
	}
	return out
}

// compareSeries returns the trait's values in each series, and whether any two series differ. Two
// series are compared at the worker counts that both have. If they have none in common, all their
// runs are compared.
func (c runTrait) compareSeries(groups []observe.Series) (DifferingSetting, bool) {
	row := DifferingSetting{Setting: c.name}
	byWorkers := make([]map[int][]runs.Run, len(groups))
	for i, g := range groups {
		byWorkers[i] = map[int][]runs.Run{}
		for _, r := range g.Runs {
			byWorkers[i][r.Info.Workers] = append(byWorkers[i][r.Info.Workers], r)
		}
		row.Values = append(row.Values, cmp.Or(strings.Join(c.distinctValues(g.Runs), ", "), "-"))
	}
	differ := func(a, b []runs.Run) bool {
		x, y := c.distinctValues(a), c.distinctValues(b)
		return len(x) > 0 && len(y) > 0 && !slices.Equal(x, y)
	}
	for i := range groups {
		for j := range i {
			shared := false
			for n, a := range byWorkers[i] {
				if b := byWorkers[j][n]; len(b) > 0 {
					shared = true
					if differ(a, b) {
						return row, true
					}
				}
			}
			if !shared && differ(groups[i].Runs, groups[j].Runs) {
				return row, true
			}
		}
	}
	return row, false
}

// maxComparedConfigKeys limits the config keys that Settings lists: other programs may log a thousand
// settings per run.
const maxComparedConfigKeys = 100

// uncomparedConfigKeys lists config keys that are not compared, because they identify the run, are its
// results, or are compared separately.
var uncomparedConfigKeys = []string{"name", "seed", "workers", "series", "study", "training_seconds", "training_epochs", "test_seconds", "learning_rate", "lr", "batch", "batch_size"}

// flattenConfig returns the scalar settings of a run's config by their dotted keys, such as
// optimizer.learning_rate. It omits uncomparedConfigKeys and long strings.
func flattenConfig(r runs.Run) map[string]string {
	out := map[string]string{}
	var walk func(prefix string, part map[string]any)
	walk = func(prefix string, part map[string]any) {
		for key, v := range part {
			switch v := v.(type) {
			case map[string]any:
				walk(prefix+key+".", v)
			case float64:
				out[prefix+key] = strconv.FormatFloat(v, 'g', 6, 64)
			case string:
				if len(v) <= 40 {
					out[prefix+key] = cmp.Or(v, `""`)
				}
			case bool, int, int64:
				out[prefix+key] = fmt.Sprint(v)
			}
		}
	}
	walk("", r.Info.Config)
	for _, key := range append([]string{"optimizer.learning_rate", "engine.threads", "strategy"}, uncomparedConfigKeys...) { // compared separately in Settings
		delete(out, key)
	}
	return out
}
