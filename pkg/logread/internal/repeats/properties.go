package repeats

import (
	"encoding/json"
	"fmt"
	"path"
	"strconv"
	"strings"

	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/runs"
)

// property is a property in which repeats must agree.
type property struct {
	name  string // in sentences
	value func(*runs.Run) string
	label func(value string) string // in the name of a series
	// scaled, if set, is another form of the property, which may be constant over worker
	// counts where value is not. Its label is scaledLabel.
	scaled      func(*runs.Run) string
	scaledLabel func(value string) string
	tolerance   float64 // relative difference of numbers that count as equal
}

// withLabel returns the property with another label.
func (p property) withLabel(label func(string) string) property {
	p.label = label
	return p
}

// sampleTolerance is the relative difference of equal sample counts: programs round them, or
// a rank's last line may be missing.
const sampleTolerance = 0.005

// properties returns the properties in which repeats must agree, except for their names.
func properties() []property {
	prefix := func(word string) func(string) string { return func(v string) string { return word + " " + v } }
	suffix := func(word string) func(string) string {
		return func(v string) string {
			if v == "1" {
				return v + " " + strings.TrimSuffix(word, "s")
			}
			return v + " " + word
		}
	}
	return []property{
		{name: "model", value: modelOf, label: func(v string) string {
			if _, err := strconv.Atoi(v); err == nil {
				return "model " + v
			}
			return v
		}},
		{name: "parameters of the model", value: func(r *runs.Run) string { return formatCount(r.Info.Parameters) }, label: suffix("parameters")},
		{
			name: "batch per worker", value: func(r *runs.Run) string { n, _ := batchSizes(r); return formatCount(n) }, label: prefix("batch"),
			scaled: func(r *runs.Run) string { _, n := batchSizes(r); return formatCount(n) }, scaledLabel: prefix("global batch"),
		},
		{name: "batch of the configuration", value: func(r *runs.Run) string {
			if n, _ := batchSizes(r); n > 0 {
				return ""
			}
			return configNumber(r, "batch_size", "batch", "train_batch_size", "per_device_train_batch_size", "batch_size_per_gpu", "micro_batch_size")
		}, label: prefix("batch")},
		{
			name: "learning rate", value: learningRate, label: prefix("lr"),
			scaled: func(r *runs.Run) string {
				v, err := strconv.ParseFloat(learningRate(r), 64)
				if err != nil || r.Info.Workers == 0 {
					return ""
				}
				return formatNumber(v / float64(r.Info.Workers))
			}, scaledLabel: func(v string) string { return "lr " + v + " per worker" },
		},
		{name: "nodes", value: func(r *runs.Run) string { return formatCount(r.Info.Nodes) }, label: suffix("nodes")},
		{
			name: "samples per epoch", tolerance: sampleTolerance,
			value: func(r *runs.Run) string { return formatCount(samplesPerEpoch(r)) }, label: suffix("samples"),
			scaled: func(r *runs.Run) string {
				if n := samplesPerEpoch(r); n > 0 && r.Info.Workers > 0 {
					return formatNumber(float64(n / r.Info.Workers))
				}
				return ""
			}, scaledLabel: suffix("samples per worker"),
		},
		{name: "planned epochs", value: func(r *runs.Run) string {
			return configNumber(r, "epochs", "num_epochs", "n_epochs", "max_epochs", "num_train_epochs", "total_epochs", "train_epochs", "nb_epochs", "trainer/max_epochs")
		}, label: suffix("epochs")},
		{name: "unit of the throughput", value: func(r *runs.Run) string { return r.ThroughputUnit }, label: func(v string) string { return v }},
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
