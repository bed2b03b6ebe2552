package repeats

import (
	"cmp"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"lockstep/pkg/logread/internal/names"
	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/runs"
)

// findNameDifferences returns the differences in the names of folders and files, and of runs in tables.
func findNameDifferences(all []*runs.Run) (found []Difference) {
	paths := namePaths(all)
	common := commonPrefixLength(paths)
	labels := make([][]names.NameLabel, len(all))
	// The numbers of workers in the names differ only if other evidence outweighs them.
	counts := Difference{Name: "the number of workers in their names", Values: make([]string, len(all)), Label: func(v string) string { return "(workers in the name: " + v + ")" }}
	var keys []string
	for i, p := range paths {
		if p == nil {
			continue
		}
		labels[i] = names.PathLabels(p[common:])
		for _, element := range p[common:] {
			if n := names.Parse(element).Workers; n > 0 {
				counts.Values[i] = strconv.Itoa(n)
			}
		}
		for _, l := range labels[i] {
			if !slices.Contains(keys, l.Key) {
				keys = append(keys, l.Key)
			}
		}
	}
	for _, key := range keys {
		d := Difference{Name: "a number in their names", Values: make([]string, len(all)), Label: strings.Clone}
		if strings.HasSuffix(key, "/words") {
			d.Name, d.Words, d.InFolder = "their names", true, !strings.HasPrefix(key, "1/")
			d.Label = func(v string) string { return strings.TrimSuffix(v, missingWordsLabel) }
		}
		for i := range all {
			for _, l := range labels[i] {
				if l.Key == key {
					if d.Values[i] = l.Text; l.Number == "" {
						d.Values[i] = cmp.Or(l.Text, missingWordsLabel)
					}
				}
			}
		}
		if !isRunNumbering(all, key, labels) {
			found = append(found, d)
		}
	}
	return append(found, counts)
}

const missingWordsLabel = "no words"

// namePaths returns, for each run, the elements of its path without the file's extension, followed
// by the name of the run in a table. The path of a run folder or of a run in memory is nil.
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

// commonPrefixLength returns how many first elements all paths have in common, but at most so many
// that one element of each path remains.
func commonPrefixLength(paths [][]string) int {
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

// isRunNumbering reports whether the numbers with the key are seeds or jobs of the runs, or count the
// runs from 0 or 1. The first run may have no number: the first of unet and unet_2, or of unet and "unet (1)".
func isRunNumbering(all []*runs.Run, key string, labels [][]names.NameLabel) bool {
	var found []int
	isSeed, isJob, mayCount, isMissing := true, true, true, false
	for i, r := range all {
		isMissing = isMissing || labels[i] != nil && !slices.ContainsFunc(labels[i], func(l names.NameLabel) bool { return l.Key == key })
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
	if isMissing && len(found) > 0 {
		found = append(found, slices.Min(found)-1)
	}
	return len(found) == 0 || isSeed || isJob || mayCount && CountFromStart(found)
}

// CountFromStart reports whether numbers count from 0 or 1, without a gap.
func CountFromStart(numbers []int) bool {
	slices.Sort(numbers)
	numbers = slices.Compact(numbers)
	return len(numbers) > 0 && numbers[0] <= 1 && numbers[len(numbers)-1]-numbers[0] == len(numbers)-1
}

// CommonPattern returns a pattern of file names (see logread.ParsePattern) that matches the files
// of all runs. It contains a * where the last path elements differ. It is empty if no pattern
// matches, as for run folders.
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
		pattern = append([]string{commonNamePattern(there)}, pattern...)
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

// commonNamePattern returns a pattern that matches all of the names: the name if all are equal, and
// otherwise their common prefix, a *, and their common suffix.
func commonNamePattern(all []string) string {
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

// repeatNumber matches a number in a name, including the word seed before it.
var repeatNumber = regexp.MustCompile(`(?i)(seed[-_=]?)?[0-9]+`)

// PathWithoutRepeat returns the path of a run with a placeholder for seeds and repeat numbers. Runs with
// the same PathWithoutRepeat are repeats of each other. PathWithoutRepeat omits folders for repeats, because the
// first repeat may be in the folder above. It is empty if the file has several runs.
func PathWithoutRepeat(r *runs.Run) string {
	const longest = 3 // digits; longer numbers are those of jobs
	if r.Dir != r.File {
		return ""
	}
	elements := slices.DeleteFunc(strings.Split(filepath.ToSlash(r.File), "/"), func(element string) bool {
		n := names.Parse(element)
		return n.Seed >= 0 && n.Workers+n.Nodes == 0 && strings.Trim(n.Rest, "_") == ""
	})
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
