// Package repeats finds the differences between runs: in what is known about them, in their settings,
// and in the words and numbers of their names. It decides nothing: package identity decides by the
// differences which runs are repeats.
package repeats

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"

	"lockstep/pkg/logread/internal/launchline"
	"lockstep/pkg/logread/internal/names"
	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/runs"
)

// Difference is a property whose values may distinguish runs.
type Difference struct {
	Name   string              // in sentences
	Values []string            // one per run; empty if unknown
	Label  func(string) string // returns the words for a value in the name of a series
	// Scaled, if not nil, expresses the property in another way, such as per worker. Its values may
	// be equal at all worker counts where Values differ.
	Scaled *Difference
	// Words is set if the values are words in names, InFolder if in names of folders.
	Words, InFolder bool
}

// Of returns the properties by which runs may differ, in order of precedence: a batch may depend on --scaling strong.
func Of(all []*runs.Run) []Difference {
	words, numbers := findSettingDifferences(all)
	return slices.Concat(findTextDifferences(all), words, findNumberDifferences(all), numbers, findNameDifferences(all))
}

// IsRunFolder reports whether r is from a run folder. There, run.json identifies the run, so names
// and settings are not compared.
func IsRunFolder(r *runs.Run) bool { return r.Info.Schema > 0 || r.Kind == "run folder" }

// findTextDifferences returns the differences in the model, the mode, and the unit of the throughput.
func findTextDifferences(all []*runs.Run) []Difference {
	d := []Difference{{Name: "model", Label: labelModel}, {Name: "mode", Label: strings.Clone}, {Name: "unit of the throughput", Label: strings.Clone}}
	for _, r := range all {
		mode, _ := r.Info.Config["mode"].(string)
		for i, v := range []string{modelOf(r), strings.ToLower(mode), r.ThroughputUnit} {
			d[i].Values = append(d[i].Values, v)
		}
	}
	return d
}

type numericProperty struct {
	name, before, after string                           // in sentences, and around the value in the name of a series
	of                  func(*runs.Run) float64          // returns 0 if the value is unknown
	scaled              func(v, workers float64) float64 // returns the value in its other form; nil if it has none
	scaledBefore        string
	scaledAfter         string
	tolerance           float64 // relative difference of numbers that count as equal
}

// sampleCountTolerance is the relative difference up to which sample counts are taken as equal. Programs
// round them, or the last line of a rank is missing.
const sampleCountTolerance = 0.005

// numericProperties returns the numeric properties in which repeats must agree.
func numericProperties() []numericProperty {
	setting := func(keys ...string) func(*runs.Run) float64 {
		return func(r *runs.Run) float64 {
			v, _ := record.ConfigNumber(r.Info.Config, keys...)
			return v
		}
	}
	perWorker := func(v, workers float64) float64 { return v / workers }
	return []numericProperty{
		{name: "parameters of the model", after: "parameters", of: func(r *runs.Run) float64 { return float64(r.Info.Parameters) }},
		{name: "batch per worker", before: "batch", of: batchPerWorker, scaledBefore: "global batch", scaled: func(v, workers float64) float64 { return v * workers }},
		{name: "batch of the configuration", before: "batch", of: func(r *runs.Run) float64 {
			if batchPerWorker(r) > 0 {
				return 0
			}
			return setting(record.BatchSettingKeys()...)(r)
		}},
		{
			name: "learning rate", before: "lr", of: setting("lr", "learning_rate", "base_lr", "initial_lr", "learning-rate", "base-lr"),
			scaledBefore: "lr", scaledAfter: "per worker", scaled: perWorker,
		},
		{name: "nodes", after: "nodes", of: func(r *runs.Run) float64 { return float64(r.Info.Nodes) }},
		{name: "samples per epoch", after: "samples", of: samplesPerEpoch, scaledAfter: "samples per worker", scaled: perWorker, tolerance: sampleCountTolerance},
		{name: "planned epochs", after: "epochs", of: func(r *runs.Run) float64 {
			n, _ := record.PlannedEpochs(r.Info.Config)
			return n
		}},
	}
}

func findNumberDifferences(all []*runs.Run) (found []Difference) {
	form := func(p numericProperty, before, after string, of func(*runs.Run) float64) Difference {
		d := Difference{Name: p.name, Label: func(v string) string {
			end := after
			if v == "1" {
				end = strings.TrimSuffix(after, "s")
			}
			return strings.TrimSpace(before + " " + v + " " + end)
		}}
		var known []float64
		for _, r := range all {
			v := of(r)
			if !(v > 0) || math.IsInf(v, 0) {
				d.Values = append(d.Values, "")
				continue
			}
			if i := slices.IndexFunc(known, func(k float64) bool { return math.Abs(v-k) <= p.tolerance*k }); i >= 0 {
				v = known[i]
			} else {
				known = append(known, v)
			}
			d.Values = append(d.Values, formatNumber(v))
		}
		return d
	}
	for _, p := range numericProperties() {
		d := form(p, p.before, p.after, p.of)
		if p.scaled != nil {
			scaled := form(p, p.scaledBefore, p.scaledAfter, func(r *runs.Run) float64 { return p.scaled(p.of(r), float64(r.Info.Workers)) })
			d.Scaled = &scaled
		}
		found = append(found, d)
	}
	return found
}

