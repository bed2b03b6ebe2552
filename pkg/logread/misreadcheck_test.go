package logread

import (
	"fmt"
	"math"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"lockstep/pkg/runs"
)

// countedKinds are the kinds whose lines do not contain the number of the epoch, step or
// trial, so that the reader counts lines, or whose values get their meaning from another line:
// from the header of the table, or from the line of another rank without a label. If lines are
// lost or mixed, the reader counts others.
func countedKinds() []string {
	return []string{
		"Keras log", "DLLogger", "benchy", "study CSV", "Hugging Face Trainer", "MMCV log", "tf_cnn_benchmarks", "PyTorch ImageNet example",
		"torchvision reference", "CSV table", "Lightning bars", "Lightning metrics", "nnU-Net", "nvidia-smi", "MMEngine scalars",
		"tqdm bars", "rates by rank", "DeepSpeed", "U-Net study stdout", "JSON lines", "JSON results", "Markdown page",
	}
}

// fileKinds are the kinds whose lines get their meaning from the other lines of their file: JSON
// lines, and progress bars, which look alike whether epochs count from 0 or from 1.
func fileKinds() []string {
	return []string{"Detectron2 metrics", "MMEngine scalars", "MMCV log", "JSON lines", "tqdm bars"}
}

// misreadChecker checks what was read from mutants.
type misreadChecker struct {
	mutants  []*mutant
	dir      string
	rows     []Row
	runs     []runs.Run
	reports  Reports
	problems []runs.Problem
}

