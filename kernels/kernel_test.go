package kernels

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Each cell is followed by what it must show, in the form of answer.show.
func TestCells(t *testing.T) {
	t.Parallel()
	table := [][2]string{
		{"import \"fmt\"\nfmt.Println(\"hello\")", `stdout "hello\n"`},
		{"1 + 2", `execute_result "3"`},
		{"x := []int{1, 2}\nx", `execute_result "[1 2]"`},

		// A call that also returns an error shows the value, or fails.
		{"import \"strconv\"\nstrconv.Atoi(\"12\")", `execute_result "12"`},
		{"strconv.Atoi(\"no\")", `error "line 1, column 1: strconv.Atoi: parsing \"no\": invalid syntax"`},
		{"import \"os\"\nos.Setenv(\"LOCKSTEP_TEST\", \"1\")", ""},
		{"os.Remove(\"no-such-file\")", `error "line 1, column 1: remove no-such-file: no such file or directory"`},
		// An error that is looked at is a value.
		{"_, err := os.Open(\"no-such-file\")\nerr", `execute_result "open no-such-file: no such file or directory"`},

		// State outlives an error of each kind.
		{"undefined()", `error "line 1, column 1: undefined identifier: undefined"`},
		{"y := 1\n\n  undefined()", `error "line 3, column 3: undefined identifier: undefined"`},
		{"y := [", `error "line 1, column 6: this [ is not closed: a ] is missing (noticed in line 1)"`},
		{"zero := 0\n1 / zero", `error "line 2, column 1: runtime error: integer divide by zero"`},
		{"panic(\"no\")", `error "line 1, column 1: no"`},
		{"func third(n []int) int { return n[2] }\nz := 1\n\nthird(nil)", `error "line 1, column 34: runtime error: index out of range (called from line 4)"`},
		{"len(x)", `execute_result "2"`},

		// Today's standard library, and what a course uses.
		{"import \"sync/atomic\"\nvar n atomic.Int64\nn.Add(3)\nn.Load()", `execute_result "3"`},
		{"import \"math\"\nuint64(math.MaxUint64)", `execute_result "18446744073709551615"`},
		{"import \"log\"\nlog.SetFlags(0)\nlog.Println(\"logged\")", `stderr "logged\n"`},
		{"import \"gonum.org/v1/gonum/stat\"\nstat.Mean([]float64{1, 2, 6}, nil)", `execute_result "3"`},
		{"import (\"sort\"; \"gonum.org/v1/gonum/mat\")\nsort.Ints(x)\nmat.Sum(mat.NewDense(1, 2, []float64{1, 2}))", `execute_result "3"`},
		{
			"import g \"gorgonia.org/gorgonia\"\nimport \"gorgonia.org/tensor\"\n" +
				"graph := g.NewGraph()\na := g.NewScalar(graph, tensor.Float64, g.WithName(\"a\"))\n" +
				"sum, err := g.Add(a, a)\ng.Let(a, 2.25)\nerr = g.NewTapeMachine(graph).RunAll()\nfmt.Println(sum.Value(), err)",
			`stdout "4.5 <nil>\n"`,
		},
		{"import \"lockstep/pkg/notebook\"\nnotebook.InNotebook()", `execute_result "true"`},
	}
	var code []string
	for _, row := range table {
		code = append(code, row[0])
	}
	for i, a := range drive(t, cells(code...)...) {
		got, want := a.show(), table[i][1]
		if got != want {
			t.Errorf("cell %q shows\n%s\nwant\n%s", code[i], got, want)
		}
	}
}

func TestUnknownImport(t *testing.T) {
	a := drive(t, cells("y := 1\nimport \"github.com/kniren/gota/dataframe\"", "import \"fmt\"\nfmt.Println(1)")...)
	for _, want := range []string{
		`line 2: import "github.com/kniren/gota/dataframe": this package is not compiled into the kernel`,
		`did you mean "github.com/go-gota/gota/dataframe"?`,
		"the Go standard library", "lockstep/pkg/{", "gonum.org/v1/plot",
		"go run ./kernels/build -add",
	} {
		if !strings.Contains(a[0].Reply.Value, want) {
			t.Errorf("error is %q, want %q in it", a[0].Reply.Value, want)
		}
	}
	if a[1].show() != `stdout "1\n"` {
		t.Errorf("the next cell shows %s", a[1].show())
	}
}

