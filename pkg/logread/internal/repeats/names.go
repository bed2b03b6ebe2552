package repeats

import (
	"cmp"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/logread/internal/names"
	"lockstep/pkg/logread/internal/record"
)

// Numbers in names. A number belongs to the word before it (r50, bs_32, lr=0.1) or after it
// (100epochs), and is compared with the number of the same word in the names of other runs.
// Some numbers do not separate runs: those of workers, ranks, seeds, repeats and jobs, dates
// and times, and numbers that count the runs from 0 or 1.

// namePatterns contains the expressions that find numbers in names.
type namePatterns struct {
	date, number, hash *regexp.Regexp
}

// sharedNamePatterns compiles the expressions once.
var sharedNamePatterns = sync.OnceValue(func() namePatterns {
	return namePatterns{
		// 2021-11-12, 20211112, 10-20-30, 10:20:30, Nov12, 123456 after a date
		date: regexp.MustCompile(`(?i)(?:19|20)[0-9]{2}[-_.]?[01][0-9][-_.]?[0-3][0-9](?:[-_T. ]?[0-9]{6})?|[0-2][0-9][-_:.][0-5][0-9][-_:.][0-5][0-9]|(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[0-9]{1,2}`),
		// The letters before a number, at most one separator, the number, the letters after it.
		number: regexp.MustCompile(`([A-Za-z]*)([-_=. ]?)([0-9]+(?:\.[0-9]+)?(?:e-[0-9]+)?)([A-Za-z]*)`),
		hash:   regexp.MustCompile(`^(?:[0-9a-z]*[0-9][a-z]+[0-9]+[a-z]+[0-9a-z]*|[0-9a-f]{7,})$`),
	}
})

// ignoredWords returns words whose numbers do not separate runs, in addition to those that
// package names understands.
func ignoredWords() []string {
	return []string{
		"gpu", "worker", "rank", "localrank", "task", "node", "host",
		"run", "trial", "try", "attempt", "restart", "resume", "version", "take",
		"job", "jobid", "slurm", "pid", "id", "part", "chunk", "checkpoint", "ckpt", "step", "iter",
	}
}

// countingWords returns words directly after which small numbers count the runs, as in
// out1.log, out2.log. The empty word is that of a number alone.
func countingWords() []string {
	return []string{"", "log", "out", "output", "train", "result", "s", "r"}
}

// settingWords returns words of settings. A number after such a word and a separator does not
// count the runs, unlike the number in unet_1.log.
func settingWords() []string {
	return []string{
		"b", "bs", "batch", "batchsize", "mbs", "gbs", "lr", "wd", "d", "h", "k", "c", "l", "e", "ep", "epoch", "epochs", "depth", "width", "dim", "hidden", "layer", "layers", "head", "heads",
		"ch", "channels", "n", "nodes", "accum", "fold", "img", "crop", "samples", "threads", "level", "bucket", "mb", "seq", "len",
	}
}

// nameNumber is a number in the name of a run.
type nameNumber struct {
	key   string // its word and its place, by which it is compared with other runs
	digit string // the number
	// mayCount reports whether the numbers of several runs may count the runs.
	mayCount bool
	label    string // as in the name, such as "r50"
}

// separateByNames separates the runs whose names differ in a number. Run folders are not
// separated by their names, which contain only the series, the workers and the seed.
func (g *group) separateByNames() {
	paths := g.namePaths()
	common := commonElements(paths)
	numbers := make([][]nameNumber, len(g.runs))
	var keys []string
	for i, p := range paths {
		if p == nil {
			continue
		}
		numbers[i] = findNumbers(p[common:])
		for _, n := range numbers[i] {
			if !slices.Contains(keys, n.key) {
				keys = append(keys, n.key)
			}
		}
	}
	var conflicts []string
	for _, key := range keys {
		values := make([]string, len(g.runs))
		for i := range g.runs {
			for _, n := range numbers[i] {
				if n.key == key {
					values[i] = n.label
				}
			}
		}
		if g.countsRuns(key, numbers) {
			continue
		}
		found := g.findConflicts(values)
		if found == nil {
			continue
		}
		conflicts = append(conflicts, found...)
		g.addLabels(values, func(v string) string { return v })
	}
	if conflicts != nil {
		g.differences = append(g.differences, "a number in their names ("+english.List(shorten(conflicts))+")")
	}
}

// namePaths returns the elements of the path of each run, without the extension of a file. It
// returns nil for a run folder.
func (g *group) namePaths() [][]string {
	paths := make([][]string, len(g.runs))
	for i, r := range g.runs {
		if r.Info.Schema > 0 || r.Kind == "run folder" {
			continue
		}
		name := cmp.Or(r.File, r.Dir)
		if r.Dir != "" && strings.HasPrefix(r.File, r.Dir+string(filepath.Separator)) {
			name = r.Dir // a folder of event files
		} else {
			name = record.UncompressedName(name)
			name = strings.TrimSuffix(name, filepath.Ext(name))
		}
		if name != "" {
			paths[i] = strings.Split(filepath.ToSlash(filepath.Clean(name)), "/")
		}
	}
	return paths
}

