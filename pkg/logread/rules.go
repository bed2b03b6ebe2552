package logread

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"go.yaml.in/yaml/v3"

	"lockstep/pkg/internal/safeopen"
	"lockstep/pkg/internal/strictyaml"
	"lockstep/pkg/logread/internal/pattern"
	"lockstep/pkg/logread/internal/table"
	"lockstep/pkg/logread/internal/template"
)

// RulesFile is the name of a file with rules for reading the logs in its folder
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
const RulesFile = "lockstep-logs.yaml"

const (
	// maxRulesBytes limits the size of a file with rules.
	maxRulesBytes = 1 << 20
	// maxRulesLevels is the number of folders above the path that is read in
	// which a file with rules applies, so that a run folder finds the file of its
	// study.
	maxRulesLevels = 2
)

// Rules is the content of a [RulesFile].
type Rules struct {
	Lines   []string `yaml:"lines"`   // templates of lines
	Columns []string `yaml:"columns"` // mappings of columns
	As      []string `yaml:"as"`      // patterns of file names; see ParsePattern
}

// parsedRules contains the rules of a file.
type parsedRules struct {
	path    string
	text    string // content of the file
	lines   []*template.Template
	columns []table.Mapping
	as      []pattern.Pattern
}

// parseRules parses the content of the file at path.
func parseRules(path string, text []byte) (*parsedRules, error) {
	r := &parsedRules{path: path, text: string(text)}
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return nil, fmt.Errorf("read rules %s: %w", path, err)
	}
	var content Rules
	if err := strictyaml.Decode(&doc, &content); err != nil {
		return nil, fmt.Errorf("read rules %s: %w", path, err)
	}
	for _, list := range []struct {
		key   string
		items []string
		parse func(string) error
	}{
		{"lines", content.Lines, func(item string) error {
			t, err := template.Parse(item)
			r.lines = append(r.lines, t)
			return err
		}},
		{"columns", content.Columns, func(item string) error {
			m, err := table.ParseMappings([]string{item})
			r.columns = append(r.columns, m...)
			return err
		}},
		{"as", content.As, func(item string) error {
			p, err := pattern.Parse(item)
			r.as = append(r.as, p)
			return err
		}},
	} {
		for i, item := range list.items {
			if err := list.parse(item); err != nil {
				return nil, fmt.Errorf("read rules %s: line %d: %w", path, lineOfItem(&doc, list.key, i), err)
			}
		}
	}
	return r, nil
}

// lineOfItem returns the line of the item at the given index of the list with a
// key, or of the key if the list is an alias.
func lineOfItem(doc *yaml.Node, key string, index int) int {
	top := doc.Content[0]
	for i := 0; i+1 < len(top.Content); i += 2 {
		if top.Content[i].Value != key {
			continue
		}
		if list := top.Content[i+1]; index < len(list.Content) {
			return list.Content[index].Line
		}
		return top.Content[i].Line
	}
	return top.Line
}

// rulesFinder finds the rules that apply to files. It reads each file with rules
// once.
type rulesFinder struct {
	byFolder map[string]*parsedRules // by absolute path of a folder; nil if the folder has no such file
	before   map[string]*parsedRules // those before startAgain
}

// startAgain makes the finder read the files again. Rules whose file has not
// changed stay the same pointers.
func (f *rulesFinder) startAgain() { f.before, f.byFolder = f.byFolder, nil }

// find returns the rules for the files in dir, or nil if there are none. root is
// the path that is read, or the folder of the file that is read.
func (f *rulesFinder) find(dir, root string) (*parsedRules, error) {
	at, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	top, err := filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	for levels := -1; ; at = filepath.Dir(at) {
		if at == top || levels >= 0 {
			levels++
		}
		r, err := f.of(at, dir)
		if r != nil || err != nil {
			return r, err
		}
		if levels == maxRulesLevels || at == filepath.Dir(at) {
			return nil, nil
		}
	}
}

// of returns the rules of one folder, or nil. dir is the folder of the log as the
// caller has named it, for the path in messages.
func (f *rulesFinder) of(folder, dir string) (*parsedRules, error) {
	if r, ok := f.byFolder[folder]; ok {
		return r, nil
	}
	path := filepath.Join(folder, RulesFile)
	var text []byte
	_, err := os.Lstat(path) // most folders have no such file
	if err == nil {
		text, err = safeopen.ReadFile(folder, path, maxRulesBytes)
	}
	var r *parsedRules
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
		err = nil
	case err != nil:
		err = fmt.Errorf("read rules %s: %w", path, err)
	default:
		if !filepath.IsAbs(dir) { // show the path like the paths of the logs
			if short, e := filepath.Rel(".", path); e == nil {
				path = short
			}
		}
		if r = f.before[folder]; r == nil || r.text != string(text) {
			r, err = parseRules(path, text)
		}
	}
	if err != nil {
		return nil, err
	}
	if f.byFolder == nil {
		f.byFolder = map[string]*parsedRules{}
	}
	f.byFolder[folder] = r
	return r, nil
}

// setRules sets the rules and the templates of the tasks, which listTasks found in
// and below path. lines and columns contain the templates and mappings of the options.
func (f *rulesFinder) setRules(tasks []*task, path string, lines []*template.Template, columns []table.Mapping) error {
	root := path
	if len(tasks) == 1 && tasks[0].named {
		root = filepath.Dir(path)
	}
	for _, t := range tasks {
		t.lines, t.columns = lines, columns
		if t.folder || t.report.Skipped != "" {
			continue
		}
		r, err := f.find(filepath.Dir(t.path), root)
		if err != nil {
			return err
		}
		t.setRules(r)
	}
	return nil
}

// setRules sets the rules that apply to the file. The templates and mappings of the
// rules come after those of the options.
func (t *task) setRules(r *parsedRules) {
	if t.rules = r; r != nil {
		t.lines, t.columns, t.report.Rules = slices.Concat(t.lines, r.lines), slices.Concat(t.columns, r.columns), r.path
	}
}

// patternsFor returns a function that returns the patterns that apply to a file among the tasks:
// those of the options, followed by those of the rules.
func (o Options) patternsFor(tasks []*task) func(file string) []pattern.Pattern {
	var ofOptions []pattern.Pattern
	for _, p := range o.As {
		ofOptions = append(ofOptions, p.parsed)
	}
	byFile := map[string][]pattern.Pattern{}
	for _, t := range tasks {
		if t.rules != nil {
			byFile[t.path] = t.rules.as
		}
	}
	return func(file string) []pattern.Pattern { return slices.Concat(ofOptions, byFile[file]) }
}
