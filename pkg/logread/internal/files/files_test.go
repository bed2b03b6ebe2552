package files

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"lockstep/pkg/logread/internal/rules"
	"lockstep/pkg/logread/internal/template"
	"lockstep/pkg/runs"
)

// write writes files into a folder.
func write(t *testing.T, dir string, texts map[string]string) {
	t.Helper()
	for name, text := range texts {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// link creates links, each from a path to its target.
func link(t *testing.T, dir string, links map[string]string) {
	t.Helper()
	for name, target := range links {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
}

// list lists paths in dir and returns the listed files and folders, each with the reason if it is
// skipped.
func list(t *testing.T, dir string, paths ...string) []string {
	t.Helper()
	for i := range paths {
		paths[i] = filepath.Join(dir, paths[i])
	}
	lists, err := List(paths...)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, task := range slices.Concat(lists...) {
		text := strings.TrimPrefix(task.Path, dir+"/")
		if task.Folder {
			text += "/"
		}
		if task.Report.Skipped != "" {
			text += ": " + strings.ReplaceAll(task.Report.Skipped, dir+"/", "")
		}
		all = append(all, text)
	}
	return all
}

// keras is the output of an epoch.
const keras = "Epoch 1/1\n196/196 - 49s - loss: 2.5\n"

// TestListFolder: files are listed in natural order; hidden files are skipped with a reason, and
// locks and files with rules are no logs.
func TestListFolder(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{
		"run10.log": keras, "run9.log": keras, "a/b/c.log": keras, ".hidden": keras, ".git/config": "", runs.OwnersFile: "", rules.FileName: "",
	})
	const hidden = "it is hidden: its name begins with a dot"
	want := []string{".git: " + hidden, ".hidden: " + hidden, "a/b/c.log", "run9.log", "run10.log"}
	if got := list(t, dir, ""); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if _, err := List(filepath.Join(dir, "missing")); err == nil {
		t.Error("got no error of a path that does not exist")
	}
}

// TestListRunFolder checks that a run folder is one task, also if run.json is named. In a run
// folder of Lockstep's own training, the only other files that are tasks are traces. If another
// program trained, all other files are.
func TestListRunFolder(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{
		"own/run.json": `{"schema": 1}`, "own/out.log": "", "own/notes.log": keras, "own/trace-0.json": "[]",
		"other/run.json": `{"schema": 1, "command": ["python", "train.py"]}`, "other/notes.log": keras, "other/trace-0.json": "[]",
	})
	own, other := []string{"own/", "own/trace-0.json"}, []string{"other/", "other/notes.log", "other/trace-0.json"}
	for path, want := range map[string][]string{"": slices.Concat(other, own), "own": own, "own/run.json": own, "other/run.json": other, "own/notes.log": {"own/notes.log"}} {
		if got := list(t, dir, path); !slices.Equal(got, want) {
			t.Errorf("path %q: got %q, want %q", path, got, want)
		}
	}
}

// TestListLinks: a link is followed if nothing else reads its target, so that nothing is read
// twice and a cycle ends.
func TestListLinks(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"logs/a/x.log": keras, "far/y.log": keras, "file.log": keras})
	link(t, dir, map[string]string{
		"logs/b": "a", "logs/cycle": "../logs", "logs/far": "../far", "logs/far2": "../far", "logs/file": "../file.log", "logs/file2": "../file.log",
		"logs/nowhere": "missing", "logs/up": "..", "far/back": "../logs/a",
	})
	want := []string{
		"logs/a/x.log", "logs/b: it is a link to a folder that is read as logs/a", "logs/cycle: it is a link to a folder that is read as logs",
		"logs/far/back: it is a link to a folder that is read as logs/a", "logs/far/y.log", "logs/far2: it is a link to a folder that is read as logs/far",
		"logs/file", "logs/file2: it is a link to a file that is read as logs/file", "logs/nowhere: it is a link that leads nowhere",
		"logs/up: it is a link to a folder that contains the folder that is read",
	}
	if got := list(t, dir, "logs"); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestReadAll: the parts are in the order of the tasks, the second run of a file has a path of its
// own, and a file of no known format is skipped with a reason.
func TestReadAll(t *testing.T) {
	dir := t.TempDir()
	second := strings.ReplaceAll(keras, "1/1", "1/2") + "Epoch 2/2\n196/196 - 45s - loss: 1.5\n"
	write(t, dir, map[string]string{"1.log": keras, "2.log": second + second, "3.txt": "nothing\n", "4.txt": "", "5.csv": "n_gpus,seed,wall_time\n1,1,10\n2,1,6\n"})
	lists, err := List(dir)
	if err != nil {
		t.Fatal(err)
	}
	tasks := lists[0]
	parts, err := ReadAll(t.Context(), tasks, nil)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range parts {
		got = append(got, strings.TrimPrefix(p.Run.Dir, dir+"/")+" "+filepath.Base(p.Run.File))
	}
	if want := []string{"1.log 1.log", "2.log 2.log", "2.log#2 2.log", "5.csv 5.csv", "5.csv#2 5.csv"}; !slices.Equal(got, want) {
		t.Errorf("got the parts %q, want %q", got, want)
	}
	for i, want := range []string{"Keras log 1 ", "Keras log 2 ", " 0 unknown file format", " 0 the file is empty", "results table 2 "} {
		if r := tasks[i].Report; fmt.Sprintf("%s %d %s", r.Kind, r.Runs, r.Skipped) != want {
			t.Errorf("%s: got the kind %q, %d runs and the reason %q, want %q", tasks[i].Path, r.Kind, r.Runs, r.Skipped, want)
		}
	}
}

