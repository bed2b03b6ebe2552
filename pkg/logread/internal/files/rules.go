package files

import (
	"path/filepath"
	"slices"

	"lockstep/pkg/logread/internal/rules"
	"lockstep/pkg/logread/internal/table"
	"lockstep/pkg/logread/internal/template"
)

// SetRules sets the rules and the templates of the tasks, which were found in and
// below path. lines and columns contain the templates and mappings of the options.
func SetRules(f *rules.Finder, tasks []*Task, path string, lines []*template.Template, columns []table.Mapping) error {
	root := path
	if len(tasks) == 1 && tasks[0].named {
		root = filepath.Dir(path)
	}
	for _, t := range tasks {
		t.Lines, t.Columns = lines, columns
		if t.Folder || t.Report.Skipped != "" {
			continue
		}
		r, err := f.Find(filepath.Dir(t.Path), root)
		if err != nil {
			return err
		}
		t.SetRules(r)
	}
	return nil
}

// SetRules sets the rules that apply to the file. The templates and mappings of the
// rules come after those of the options.
func (t *Task) SetRules(r *rules.Rules) {
	if t.Rules = r; r != nil {
		t.Lines, t.Columns, t.Report.Rules = slices.Concat(t.Lines, r.Lines), slices.Concat(t.Columns, r.Columns), r.Path
	}
}