// modelOf returns the model in the configuration of a run: its name, or its settings as JSON. It
// returns "" if the model is unknown.
func modelOf(r *runs.Run) string {
	for _, key := range record.ModelSettingKeys() {
		switch v := r.Info.Config[key].(type) {
		case string:
			return path.Base(v) // of a file or a repository
		case map[string]any:
			text, _ := json.Marshal(v)
			return string(text)
		}
	}
	return ""
}

// labelModel returns the label of a model in the name of a series. v is the name of the model, or a
// number if its settings are too long for a name.
func labelModel(v string) string {
	if _, err := strconv.Atoi(v); err == nil {
		return "model " + v
	}
	return v
}

func batchPerWorker(r *runs.Run) float64 {
	if n := r.Info.Workers; r.Info.BatchPerWorker == 0 && n > 0 && r.Info.GlobalBatch%n == 0 {
		return float64(r.Info.GlobalBatch / n)
	}
	return float64(r.Info.BatchPerWorker)
}

// samplesPerEpoch returns the most frequent sample count of the epochs, since the last one may be
// incomplete, or else the number that the run has recorded, or 0.
func samplesPerEpoch(r *runs.Run) float64 {
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
	return float64(cmp.Or(best, r.Info.SamplesPerEpoch))
}

// findSettingDifferences compares the options in the runs' commands, where a missing option is a value
// too, and other settings that are not measured values. numbers are the differences of which all values are numbers.
func findSettingDifferences(all []*runs.Run) (words, numbers []Difference) {
	hasOptions, settings := make([]bool, len(all)), make([]map[string]string, len(all))
	keys, mayRecord := map[string]bool{}, false // whether the setting is an option, and whether measured values may be among the settings
	for i, r := range all {
		if IsRunFolder(r) {
			continue
		}
		settings[i] = map[string]string{}
		isRow := slices.Contains([]string{"CSV table", "results table", "W&B export", "Markdown page", "JSON results"}, r.Kind)
		mayRecord = mayRecord || isRow || r.Kind == "JSON lines"
		for key, v := range r.Info.Config {
			text := fmt.Sprint(v)
			switch v := v.(type) {
			case float64:
				text = formatNumber(v)
			case bool, string:
			default:
				continue
			}
			if text = distinguishingValue(key, text, isRow); text != "" {
				settings[i][key], keys[key] = text, keys[key] || false
			}
		}
		hasOptions[i] = launchline.ParseCommand(r.Info.Command).Script != ""
		for key, v := range DistinguishingOptions(r.Info.Command) {
			settings[i][key], keys[key] = v, true
		}
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		base := key[strings.LastIndexByte(key, '/')+1:]
		d := Difference{Name: base, Label: func(v string) string {
			switch _, err := strconv.ParseFloat(v, 64); {
			case v == "true":
				return base
			case v == "false":
				return ""
			case err == nil && !strings.HasPrefix(base, "word "):
				return base + " " + v
			}
			return v
		}}
		isNumber := true
		for i := range all {
			v := settings[i][key]
			_, err := strconv.ParseFloat(cmp.Or(v, "0"), 64)
			isNumber = isNumber && err == nil
			if v == "" && keys[key] && hasOptions[i] {
				v = "false"
			}
			d.Values = append(d.Values, v)
		}
		if !isNumber {
			words = append(words, d)
		} else if keys[key] || !isMeasured(strings.ToLower(base), d.Values, mayRecord, areNumberedRepeats(all)) {
			numbers = append(numbers, d)
		}
	}
	return words, numbers
}

// areNumberedRepeats reports whether all runs have a seed or repeat number, which runs with equally many workers do not
// share, but others do. Then nothing but the repeat need distinguish the runs.
func areNumberedRepeats(all []*runs.Run) bool {
	repeats, seeds := map[[2]int64]bool{}, map[int64]bool{}
	for _, r := range all {
		if _, known := r.Origins[runs.PropertySeed]; !known {
			return false
		}
		repeats[[2]int64{int64(r.Info.Workers), r.Info.Seed}], seeds[r.Info.Seed] = true, true
	}
	return len(repeats) == len(all) && len(seeds) < len(all)
}

