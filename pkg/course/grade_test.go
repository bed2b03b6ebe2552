package course

import (
	"archive/zip"
	"cmp"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"lockstep/pkg/course/internal/ipynb"
	"lockstep/pkg/runs"
)

// solutionNotebook returns a notebook with a cell for each answer and each check.
func solutionNotebook(t *testing.T, tasks Tasks) *ipynb.Notebook {
	t.Helper()
	var cells []map[string]any
	add := func(kind, source string, g ipynb.Grading) {
		metadata := map[string]any{"grade_id": g.ID, "grade": g.Grade, "solution": g.Solution, "locked": g.Locked, "task": false, "schema_version": nbgraderSchema, "points": g.Points}
		cell := map[string]any{"cell_type": kind, "source": source, "metadata": map[string]any{"nbgrader": metadata}}
		if kind == ipynb.Code {
			cell["outputs"], cell["execution_count"] = []any{}, nil
		}
		cells = append(cells, cell)
	}
	for _, task := range tasks {
		if task.Kind == KindText {
			add(ipynb.Markdown, "Because.", ipynb.Grading{ID: task.GradeID(), Grade: true, Solution: true, Points: task.Points})
			continue
		}
		source := "x := 0.0\n" + beginSolution + "\nx = 1\n" + endSolution
		if task.Kind == KindCode {
			source = beginSolution + "\n" + task.Function.Reference + endSolution
		}
		add(ipynb.Code, source, ipynb.Grading{ID: task.answerCellID(), Solution: true})
		add(ipynb.Code, "course.Check(...)", ipynb.Grading{ID: task.GradeID(), Grade: true, Points: task.Points}) // the release locks it
	}
	text, err := json.Marshal(map[string]any{"nbformat": 4, "nbformat_minor": 5, "metadata": map[string]any{}, "cells": cells})
	if err != nil {
		t.Fatal(err)
	}
	nb, err := ipynb.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return nb
}

// classroom is a folder with a release of the test tasks, and the work of one student.
type classroom struct {
	t       *testing.T
	dir     string
	tasks   Tasks
	release string
	logs    string // the student's logs folder
	kernel  string
}

func newClassroom(t *testing.T) *classroom {
	t.Helper()
	c := &classroom{t: t, dir: t.TempDir()}
	c.release, c.logs = filepath.Join(c.dir, "release"), filepath.Join(c.dir, "student", "logs")
	var err error
	if c.tasks, err = parseTasks("09-test", []byte(testTasks)); err != nil {
		t.Fatal(err)
	}
	source := filepath.Join(c.dir, "source")
	if err := os.MkdirAll(source, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(source, "09-test.yaml"), []byte(testTasks), 0o600); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(source, "09-test.ipynb")
	if err := solutionNotebook(t, c.tasks).Write(path); err != nil {
		t.Fatal(err)
	}
	if _, err := Release(path, c.release, c.tasks); err != nil {
		t.Fatal(err)
	}
	writeStudy(t, c.logs, small)
	study := filepath.Join(c.logs, large)
	testRun{config: large, workers: 1, seconds: []float64{20, 12, 12}}.write(t, study)
	testRun{config: large, workers: 2, seconds: []float64{20, 9, 9}}.write(t, study)
	return c
}

// notebook returns the released notebook with the outputs of right answers to test/1 and test/2.
func (c *classroom) notebook() *ipynb.Notebook {
	c.t.Helper()
	nb, err := ipynb.Read(filepath.Join(c.release, "09-test.ipynb"))
	if err != nil {
		c.t.Fatal(err)
	}
	c.answer(nb, "test/1", map[string]any{"speedup": 1.5}, small)
	c.answer(nb, "test/2", map[string]any{"better": small, "mean": "gradients"}, small, large)
	return nb
}

