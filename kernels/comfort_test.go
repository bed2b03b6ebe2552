package kernels

import (
	"slices"
	"strings"
	"testing"
)

// at takes the cursor, written as |, out of the code of a question.
func at(code string) (string, int) {
	before, after, _ := strings.Cut(code, "|")
	return before + after, len([]rune(before))
}

func complete(code string) step {
	code, pos := at(code)
	return step{Complete: code, Pos: pos}
}

func inspect(code string, detail int) step {
	code, pos := at(code)
	return step{Inspect: code, Pos: pos, Detail: detail}
}

func TestInspect(t *testing.T) {
	t.Parallel()
	session := step{Execute: "import (\"strings\"; \"lockstep/pkg/launch\"; \"lockstep/pkg/scaling\")\nvar study *scaling.Study\nvar builder strings.Builder\nvar fits *scaling.Fits\nvar share scaling.Estimate"}
	table := []struct {
		step step
		want []string
	}{
		{inspect("y := strings.ToU|pper(\"a\")", 0), []string{"func ToUpper(s string) string", "ToUpper returns s with all Unicode letters mapped"}},
		{inspect("y := strings.Cut(\"a\", |", 0), []string{"func Cut(s, sep string) (before, after string, found bool)", "Cut slices s around"}},
		{inspect("scal|ing.Read", 0), []string{"package scaling // import \"lockstep/pkg/scaling\""}},
		{inspect("scal|ing.Read", 1), []string{"package scaling", "func Read("}},
		{inspect("launch.Swe|ep{}", 0), []string{"type Sweep struct", "Workers"}},
		{inspect("stu|dy", 0), []string{"var study *", "scaling.Study", "Study is the analysis of a set of runs"}},
		{inspect("study.Ta|ble()", 0), []string{"func (s *Study) Table()"}},
		// What results share is documented for each, and no type is one of an internal package.
		{inspect("fits.Wri|te(w, \"csv\")", 0), []string{"Write(w io.Writer, format string) error", "Write writes the result"}},
		{inspect("study.TimeUse().Ta|ble()", 0), []string{"Table() dataframe.DataFrame", "Table returns the result as a DataFrame"}},
		{inspect("scaling.LRSc|aling{}", 0), []string{"type LRScaling struct", "learning rate"}},
		{inspect("sha|re", 0), []string{"var share", "scaling.Estimate", "Estimate is a quantity measured over repeated runs"}},
		{inspect("builder.WriteString|(\"é\")", 0), []string{"func (b *Builder) WriteString(s string) (int, error)", "WriteString appends"}},
		{inspect("sweep := launch.Sweep{}\nsweep.Workers|", 0), []string{"Workers []int"}},
		{inspect("appe|nd(x)", 0), []string{"func append(slice []Type, elems ...Type) []Type"}},
	}
	steps := []step{session}
	for _, row := range table {
		steps = append(steps, row.step)
	}
	steps = append(steps, inspect("unkno|wn", 0))
	a := drive(t, steps...)
	for i, row := range table {
		got, _ := a[i+1].Reply.Data["text/plain"].(string)
		for _, want := range row.want {
			if !a[i+1].Reply.Found || !strings.Contains(got, want) {
				t.Errorf("inspect %q at %d gives %q, want %q in it", row.step.Inspect, row.step.Pos, got, want)
			}
		}
	}
	if a[len(a)-1].Reply.Found {
		t.Errorf("inspect of an unknown name gives %v", a[len(a)-1].Reply.Data)
	}
}

