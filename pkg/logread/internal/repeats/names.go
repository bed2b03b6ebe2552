package repeats

import (
	"cmp"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"lockstep/pkg/logread/internal/launchline"
	"lockstep/pkg/logread/internal/names"
	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/runs"
)

// Of returns the differences between runs, in the order in which they count.
func Of(all []*runs.Run) []Difference {
	return slices.Concat(ofProperties(all), ofSettings(all), ofNames(all))
}

// IsRunFolder reports whether run.json states what identifies the run, so that its names and settings
// do not.
func IsRunFolder(r *runs.Run) bool { return r.Info.Schema > 0 || r.Kind == "run folder" }

// ofSettings returns the differences in the options of the commands, and in other settings that are no
// measurements.
func ofSettings(all []*runs.Run) (found []Difference) {
	values := map[string][]string{}
	absent := map[string]bool{} // options: that one is absent is known too
	put := func(i int, key, value string) {
		if values[key] == nil {
			values[key] = make([]string, len(all))
		}
		values[key][i] = value
	}
	for i, r := range all {
		if IsRunFolder(r) {
			continue
		}
		options := launchline.Options(r.Info.Command)
		use := func(key, v string, isNumber bool) bool {
			ok := isSetting(key, isNumber) && !isPlace(v)
			if ok {
				put(i, key, v)
			}
			return ok
		}
		for key, v := range options {
			_, err := strconv.ParseFloat(v, 64)
			absent[key] = use(key, v, err == nil) || absent[key]
		}
		for key, v := range r.Info.Config {
			if _, option := options[key]; option {
				continue
			}
			switch v := v.(type) {
			case bool:
				use(key, strconv.FormatBool(v), false)
			case string:
				use(key, v, false)
			case float64:
				if text := formatNumber(v); len(text) <= maxSettingDigits { // others may be measured
					use(key, text, true)
				}
			}
		}
	}
	keys := make([]string, 0, len(values))
	for key := range values {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for _, key := range keys {
		for i, r := range all {
			if absent[key] && values[key][i] == "" && len(launchline.Options(r.Info.Command)) > 0 {
				values[key][i] = "false"
			}
		}
		base := key[strings.LastIndexByte(key, '/')+1:]
		found = append(found, Difference{Name: base, Values: values[key], Label: func(v string) string {
			switch _, err := strconv.ParseFloat(v, 64); {
			case v == "true":
				return base
			case v == "false":
				return ""
			case err == nil && !strings.HasPrefix(base, "word "):
				return base + " " + v
			}
			return v
		}})
	}
	return found
}

// maxSettingDigits is the length of the longest number that is taken as a setting.
const maxSettingDigits = 5

// isSetting reports whether a setting with the name may separate runs: it is no place, time or name, no
// property that is compared in another way and, if its value is a number, no measurement.
func isSetting(name string, isNumber bool) bool {
	name = strings.ToLower(name[strings.LastIndexByte(name, '/')+1:])
	for word := range strings.FieldsFuncSeq(name, func(r rune) bool { return r < 'a' || r > 'z' }) {
		switch word {
		case "lr", "learning", "epoch", "epochs", "batch", "bs", "model", "arch", "architecture", "backbone", "seed", "mode",
			"rank", "ranks", "local", "dir", "path", "file", "folder", "root", "output", "out", "log", "logs", "logdir", "save", "checkpoint", "ckpt", "resume", "restart", "load", "data", "outdir", "savedir", "cache", "csv", "json", "tensorboard", "wandb",
			"host", "hostname", "addr", "address", "master", "port", "url", "ip", "user", "pid", "id", "uuid", "job", "run", "name", "tag", "tags", "group", "project", "exp", "experiment", "version", "git", "commit", "sha", "notes", "description", "comment", "title", "submission",
			"date", "time", "times", "timestamp", "start", "started", "end", "ended", "created", "stamp", "clock", "status", "state", "exit", "code":
			return false
		case "world", "gpus", "gpu", "ngpus", "nodes", "node", "nnodes", "nranks", "device", "devices", "workers", "processes", "tasks", "proc", "nproc", "rate",
			"seconds", "secs", "sec", "ms", "runtime", "elapsed", "duration", "hours", "minutes", "latency", "loss", "acc", "accuracy", "iou", "dice", "score", "error", "auc", "bleu", "metric", "mean", "avg", "average", "median", "std", "min", "throughput", "speed", "speedup", "efficiency", "samples", "images", "img", "tokens", "flops", "flos", "mfu", "memory", "mem", "peak", "util", "utilization", "power", "watts", "energy", "joules", "temperature", "bandwidth", "gb", "mib", "gib", "best", "total", "last", "print", "freq", "interval", "verbose", "steps", "step", "iters", "iter", "iterations", "bw", "bytes", "cost", "ratio", "overhead", "value", "result", "results", "repeat", "rep", "trial", "fold":
			if isNumber {
				return false
			}
		}
	}
	return name != ""
}

// isPlace reports whether a text is a path, an address, a date or a long text, which does not separate
// runs.
func isPlace(text string) bool {
	const longest = 64
	return text == "" || len(text) > longest || strings.ContainsAny(text, `/\\:$`) || strings.Contains(text, "\n") || strings.Contains(text, ".") && strings.Trim(text, "0123456789.e-") != ""
}

// ofNames returns the differences in the numbers and words of the names of folders and files, and of
// runs in tables.
func ofNames(all []*runs.Run) (found []Difference) {
	paths := namePaths(all)
	common := commonElements(paths)
	labels := make([][]names.Label, len(all))
	var keys []string
	for i, p := range paths {
		if p == nil {
			continue
		}
		labels[i] = names.Labels(p[common:])
		for _, l := range labels[i] {
			if !slices.Contains(keys, l.Key) {
				keys = append(keys, l.Key)
			}
		}
	}
	for _, key := range keys {
		d := Difference{Name: "a number in their names", Values: make([]string, len(all)), Label: func(v string) string { return v }}
		if strings.HasSuffix(key, "/words") {
			d.Name, d.Words, d.InFolder = "their names", true, !strings.HasPrefix(key, "1/")
			d.Label = func(v string) string { return strings.TrimSuffix(v, noWords) }
		}
		for i := range all {
			for _, l := range labels[i] {
				if l.Key == key {
					if d.Values[i] = l.Text; l.Number == "" {
						d.Values[i] = cmp.Or(l.Text, noWords)
					}
				}
			}
		}
		if !countsRuns(all, key, labels) {
			found = append(found, d)
		}
	}
	return found
}

// noWords is the value of a name without words.
const noWords = "no words"

// namePaths returns the elements of the path of each run, without the extension of a file, and the name
// of a run in a table. It returns nil for a run folder and for a run in memory.
func namePaths(all []*runs.Run) [][]string {
	paths := make([][]string, len(all))
	for i, r := range all {
		if IsRunFolder(r) || r.File == "" {
			continue
		}
		name := r.File
		if r.Dir != "" && strings.HasPrefix(r.File, r.Dir+string(filepath.Separator)) {
			name = r.Dir // a folder of event files
		} else {
			name = record.UncompressedName(name)
			name = strings.TrimSuffix(name, filepath.Ext(name))
		}
		if name != "" {
			paths[i] = strings.Split(filepath.ToSlash(filepath.Clean(name)), "/")
		}
		if run, ok := r.Info.Config["run"].(string); ok {
			paths[i] = append(paths[i], run)
		}
	}
	return paths
}

// commonElements returns the number of elements with which all paths begin. At least one element of each
// path remains.
func commonElements(paths [][]string) int {
	n := -1
	var first []string
	for _, p := range paths {
		switch {
		case p == nil:
		case n < 0:
			n, first = len(p)-1, p
		default:
			n = min(n, len(p)-1)
			for k := range n {
				if p[k] != first[k] {
					n = k
					break
				}
			}
		}
	}
	return max(n, 0)
}

// countsRuns reports whether the numbers with the key are the seeds of the runs, their jobs, or count the
// runs from 0 or 1.
func countsRuns(all []*runs.Run, key string, labels [][]names.Label) bool {
	var found []int
	isSeed, isJob, mayCount := true, true, true
	for i, r := range all {
		for _, l := range labels[i] {
			if l.Key != key {
				continue
			}
			v, err := strconv.Atoi(l.Number)
			if err != nil {
				return false
			}
			found = append(found, v)
			mayCount = mayCount && l.MayCount
			isSeed = isSeed && int64(v) == r.Info.Seed
			isJob = isJob && r.Info.JobIDs[record.SlurmJobKey] == l.Number
		}
	}
	slices.Sort(found)
	found = slices.Compact(found)
	if len(found) == 0 || isSeed || isJob {
		return true
	}
	return mayCount && found[0] <= 1 && found[len(found)-1]-found[0] == len(found)-1
}

// CommonPattern returns a pattern of file names (see logread.ParsePattern) that matches the file of each
// run, with a * for what differs in the last elements of their paths. It returns "" if there is none, as
// for run folders.
func CommonPattern(all []*runs.Run) string {
	var paths [][]string
	for _, r := range all {
		if IsRunFolder(r) || r.File == "" {
			return ""
		}
		paths = append(paths, strings.Split(filepath.ToSlash(r.File), "/"))
	}
	var pattern []string
	for depth := 1; depth <= 3; depth++ {
		var there []string
		for _, p := range paths {
			if depth > len(p) {
				return ""
			}
			there = append(there, p[len(p)-depth])
		}
		pattern = append([]string{commonName(there)}, pattern...)
		if slices.ContainsFunc(there, func(name string) bool { return name != there[0] }) {
			break
		}
	}
	text := strings.Join(pattern, "/")
	if strings.ContainsAny(text, "{='") || strings.Trim(text, "*/") == "" {
		return ""
	}
	return text
}

// commonName returns the names in all if they are equal, and otherwise their common beginning and end
// with a * between them.
func commonName(all []string) string {
	first := all[0]
	if !slices.ContainsFunc(all, func(n string) bool { return n != first }) {
		return first
	}
	begin, end, shortest := len(first), len(first), len(first)
	for _, n := range all {
		k := 0
		for k < min(begin, len(n)) && n[k] == first[k] {
			k++
		}
		begin, k = k, 0
		for k < min(end, len(n)) && n[len(n)-1-k] == first[len(first)-1-k] {
			k++
		}
		end, shortest = k, min(shortest, len(n))
	}
	end = min(end, shortest-begin)
	return first[:begin] + "*" + first[len(first)-end:]
}

// repeatNumber matches the seeds and the other numbers in a name.
var repeatNumber = regexp.MustCompile(`(?i)(seed[-_=]?)?[0-9]+`)

// RepeatPath returns the path of a run with its seeds and the numbers of repeats replaced: runs with
// equal RepeatPaths are repeats by their names. It is empty for one of several runs of a file.
func RepeatPath(r *runs.Run) string {
	const longest = 3 // digits; longer numbers are those of jobs
	if r.Dir != r.File {
		return ""
	}
	elements := strings.Split(filepath.ToSlash(r.File), "/")
	for i, element := range elements {
		if names.HasDate(element) {
			continue
		}
		elements[i] = repeatNumber.ReplaceAllStringFunc(element, func(n string) string {
			if len(n) <= longest || strings.EqualFold(n[:1], "s") {
				return "#"
			}
			return n
		})
	}
	return strings.Join(elements, "/")
}