// isMeasured reports whether numbers with a name, one per run or empty, may be measured, or are compared by another
// function. If measured values may be recorded as settings, numbers with an unknown name are settings only if each
// recurs in another run, and the runs are no numbered repeats.
func isMeasured(name string, values []string, mayRecord, areNumbered bool) bool {
	isSetting := strings.HasPrefix(name, "max_tokens") || strings.Contains(name, "accum")
	for _, word := range strings.FieldsFunc(name, func(r rune) bool { return r < 'a' || r > 'z' }) {
		switch word {
		case "lr", "learning", "epoch", "epochs", "batch", "bs", "world", "gpus", "gpu", "ngpus", "nodes", "node", "nnodes", "nranks", "device", "devices", "processes", "tasks", "proc", "nproc", "seconds", "secs", "sec", "ms", "runtime", "elapsed", "mem", "memory", "gb", "samples", "steps", "step", "iters", "iter", "iterations", "best", "total", "last", "freq", "interval":
			return !isSetting
		case "size", "layers", "depth", "width", "dim", "hidden", "heads", "channels", "seq", "workers", "threads", "dropout", "warmup", "stage", "level":
			isSetting = true
		}
	}
	times := map[string]int{"": 2}
	for _, v := range values {
		times[v]++
	}
	return mayRecord && !isSetting && (areNumbered || slices.Contains(slices.Collect(maps.Values(times)), 1))
}

// DistinguishingOptions returns the options of a command that may make two runs different, without those that are
// false.
func DistinguishingOptions(command []string) map[string]string {
	options := launchline.ProgramOptions(command)
	for name, v := range options {
		options[name] = distinguishingValue(name, v, false)
	}
	maps.DeleteFunc(options, func(_, v string) bool { return v == "" || v == "false" })
	return options
}

// distinguishingValue returns what an option or a setting states about what ran, or "" if it states a place, a job, a
// time, a device or a repeat. Of the path of a data set or configuration, it returns the base name. The name of an
// output counts only if isRow is set: it is in the row of a table or a JSON result.
func distinguishingValue(name, value string, isRow bool) string {
	const longest = 64
	isInput, isPlace, isName := strings.HasPrefix(name, "word "), false, false
	parts := strings.FieldsFunc(strings.ToLower(name[strings.LastIndexByte(name, '/')+1:]), func(r rune) bool { return r < 'a' || r > 'z' })
	for i, word := range parts {
		switch word {
		case "data", "dataset", "task", "config", "configs", "cfg", "deepspeed", "or": // as in pretrained_model_name_or_path
			isInput = true
		case "dir", "path", "file", "folder", "root", "load", "checkpoint", "ckpt", "node":
			isPlace = true
		case "name", "version", "tag", "tags", "group", "project", "exp", "expname", "experiment", "notes", "description", "comment", "title":
			isName = i == len(parts)-1
		case "output", "out", "outdir", "workdir", "save", "savedir", "log", "logs", "logdir", "logger", "logging", "print", "verbose", "report", "tensorboard", "wandb",
			"resume", "restart", "restore", "continue", "start", "initial", "seed", "seeds", "rank", "repeat", "rep", "trial", "fold", "run", "job", "jobid", "slurm", "pid", "id", "ids", "uuid", "user", "git", "commit", "sha",
			"host", "hosts", "hostname", "nodelist", "jobname", "addr", "address", "master", "port", "url", "ip", "date", "time", "times", "timestamp", "stamp", "started", "end", "ended", "created", "clock", "status", "state", "exit", "code", "submission":
			return ""
		case "gpu", "gpus", "device", "devices":
			if strings.Trim(value, "0123456789,[]") == "" {
				return ""
			}
		}
	}
	_, err := strconv.ParseFloat(value, 64)
	isWord := err != nil && !strings.EqualFold(value, "true") && !strings.EqualFold(value, "false")
	switch base := path.Base(value); {
	case strings.ContainsAny(value, "\\:$\n") || len(base) > longest || !isInput && (isName && !(isRow && isWord) || isPlace && isWord):
		return ""
	case isName && !isInput || isInput && base != value && path.Ext(base) == "": // a folder of data, or a place for results
		var words []string
		for _, l := range names.PathLabels([]string{base}) {
			if isInput || !l.MayCount {
				words = append(words, l.Text)
			}
		}
		return strings.TrimSpace(strings.Join(words, " "))
	case isInput:
		return base
	case !isWord:
		return strings.ToLower(value)
	case strings.ContainsAny(value, "/."):
		return ""
	}
	return value
}

func formatNumber(v float64) string { return fmt.Sprintf("%.10g", v) }
