package logread

import (
	"context"
	"math"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"lockstep/pkg/internal/wholefile"
	"lockstep/pkg/logread/internal/rules"
)

// customLines are lines that no built-in format reads.
const customLines = "round=1 cost=0.5 dur=2.5s\nround=2 cost=0.25 dur=2.0s\n"

// customTemplate is the template of customLines.
const customTemplate = "round={epoch} cost={train_loss} dur={seconds}s"

// TestRules checks that the nearest file with rules applies, from the folder of
// the log to two levels above the path that is read, and that the options of the
// user come first.
func TestRules(t *testing.T) {
	rules := "lines:\n  - '" + customTemplate + "'\nas:\n  - '{workers}/out.txt=ours'\n"
	for _, test := range []struct {
		name  string
		files map[string]string
		read  string // relative path
		from  string // file with the rules that apply; empty if none do
	}{
		{"in the folder", map[string]string{"a/b/4/" + RulesFile: rules}, "a/b/4", "a/b/4"},
		{"in a parent below the path", map[string]string{"a/b/" + RulesFile: rules}, "a", "a/b"},
		{"two levels above the path", map[string]string{RulesFile: rules}, "a/b", ""},
		{"three levels above the path", map[string]string{RulesFile: rules}, "a/b/4", "none"},
		{"of a file that is named", map[string]string{"a/" + RulesFile: rules}, "a/b/4/out.txt", "a"},
		{"the nearest of two", map[string]string{"a/" + RulesFile: "lines: ['x {epoch}']\n", "a/b/" + RulesFile: rules}, "a", "a/b"},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			test.files["a/b/4/out.txt"] = customLines
			write(t, dir, test.files)
			logs, err := Options{}.Read(context.Background(), filepath.Join(dir, test.read))
			if test.from == "none" {
				if err != nil || len(logs.Runs) > 0 {
					t.Fatalf("got %v, %v, want no runs", logs, err)
				}
				return
			}
			check(t, err)
			if len(logs.Runs) != 1 || len(logs.Runs[0].Epochs) != 2 {
				t.Fatalf("got %+v", logs.Runs)
			}
			run := logs.Runs[0]
			if e := run.Epochs[1]; e.TrainLoss != 0.25 || e.Seconds != 2 || run.Info.Workers != 4 || run.Info.Series != "ours" {
				t.Errorf("got %+v of %d workers, series %s", e, run.Info.Workers, run.Info.Series)
			}
			if got, want := logs.Reports[0].Rules, filepath.Join(dir, test.from, RulesFile); got != want {
				t.Errorf("rules of %s, want %s", got, want)
			}
			if text := logs.Reports.String(); !strings.Contains(text, "rules: "+filepath.Join(dir, test.from, RulesFile)) {
				t.Errorf("the report does not name the rules:\n%s", text)
			}
		})
	}
}

// TestRulesPrecedence checks that templates and patterns of the options come
// before those of the file.
func TestRulesPrecedence(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{
		RulesFile:   "lines: ['" + customTemplate + "']\nas: ['{workers}.txt=file']\n",
		"log/4.txt": customLines,
	})
	p, err := ParsePattern("{workers}.txt=user")
	check(t, err)
	o := Options{Lines: []string{"round={epoch} cost={val_loss} dur={seconds}s"}, As: []Pattern{p}}
	logs, err := o.Read(context.Background(), filepath.Join(dir, "log"))
	check(t, err)
	if e := logs.Runs[0].Epochs[0]; e.ValLoss != 0.5 || !math.IsNaN(e.TrainLoss) || logs.Runs[0].Info.Series != "user" {
		t.Errorf("got %+v, series %s", e, logs.Runs[0].Info.Series)
	}
}

// TestInvalidRules checks that errors name the file and the line.
func TestInvalidRules(t *testing.T) {
	for text, want := range map[string]string{
		"lines:\n  - 'a {epoch}'\nlinse: []\n":     "line 3: unknown key \"linse\" (did you mean lines?)",
		"# mine\nlines:\n- 'a {epoch}'\n- 'b {'\n": "line 4: invalid template",
		"as: ['{workers}.txt=x', '{workerz}.txt']": "line 1: parse pattern",
		"lines: 3\n":           "line 1: lines is \"3\": expected a list",
		"lines: [\n":           "did not find",
		"lines:\n  - {a: b}\n": "line 2",
		strings.Repeat("# long\n", rules.MaxBytes/7+1): RulesFile,
	} {
		dir := t.TempDir()
		write(t, dir, map[string]string{RulesFile: text, "a.txt": customLines})
		_, err := Options{}.Read(context.Background(), dir)
		if err == nil || !strings.Contains(err.Error(), filepath.Join(dir, RulesFile)) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: got %v, want %s", text, err, want)
		}
	}
}

// TestFollowRules checks that a Follower reads the logs again when the rules
// change, and keeps the last valid rules while the file is invalid.
func TestFollowRules(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"4gpu.txt": customLines})
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	f, err := Follow(ctx, dir)
	check(t, err)
	f.Every = time.Millisecond
	next := func(what string) {
		t.Helper()
		if !f.Next() {
			t.Fatalf("%s: %v", what, f.Err())
		}
	}
	next("before the rules")
	if len(f.Runs()) != 0 {
		t.Fatalf("got runs %+v", f.Runs())
	}
	path := filepath.Join(dir, RulesFile)
	replace := func(text string) { // in one step, as an editor does
		check(t, wholefile.WriteBytes(path, []byte(text), 0o644))
	}
	replace("lines: ['" + customTemplate + "']\n")
	next("with rules")
	if len(f.Runs()) != 1 || f.Runs()[0].Epochs[0].TrainLoss != 0.5 || f.Logs().Reports[0].Rules != path {
		t.Fatalf("got runs %+v", f.Runs())
	}
	replace("lines: [\n")
	next("with invalid rules")
	if len(f.Runs()) != 1 || len(f.Logs().Problems) == 0 || !strings.Contains(f.Logs().Problems[0].Reason, path) {
		t.Fatalf("got runs %+v, problems %v", f.Runs(), f.Logs().Problems)
	}
	replace("lines: ['round={epoch} cost={val_loss} dur={seconds}s']\n")
	next("with other rules")
	if len(f.Runs()) != 1 || f.Runs()[0].Epochs[0].ValLoss != 0.5 {
		t.Fatalf("got runs %+v", f.Runs())
	}
}
