package rules

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// writeRules writes a file with rules and returns its path.
func writeRules(t *testing.T, dir, text string) string {
	t.Helper()
	path := filepath.Join(dir, FileName)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

const mine = "lines: ['mine {epoch}']\n"

// TestFindNearest: the file in the nearest folder counts, up to two folders above the path that is
// read.
func TestFindNearest(t *testing.T) {
	for _, c := range []struct {
		rules, dir, root string
		found            bool
	}{
		{"a/b/c/d", "a/b/c/d", "a/b/c/d", true},
		{"a/b/c", "a/b/c/d", "a/b/c/d", true},
		{"a/b", "a/b/c/d", "a/b/c/d", true},
		{"a", "a/b/c/d", "a/b/c/d", false}, // three folders above
		{"a", "a/b/c/d", "a/b", true},      // one folder above what is read
		{"a/b/other", "a/b/c/d", "a/b", false},
	} {
		top := t.TempDir()
		writeRules(t, filepath.Join(top, c.rules), mine)
		if err := os.MkdirAll(filepath.Join(top, c.dir), 0o755); err != nil {
			t.Fatal(err)
		}
		r, err := (&Finder{}).Find(filepath.Join(top, c.dir), filepath.Join(top, c.root))
		if err != nil {
			t.Fatal(err)
		}
		if got := r != nil && r.Path == filepath.Join(top, c.rules, FileName); got != c.found || (r != nil) != c.found {
			t.Errorf("rules in %s, %s read for a log in %s: got %+v, want found %t", c.rules, c.root, c.dir, r, c.found)
		}
	}
	top := t.TempDir()
	writeRules(t, top, mine)
	near := writeRules(t, filepath.Join(top, "a"), "lines: ['near {epoch}', 'nearer {epoch}']\n")
	r, err := (&Finder{}).Find(filepath.Join(top, "a"), top)
	if err != nil || r == nil || r.Path != near || len(r.Lines) != 2 {
		t.Errorf("got %+v (%v), want the two templates of %s", r, err, near)
	}
}

// TestFindErrors: an error has the path of the file and the line of the invalid item.
func TestFindErrors(t *testing.T) {
	for text, want := range map[string]string{
		"lines:\n  - 'good {epoch}'\n  - 'bad {epoch'\n": "line 3: ",
		"# a comment\n\ncolumns: ['n_gpus']\n":           "line 3: ",
		"as:\n- 'a=workers:2'\n- 'b=workers:0'\n":        "line 3: ",
		"line: ['mine {epoch}']\n":                       "line",
		"lines: ['mine {epoch}'\n":                       "yaml",
	} {
		path := writeRules(t, t.TempDir(), text)
		r, err := (&Finder{}).Find(filepath.Dir(path), filepath.Dir(path))
		if err == nil || r != nil || !strings.Contains(err.Error(), "read rules "+path+": "+want) {
			t.Errorf("%q: got %+v and the error %v, want read rules %s: %s…", text, r, err, path, want)
		}
	}
}

// TestStartAgain: a file that has not changed gives the same rules, so that what was read by them
// stays valid; a file that has changed gives others, and a file that was removed none.
func TestStartAgain(t *testing.T) {
	dir := t.TempDir()
	f := &Finder{}
	path := writeRules(t, dir, mine)
	find := func() *Rules {
		t.Helper()
		r, err := f.Find(dir, dir)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	first := find()
	f.Invalidate()
	if again := find(); again != first || first == nil {
		t.Errorf("got other rules from the same file: %p, want %p", again, first)
	}
	writeRules(t, dir, "lines: ['other {epoch}']\n")
	if again := find(); again != first {
		t.Error("the file was read again before StartAgain")
	}
	f.Invalidate()
	if again := find(); again == first || fmt.Sprint(again.Lines) != "[other {epoch}]" {
		t.Errorf("got the templates %v of the changed file, want other {epoch}", again.Lines)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	f.Invalidate()
	if again := find(); again != nil {
		t.Errorf("got %+v of a file that was removed", again)
	}
}

// TestSave: Save adds only what the file lacks, and keeps comments and other rules.
func TestSave(t *testing.T) {
	for _, c := range []struct {
		before string
		add    FileContent
		want   string
	}{
		{"# mine\nlines:\n  - 'a {epoch}' # first\n", FileContent{Lines: []string{"a {epoch}", "b {epoch}"}}, "# mine\nlines:\n  - 'a {epoch}' # first\n  - 'b {epoch}'\n"},
		{"lines:   ['a {epoch}']\n", FileContent{Lines: []string{"a {epoch}"}}, "lines:   ['a {epoch}']\n"}, // not written: not formatted
		{"as:\n", FileContent{As: []string{"*.out=workers:1"}}, "as:\n  - '*.out=workers:1'\n"},
		{"# only a comment\n", FileContent{Columns: []string{"workers=n_gpus"}}, "# only a comment\n\ncolumns:\n  - 'workers=n_gpus'\n"},
	} {
		dir := t.TempDir()
		path := writeRules(t, dir, c.before)
		got, err := Save(dir, c.add)
		text, readErr := os.ReadFile(path)
		if err != nil || readErr != nil || got != path || string(text) != c.want {
			t.Errorf("%q: got %s with %q (%v, %v), want %q", c.before, got, text, err, readErr, c.want)
		}
	}
	dir := t.TempDir()
	if _, err := Save(dir, FileContent{Lines: []string{"a {epoch}"}}); err != nil {
		t.Fatal(err)
	}
	if r, err := (&Finder{}).Find(dir, dir); err != nil || r == nil || fmt.Sprint(r.Lines) != "[a {epoch}]" {
		t.Errorf("got %+v (%v) of a new file, want the template that was saved", r, err)
	}
}

// TestSaveRefuses: Save changes no file whose content it does not understand.
func TestSaveRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"- a\n": "line 1: expected keys such as lines, columns and as", "x: 1\nlines: 7\n": "line 2: expected a list as the value of lines", "lines: [\n": "yaml",
	} {
		path := writeRules(t, t.TempDir(), text)
		_, err := Save(filepath.Dir(path), FileContent{Lines: []string{"a {epoch}"}})
		kept, readErr := os.ReadFile(path)
		if err == nil || !strings.Contains(err.Error(), want) || readErr != nil || string(kept) != text {
			t.Errorf("%q: got the error %v and the content %q, want %q and no change", text, err, kept, want)
		}
	}
}