// fileAt returns the file with a path, and its mutant, or nil.
func (c misreadChecker) fileAt(path string) (*mutatedFile, *mutant) {
	for _, m := range c.mutants {
		for _, f := range m.files {
			if filepath.Join(c.dir, f.path) == path {
				return f, m
			}
		}
	}
	return nil, nil
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
		if c.isSaidToBeWrong(r) {
			continue
		}
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

// isSaidToBeWrong reports whether a problem states that the epochs of a file may be wrong.
func (c misreadChecker) isSaidToBeWrong(r Row) bool {
	file, _, _ := strings.Cut(r.Run, "#")
	return slices.ContainsFunc(c.problems, func(p runs.Problem) bool { return p.File == file && strings.Contains(p.Reason, templatesCountFromOne) })
}

// filesOf returns the files of a run and those that are reported to belong to it.
func (c misreadChecker) filesOf(run string) (files []*mutatedFile) {
	file, _, _ := strings.Cut(run, "#")
	for _, m := range c.mutants {
		for _, f := range m.files {
			path := filepath.Join(c.dir, f.path)
			if path == file || strings.HasPrefix(path, file+"/") || c.isReported(path, file) || c.isReported(file, path) {
				files = append(files, f)
			}
		}
	}
	return files
}

// numbersOf returns the numbers in the files of a run.
func (c misreadChecker) numbersOf(run string) numbers {
	var l numbers
	var text []byte
	for _, f := range c.filesOf(run) {
		text = append(append(text, f.content...), '\n')
		l = append(l, numbersInEvents(f.content)...)
	}
	l = append(l, numbersIn(text)...)
	slices.Sort(l)
	return slices.Compact(l)
}

// isReported reports whether the report of a file names another file.
func (c misreadChecker) isReported(file, other string) bool {
	i := slices.IndexFunc(c.reports, func(r Report) bool { return r.Path == file })
	return i >= 0 && strings.Contains(strings.Join(c.reports[i].Assumed, "\n"), other)
}

// checkRow returns what is wrong with a row, or "".
func (c misreadChecker) checkRow(r Row, l numbers, same []Row) string {
	wrong := "the value is in no file of the run"
	if l.has(r.Value) || c.isEnergy(r, same) || slices.ContainsFunc(derivations(), func(d derivation) bool { return d.name.MatchString(r.Name) && d.ok(r, l, same) }) {
		wrong = ""
	}
	file, _, _ := strings.Cut(r.Run, "#")
	if f, m := c.fileAt(file); m != nil && m.mode == f { // whose numbers are others than those of the sample
		return wrong
	}
	if place := c.checkPlace(r, l, same); place != "" {
		return place
	}
	if pass := c.checkPass(r); pass != "" {
		return pass
	}
	if r.Name == "all_reduce_seconds" && !slices.ContainsFunc(c.mutantOf(r.Run).samples, func(s *sample) bool { return s.unique.has(r.Value) || s.unique.has(r.Value*1e6) }) {
		return "the time is a number of another column" // the times in the samples are decimals
	}
	return wrong
}

// mutantOf returns the mutant with a file of a run.
func (c misreadChecker) mutantOf(run string) *mutant {
	file, _, _ := strings.Cut(run, "#")
	for _, m := range c.mutants {
		for _, f := range m.files {
			if path := filepath.Join(c.dir, f.path); path == file || strings.HasPrefix(path, file+"/") {
				return m
			}
		}
	}
	return &mutant{}
}

// passLine matches a line of the samples lines/ and the number of the epoch in it.
var passLine = regexp.MustCompile(`(?m)^.*\bpass ([0-9]+)\b.*$`)

// checkPass returns what is wrong with the epoch of a value that is in a line with a number of an
// epoch, or "". Unlike checkPlace, it does not use what was read from the sample.
func (c misreadChecker) checkPass(r Row) string {
	if r.Value == math.Trunc(r.Value) || math.IsNaN(r.Value) {
		return ""
	}
	var passes []string
	for _, f := range c.filesOf(r.Run) {
		for _, m := range passLine.FindAllSubmatch(f.content, -1) {
			if !numbersIn(m[0]).has(r.Value) {
				continue
			}
			if pass := string(m[1]); pass == fmt.Sprint(r.Epoch) || r.Epoch == 0 && pass == fmt.Sprint(r.Step) {
				return ""
			}
			passes = append(passes, string(m[0]))
		}
	}
	if len(passes) == 0 {
		return ""
	}
	return fmt.Sprintf("the lines with the value are %q, and now", passes)
}

// spanName matches the names of the values of spans, whose numbers count the spans of a trace.
var spanName = regexp.MustCompile(`_seconds/`)

// checkPlace returns what is wrong with the name, epoch, step and rank of a value that is read
// from one sample only, or "".
func (c misreadChecker) checkPlace(r Row, l numbers, same []Row) string {
	if r.Value == math.Trunc(r.Value) || math.IsNaN(r.Value) || strings.Contains(r.Name, "_start_seconds/") { // since the first span
		return ""
	}
	var of *sample
	var places []string
	for _, s := range c.mutantOf(r.Run).samples {
		for _, before := range s.rows {
			if before.Value != r.Value {
				continue
			}
			isPlace := before.Epoch == r.Epoch && before.Step == r.Step && before.Name == r.Name
			if spanName.MatchString(r.Name) { // the spans are counted, and others show what kind they are of
				isPlace = before.Name[strings.IndexByte(before.Name, '_')+1:] == r.Name[strings.IndexByte(r.Name, '_')+1:]
			}
			if len(s.files) > 1 && c.isLost(s) && r.Epoch == 0 && before.Step == r.Step && before.Name == r.Name { // run.json shows what the files beside it are
				isPlace = true
			}
			isRank := before.Rank == r.Rank || len(s.files) > 1 && r.Rank < 0 && c.isLost(s) || // the files show the ranks
				r.Rank > 0 && c.isRenamed(s) || r.Rank == 0 && c.isLost(s) && spanName.MatchString(r.Name) // a trace without a rank is that of rank 0
			if isRank && isPlace {
				return ""
			}
			if of != nil && of != s {
				return ""
			}
			of, places = s, append(places, fmt.Sprintf("%+v", before))
		}
		if s.unique.has(r.Value) {
			of = s
		}
	}
	switch {
	case of == nil, c.isCounted(r, of), c.lacksValues(r):
		return ""
	case len(places) == 0 && c.isLost(of): // of one rank, if the lines of the others were lost
		return ""
	}
	if slices.ContainsFunc(derivations(), func(d derivation) bool { return d.changesPlace && d.name.MatchString(r.Name) && d.ok(r, l, same) }) {
		return ""
	}
	return fmt.Sprintf("in %s the value is %q, and now", of.path, places)
}

// lacksValues reports whether a problem states that an epoch of a program that prints the number
// of an epoch before its values has none, so that the next values may be those of this epoch.
func (c misreadChecker) lacksValues(r Row) bool {
	file, _, _ := strings.Cut(r.Run, "#")
	return slices.ContainsFunc(c.problems, func(p runs.Problem) bool {
		return p.File == file && strings.Contains(p.Reason, " has no values: epoch ")
	}) &&
		slices.ContainsFunc(c.runs, func(run runs.Run) bool { return run.Dir == r.Run && run.Kind == "U-Net study stdout" })
}

// isRenamed reports whether a sample has another name, which may contain a rank.
func (c misreadChecker) isRenamed(s *sample) bool {
	return slices.ContainsFunc(c.mutants, func(m *mutant) bool { return m.renamed && slices.Contains(m.samples, s) })
}

// isLost reports whether lines of a sample were removed or mixed with others.
func (c misreadChecker) isLost(s *sample) bool {
	return slices.ContainsFunc(c.mutants, func(m *mutant) bool { return m.lost && slices.Contains(m.samples, s) })
}

// isCounted reports whether the lines of the sample from which a row was read contain no
// numbers of epochs or steps, so that the reader counts others than in the sample, or whether
// the lines were added to a file of another sample, and one of both samples is a folder, whose
// other files show the rank or the part of the data.
func (c misreadChecker) isCounted(r Row, s *sample) bool {
	isTrial := strings.HasSuffix(r.Name, "_trial_samples_per_second")
	if c.isLost(s) && (isTrial || s.isOfKind(countedKinds())) {
		return true
	}
	return slices.ContainsFunc(c.mutants, func(m *mutant) bool {
		return slices.Contains(m.samples[1:], s) && (len(m.files) > 1 || len(s.files) > 1 || s.isOfKind(fileKinds()))
	})
}