// answer sets the output of a check cell to what a right answer with these values prints, without
// judging it.
func (c *classroom) answer(nb *ipynb.Notebook, task string, values map[string]any, studies ...string) {
	c.t.Helper()
	a := &Answer{Task: task, Values: values, Attempts: 1}
	for _, study := range studies {
		dirs, err := runs.Find(filepath.Join(c.logs, study))
		if err != nil {
			c.t.Fatal(err)
		}
		for _, dir := range dirs {
			r, err := newRunReference(dir)
			if err != nil {
				c.t.Fatal(err)
			}
			a.Runs = append(a.Runs, r)
		}
	}
	setOutput(c.t, cellsByGradeID(nb, strings.ReplaceAll(task, "/", "-"))[0], map[string]any{"output_type": "execute_result", "metadata": map[string]any{}, "data": map[string]any{"application/json": a.JSON()}})
}

// setOutput sets the output of a cell.
func setOutput(t *testing.T, cell *ipynb.Cell, output map[string]any) {
	t.Helper()
	if err := cell.SetOutputs([]map[string]any{output}, 1); err != nil {
		t.Fatal(err)
	}
}

// submit writes the notebook into the student's folder, and submits it with all runs of the folder:
// a student can pack a submission by hand.
func (c *classroom) submit(nb *ipynb.Notebook, student string) string {
	c.t.Helper()
	path := filepath.Join(c.dir, "student", "09-test.ipynb")
	if err := nb.Write(path); err != nil {
		c.t.Fatal(err)
	}
	folders := map[string]string{}
	dirs, err := runs.Find(c.logs)
	if err != nil {
		c.t.Fatal(err)
	}
	for _, dir := range dirs {
		folders[filepath.Base(filepath.Dir(dir))+"/"+filepath.Base(dir)] = dir
	}
	out := filepath.Join(c.t.TempDir(), student+".zip")
	f, err := os.Create(out)
	if err != nil {
		c.t.Fatal(err)
	}
	if err := (submissionManifest{Version: 1, Student: student, Notebook: "09-test.ipynb"}).writeZip(f, path, folders); err != nil {
		c.t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		c.t.Fatal(err)
	}
	return out
}

// grade grades submissions, and returns the grades of one student by task.
func (c *classroom) grade(student string, submissions ...string) map[string]Grade {
	c.t.Helper()
	all, err := Grades(c.t.Context(), submissions, GradeOptions{Release: c.release, Tests: filepath.Join(c.dir, "source"), Kernel: c.kernel})
	if err != nil {
		c.t.Fatal(err)
	}
	grades := map[string]Grade{}
	for _, g := range all {
		if g.Student == student {
			grades[g.Task] = g
		}
	}
	return grades
}

func TestGrades(t *testing.T) {
	t.Parallel()
	c := newClassroom(t)
	nb := c.notebook()
	c.answer(nb, "test/5", map[string]any{"speedup": 71.2})
	cellsByGradeID(nb, "test-3")[0].Source = "Because it is so."
	grades := c.grade("ada", c.submit(nb, "ada"))
	for task, want := range map[string]Grade{
		"test/1": {Points: 3, Reason: "right, computed again from 2 runs"},
		"test/2": {Points: 2, Reason: "right, computed again from 4 runs"},
		"test/3": {ByHand: 4, Reason: "by hand, 4 points"},
		"test/5": {Points: 1, Reason: "right"},
	} {
		want.Student, want.Task = "ada", task
		if grades[task] != want {
			t.Errorf("got %+v, want %+v", grades[task], want)
		}
	}
	empty, err := ipynb.Read(filepath.Join(c.release, "09-test.ipynb"))
	if err != nil {
		t.Fatal(err)
	}
	if !cellsByGradeID(empty, "test-1")[0].Grading.Locked || cellsByGradeID(empty, "test-1-answer")[0].Grading.Locked {
		t.Error("the release must lock the check cells, and no other")
	}
	for task, g := range c.grade("bob", c.submit(empty, "bob")) {
		if g.Points != 0 || g.ByHand != 0 || g.Reason == "" {
			t.Errorf("the released notebook gets %+v for %s", g, task)
		}
	}
}

