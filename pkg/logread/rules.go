package logread

import (
	"fmt"
	"path/filepath"
	"slices"

	"lockstep/pkg/logread/internal/files"
	"lockstep/pkg/logread/internal/pattern"
	"lockstep/pkg/logread/internal/rules"
	"lockstep/pkg/runs"
)

// RulesFile is the name, lockstep-logs.yaml, of a file with rules for reading the logs in its folder
// and below:
//
//	# What train.py prints.
//	lines:
//	  - 'Epoch {epoch}: loss {train_loss} time {seconds}s'
//	columns:
//	  - 'workers=n_gpus,seconds=epoch_time'
//	as:
//	  - 'job_{workers}_rank{rank}.txt=ResNet-50'
//
// The lists have the syntax of Options.Lines, Options.Columns and [ParsePattern].
// Rules of the options come before those of the file. The nearest such file
// applies to a log: in the folder of the log, in its parents up to the path that
// is read, or up to two levels above this path. An unknown key or an invalid rule
// is an error that names the file and the line.
const RulesFile = rules.FileName

// Rules is the content of a [RulesFile].
type Rules struct {
	Lines   []string `yaml:"lines"`   // templates of lines
	Columns []string `yaml:"columns"` // mappings of columns
	As      []string `yaml:"as"`      // patterns of file names; see ParsePattern
}

// Save adds the rules to the file [RulesFile] in the folder dir, which must exist,
// and returns its path. The file keeps its other content; rules that it already
// has are not added again. If nothing is missing, Save does not write the file.
// It does not check the rules.
func (r Rules) Save(dir string) (path string, err error) {
	return rules.Save(dir, rules.FileContent(r))
}

func (l *Logs) reportUnusedPatterns(o Options) {
	for _, p := range o.As {
		if len(l.Reports) == 0 || slices.ContainsFunc(l.Reports, func(r Report) bool { _, ok := p.parsed.Match(r.Path); return ok }) {
			continue
		}
		addProblem(&l.Problems, runs.Problem{
			File: fmt.Sprintf("pattern %q", p), Reason: fmt.Sprintf("it matches no file; before the = it must match the end of a path from a name on, such as %q", filepath.Base(l.Reports[0].Path)),
		})
	}
}

// patternsFor returns a function that returns the patterns for a file, which must belong to tasks.
// The patterns of the options come first, followed by those of the rules files that apply to the
// file.
func (o Options) patternsFor(tasks []*files.Task) func(file string) []pattern.Pattern {
	var ofOptions []pattern.Pattern
	for _, p := range o.As {
		ofOptions = append(ofOptions, p.parsed)
	}
	byFile := map[string][]pattern.Pattern{}
	for _, t := range tasks {
		if t.Rules != nil {
			byFile[t.Path] = t.Rules.As
		}
	}
	return func(file string) []pattern.Pattern { return slices.Concat(ofOptions, byFile[file]) }
}

// Pattern states the properties of runs from the paths of their files. They take
// precedence over the content of the file, its folders and its configuration.
type Pattern struct {
	parsed pattern.Pattern
}

// ParsePattern parses a pattern such as
//
//	log_hvd_{workers}.csv=PyTorch Horovod
//	{series}/{workers}GPU/seed{seed}/out.log
//	job_{workers}_rank{rank}.txt=ResNet-50
//	*.out=workers:1,series:native
//	run_{nodes}n.out=workers:{nodes}*8
//
// The text before the = matches the end of a path and begins at a file or
// folder name. In it, {workers}, {nodes}, {rank}, {seed} and {batch} (per worker)
// match a number, {series} and {model} match one or more characters other than
// a slash, * matches any characters other than a slash, and ** matches any
// characters. Files of one folder that differ only in {rank} are one run.
//
// The optional text after the = is either the name of the series, which may
// contain {series}, or a list of properties and their values. A value is a
// number, a field, or a product of them such as {nodes}*8; a series or a model
// is a text that may contain fields.
//
// Numbers of workers and nodes above 262144, and of 0, are refused.
func ParsePattern(text string) (Pattern, error) {
	p, err := pattern.Parse(text)
	return Pattern{p}, err
}

func (p Pattern) String() string { return p.parsed.String() }