func TestRichValues(t *testing.T) {
	t.Parallel()
	steps := cells(
		`import ("github.com/go-gota/gota/dataframe"; "github.com/go-gota/gota/series"; "lockstep/pkg/notebook"; "fmt")
df := dataframe.New(series.New([]float64{1, 2.5}, series.Float, "workers"))
df`,
		`import ("gonum.org/v1/plot"; "gonum.org/v1/plot/plotter")
p := plot.New()
p.Title.Text = "Speed-up"
line := plotter.NewLine(plotter.XYs{{X: 1, Y: 1}, {X: 2, Y: 1.9}})
p.Add(line)
p`,
		`type Mark struct { R int }
func (m Mark) SVG() string { return fmt.Sprintf("<svg><circle r='%d'/></svg>", m.R) }
Mark{3}`,
		`import "image"
image.NewGray(image.Rect(0, 0, 2, 2))`,
		`fmt.Println("before"); notebook.Display(p); fmt.Println("after")`,
		`live := notebook.NewLive()
live.Show(1)
live.Show(df)`,
		`df.Select("no such column")`,
	)
	a := drive(t, steps...)
	only := func(i int, kind, mime, want string) {
		t.Helper()
		if len(a[i].Messages) != 1 || a[i].Messages[0].Type != kind {
			t.Fatalf("cell %d shows\n%s", i, a[i].show())
		}
		if got, _ := a[i].Messages[0].Content.Data[mime].(string); !strings.Contains(got, want) {
			t.Errorf("cell %d shows %v, want %q in %s", i, a[i].Messages[0].Content.Data, want, mime)
		}
	}
	only(0, "execute_result", "text/html", ">2.5<")
	only(0, "execute_result", "text/plain", "2.500000")
	only(1, "execute_result", "image/svg+xml", ">Speed-up<")
	only(1, "execute_result", "text/plain", "(plot: Speed-up)")
	only(2, "execute_result", "image/svg+xml", "<circle r='3'/>")
	only(3, "execute_result", "image/png", "iVBORw0KGgo") // base64 of PNG's signature
	if got, want := a[4].show(), "stdout \"before\\n\"\ndisplay_data \"(plot: Speed-up)\"\nstdout \"after\\n\""; got != want {
		t.Errorf("a value shown between two lines gives\n%s\nwant\n%s", got, want)
	}
	m := a[5].Messages
	if len(m) != 2 || m[0].Type != "display_data" || m[1].Type != "update_display_data" ||
		m[0].Content.Transient["display_id"] == nil || m[0].Content.Transient["display_id"] != m[1].Content.Transient["display_id"] {
		t.Errorf("a live display gives\n%s", a[5].show())
	}
	if a[6].Reply.Status != "error" || !strings.Contains(a[6].Reply.Value, "no such column") {
		t.Errorf("a frame that carries an error gives %+v", a[6].Reply)
	}
}

// The cell of the README: a figure, from a call that also returns an error.
func TestFigureShowsItself(t *testing.T) {
	t.Parallel()
	a := drive(t, cells(
		`import ("fmt"; "lockstep/pkg/figure"; "lockstep/pkg/runs"; "lockstep/pkg/scaling")
func run(workers int, seconds float64) runs.Run {
	r := runs.Run{Dir: fmt.Sprintf("ddp-n%d-s1", workers), Info: runs.Info{Study: "cells", Series: "ddp", Workers: workers}}
	for e := 1; e <= 3; e++ {
		r.Epochs = append(r.Epochs, runs.Epoch{Epoch: e, Seconds: seconds, Samples: 100 * workers})
	}
	return r
}
study, err := scaling.FromRuns([]runs.Run{run(1, 10), run(2, 12.5)})
err == nil`,
		"figure.Speedup(study)", "study.Table()", "scaling.Read(\"no-such-folder\")")...)
	if got := a[0].show(); got != `execute_result "true"` {
		t.Fatalf("the study gives %s", got)
	}
	for i, want := range map[int][2]string{1: {"image/svg+xml", "</svg>"}, 2: {"text/html", "</table>"}} {
		if len(a[i].Messages) != 1 || a[i].Messages[0].Type != "execute_result" {
			t.Errorf("cell %d shows\n%s", i, a[i].show())
			continue
		}
		if got, _ := a[i].Messages[0].Content.Data[want[0]].(string); !strings.Contains(got, want[1]) {
			t.Errorf("cell %d has %s %q", i, want[0], got)
		}
	}
	if a[3].Reply.Status != "error" || !strings.Contains(a[3].Reply.Value, "no-such-folder") {
		t.Errorf("a folder that is not there gives %+v", a[3].Reply)
	}
}

func TestOutputIsLive(t *testing.T) {
	a := drive(t, cells(
		"import (\"fmt\"; \"time\")\nfmt.Println(\"first\")\ntime.Sleep(3 * time.Second)\nfmt.Println(\"last\")",
		"gate, said := make(chan int), make(chan int)\ngo func() { <-gate; fmt.Println(\"late\"); said <- 1 }()",
		"gate <- 1\nn := <-said")...)
	if a[0].show() != "stdout \"first\\n\"\nstdout \"last\\n\"" {
		t.Fatalf("the cell shows\n%s", a[0].show())
	}
	// The first line may take its time on a busy machine, but not all of the 3 s
	// that the cell sleeps after it.
	if at := a[0].Messages[0].At; at > a[0].Seconds-1 {
		t.Errorf("the first line came after %.2f s, the cell ended after %.2f s", at, a[0].Seconds)
	}
	if a[2].show() != `stdout "late\n"` {
		t.Errorf("what a goroutine of an earlier cell prints gives %q, want it in the cell that runs", a[2].show())
	}
}