// TestAttacks: no attack gains a point that the runs do not earn.
func TestAttacks(t *testing.T) {
	t.Parallel()
	c := newClassroom(t)
	printed := func(text string) map[string]any {
		return map[string]any{"output_type": "stream", "name": "stdout", "text": text}
	}
	check1 := func(nb *ipynb.Notebook) *ipynb.Cell { return cellsByGradeID(nb, "test-1")[0] }
	copyCell := func(nb *ipynb.Notebook) *ipynb.Cell {
		again := c.notebook()
		return check1(again)
	}
	for _, attack := range []struct {
		name, reason string
		points       float64 // of test/1, which has 3
		change       func(nb *ipynb.Notebook)
	}{
		{"prints passed", "has no answer in its output", 0, func(nb *ipynb.Notebook) { setOutput(t, check1(nb), printed("passed: test/1, 3 points")) }},
		{"prints the JSON", "has no answer in its output", 0, func(nb *ipynb.Notebook) { setOutput(t, check1(nb), printed(`{"lockstep_answer":1,"task":"test/1"}`)) }},
		{"hand-written wrong value", "is not what your runs give", 0, func(nb *ipynb.Notebook) { c.answer(nb, "test/1", map[string]any{"speedup": 1.9}, small) }},
		{"hand-written right value", "right", 3, func(nb *ipynb.Notebook) { c.answer(nb, "test/1", map[string]any{"speedup": 1.5}, small) }},
		{"no runs", "found no finished run", 0, func(nb *ipynb.Notebook) { c.answer(nb, "test/1", map[string]any{"speedup": 1.5}) }},
		{"another task's study", "the runs are of " + large, 0, func(nb *ipynb.Notebook) { c.answer(nb, "test/1", map[string]any{"speedup": 12. / 9}, large) }},
		{"another task's output", `belongs to task "test/2"`, 0, func(nb *ipynb.Notebook) {
			if err := check1(nb).SetOutputs([]map[string]any{{"output_type": "execute_result", "metadata": map[string]any{}, "data": cellsByGradeID(nb, "test-2")[0].Outputs[0].Data}}, 1); err != nil {
				t.Fatal(err)
			}
		}},
		{"runs that are not submitted", "is not in the submission", 0, func(nb *ipynb.Notebook) {
			a := &Answer{Task: "test/1", Values: map[string]any{"speedup": 1.5}, Runs: []RunReference{{Run: "elsewhere/ddp-n1-s1"}}}
			setOutput(t, check1(nb), map[string]any{"output_type": "execute_result", "metadata": map[string]any{}, "data": map[string]any{"application/json": a.JSON()}})
		}},
		{"a run outside the submission", "is not in the submission", 0, func(nb *ipynb.Notebook) {
			a := &Answer{Task: "test/1", Values: map[string]any{"speedup": 1.5}, Runs: []RunReference{{Run: "../../../" + c.logs + "/" + small + "/ddp-n1-s1"}}}
			setOutput(t, check1(nb), map[string]any{"output_type": "execute_result", "metadata": map[string]any{}, "data": map[string]any{"application/json": a.JSON()}})
		}},
		{"deleted check cell", "check cell test-1 is missing", 0, func(nb *ipynb.Notebook) {
			deleted := check1(nb)
			nb.Cells = slices.DeleteFunc(nb.Cells, func(cell *ipynb.Cell) bool { return cell == deleted })
		}},
		{"edited check cell, right answer", "was edited", 3, func(nb *ipynb.Notebook) { check1(nb).Source = "fmt.Println(1)" }},
		{"edited check cell, wrong answer", "was edited", 0, func(nb *ipynb.Notebook) {
			check1(nb).Source = "fmt.Println(1)"
			c.answer(nb, "test/1", map[string]any{"speedup": 1.9}, small)
		}},
		// A cell "var course fake", and one that replaces course.Check in gomacro's import table, lead to an output
		// that the student has made up.
		{"shadowed course", "has no answer in its output", 0, func(nb *ipynb.Notebook) { setOutput(t, check1(nb), printed("true")) }},
		{"replaced check", "is not what your runs give", 0, func(nb *ipynb.Notebook) {
			c.answer(nb, "test/1", map[string]any{"speedup": 2}, small)
			check1(nb).Outputs[0].Data["text/html"] = "<p>right: test/1</p>"
		}},
		{"duplicated check cell", "2 cells are named test-1", 3, func(nb *ipynb.Notebook) { nb.Cells = append(nb.Cells, copyCell(nb)) }},
		{"duplicated check cell with all answers", "have different answers", 0, func(nb *ipynb.Notebook) {
			nb.Cells = append(nb.Cells, copyCell(nb))
			c.answer(nb, "test/1", map[string]any{"speedup": 1.9}, small)
		}},
		{"never run", "has not run", 0, func(nb *ipynb.Notebook) { check1(nb).ClearOutputs() }},
		{"failed", "is wrong", 0, func(nb *ipynb.Notebook) {
			setOutput(t, check1(nb), map[string]any{"output_type": "error", "ename": "error", "evalue": "test/1: speedup is wrong", "traceback": []any{}})
		}},
	} {
		nb := c.notebook()
		attack.change(nb)
		g := c.grade("eve", c.submit(nb, "eve"))["test/1"]
		if g.Points != attack.points || !strings.Contains(g.Reason, attack.reason) {
			t.Errorf("%s: got %g points, %q; want %g, %q", attack.name, g.Points, g.Reason, attack.points, attack.reason)
		}
	}
}

