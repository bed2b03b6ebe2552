package logread

import (
	"bytes"
	"fmt"
	"math"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// numbers is a sorted list of numbers.
type numbers []float64

var thousandsPattern = regexp.MustCompile(`[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]+)?`)

var numberPattern = regexp.MustCompile(`(?i)(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[-+]?[0-9]+)?|nan|inf(?:inity)?`)

// numbersIn returns the numbers in a text, without their signs.
func numbersIn(text []byte) numbers {
	var list numbers
	for _, m := range append(numberPattern.FindAll(text, -1), thousandsPattern.FindAll(text, -1)...) {
		if v, err := strconv.ParseFloat(strings.ReplaceAll(string(m), ",", ""), 64); err == nil {
			list = append(list, v)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// has reports whether the list contains v up to rounding.
func (l numbers) has(v float64) bool {
	if math.IsNaN(v) {
		return len(l) > 0 && math.IsNaN(l[0])
	}
	v = math.Abs(v)
	i, _ := slices.BinarySearch(l, v*(1-1e-12))
	return i < len(l) && l[i] <= v*(1+1e-12)
}

// hasSum reports whether v is the sum of n numbers of the list.
func (l numbers) hasSum(v float64, n int) bool {
	if n == 1 {
		return l.has(v)
	}
	return slices.ContainsFunc(l, func(x float64) bool { return x <= v && l.hasSum(v-x, n-1) })
}

// hasDifference reports whether v is the difference of two numbers of the list, which
// contains times in the unit.
func (l numbers) hasDifference(v, unit float64) bool {
	return slices.ContainsFunc(l, func(x float64) bool { // the difference of two times since 1970 has few digits
		i, _ := slices.BinarySearch(l, x+v/unit-1e-4)
		return i < len(l) && l[i] <= x+v/unit+1e-4
	})
}

// hasProduct reports whether v is the product of two numbers of the list, up to the rounding
// of a count.
func (l numbers) hasProduct(v float64) bool {
	return slices.ContainsFunc(l, func(x float64) bool {
		i, _ := slices.BinarySearch(l, (v-0.51)/x)
		return x > 0 && i < len(l) && l[i] <= (v+0.51)/x
	})
}

// hasQuotient reports whether v is the quotient of two numbers of the list.
func (l numbers) hasQuotient(v float64) bool {
	return slices.ContainsFunc(l, func(x float64) bool { return x > 0 && l.has(v*x) })
}

// maxMixedRanks is the largest number of ranks whose values are in one of the mutated files.
const maxMixedRanks = 4

// derivation describes how a value can be derived from the numbers of its run's files.
type derivation struct {
	name *regexp.Regexp // of the value
	why  string
	ok   func(r Row, l numbers, same []Row) bool
}

// derivations lists the values that are not in the files as they are shown. same contains
// all rows of the run.
func derivations() []derivation {
	ranks := func(v float64, l numbers, mean bool) bool {
		if mean { // files of different programs may be mixed, of which one prints percentages
			both := slices.Clone(l)
			for _, x := range l {
				both = append(both, x/100)
			}
			slices.Sort(both)
			l = both
		}
		for n := 2; n <= maxMixedRanks; n++ {
			sum := v
			if mean {
				sum *= float64(n)
			}
			if l.hasSum(sum, n) {
				return true
			}
		}
		return false
	}
	trials := func(name string, same []Row) (list []float64) {
		for _, r := range same {
			if r.Name == name+"_trial_samples_per_second" {
				list = append(list, r.Value)
			}
		}
		return list
	}
	return []derivation{
		{regexp.MustCompile(`^(train|val)_loss$|^(val_)?accuracy$|^iou$|^dice$`), "the mean over the ranks", func(r Row, l numbers, _ []Row) bool { return ranks(r.Value, l, true) }},
		{regexp.MustCompile(`^(samples|samples_per_second)$`), "the sum over the ranks", func(r Row, l numbers, _ []Row) bool { return ranks(r.Value, l, false) }},
		{regexp.MustCompile(`^samples$`), "seconds × samples per second", func(r Row, l numbers, _ []Row) bool { return l.hasProduct(r.Value) }},
		{regexp.MustCompile(`seconds$`), "the difference of two times in s or ms", func(r Row, l numbers, _ []Row) bool {
			return l.hasDifference(r.Value, 1) || l.hasDifference(r.Value, 1e-3)
		}},
		{regexp.MustCompile(`^wall_seconds$`), "days, hours, minutes and seconds", func(r Row, l numbers, _ []Row) bool {
			v := r.Value
			return l.has(math.Mod(v, 60)) && l.has(math.Mod(math.Floor(v/60), 60)) || l.has(math.Mod(v, 60)) && l.has(math.Floor(v/60))
		}},
		{regexp.MustCompile(`_trial_samples_per_second$`), "the rate of a worker × the workers", func(r Row, l numbers, _ []Row) bool {
			return slices.ContainsFunc(l, func(workers float64) bool { return workers >= 1 && l.has(r.Value/workers) })
		}},
		{regexp.MustCompile(`^[A-Z]+_samples_per_second$`), "the mean over the trials, or the rate of a worker × the workers", func(r Row, l numbers, same []Row) bool {
			if slices.ContainsFunc(l, func(workers float64) bool { return workers >= 1 && l.has(r.Value/workers) }) {
				return true
			}
			mean, _, n := deviation(trials(strings.TrimSuffix(r.Name, "_samples_per_second"), same))
			return n > 0 && math.Abs(mean-r.Value) <= 1e-9*mean
		}},
		{regexp.MustCompile(`_spread_samples_per_second$`), "the standard deviation of the trials; 1.96 times it, of a worker or of all", func(r Row, l numbers, same []Row) bool {
			_, squares, n := deviation(trials(strings.TrimSuffix(r.Name, "_spread_samples_per_second"), same))
			return l.has(r.Value*1.96) || l.has(r.Value*1.96/float64(max(1, r.Workers))) ||
				n > 0 && math.Abs(r.Value-math.Sqrt(squares/n)) < 1e-6 || n > 1 && math.Abs(r.Value-math.Sqrt(squares/(n-1))) < 1e-6
		}},
		{regexp.MustCompile(`loss$|accuracy$|^lr$`), "the value of the last step of an epoch", func(r Row, _ numbers, same []Row) bool {
			return r.Epoch > 0 && slices.ContainsFunc(same, func(o Row) bool { return o.Epoch == 0 && o.Step >= 0 && o.Value == r.Value })
		}},
		{regexp.MustCompile(`accuracy$|^iou$|^dice$`), "a percentage, or the mean of the ranks' percentages", func(r Row, l numbers, _ []Row) bool {
			return l.has(r.Value*100) || ranks(r.Value*100, l, true)
		}},
		{regexp.MustCompile(`seconds$`), "ms or µs", func(r Row, l numbers, _ []Row) bool { return l.has(r.Value*1e3) || l.has(r.Value*1e6) }},
		{regexp.MustCompile(`seconds$`), "minutes and seconds, or hours, minutes and seconds", func(r Row, l numbers, _ []Row) bool {
			minutes := math.Floor(r.Value / 60)
			return l.has(r.Value-60*minutes) && (l.has(minutes) || l.has(math.Mod(minutes, 60)) && l.has(math.Floor(minutes/60)))
		}},
		{regexp.MustCompile(`^seconds$`), "steps × the time of a step, or steps / steps per second", func(r Row, l numbers, _ []Row) bool {
			return l.hasQuotient(r.Value) || slices.ContainsFunc(l, func(steps float64) bool {
				return steps == math.Floor(steps) && (l.has(r.Value/steps) || l.has(r.Value/(steps+1)))
			})
		}},
		{regexp.MustCompile(`^(samples|tokens)_per_second$`), "samples or tokens of a step / its time in s or ms", func(r Row, l numbers, _ []Row) bool {
			return l.hasQuotient(r.Value) || l.hasQuotient(r.Value/1e3)
		}},
		{regexp.MustCompile(`^padding_samples$`), "0", func(r Row, _ numbers, _ []Row) bool { return r.Value == 0 }},
	}
}

// deviation returns the mean of a list, the sum of the squared deviations from it, and the
// number of values.
func deviation(list []float64) (mean, squares, n float64) {
	n = float64(len(list))
	for _, x := range list {
		mean += x / n
	}
	for _, x := range list {
		squares += (x - mean) * (x - mean)
	}
	return mean, squares, n
}

// countedKinds are the kinds whose lines do not contain the number of the epoch, step or
// trial, so that the reader counts lines, or whose values get their meaning from another line:
// from the header of the table, or from the line of another rank without a label. If lines are
// lost or mixed, the reader counts others.
func countedKinds() []string {
	return []string{"Keras", "DLLogger", "benchy", "study CSV", "Hugging Face Trainer", "MMCV log", "tf_cnn_benchmarks", "PyTorch ImageNet example", "torchvision reference", "CSV table", "Lightning"}
}

// misreadChecker checks what was read from mutated files.
type misreadChecker struct {
	samples []sample
	files   []mutatedFile
	dir     string
	rows    []Row
	reports Reports
}

// checkLines checks that each line of each file is counted.
func (c misreadChecker) checkLines() (wrong []string) {
	for _, r := range c.reports {
		name, err := filepath.Rel(c.dir, r.Path)
		i := slices.IndexFunc(c.files, func(f mutatedFile) bool { return f.path == name })
		if err != nil || i < 0 {
			return append(wrong, "a report of "+r.Path)
		}
		if r.Lines == 0 || r.Skipped != "" || strings.HasPrefix(r.Kind, "Jupyter notebook") { // whose lines are those of the outputs
			continue
		}
		text := c.files[i].text
		want := int64(bytes.Count(text, []byte("\n")))
		if !bytes.HasSuffix(text, []byte("\n")) {
			want++
		}
		problems := map[int]bool{}
		for _, p := range r.Unused {
			if p.Line > 0 {
				problems[p.Line] = true
			}
		}
		rest := r.Lines - r.LinesUsed - r.LinesIgnored()
		if r.Lines != want || rest < 0 || rest > int64(len(problems)+r.UnusedMore) {
			wrong = append(wrong, fmt.Sprintf("%s has %d lines; the report counts %d: %d used, %d ignored, %d with problems:\n%s", name, want, r.Lines, r.LinesUsed, r.LinesIgnored(), len(problems), r))
		}
	}
	return wrong
}

// checkRows checks that each value is in a file of its run, with the name, epoch, step and
// rank that it has in its sample.
func (c misreadChecker) checkRows() (wrong []string) {
	byRun := map[string][]Row{}
	for _, r := range c.rows {
		byRun[r.Run] = append(byRun[r.Run], r)
	}
	lists := map[string]numbers{}
	for _, r := range c.rows {
		l, ok := lists[r.Run]
		if !ok {
			l = c.numbersOf(r.Run)
			lists[r.Run] = l
		}
		if why := c.checkRow(r, l, byRun[r.Run]); why != "" {
			wrong = append(wrong, fmt.Sprintf("%s: %+v", why, r))
		}
	}
	return wrong
}

// numbersOf returns the numbers in the file of a run and in the files that are reported to
// belong to it.
func (c misreadChecker) numbersOf(run string) numbers {
	file, _, _ := strings.Cut(run, "#")
	var text []byte
	for _, f := range c.files {
		path := filepath.Join(c.dir, f.path)
		if path == file || strings.HasPrefix(path, file+"/") || c.isReported(path, file) || c.isReported(file, path) {
			text = append(append(text, f.text...), '\n')
		}
	}
	return numbersIn(text)
}

// isReported reports whether the report of a file names another file.
func (c misreadChecker) isReported(file, other string) bool {
	i := slices.IndexFunc(c.reports, func(r Report) bool { return r.Path == file })
	return i >= 0 && strings.Contains(strings.Join(c.reports[i].Assumed, "\n"), other)
}

// checkRow returns what is wrong with a row, or "".
func (c misreadChecker) checkRow(r Row, l numbers, same []Row) string {
	wrong := "the value is in no file of the run"
	if l.has(r.Value) {
		wrong = c.checkPlace(r)
	}
	if wrong == "" || slices.ContainsFunc(derivations(), func(d derivation) bool { return d.name.MatchString(r.Name) && d.ok(r, l, same) }) {
		return ""
	}
	return wrong
}

// checkPlace returns what is wrong with the name, epoch, step and rank of a value that occurs
// once in all samples, or "".
func (c misreadChecker) checkPlace(r Row) string {
	i := slices.IndexFunc(c.samples, func(s sample) bool { return s.unique.has(r.Value) })
	if i < 0 || c.isCounted(r, c.samples[i]) {
		return ""
	}
	var places []string
	for _, before := range c.samples[i].rows {
		if before.Value != r.Value {
			continue
		}
		if before.Name == r.Name && before.Epoch == r.Epoch && before.Step == r.Step && before.Rank == r.Rank {
			return ""
		}
		places = append(places, fmt.Sprintf("%+v", before))
	}
	if len(places) == 0 && r.Workers == 0 { // of one rank, if the lines of the others were lost
		return ""
	}
	return fmt.Sprintf("in %s the value is %q, and now", c.samples[i].path, places)
}

// isCounted reports whether the lines of the sample from which a row was read contain no
// numbers of epochs or steps, so that the reader counts others than in the sample.
func (c misreadChecker) isCounted(r Row, s sample) bool {
	file, _, _ := strings.Cut(r.Run, "#")
	i := slices.IndexFunc(c.files, func(f mutatedFile) bool { return filepath.Join(c.dir, f.path) == file })
	if i < 0 {
		return false
	}
	isTrial := strings.HasSuffix(r.Name, "_trial_samples_per_second")
	return c.files[i].lost && (isTrial || slices.ContainsFunc(countedKinds(), func(k string) bool { return strings.Contains(s.kinds, k) }))
}