func TestProgressIsOneLine(t *testing.T) {
	a := drive(t, cells("import (\"time\"; \"lockstep/pkg/notebook\")\nbar := notebook.NewProgress(\"epoch\", 1000)\n"+
		"for i := 1; i <= 1000; i++ { time.Sleep(time.Millisecond); bar.Set(i, \"\") }\nbar.Done(\"IoU 0.8\")")...)
	m := a[0].Messages
	// Four lines a second at most, and the first and the last.
	if most := int(4*a[0].Seconds) + 2; len(m) < 3 || len(m) > most {
		t.Fatalf("1000 steps in %.1f s give %d messages", a[0].Seconds, len(m))
	}
	for i, m := range m {
		want := "update_display_data"
		if i == 0 {
			want = "display_data"
		}
		if text, _ := m.Content.Data["text/plain"].(string); m.Type != want || strings.Contains(text, "\r") {
			t.Errorf("message %d is %s %q", i, m.Type, text)
		}
	}
	if last, _ := m[len(m)-1].Content.Data["text/plain"].(string); !strings.Contains(last, "1000/1000") || !strings.HasSuffix(last, "IoU 0.8") {
		t.Errorf("the last line is %q", last)
	}
}

func TestInterrupt(t *testing.T) {
	soon := 0.3
	steps := []step{
		{Execute: "import (\"context\"; \"fmt\"; \"os/exec\"; \"syscall\"; \"time\"; \"lockstep/pkg/notebook\")\nkept := 41"},
		{Execute: "fmt.Println(\"loop\")\nfor { kept = 42 }", InterruptOn: "loop"},
		{Execute: "kept"},
		// A compiled call that waits on the context returns. The process has a
		// group of its own, so that it is not the signal itself that ends it.
		{Execute: "sleep := exec.CommandContext(notebook.Context(), \"sleep\", \"100\")\n" +
			"sleep.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}\n" +
			"fmt.Println(\"call\")\nerr := sleep.Run()\nfmt.Println(\"not reached\")", InterruptOn: "call"},
		{Execute: "ctx := notebook.Context()\nctx.Err() == nil"},
		{Execute: "fmt.Println(\"ctx\")\n<-ctx.Done()", InterruptOn: "ctx"},
		// One that is kept is alive again in the next cell, as is what is derived from it.
		{Execute: "later, cancel := context.WithTimeout(ctx, time.Hour)\nctx.Err() == nil && later.Err() == nil && notebook.Context().Err() == nil"},
		{Execute: "time.Sleep(time.Minute)", InterruptAfter: &soon},
		// One that takes no notice goes on, and the notebook is told why.
		{Execute: "deaf := exec.Command(\"sleep\", \"5\")\ndeaf.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}\n" +
			"deaf.Start()\nfmt.Println(\"deaf\")\ndeaf.Wait()\nfmt.Println(\"not reached\")", InterruptOn: "deaf"},
		{Execute: "1"},
		// An interrupt spoils neither a function of an earlier cell nor a loop.
		{Execute: "func count(n int) int { s := 0; for i := 0; i < n; i++ { s += i }; return s }\ncount(3)"},
		{Execute: "fmt.Println(\"busy\")\nfor { count(1000) }", InterruptOn: "busy"},
		{Execute: "count(4)"},
		// The lines of a loop after an interrupted call are not run either.
		{Execute: "for i := 0; i < 9; i++ { fmt.Println(\"nap\", i); time.Sleep(time.Minute) }", InterruptOn: "nap"},
		// The generation of a data set, which would take many seconds, ends.
		{Execute: "import \"lockstep/pkg/data\"\nfmt.Println(\"cells\")\n" +
			"data.Cells(notebook.Context(), data.CellsOptions{Count: 3000, Height: 256, Width: 256})\nfmt.Println(\"not reached\")", InterruptOn: "cells"},
	}
	a := drive(t, steps...)
	for _, i := range []int{1, 3, 5, 7, 11, 13, 14} {
		if a[i].InterruptedAt == nil {
			t.Errorf("cell %d ended before it was interrupted: %s", i, a[i].show())
			continue
		}
		if !strings.HasSuffix(a[i].show(), `error "interrupted"`) || a[i].Reply.Value != "interrupted" || strings.Contains(a[i].show(), "not reached") {
			t.Errorf("interrupted cell %d shows\n%s", i, a[i].show())
		}
		if late := a[i].Seconds - *a[i].InterruptedAt; late > 5 {
			t.Errorf("cell %d ended %.1f s after the interrupt", i, late)
		}
	}
	if got := a[8].show(); !strings.Contains(got, `stdout "interrupt: a compiled function is still running`) || !strings.HasSuffix(got, `error "interrupted"`) ||
		strings.Contains(got, "not reached") {
		t.Errorf("an interrupted cell that takes no notice shows\n%s", got)
	}
	if got := a[13].show(); strings.Contains(got, "nap 1") {
		t.Errorf("an interrupted loop goes on:\n%s", got)
	}
	for i, want := range map[int]string{2: "42", 4: "true", 6: "true", 9: "1", 10: "3", 12: "6"} {
		if got := a[i].show(); got != `execute_result "`+want+`"` {
			t.Errorf("cell %d shows %s, want %s", i, got, want)
		}
	}
}