func TestComplete(t *testing.T) {
	t.Parallel()
	table := []struct {
		code  string
		want  []string
		start int // characters before the word
	}{
		{"import \"lockstep/pkg/sca|", []string{"lockstep/pkg/scaling"}, 8},
		{"import \"scal|", []string{"lockstep/pkg/scaling"}, 8},
		{"scaling.Re|", []string{"Read"}, 8},
		{"study.Ta|", []string{"Table"}, 6},
		{"über := \"größe\"; study.Ta|", []string{"Table"}, 23},
		{"temper|", []string{"temperature"}, 0},
		{"fmt.Println(heat(tempera|", []string{"temperature"}, 17},
		{"he|", []string{"heat"}, 0},
		{"s := launch.Sweep{}\ns.Wor|", []string{"Workers"}, 22},
		{"launch.Sweep{Wor|", []string{"Workers"}, 13},
		{"for _, r := range study.Runs {\n\tr.|\n}", []string{"Info", "Epochs"}, 34},
		{"for _, r := range study.Runs {\n\tfmt.Println(r.Info.Wor|\n}", []string{"Workers"}, 51},
	}
	steps := []step{{Execute: "import (\"fmt\"; \"lockstep/pkg/launch\"; \"lockstep/pkg/scaling\")\nvar study *scaling.Study\n" +
		"temperature := 3\nfunc heat(n int) int { return n }"}}
	for _, row := range table {
		steps = append(steps, complete(row.code))
	}
	steps = append(steps, complete("nothing.|"))
	a := drive(t, steps...)
	for i, row := range table {
		r, s := a[i+1].Reply, steps[i+1]
		for _, want := range row.want {
			if !slices.Contains(r.Matches, want) {
				t.Errorf("%q gives %v, want %s", row.code, r.Matches, want)
			}
		}
		if r.Status != "ok" || r.Start != row.start || r.End != s.Pos {
			t.Errorf("%q replaces characters %d to %d (%s), want %d to %d", row.code, r.Start, r.End, r.Status, row.start, s.Pos)
		}
	}
	if r := a[len(a)-1].Reply; r.Status != "ok" || len(r.Matches) != 0 {
		t.Errorf("an unknown name gives %+v", r)
	}
}

// What a cell declares is known in all of it, and the rest runs in order.
func TestOrderInACell(t *testing.T) {
	t.Parallel()
	code := []string{
		"fmt.Println(Box{Side{2}}.Area())\nimport \"fmt\"\ntype Box struct { Side }\nfunc (s Side) Area() int { return s.N * s.N }\ntype Side struct { N int }",
		"x := 1\nfunc f() int { return x }\nf()",
		"s := Shape(Cube{Edge{3}})\ntype Edge struct { N int }\nfunc (e Edge) Volume() int { return e.N * e.N * e.N }\n" +
			"type Cube struct { Edge }\ntype Shape interface { Volume() int }\ns.Volume()",
		"type Row [Width]int\nconst Width = 4\nlen(Row{})",
		"a := 1\na = a + 1\nb := a * 10\nb",
		"even(4)\nfunc even(n int) bool { if n == 0 { return true }; return odd(n-1) }\n" +
			"func odd(n int) bool { if n == 0 { return false }; return even(n-1) }\neven(5)",
		"func (w *Wheel) Start() Turner { w.n++; return w }\ntype Turner interface { Turn() int }\ntype Wheel struct { n int }\nfunc (w *Wheel) Turn() int { return w.n + 1 }\nw := &Wheel{}\nw.Start().Turn()",
		// What does not compile is not there afterwards.
		"func broken() int { return nothing }", "broken()",
		"a := []int{1}\nfresh := 1\nnothing()", "a", "fresh",
		// A variable of the cell takes the place of one of the session.
		"x := \"text\"\nfunc g() string { return x }\ng()",
	}
	want := []string{
		"stdout \"4\\n\"", `execute_result "1"`, `execute_result "27"`, `execute_result "4"`, `execute_result "20"`,
		`execute_result "false"`, `execute_result "2"`, `error "line 1, column 28: undefined identifier: nothing"`,
		`error "line 1, column 1: undefined identifier: broken"`,
		`error "line 3, column 1: undefined identifier: nothing"`, `execute_result "2"`, `error "line 1, column 1: undefined identifier: fresh"`,
		`execute_result "text"`,
	}
	for i, a := range drive(t, cells(code...)...) {
		if a.show() != want[i] {
			t.Errorf("cell %q shows %s, want %s", code[i], a.show(), want[i])
		}
	}
}