// TestForeignRuns: published or recorded runs, and runs that were changed after the check, do not
// count; runs of another student are reported.
func TestForeignRuns(t *testing.T) {
	t.Parallel()
	c := newClassroom(t)
	ada := c.submit(c.notebook(), "ada")
	eve := c.submit(c.notebook(), "eve") // the same runs
	for _, student := range []string{"ada", "eve"} {
		other := map[string]string{"ada": "eve", "eve": "ada"}[student]
		g := c.grade(student, ada, eve)["test/1"]
		if g.Points != 3 || !strings.Contains(g.Reason, "the same run was handed in by "+other) {
			t.Errorf("%s: got %+v", student, g)
		}
	}
	if g := c.grade("ada", ada)["test/1"]; strings.Contains(g.Reason, "same run") {
		t.Errorf("got %+v for one submission", g)
	}

	changed := newClassroom(t)
	nb := changed.notebook()
	path := filepath.Join(changed.logs, small, "ddp-n2-s1", "epochs.csv")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(string(text), ",6,", ",5,")), 0o600); err != nil {
		t.Fatal(err)
	}
	if g := changed.grade("eve", changed.submit(nb, "eve"))["test/1"]; g.Points != 0 || !strings.Contains(g.Reason, "has changed since the check") {
		t.Errorf("got %+v for a changed run", g)
	}

	foreign := newClassroom(t)
	study := filepath.Join(foreign.logs, "power")
	testRun{config: small, workers: 1, seconds: []float64{49, 45, 45, 45, 45}}.write(t, study)
	testRun{config: small, workers: 2, seconds: []float64{26, 24, 24, 24, 24}}.write(t, study)
	nb = foreign.notebook()
	foreign.answer(nb, "test/1", map[string]any{"speedup": 1.875}, "power")
	if g := foreign.grade("eve", foreign.submit(nb, "eve"))["test/1"]; g.Points != 0 || !strings.Contains(g.Reason, "published/resnet-cifar10-power.csv") {
		t.Errorf("got %+v for published times", g)
	}
}

