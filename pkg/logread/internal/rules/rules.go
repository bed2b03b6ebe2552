// Package rules finds, parses and saves the files with rules for reading logs that a user keeps
// beside them.
package rules

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"go.yaml.in/yaml/v3"

	"lockstep/pkg/internal/safeopen"
	"lockstep/pkg/internal/strictyaml"
	"lockstep/pkg/logread/internal/pattern"
	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/table"
	"lockstep/pkg/logread/internal/template"
)

// FileName is the name of a rules file. logread.RulesFile documents its content.
const FileName = "lockstep-logs.yaml"

const (
	// MaxBytes limits the size of a file with rules.
	MaxBytes = 1 << 20
	// maxLevels is the number of folders above the path that is read in which rules apply, so that
	// a run folder finds its study's file.
	maxLevels = 2
)

// FileContent is the content of a file with rules.
type FileContent struct {
	Lines   []string `yaml:"lines"`   // templates of lines
	Columns []string `yaml:"columns"` // mappings of columns
	As      []string `yaml:"as"`      // patterns of file names
}

// Rules contains the parsed rules of a file.
type Rules struct {
	Path    string
	Lines   []*template.Template
	Columns []table.ColumnMapping
	As      []pattern.Pattern

	text string // content of the file
}

func parse(path string, text []byte) (*Rules, error) {
	r := &Rules{Path: path, text: string(text)}
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return nil, fmt.Errorf("read rules %s: %w", path, err)
	}
	var content FileContent
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
			r.Lines = append(r.Lines, t)
			return err
		}},
		{"columns", content.Columns, func(item string) error {
			m, err := table.ParseMappings([]string{item})
			r.Columns = append(r.Columns, m...)
			return err
		}},
		{"as", content.As, func(item string) error {
			p, err := pattern.Parse(item)
			r.As = append(r.As, p)
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

// lineOfItem returns the line of an item in the list with the given key. If the list is a YAML
// alias, it returns the line of the key.
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

// Finder finds the rules that apply to files. It reads each file with rules once.
type Finder struct {
	byFolder map[string]*Rules // by absolute path of a folder; nil if the folder has no such file
	before   map[string]*Rules // those before Invalidate
}

// Invalidate makes the finder read the rules files again. If a file is unchanged, Find returns the
// same pointer as before.
func (f *Finder) Invalidate() { f.before, f.byFolder = f.byFolder, nil }

// Find returns the rules that apply to the files in dir, or nil if there are none. root is the path
// that the user named, or its folder if it is a file.
func (f *Finder) Find(dir, root string) (*Rules, error) {
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
		if levels == maxLevels || at == filepath.Dir(at) {
			return nil, nil
		}
	}
}

// of returns the rules in a folder, or nil if it has none. dir is the name of the log's folder in
// messages, as the caller wrote it.
func (f *Finder) of(folder, dir string) (*Rules, error) {
	if r, ok := f.byFolder[folder]; ok {
		return r, nil
	}
	path := filepath.Join(folder, FileName)
	var text []byte
	_, err := os.Lstat(path) // most folders have no such file
	if err == nil {
		text, err = safeopen.ReadFile(folder, path, MaxBytes)
	}
	var r *Rules
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
			r, err = parse(path, text)
		}
	}
	if err != nil {
		return nil, err
	}
	record.PutInMap(&f.byFolder, folder, r)
	return r, nil
}