// TestSkipCopies: a copy of a run folder for the U-Net study is skipped if that folder is read too.
func TestSkipCopies(t *testing.T) {
	dir := t.TempDir()
	w, err := runs.Create(filepath.Join(dir, "runs", "unet-n2-s1"), runs.Info{Study: "unet", Series: "native", Workers: 2})
	if err == nil {
		err = w.AppendEpoch(runs.Epoch{Epoch: 1, Seconds: 10, TrainLoss: 0.5})
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Finish(runs.StatusDone, nil); err != nil {
		t.Fatal(err)
	}
	run, err := runs.Read(filepath.Join(dir, "runs", "unet-n2-s1"))
	if err != nil {
		t.Fatal(err)
	}
	file, err := runs.WriteStudyLog(filepath.Join(dir, "copies"), run)
	if err != nil {
		t.Fatal(err)
	}
	for root, want := range map[string]bool{"": true, "copies": false} {
		lists, err := List(filepath.Join(dir, root))
		if err != nil {
			t.Fatal(err)
		}
		SkipCopiesOfRuns(lists)
		i := slices.IndexFunc(lists[0], func(task *Task) bool { return task.Path == file })
		if got := i >= 0 && lists[0][i].Report.CopyOf != "" && lists[0][i].Report.Skipped != ""; i < 0 || got != want {
			t.Errorf("root %q: the copy is skipped: %t, want %t", root, got, want)
		}
	}
}

// TestSetRules checks that the templates of the options come first, and those of the file with
// rules after them: the first template that matches a line reads it.
func TestSetRules(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{rules.FileName: "lines: ['of the file {epoch}']\n", "a/1.log": "text\n"})
	for _, path := range []string{"", "a", "a/1.log"} {
		lists, err := List(filepath.Join(dir, path))
		if err == nil {
			err = SetRules(&rules.Finder{}, lists[0], filepath.Join(dir, path), []*template.Template{template.MustParse("of the options {epoch}")}, nil)
		}
		if err != nil {
			t.Fatal(err)
		}
		task := lists[0][len(lists[0])-1]
		if got := fmt.Sprint(task.Lines); got != "[of the options {epoch} of the file {epoch}]" || task.Report.Rules != filepath.Join(dir, rules.FileName) {
			t.Errorf("path %q: got the templates %s of %q", path, got, task.Report.Rules)
		}
	}
}

// TestFollowed: Refresh reads what was appended up to the last complete line, and reads a file that
// was replaced from its beginning.
func TestFollowed(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "out.log")
	f := NewFollowedTask(&Task{Path: path})
	for _, step := range []struct {
		text string // content of the file
		keep bool
		want string // seconds of the epochs
	}{
		{"Epoch 1/3\n196/196 - 49s - loss: 2.5\n", true, "[49]"},
		{"Epoch 1/3\n196/196 - 49s - loss: 2.5\nEpoch 2/3\n196/196 - 45s - loss: 1.5 - 45s/epoch", true, "[49]"}, // the last line is not complete
		{"Epoch 1/3\n196/196 - 49s - loss: 2.5\nEpoch 2/3\n196/196 - 45s - loss: 1.5 - 45s/epoch - 229ms/step\n", true, "[49 45]"},
		{"Epoch 1/3\n196/196 - 7s - loss: 2.5\n", true, "[7]"},
		{"Epoch 1/3\n196/196 - 7s - loss: 2.5\nEpoch 2/3\n196/196 - 8s - loss: 1.5\n", false, "[7 8]"},
	} {
		write(t, dir, map[string]string{"out.log": step.text})
		if _, err := f.Refresh(t.Context(), &Task{Path: path}, step.keep); err != nil {
			t.Fatal(err)
		}
		parts, _ := f.CopyParts()
		var seconds []float64
		for _, p := range parts {
			for _, e := range p.Run.Epochs {
				if e.Seconds > 0 {
					seconds = append(seconds, e.Seconds)
				}
			}
		}
		if got := fmt.Sprint(seconds); got != step.want {
			t.Errorf("%q: got the seconds %s, want %s", step.text, got, step.want)
		}
	}
	if f.KeptBytes() != 0 {
		t.Errorf("%d bytes are kept, although the text must not be kept", f.KeptBytes())
	}
}