// writeNotebook writes a notebook with these cells for this kernel. A cell that begins with # is Markdown.
func writeNotebook(t *testing.T, path string, code ...string) {
	t.Helper()
	var list []map[string]any
	for _, c := range code {
		cell := map[string]any{"cell_type": "code", "execution_count": nil, "metadata": map[string]any{}, "outputs": []any{}, "source": c}
		if strings.HasPrefix(c, "#") {
			cell = map[string]any{"cell_type": "markdown", "metadata": map[string]any{}, "source": c}
		}
		list = append(list, cell)
	}
	doc, err := json.Marshal(map[string]any{
		"cells": list, "nbformat": 4, "nbformat_minor": 4,
		"metadata": map[string]any{"kernelspec": map[string]any{"name": "lockstep", "display_name": "Go (Lockstep)", "language": "go"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, doc, 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestNbconvert(t *testing.T) {
	t.Parallel()
	py := python(t)
	if exec.Command(py, "-c", "import nbconvert").Run() != nil {
		t.Skip("nbconvert: " + py + " does not have it; apt-get install jupyter-nbconvert")
	}
	prefix, dir := install(t, kernelDir(t)), t.TempDir()
	convert := func(name string) (string, error) {
		cmd := exec.Command(py, "-m", "nbconvert", "--to", "notebook", "--execute", "--output", "out-"+name, filepath.Join(dir, name))
		cmd.Env = append(os.Environ(), "JUPYTER_PATH="+filepath.Join(prefix, "share", "jupyter"))
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	writeNotebook(t, filepath.Join(dir, "good.ipynb"),
		"import \"fmt\"\nx := 20\nfmt.Println(x)", "x + 1", "import \"gonum.org/v1/plot\"\nplot.New()",
		"import \"os\"\nos.Getenv(\"LOCKSTEP_BIN\")")
	if out, err := convert("good.ipynb"); err != nil {
		t.Fatalf("nbconvert: %v\n%s", err, out)
	}
	doc, err := os.ReadFile(filepath.Join(dir, "out-good.ipynb"))
	if err != nil {
		t.Fatal(err)
	}
	var nb struct {
		Cells []struct {
			Outputs []struct {
				Text []string
				Data map[string]any
			}
		}
	}
	if err := json.Unmarshal(doc, &nb); err != nil {
		t.Fatal(err)
	}
	if len(nb.Cells) != 4 {
		t.Fatalf("the executed notebook has %d cells", len(nb.Cells))
	}
	for i, c := range nb.Cells {
		if len(c.Outputs) != 1 {
			t.Fatalf("cell %d has %d outputs", i, len(c.Outputs))
		}
	}
	if got := strings.Join(nb.Cells[0].Outputs[0].Text, ""); got != "20\n" {
		t.Errorf("cell 0 printed %q", got)
	}
	text := func(i int, mime string) string {
		doc, err := json.Marshal(nb.Cells[i].Outputs[0].Data[mime])
		if err != nil {
			t.Fatal(err)
		}
		return string(doc)
	}
	if got := text(1, "text/plain"); got != `["21"]` {
		t.Errorf("cell 1 shows %s", got)
	}
	if got := text(2, "image/svg+xml"); !strings.Contains(got, "svg width") {
		t.Errorf("cell 2 shows %s", got)
	}
	if got, want := text(3, "text/plain"), filepath.Join(prefix, "share", "jupyter", "kernels", "lockstep", "lockstep"); !strings.Contains(got, want) {
		t.Errorf("LOCKSTEP_BIN is %s, want %s", got, want)
	}

	writeNotebook(t, filepath.Join(dir, "bad.ipynb"), "import \"os\"\nos.ReadFile(\"no-such-file\")")
	if out, err := convert("bad.ipynb"); err == nil || !strings.Contains(out, "open no-such-file: no such file or directory") {
		t.Errorf("a cell that fails gives %v\n%s", err, out)
	}
}
