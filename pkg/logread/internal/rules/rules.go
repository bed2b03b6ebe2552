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

// FileName is the name of a file with rules. logread.FileName describes its content.
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
	Columns []table.Mapping
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

// lineOfItem returns the line of an item of the list with a key, or of the key if the list is an alias.
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

// Invalidate makes the finder read the files again. Rules of unchanged files keep their pointers.
func (f *Finder) Invalidate() { f.before, f.byFolder = f.byFolder, nil }

// Find returns the rules for the files in dir, or nil. root is the path that is read, or the folder
// of the file that is read.
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

// of returns the rules of one folder, or nil. dir is the log's folder as the caller named it, for
// messages.
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
	record.Put(&f.byFolder, folder, r)
	return r, nil
}
