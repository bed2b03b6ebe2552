package logread

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// TestSaveRules checks that rules are added once, and that comments and other
// rules stay.
func TestSaveRules(t *testing.T) {
	const line = `it's epoch {epoch}: loss {train_loss} "time" {seconds}s # 1`
	const pattern = "job_{workers}.txt=native"
	for name, c := range map[string]struct {
		before string
		kept   []string
	}{
		"no file":       {"", nil},
		"only comments": {"# mine\n", []string{"# mine"}},
		"other rules":   {"# mine\nlines: # of train.py\n  - 'a {epoch}' # first\ncolumns:\n  - workers=n\n# last\n", []string{"# mine", "# of train.py", "a {epoch}", "# first", "workers=n", "# last"}},
		"flow style":    {"lines: ['a {epoch}']\n", []string{"a {epoch}"}},
		"no value":      {"lines:\ncolumns:\n", nil},
	} {
		dir := t.TempDir()
		if c.before != "" {
			write(t, dir, map[string]string{RulesFile: c.before})
		}
		r := Rules{Lines: []string{line}, As: []string{pattern}}
		path, err := r.Save(dir)
		check(t, err)
		if path != filepath.Join(dir, RulesFile) {
			t.Errorf("%s: path %s", name, path)
		}
		text, err := os.ReadFile(path)
		check(t, err)
		var got Rules
		if err := yaml.Unmarshal(text, &got); err != nil || len(got.Lines) == 0 || got.Lines[len(got.Lines)-1] != line || len(got.As) != 1 || got.As[0] != pattern {
			t.Errorf("%s: %+v, %v\n%s", name, got, err, text)
		}
		for _, k := range c.kept {
			if !strings.Contains(string(text), k) {
				t.Errorf("%s: lost %q:\n%s", name, k, text)
			}
		}
		_, err = r.Save(dir)
		check(t, err)
		if again, err := os.ReadFile(path); err != nil || string(again) != string(text) {
			t.Errorf("%s: saved twice: %v\n%s", name, err, again)
		}
	}
	dir := t.TempDir()
	const own = "lines:   [ 'a {epoch}' ]\n\n\nas:\n"
	write(t, dir, map[string]string{RulesFile: own})
	_, err := Rules{Lines: []string{"a {epoch}"}}.Save(dir)
	check(t, err)
	if text, err := os.ReadFile(filepath.Join(dir, RulesFile)); err != nil || string(text) != own {
		t.Errorf("a file with all rules became %q, %v", text, err)
	}
	for _, damaged := range []string{"lines: [", "- a\n", "lines: 3\n"} {
		dir := t.TempDir()
		write(t, dir, map[string]string{RulesFile: damaged})
		if _, err := (Rules{Lines: []string{line}}).Save(dir); err == nil || !strings.Contains(err.Error(), RulesFile) {
			t.Errorf("%q: error %v", damaged, err)
		}
		if text, err := os.ReadFile(filepath.Join(dir, RulesFile)); err != nil || string(text) != damaged {
			t.Errorf("%q became %q, %v", damaged, text, err)
		}
	}
}