// commonElements returns the number of elements with which all paths begin. At least one
// element of each path remains.
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

// findNumbers returns the numbers in the elements of a path that may separate runs.
func findNumbers(elements []string) []nameNumber {
	p := sharedNamePatterns()
	var out []nameNumber
	for depth, element := range slices.Backward(elements) {
		element = names.Parse(p.date.ReplaceAllString(element, "-")).Rest // without workers, nodes and seeds
		seen := map[string]int{}
		for _, m := range p.number.FindAllStringSubmatchIndex(element, -1) {
			word, number, after := strings.ToLower(element[m[2]:m[3]]), element[m[6]:m[7]], strings.ToLower(element[m[8]:m[9]])
			if separatesNoRuns(p, element, m, word, number, after) {
				continue
			}
			label := element[m[6]:m[9]] // a number alone, or with the word after it
			if m[4] == m[5] {           // r50
				label = element[m[2]:m[9]]
			}
			place := fmt.Sprintf("%d/%s/%s", len(elements)-depth, word, after)
			seen[place]++
			out = append(out, nameNumber{
				key: fmt.Sprintf("%s/%d", place, seen[place]), digit: number, label: label,
				mayCount: after == "" && (slices.Contains(countingWords(), word) || m[4] != m[5] && !slices.Contains(settingWords(), word)),
			})
		}
	}
	return out
}

// separatesNoRuns reports whether the number that m matches in a name cannot separate runs.
// m contains the indices of the submatches of namePatterns.number.
func separatesNoRuns(p namePatterns, name string, m []int, word, number, after string) bool {
	const longest = 5 // digits of a number alone; longer ones are of jobs or times
	start := strings.LastIndexAny(name[:m[6]], "-_=. ") + 1
	end := len(name)
	if i := strings.IndexAny(name[m[7]:], "-_=. "); i >= 0 {
		end = m[7] + i
	}
	switch {
	case slices.Contains(ignoredWords(), word) || slices.Contains(ignoredWords(), after):
		return true
	case len(number) > 1 && number[0] == '0' && !strings.Contains(number, "."): // 007 is an index
		return true
	case len(number) >= longest && (m[4] != m[5] || word == "") && after == "":
		return true
	}
	return p.hash.MatchString(strings.ToLower(name[start:end])) && word+after != ""
}

// countsRuns reports whether the numbers with the key are the seeds of the runs, their jobs,
// or count the runs from 0 or 1.
func (g *group) countsRuns(key string, numbers [][]nameNumber) bool {
	var found []int
	isSeed, isJob, mayCount := true, true, true
	for i, r := range g.runs {
		for _, n := range numbers[i] {
			if n.key != key {
				continue
			}
			v, err := strconv.Atoi(n.digit)
			if err != nil {
				return false
			}
			found = append(found, v)
			mayCount = mayCount && n.mayCount
			isSeed = isSeed && int64(v) == r.Info.Seed
			isJob = isJob && r.Info.JobIDs[record.SlurmJobKey] == n.digit
		}
	}
	slices.Sort(found)
	found = slices.Compact(found)
	if len(found) == 0 || isSeed || isJob {
		return true
	}
	return mayCount && found[0] <= 1 && found[len(found)-1]-found[0] == len(found)-1
}

// commonPattern returns a pattern of file names (see logread.ParsePattern) that matches the
// file of each run, with a * for what differs in the last elements of their paths. It returns
// "" if there is none, as for run folders.
func (g *group) commonPattern() string {
	var paths [][]string
	for _, r := range g.runs {
		if r.Info.Schema > 0 || r.Kind == "run folder" || r.File == "" {
			return ""
		}
		paths = append(paths, strings.Split(filepath.ToSlash(r.File), "/"))
	}
	var pattern []string
	for depth := 1; ; depth++ {
		var there []string
		for _, p := range paths {
			if depth > len(p) {
				return ""
			}
			there = append(there, p[len(p)-depth])
		}
		name := commonName(there)
		pattern = append([]string{name}, pattern...)
		if slices.ContainsFunc(paths, func(p []string) bool { return p[len(p)-depth] != paths[0][len(paths[0])-depth] }) || depth == 3 {
			break
		}
	}
	text := strings.Join(pattern, "/")
	if strings.ContainsAny(text, "{='") || strings.Trim(text, "*/") == "" {
		return ""
	}
	return text
}

// commonName returns the names in all if they are equal, and otherwise their common beginning and
// end with a * between them.
func commonName(all []string) string {
	first := all[0]
	if !slices.ContainsFunc(all, func(n string) bool { return n != first }) {
		return first
	}
	begin, end := len(first), len(first)
	for _, n := range all {
		k := 0
		for k < min(begin, len(n)) && n[k] == first[k] {
			k++
		}
		begin = k
		k = 0
		for k < min(end, len(n)) && n[len(n)-1-k] == first[len(first)-1-k] {
			k++
		}
		end = k
	}
	shortest := len(first)
	for _, n := range all {
		shortest = min(shortest, len(n))
	}
	end = min(end, shortest-begin)
	return first[:begin] + "*" + first[len(first)-end:]
}