func TestPanicInAGoroutine(t *testing.T) {
	t.Parallel()
	code := []string{
		"import (\"fmt\"; \"time\"; \"lockstep/pkg/notebook\")\nkept := 42\nch := make(chan int)",
		"notebook.Go(func() { var m map[string]int; m[\"a\"] = 1 })\ntime.Sleep(time.Minute)",
		"go func() { panic(\"no\") }()\ntime.Sleep(time.Minute)",
		// The arguments are those of the moment, and of the parameters' types.
		"const third = 1.0 / 3\ngo func(c chan int, x float32, e error) { if e == nil { c <- int(3 * x) } }(ch, third, nil)\n<-ch",
		"for i := 0; i < 3; i++ { go func(k int) { ch <- k }(i) }\n(<-ch) + (<-ch) + (<-ch)",
		"type Named interface { Name() string }\ntype P struct { n string }\nfunc (p P) Name() string { return p.n }\n" +
			"func tell(c chan int, n Named, more ...int) { c <- len(n.Name()) + len(more) }\ngo tell(ch, P{\"ab\"}, 1, 2)\n<-ch",
		"go tell(ch, P{\"ab\"}, []int{1, 2, 3}...)\n<-ch",
		"func two() (chan int, int) { return ch, 3 }\nfunc sink(c chan int, n int) { c <- n }\ngo sink(two())\n<-ch",
		// One that outlives its cell is told of, and stops no other cell.
		"go func() { time.Sleep(200 * time.Millisecond); panic(\"late\") }()",
		"time.Sleep(time.Second)\nkept",
	}
	want := []string{
		"", `error "line 1, column 44: assignment to entry in nil map (in a goroutine)"`, `error "line 1, column 13: no (in a goroutine)"`,
		`execute_result "1"`, `execute_result "3"`, `execute_result "4"`, `execute_result "5"`,
		`error "line 3, column 9: go statement: the results of two() cannot be passed to a goroutine directly; assign them to variables first"`,
		"", "stderr \"line 1, column 49 of cell [9]: late (in a goroutine)\\n\"\nexecute_result \"42\"",
	}
	for i, a := range drive(t, cells(code...)...) {
		if a.show() != want[i] {
			t.Errorf("cell %q shows\n%s\nwant\n%s", code[i], a.show(), want[i])
		}
	}
}

func TestInput(t *testing.T) {
	a := drive(t,
		step{Execute: "import (\"bufio\"; \"fmt\"; \"os\")\nvar name string; var age int\nfmt.Print(\"who? \")\nfmt.Scanln(&name, &age)\nfmt.Println(name, age)", Input: []string{"Zoë 30"}},
		step{Execute: "scanner := bufio.NewScanner(os.Stdin)\nscanner.Scan()\nscanner.Text()", Input: []string{"a whole line"}},
		step{Execute: "line := bufio.NewReader(os.Stdin).ReadString('\\n')\nline", Input: []string{"another"}},
		// Where nobody can be asked there is an error, and no waiting.
		step{Execute: "n, err := fmt.Scanln(&name)\nfmt.Println(n, err != nil)"},
		step{Execute: "b := make([]byte, 9)\nos.Stdin.Read(b)"},
		// An interrupt ends the question. Two answers are never asked for.
		step{Execute: "fmt.Println(\"asking\")\nfmt.Scanln(&name)", Input: []string{}, InterruptOn: "asking"},
		step{Execute: "1"})
	for i, want := range map[int]string{
		0: "stdout \"who? \"\nstdout \"Zoë 30\\n\"", 1: `execute_result "a whole line"`, 2: `execute_result "another` + `\n"`, 6: `execute_result "1"`,
	} {
		if got := a[i].show(); got != want {
			t.Errorf("cell %d shows\n%s\nwant\n%s", i, got, want)
		}
	}
	for i, want := range map[int]string{3: "the front-end does not allow input", 4: "os.Stdin of a notebook (use fmt.Scan", 5: `error "interrupted"`} {
		if got := a[i].show(); !strings.Contains(got, want) {
			t.Errorf("cell %d shows\n%s\nwant %q in it", i, got, want)
		}
	}
}

func TestSecondInterrupt(t *testing.T) {
	soon := 0.3
	// "deaf" is printed, and the cell interrupted, while it waits: between two statements, one
	// interrupt would end it.
	a := drive(t, step{Execute: "import (\"fmt\"; \"os/exec\"; \"syscall\"; \"time\")\nsleep := exec.Command(\"sleep\", \"5\")\nsleep.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}\n" +
		"sleep.Start()\ngo func() { time.Sleep(time.Second); fmt.Println(\"deaf\") }()\nsleep.Wait()", InterruptOn: "deaf", AgainAfter: &soon}, step{Execute: "1"},
		// A select of the cell's own with the context.
		step{Execute: "import \"lockstep/pkg/notebook\"\nresults := make(chan int)\nfmt.Println(\"wait\")\n" +
			"select { case n := <-results: fmt.Println(n); case <-notebook.Context().Done(): }", InterruptOn: "wait"})
	if got := a[0].show(); !strings.Contains(got, "the cell was interrupted before") || !strings.Contains(got, "notebook.Context()") ||
		!strings.HasSuffix(got, `error "interrupted"`) {
		t.Errorf("a cell that was interrupted twice shows\n%s", got)
	}
	if got := a[1].show(); got != `execute_result "1"` {
		t.Errorf("the next cell shows %s", got)
	}
	if got := a[2].show(); got != "stdout \"wait\\n\"\nerror \"interrupted\"" {
		t.Errorf("a select with the context shows\n%s", got)
	}
}