// TestDamagedSubmissions: one damaged submission does not keep the others from being graded.
func TestDamagedSubmissions(t *testing.T) {
	t.Parallel()
	c := newClassroom(t)
	dir := t.TempDir()
	good := c.submit(c.notebook(), "ada")
	write := func(name string, files map[string]string) string {
		path := filepath.Join(dir, name)
		f, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		z := zip.NewWriter(f)
		for _, name := range slices.Sorted(func(yield func(string) bool) {
			for n := range files {
				if !yield(n) {
					return
				}
			}
		}) {
			w, err := z.Create(name)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := w.Write([]byte(files[name])); err != nil {
				t.Fatal(err)
			}
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		return path
	}
	text := filepath.Join(dir, "text.zip")
	if err := os.WriteFile(text, []byte("no zip"), 0o600); err != nil {
		t.Fatal(err)
	}
	valid := `{"lockstep_submission":1,"student":"eve","notebook":"09-test.ipynb"}`
	for _, bad := range []struct{ path, want string }{
		{text, "want a file that lockstep course submit wrote"},
		{write("empty.zip", nil), "has no submission.json"},
		{write("manifest.zip", map[string]string{"submission.json": "{"}), "submission.json is damaged"},
		{write("outside.zip", map[string]string{"../outside": "x", "submission.json": valid}), "invalid file name"},
		{write("name.zip", map[string]string{"submission.json": strings.Replace(valid, "eve", "=1+1", 1)}), "submission.json is damaged"},
		{write("notebook.zip", map[string]string{"submission.json": valid, "09-test.ipynb": `{"cells": [`}), "damaged JSON"},
		{write("other.zip", map[string]string{"submission.json": strings.Replace(valid, "09-test", "10-other", 1), "10-other.ipynb": `{"nbformat":4,"cells":[]}`}), "find the released notebook"},
		{filepath.Join(dir, "absent.zip"), "absent.zip"},
	} {
		student := strings.TrimSuffix(filepath.Base(bad.path), ".zip")
		if g := c.grade(student, bad.path, good)[""]; !strings.Contains(g.Reason, bad.want) || g.Points != 0 {
			t.Errorf("%s: got %+v, want %q", bad.path, g, bad.want)
		}
		if g := c.grade("ada", bad.path, good)["test/1"]; g.Points != 3 {
			t.Errorf("%s: the other submission gets %+v", bad.path, g)
		}
	}
}

func TestWriteGrades(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	if err := WriteGrades(&b, []Grade{{Student: "ada", Task: "test/1", Points: 2.5, Reason: "right, \"quite\"\nyes"}, {Student: "bob", Task: "test/3", ByHand: 4}}); err != nil {
		t.Fatal(err)
	}
	want := "student,task,points,by_hand,reason\nada,test/1,2.5,0,\"right, \"\"quite\"\" yes\"\nbob,test/3,0,4,\n"
	if got := b.String(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestSubmit(t *testing.T) {
	t.Parallel()
	c := newClassroom(t)
	path := filepath.Join(c.dir, "student", "09-test.ipynb")
	nb := c.notebook()
	if err := nb.Write(path); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(c.logs, small, "ddp-n1-s1", "steps-0.jsonl"), []byte("{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "ada.zip")
	missing, err := Submit(t.Context(), path, SubmitOptions{Student: "ada", Out: out}, c.tasks)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"test/3: no text", "test/4: the check cell has not run", "test/5: the check cell has not run"}; len(missing) != 3 || !strings.HasPrefix(missing[1], want[1]) || missing[0] != want[0] || !strings.HasPrefix(missing[2], want[2]) {
		t.Errorf("got missing %q, want %q", missing, want)
	}
	z, err := zip.OpenReader(out)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = z.Close() }()
	var names []string
	for _, f := range z.File {
		names = append(names, strings.TrimPrefix(f.Name, "runs/"+small+"/ddp-n1-s1/"))
	}
	for _, name := range []string{"submission.json", "09-test.ipynb", "run.json", "epochs.csv", "out.log", "load.csv"} {
		if !slices.Contains(names, name) {
			t.Errorf("the submission has no %s: %v", name, names)
		}
	}
	if slices.Contains(names, "steps-0.jsonl") {
		t.Errorf("the submission has steps: %v", names)
	}
	if g := c.grade("ada", out)["test/2"]; g.Points != 2 {
		t.Errorf("got %+v for the submission", g)
	}
	if _, err := Submit(t.Context(), path, SubmitOptions{Student: "../ada", Out: out}, c.tasks); err == nil || !strings.Contains(err.Error(), "invalid name") {
		t.Errorf("got error %v for a name with a slash", err)
	}
}

// TestCheckNotebook judges the outputs in a file.
func TestCheckNotebook(t *testing.T) {
	t.Parallel()
	c := newClassroom(t)
	path := filepath.Join(c.dir, "student", "09-test.ipynb")
	if err := c.notebook().Write(path); err != nil {
		t.Fatal(err)
	}
	states, err := CheckNotebook(t.Context(), path, c.tasks, CheckOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i, done := range []bool{true, true, false, false, false} {
		if s := states[i]; s.Done != done || (s.Reason == "") != done {
			t.Errorf("%s: got done %t, %q; want %t", s.Task.ID, s.Done, s.Reason, done)
		}
	}
	if !strings.Contains(states[3].Reason, `course.Hint("test/4", 1)`) {
		t.Errorf("the state of test/4 shows no hint: %s", states[3].Reason)
	}
	other := filepath.Join(c.dir, "renamed.ipynb")
	if err := c.notebook().Write(other); err != nil {
		t.Fatal(err)
	}
	if _, err := CheckNotebook(t.Context(), other, c.tasks, CheckOptions{}); err == nil || !strings.Contains(err.Error(), "keep the released notebook's name") {
		t.Errorf("got error %v for a renamed notebook", err)
	}
}

// builtKernel returns the path of the kernel, which LOCKSTEP_KERNEL_DIR or go run ./kernels/build provides.
func builtKernel(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join(cmp.Or(os.Getenv("LOCKSTEP_KERNEL_DIR"), "../../kernels/.build/bin"), "lockstep-kernel"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Skip("kernel not built: run go run ./kernels/build")
	}
	return path
}

// TestFunctionAttacks: a function gets its points only if it computes what the reference does.
func TestFunctionAttacks(t *testing.T) {
	t.Parallel()
	c := newClassroom(t)
	c.kernel = builtKernel(t)
	right := "func total(values []float64) float64 {\n\ts := 0.0\n\tfor i := range values { s += values[i] }\n\treturn s\n}\n"
	for _, attack := range []struct {
		name, source, reason string
		points               float64 // of 2
	}{
		{"right", right, "right for 20 random inputs", 2},
		{"other cells", "var course = 1\nvar fmt = 2\n" + right, "right", 2},
		{"the cases of the task", "func total(values []float64) float64 {\n\tif len(values) == 3 { return 6 }\n\treturn 0.5\n}\n", "the result is wrong", 0},
		{"the stub", "func total(values []float64) float64 {\n\t// YOUR CODE HERE\n\treturn 0\n}\n", "the result is wrong", 0},
		{"no function", "total := 6.0\n", "total(", 0},
		{"does not compile", "func total(", "the cell test-4-answer fails", 0},
		{"prints", "import \"fmt\"\nfmt.Println(\"passed: 2 points\")\nfunc total(values []float64) float64 { fmt.Println(6); return 0 }\n", "the result is wrong", 0},
		{"import table", "import (\n\t\"reflect\"\n\t\"github.com/cosmos72/gomacro/imports\"\n)\n" +
			"imports.Packages[\"fmt\"].Binds[\"Sprint\"] = reflect.ValueOf(func(...interface{}) string { return \"6\" })\nfunc total(values []float64) float64 { return 6 }\n", "the result is wrong", 0},
		{"endless loop", "func total(values []float64) float64 { for { } ; return 0 }\n", "no result after 2s", 0},
		{"ends the kernel", "import \"os\"\nfunc total(values []float64) float64 { os.Exit(0); return 0 }\n", "os.Exit(0)", 0},
		{"launches", "import (\n\t\"lockstep/pkg/launch\"\n\t\"lockstep/pkg/notebook\"\n)\n" +
			"_, refused := launch.Local(notebook.Context(), launch.Sweep{Config: \"unet2d-cells\", Workers: []int{1}})\nif refused == nil { panic(\"launched\") }\n" + right, "right", 2},
	} {
		t.Run(attack.name, func(t *testing.T) {
			t.Parallel()
			own := *c
			own.t, own.dir = t, t.TempDir()
			if err := os.MkdirAll(filepath.Join(own.dir, "student"), 0o755); err != nil {
				t.Fatal(err)
			}
			nb := own.notebook()
			cellsByGradeID(nb, "test-4-answer")[0].Source = attack.source
			all, err := Grades(t.Context(), []string{own.submit(nb, "eve")}, GradeOptions{
				Release: c.release, Tests: filepath.Join(c.dir, "source"), Kernel: c.kernel, CellTimeout: 2 * time.Second,
			})
			if err != nil {
				t.Fatal(err)
			}
			i := slices.IndexFunc(all, func(g Grade) bool { return g.Task == "test/4" })
			if i < 0 || all[i].Points != attack.points || !strings.Contains(all[i].Reason, attack.reason) {
				t.Errorf("got %+v, want %g points, %q", all, attack.points, attack.reason)
			}
		})
	}
}

// TestCheckAlone: a function that uses another cell of the student is right in the notebook, and would get no
// points.
func TestCheckAlone(t *testing.T) {
	t.Parallel()
	c := newClassroom(t)
	kernel := builtKernel(t)
	task := c.tasks[3]
	for source, want := range map[string]string{
		"func total(values []float64) float64 { return helper(values) }":                                                             "put helper functions, constants and imports into the cell test-4-answer",
		"func helper(values []float64) float64 { return values[0] }\nfunc total(values []float64) float64 { return helper(values) }": "",
	} {
		nb := c.notebook()
		cellsByGradeID(nb, "test-4-answer")[0].Source = source
		err := task.checkAnswerRunsAlone(t.Context(), nb, kernel)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got error %v, want %q", source, err, want)
		}
	}
}

// TestExecutesNotebook executes the cells of a notebook in a fresh kernel.
func TestExecutesNotebook(t *testing.T) {
	t.Parallel()
	kernel := builtKernel(t)
	tasks, err := ReadTasks("")
	if err != nil {
		t.Fatal(err)
	}
	answer := map[string]any{"cell_type": "code", "source": "asynchronous, bottleneck := \"late\", \"shards\"", "metadata": map[string]any{}}
	check := map[string]any{
		"cell_type": "code", "source": "import \"lockstep/pkg/course\"\ncourse.Check(\"server/2\", map[string]any{\"asynchronous\": asynchronous, \"bottleneck\": bottleneck})",
		"metadata": map[string]any{"nbgrader": map[string]any{"grade_id": "server-2", "grade": true, "locked": true, "points": 2, "schema_version": 3}},
	}
	endless := map[string]any{"cell_type": "code", "source": "for { }", "metadata": map[string]any{}}
	for _, c := range []struct {
		name  string
		cells []map[string]any
		done  bool
		want  string // part of the reason, or of the error
	}{
		{"in order", []map[string]any{answer, check}, true, ""},
		{"out of order", []map[string]any{check, answer}, false, "asynchronous"},
		{"endless loop", []map[string]any{endless, check}, false, "cell 1: no result after 1s: raise --timeout"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			text, err := json.Marshal(map[string]any{"nbformat": 4, "metadata": map[string]any{}, "cells": c.cells})
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(t.TempDir(), "03-server.ipynb")
			if err := os.WriteFile(path, text, 0o600); err != nil {
				t.Fatal(err)
			}
			o := CheckOptions{Kernel: kernel}
			if c.name == "endless loop" {
				o.CellTimeout = time.Second
			}
			states, err := CheckNotebook(t.Context(), path, tasks, o)
			if err != nil {
				if !strings.Contains(err.Error(), c.want) {
					t.Fatal(err)
				}
				return
			}
			i := slices.IndexFunc(states, func(s TaskState) bool { return s.Task.ID == "server/2" })
			if s := states[i]; s.Done != c.done || !strings.Contains(s.Reason, c.want) {
				t.Errorf("got done %t, %q; want %t, %q", s.Done, s.Reason, c.done, c.want)
			}
			if after, err := os.ReadFile(path); err != nil || string(after) != string(text) {
				t.Errorf("the notebook was changed: %v", err)
			}
		})
	}
}
