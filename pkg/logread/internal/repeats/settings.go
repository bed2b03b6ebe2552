// Package repeats finds the differences between runs: in what is known about them, in their settings,
// and in the words and numbers of their names. It decides nothing: package identity decides by the
// differences which runs are repeats.
package repeats

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/runs"
)

// Difference is a property in which runs may differ.
type Difference struct {
	Name   string              // in sentences
	Values []string            // one per run; empty if unknown
	Label  func(string) string // returns the words for a value in the name of a series
	// Scaled, if not nil, has the values of another form of the property, which may be constant over
	// worker counts where Values are not. ScaledLabel returns its words.
	Scaled      []string
	ScaledLabel func(string) string
	// Words is set if the values are words in names, and InFolder if these are names of folders.
	Words, InFolder bool
}

// sampleTolerance is the relative difference of equal sample counts: programs round them, or
// a rank's last line may be missing.
const sampleTolerance = 0.005

// property is a property of a run as text.
type property struct {
	name, before, after       string // the words before and after the value in the name of a series
	value, scaled             func(*runs.Run) string
	scaledBefore, scaledAfter string
	tolerance                 float64 // relative difference of numbers that count as equal
}

// properties returns the properties in which repeats must agree, except for settings and names.
func properties() []property {
	count := func(n func(*runs.Run) int) func(*runs.Run) string {
		return func(r *runs.Run) string { return formatCount(n(r)) }
	}
	perWorker := func(r *runs.Run) int { n, _ := batchSizes(r); return n }
	return []property{
		{name: "model", value: modelOf},
		{name: "mode", value: func(r *runs.Run) string { text, _ := r.Info.Config["mode"].(string); return strings.ToLower(text) }},
		{name: "parameters of the model", after: "parameters", value: count(func(r *runs.Run) int { return r.Info.Parameters })},
		{
			name: "batch per worker", before: "batch", value: count(perWorker),
			scaledBefore: "global batch", scaled: count(func(r *runs.Run) int { _, n := batchSizes(r); return n }),
		},
		{name: "batch of the configuration", before: "batch", value: func(r *runs.Run) string {
			if perWorker(r) > 0 {
				return ""
			}
			return configNumber(r, "batch_size", "batch", "train_batch_size", "per_device_train_batch_size", "batch_size_per_gpu", "micro_batch_size")
		}},
		{
			name: "learning rate", before: "lr", value: learningRate, scaledBefore: "lr", scaledAfter: "per worker",
			scaled: func(r *runs.Run) string {
				v, err := strconv.ParseFloat(learningRate(r), 64)
				if err != nil || r.Info.Workers == 0 {
					return ""
				}
				return formatNumber(v / float64(r.Info.Workers))
			},
		},
		{name: "nodes", after: "nodes", value: count(func(r *runs.Run) int { return r.Info.Nodes })},
		{
			name: "samples per epoch", after: "samples", tolerance: sampleTolerance, value: count(samplesPerEpoch), scaledAfter: "samples per worker",
			scaled: count(func(r *runs.Run) int { return samplesPerEpoch(r) / max(r.Info.Workers, 1) }),
		},
		{name: "planned epochs", after: "epochs", value: func(r *runs.Run) string {
			return configNumber(r, "epochs", "num_epochs", "n_epochs", "max_epochs", "num_train_epochs", "total_epochs", "train_epochs", "nb_epochs", "trainer/max_epochs")
		}},
		{name: "unit of the throughput", value: func(r *runs.Run) string { return r.ThroughputUnit }},
	}
}

// ofProperties returns the differences in the properties.
func ofProperties(all []*runs.Run) (found []Difference) {
	words := func(before, after string) func(string) string {
		return func(v string) string {
			if _, err := strconv.Atoi(v); before+after == "" && err == nil {
				return "model " + v // the number of a model without a short name
			}
			end := after
			if v == "1" {
				end = strings.TrimSuffix(after, "s")
			}
			return strings.TrimSpace(before + " " + v + " " + end)
		}
	}
	for _, p := range properties() {
		d := Difference{Name: p.name, Label: words(p.before, p.after), ScaledLabel: words(p.scaledBefore, p.scaledAfter)}
		for _, r := range all {
			d.Values = append(d.Values, p.value(r))
			if p.scaled != nil {
				d.Scaled = append(d.Scaled, p.scaled(r))
			}
		}
		if p.tolerance > 0 {
			mergeCloseValues(d.Values, p.tolerance)
		}
		found = append(found, d)
	}
	return found
}

// mergeCloseValues replaces numbers that differ by at most the relative tolerance by the smallest of
// them.
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
		if i > 0 && f <= smallest[known[i-1]]*(1+tolerance) {
			smallest[f] = smallest[known[i-1]]
		}
	}
	for i, v := range values {
		if f, err := strconv.ParseFloat(v, 64); err == nil {
			values[i] = formatNumber(smallest[f])
		}
	}
}

// modelOf returns the model of a run as its configuration names it: a name, or the settings
// of the model as JSON. It returns "" if unknown.
func modelOf(r *runs.Run) string {
	for _, key := range record.ModelKeys() {
		switch v := r.Info.Config[key].(type) {
		case string:
			return path.Base(v) // of a file or a repository
		case map[string]any:
			text, err := json.Marshal(v)
			if err != nil {
				return ""
			}
			return string(text)
		}
	}
	return ""
}

// learningRate returns the learning rate at the start according to the configuration, or "".
func learningRate(r *runs.Run) string {
	return configNumber(r, "lr", "learning_rate", "base_lr", "initial_lr", "learning-rate", "base-lr")
}

// batchSizes returns the batch per worker and the global batch. Each is 0 if unknown.
func batchSizes(r *runs.Run) (perWorker, global int) {
	perWorker, global = r.Info.BatchPerWorker, r.Info.GlobalBatch
	n := r.Info.Workers
	if global == 0 {
		global = perWorker * n
	}
	if perWorker == 0 && n > 0 && global%n == 0 {
		perWorker = global / n
	}
	return perWorker, global
}

// samplesPerEpoch returns the most frequent sample count of the epochs or, if they have none,
// the number that the run has recorded; 0 if unknown. The last epoch may be incomplete.
func samplesPerEpoch(r *runs.Run) int {
	times := map[int]int{}
	best := 0
	for i := range r.Epochs {
		n := r.Epochs[i].Samples
		if n <= 0 {
			continue
		}
		if times[n]++; times[n] > times[best] || times[n] == times[best] && n > best {
			best = n
		}
	}
	if best == 0 {
		return r.Info.SamplesPerEpoch
	}
	return best
}

// configNumber returns the first of the settings that a run's configuration has as a number,
// or "".
func configNumber(r *runs.Run, keys ...string) string {
	v, ok := record.ConfigNumber(r.Info.Config, keys...)
	if !ok || !(v > 0) {
		return ""
	}
	return formatNumber(v)
}

// formatCount formats n in decimal. It returns "" for 0, which means unknown.
func formatCount(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// formatNumber formats v with as few digits as necessary.
func formatNumber(v float64) string {
	return strings.TrimSuffix(fmt.Sprintf("%.10g", v), ".0")
}