// A figure, as package figure makes them, and a table change in place, and a
// list of figures shows each.
func TestFiguresInPlaceAndInLists(t *testing.T) {
	t.Parallel()
	a := drive(t, cells(
		`import ("lockstep/pkg/figure"; "lockstep/pkg/notebook"; "lockstep/pkg/runs"; "lockstep/pkg/scaling")
func run(workers int) runs.Run {
	r := runs.Run{Info: runs.Info{Study: "cells", Series: "ddp", Workers: workers}}
	for e := 1; e <= 3; e++ {
		r.Epochs = append(r.Epochs, runs.Epoch{Epoch: e, Seconds: 10, Samples: 100 * workers})
	}
	return r
}
study, err := scaling.FromRuns([]runs.Run{run(1), run(2)})
f, err := figure.Speedup(study)
err == nil`,
		"live := notebook.NewLive()\nlive.Show(study.Table())\nlive.Show(f)",
		"figure.All(study)", "[]*figure.Figure{f, f}", "[]int{1, 2}",
		// What the results of an analysis share works in cells, and %T gives names that a cell can write.
		"study.Modes()", "study.Modes().Table().Nrow()", "import \"fmt\"\nfmt.Printf(\"%T %T\", study.Modes(), study.Points[0].Speedup)")...)
	if html, _ := a[5].Messages[0].Content.Data["text/html"].(string); !strings.Contains(html, "<td>ddp</td>") {
		t.Errorf("the modes show\n%s", a[5].show())
	}
	if got := a[6].show(); got != `execute_result "1"` {
		t.Errorf("a table of one row shows %s", got)
	}
	if got := a[7].show(); !strings.Contains(got, "*scaling.Modes scaling.Estimate") {
		t.Errorf("the types are %s", got)
	}
	m := a[1].Messages
	if len(m) != 2 || m[1].Type != "update_display_data" || m[0].Content.Transient["display_id"] != m[1].Content.Transient["display_id"] {
		t.Fatalf("a live figure gives\n%s", a[1].show())
	}
	for i, mime := range []string{"text/html", "image/svg+xml"} {
		if m[i].Content.Data[mime] == nil || m[i].Content.Data["text/plain"] == "" {
			t.Errorf("message %d has %v", i, m[i].Content.Data)
		}
	}
	for i, n := range map[int]int{2: 2, 3: 2} {
		if len(a[i].Messages) < n {
			t.Errorf("cell %d shows\n%s\nwant %d figures", i, a[i].show(), n)
		}
		for _, m := range a[i].Messages {
			if svg, _ := m.Content.Data["image/svg+xml"].(string); m.Type != "display_data" || !strings.Contains(svg, "</svg>") || m.Content.Data["text/plain"] == "" {
				t.Errorf("cell %d shows %s %v", i, m.Type, m.Content.Data["text/plain"])
			}
		}
	}
	if got := a[4].show(); got != `execute_result "[1 2]"` {
		t.Errorf("a list of numbers shows %s", got)
	}
}

// A thousand cells are run. The memory bound is the kernel's promise; the times are only shown (ready in 0.4 s, a
// trivial cell in 3 ms on an idle machine).
func TestAThousandCells(t *testing.T) {
	t.Parallel()
	const cell = "x := 1\nfunc f(n int) []int { return make([]int, n) }\nx + len(f(1000))"
	a, ready := driveTimed(t, step{Execute: cell, Repeat: 100}, step{Execute: cell, Repeat: 900}, step{Execute: "1"})
	grown := float64(a[1].Memory-a[0].Memory) / (1 << 20)
	t.Logf("ready in %.2f s; a trivial cell in %.1f ms; %.1f MiB after 100 cells, %.1f MiB more after 1000", ready, 1000*a[2].Seconds, float64(a[0].Memory)/(1<<20), grown)
	if got := a[1].show(); got != `execute_result "1001"` {
		t.Errorf("cell 1000 shows %s", got)
	}
	if grown > 20 {
		t.Errorf("cell 1000 needs %.1f MiB more than cell 100, at most 20 are allowed", grown)
	}
}
