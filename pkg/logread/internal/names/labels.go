package names

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// Words and numbers in names by which runs differ. A number belongs to the word before it (r50,
// bs_32, lr=0.1) or after it (100epochs), and is compared with the numbers of this word in other
// names. Workers, ranks, seeds, jobs, dates and times do not count.

type namePatterns struct{ date, number, dotted, hash, stamp *regexp.Regexp }

var sharedPatterns = sync.OnceValue(func() namePatterns {
	return namePatterns{
		// 2021-11-12, 20211112, 10-20-30, 10:20:30, Nov12, 123456 after a date
		date: regexp.MustCompile(`(?i)(?:19|20)[0-9]{2}[-_.]?[01][0-9][-_.]?[0-3][0-9](?:[-_T. ]?[0-9]{6})?|[0-2][0-9][-_:.][0-5][0-9][-_:.][0-5][0-9]|(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[0-9]{1,2}`),
		// The letters before a number, at most one separator, the number, the letters after it.
		number: regexp.MustCompile(`([A-Za-z]*)([-_=. ]?)([0-9]+(?:\.[0-9]+)?(?:e-[0-9]+)?)([A-Za-z]*)`),
		dotted: regexp.MustCompile(`(\.[0-9]+)\.`), // 4.1 in bench.4.1 are two numbers
		hash:   regexp.MustCompile(`^(?:[0-9a-z]*[0-9][a-z]+[0-9]+[a-z]+[0-9a-z]*|[0-9a-f]{7,})$`),
		stamp:  regexp.MustCompile(`^[^0-9]{3}[0-9]{2}_[0-9]{2}-[0-9]{2}-[0-9]{2}_.`), // Aug12_10-00-00_host
	}
})

// isRepeatWord reports whether a number after word numbers the repeats of a run.
func isRepeatWord(word string) bool {
	return slices.Contains([]string{"run", "rep", "repeat", "repetition", "replicate", "trial", "try", "attempt", "take"}, word)
}

// isIgnoredWord reports whether a word, together with a number next to it, never distinguishes runs.
// isRepeatWord, isRunCounter and isSettingWord know further words.
func isIgnoredWord(word string) bool {
	return slices.Contains([]string{
		"gpu", "worker", "rank", "localrank", "task", "node", "host", "restart", "resume", "version",
		"job", "jobid", "slurm", "pid", "id", "part", "chunk", "checkpoint", "ckpt", "step", "iter",
	}, word) || isRepeatWord(word)
}

// isRunCounter reports whether small numbers directly after word only number the runs, as in
// out1.log and out2.log. word is empty if the number stands alone.
func isRunCounter(word string) bool {
	return slices.Contains([]string{"", "log", "out", "output", "train", "result", "s", "r"}, word)
}

// isSettingWord reports whether a number that follows word and a separator is a setting. In unet_1.log,
// for example, the number only numbers the runs.
func isSettingWord(word string) bool {
	return slices.Contains([]string{
		"b", "bs", "batch", "batchsize", "mbs", "gbs", "lr", "wd", "d", "h", "k", "c", "l", "e", "ep", "epoch", "epochs", "depth", "width", "dim", "hidden", "layer", "layers", "head", "heads",
		"ch", "channels", "n", "nodes", "accum", "fold", "img", "crop", "samples", "threads", "level", "bucket", "mb", "seq", "len",
	}, word)
}

func isPrecision(word string) bool {
	return slices.Contains([]string{"fp8", "fp16", "fp32", "fp64", "bf16", "tf32", "int8", "int4", "float16", "float32", "bfloat16"}, word)
}

// NameLabel is a part of a name that may distinguish a run from others: a number or words.
type NameLabel struct {
	Key  string // its word and its place, by which it is compared with other runs
	Text string // as in the name, such as "r50"; empty if the name has no words
	// Number is empty if the label consists of words. MayCount is set if the number may only number
	// the runs.
	Number   string
	MayCount bool
}

// PathLabels returns the labels in the elements of a path, innermost first.
func PathLabels(elements []string) (found []NameLabel) {
	x := sharedPatterns()
	for depth, element := range slices.Backward(elements) {
		place := len(elements) - depth
		if isEventsName(element) || isRunID(element) {
			continue
		}
		isStamp := x.stamp.MatchString(element)
		element = x.dotted.ReplaceAllString(element, "${1}_")
		element = Parse(x.date.ReplaceAllString(element, "-")).Rest // without workers, nodes and seeds
		seen := map[string]int{}
		rest, end := "", 0 // the name without numbers
		for _, m := range x.number.FindAllStringSubmatchIndex(element, -1) {
			word, number, after := strings.ToLower(element[m[2]:m[3]]), element[m[6]:m[7]], strings.ToLower(element[m[8]:m[9]])
			if precision := word + number; m[4] == m[5] && after == "" && isPrecision(precision) { // a word
				rest += element[end:m[9]]
				end = m[9]
				continue
			}
			joined := m[4] == m[5] // to the word, as in r50
			rest += element[end:m[2]]
			if !joined {
				rest += element[m[2]:m[5]]
			}
			end = m[9]
			if x.isIgnoredNumber(element, m, word, number, after, joined) {
				continue
			}
			from := m[6] // a number alone, or with the word after it
			if joined {
				from = m[2]
			}
			key := fmt.Sprintf("%d/%s/%s", place, word, after)
			seen[key]++
			found = append(found, NameLabel{
				Key: fmt.Sprintf("%s/%d", key, seen[key]), Text: element[from:m[9]], Number: number,
				MayCount: after == "" && (isRunCounter(word) || !joined && !isSettingWord(word)),
			})
		}
		if !isStamp { // whose words are the name of a host
			found = append(found, NameLabel{Key: fmt.Sprintf("%d/words", place), Text: x.normalizeWords(rest + element[end:])})
		}
	}
	return found
}

// HasDate reports whether a name contains a date or a time.
func HasDate(name string) bool { return sharedPatterns().date.MatchString(name) }

// normalizeWords removes meaningless words at both ends of name, and puts one separator between the
// remaining words.
func (x namePatterns) normalizeWords(name string) string {
	var b strings.Builder
	between := ""
	for name != "" {
		end := cmp.Or(max(strings.IndexFunc(name, isSeparator), 0), len(name))
		if isSeparator(rune(name[0])) {
			between, name = cmp.Or(between, name[:1]), name[1:]
			continue
		}
		if word := strings.ToLower(name[:end]); !isIgnoredWord(word) && !isMeaningless(word) && !x.hash.MatchString(word) {
			if b.Len() > 0 {
				b.WriteString(between)
			}
			b.WriteString(name[:end])
			between = ""
		}
		name = name[end:]
	}
	return b.String()
}

// isIgnoredNumber reports whether a number in name never distinguishes runs. m contains the
// submatch indices of the regular expression x.number for it.
func (x namePatterns) isIgnoredNumber(name string, m []int, word, number, after string, joined bool) bool {
	const longest = 5 // digits of a number alone; longer ones are of jobs or times
	start := strings.LastIndexFunc(name[:m[6]], isSeparator) + 1
	end := len(name)
	if i := strings.IndexFunc(name[m[7]:], isSeparator); i >= 0 {
		end = m[7] + i
	}
	switch {
	case isIgnoredWord(word) || isIgnoredWord(after):
		return true
	case len(number) > 1 && number[0] == '0' && !strings.Contains(number, "."): // 007 is an index
		return true
	case len(number) >= longest && (!joined || word == "") && after == "":
		return true
	}
	return x.hash.MatchString(strings.ToLower(name[start:end])) && word+after != ""
}
