//go:build notebook

package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	interp "github.com/cosmos72/gomacro/fast"
)

// interpreter is the interpreter of globalKernel.
var interpreter *interp.Interp

// TestMain creates the kernel's state in a temporary folder, for its crash file. The kernel replaces
// os.Stdout and os.Stderr, which the tests need.
func TestMain(m *testing.M) { os.Exit(runTests(m)) }

func runTests(m *testing.M) int {
	dir, err := os.MkdirTemp("", "kernel")
	if err == nil {
		err = os.Chdir(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	stdout, stderr := os.Stdout, os.Stderr
	interpreter = newInterp()
	defer globalKernel.shutDown()
	interpreter.Comp.Stdout = io.Discard // warnings, as in gophernotes
	os.Stdout, os.Stderr = stdout, stderr
	return m.Run()
}

// A buffer may be written by a goroutine of a cell.
type buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// A result is what a cell shows.
type result struct {
	value       string // of the last line, if it is an expression
	out, stderr string
	err         error
}

// evaluate runs a cell as gophernotes' handleExecuteRequest does.
func evaluate(t *testing.T, code string) result {
	t.Helper()
	stdout, stderr := os.Stdout, os.Stderr
	defer func() { os.Stdout, os.Stderr = stdout, stderr }()
	ExecCounter++
	var out, errs buffer
	vals, _, err := evalCell(interpreter, OutErr{&out, &errs}, code)
	r := result{out: out.String(), stderr: errs.String(), err: err}
	for _, v := range vals {
		if data, ok := v.(Data); ok {
			v = data.Data["text/plain"]
		}
		r.value += fmt.Sprint(v)
	}
	return r
}

func TestEvaluate(t *testing.T) {
	if r := evaluate(t, "import (\"fmt\"; \"os\"; \"errors\"; \"time\"; \"runtime\"; \"log\")"); r.err != nil {
		t.Fatal(r.err)
	}
	for _, c := range []struct {
		name, code         string
		value, out, stderr string
	}{
		{name: "value", code: "1 + 2", value: "3"},
		{name: "no value", code: "x := 7"},
		{name: "variable of an earlier cell", code: "x", value: "7"},
		{name: "print", code: "fmt.Println(x)", out: "7\n"},
		{name: "print and value", code: "fmt.Println(x)\nx + 1", value: "8", out: "7\n"},
		{name: "standard error", code: `fmt.Fprintln(os.Stderr, "e")`, stderr: "e\n"},
		{name: "function before its use", code: "y := twice(4)\nfunc twice(n int) int { return 2 * n }\ny", value: "8"},
		{name: "method", code: "type point struct{ x, y int }\nfunc (p point) sum() int { return p.x + p.y }\npoint{1, 2}.sum()", value: "3"},
		{name: "struct has its type's name", code: "point{1, 2}", value: "point{x: 1, y: 2}"},
		{name: "two results with an error", code: "func divide(a, b int) (int, error) {\n\tif b == 0 { return 0, errors.New(\"divide by zero\") }\n\treturn a / b, nil\n}\nq := divide(6, 3)\nq", value: "2"},
		{name: "error that the cell takes", code: "_, err := divide(1, 0)\nerr.Error()", value: "divide by zero"},
		{name: "error that the cell ignores", code: "_, _ = divide(1, 0)"},
		{name: "var of no name", code: "var _ int"},
		{name: "println is noted", code: `println("p")`, out: "line 1: println writes to standard error, which tools take for a failure; write fmt.Println\n", stderr: "p\n"},
		{name: "unused error is noted", code: "z, problem := divide(4, 2)\nz", value: "2", out: "line 1: problem is assigned but not used in this cell; without the assignment, an error ends the cell\n"},
		{name: "uncalled main is noted", code: "package main\nimport \"fmt\"\nfunc main() { fmt.Println(x) }", out: "line 3: a cell does not call main: write its statements without func main, or main() in the last line\n"},
		{name: "called main", code: "func main() { fmt.Println(x) }\nmain()", out: "7\n"},
		{name: "shell", code: "$echo hello", out: "hello\n"},
		{name: "shell, then Go", code: "$echo hello\nx", value: "7", out: "hello\n"},
		{name: "exit code", code: "$exit 3", out: "exit code 3\n"},
		{name: "signal", code: "$kill -9 $$", out: "ended by signal: killed\n"},
		{name: "shell writes to standard error", code: "$echo e >&2", stderr: "e\n"},
		{name: "recover", code: "func safe() (s string) {\n\tdefer func() { s = fmt.Sprint(recover()) }()\n\tpanic(\"p\")\n}\nsafe()", value: "p"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := evaluate(t, c.code)
			if want := (result{value: c.value, out: c.out, stderr: c.stderr}); got != want {
				t.Errorf("cell\n%s\nshows %+v, want %+v", c.code, got, want)
			}
		})
	}
}

func TestErrorsOfCells(t *testing.T) {
	if r := evaluate(t, "import (\"fmt\"; \"errors\"; \"log\"; \"runtime\"; \"os\")\nfunc fails() error { return errors.New(\"no space\") }"); r.err != nil {
		t.Fatal(r.err)
	}
	for _, c := range []struct {
		name, code, want string
	}{
		{"returned", "x := 1\n_ = x\nfails()", "line 3, column 1: no space"},
		{"compiled", "a := 1\nb := a + \"b\"", `line 2, column 6: invalid operation: a + "b" (mismatched types int and untyped string)`},
		{"syntax", "f := func() {\n\tif true\n\t{\n\t}\n}", "line 2"},
		{"bracket", "fmt.Println(1", "line 1, column 12"},
		{"division", "a := 1\nfor b := 1; ; b-- {\n\ta = a / b\n}", "line 3, column 2: runtime error: integer divide by zero"},
		{"index", "list := []int{1}\nn := 3\nlist[n]", "line 3, column 1: runtime error: index out of range"},
		{"index from the end", "list := []int{1}\nn := 1\n_ = list[-n]", "; the last element of x is x[len(x)-1]"},
		{"nil map", "var m map[string]int\nm[\"a\"] = 1", "; m is nil: write m = make(map[string]int)"},
		{"in a function", "func second(l []int) int {\n\treturn l[1]\n}\nsecond(nil)", "line 2, column 9: runtime error: index out of range (called from line 4)"},
		{"panic", "panic(\"stop\")", "line 1, column 1: stop"},
		{"log.Fatal", "log.Fatal(\"the end\")", "the end"},
		{"os.Exit", "os.Exit(2)", "2"},
		{"Goexit", "runtime.Goexit()", "runtime.Goexit"},
		{"unknown package", "import \"example.org/none\"", "example.org/none"},
		{"unknown command", "%quit", "line 1, column 1: unknown command %quit"},
		{"folder", "%cd /no/such/folder", "line 1, column 1: change folder: chdir /no/such/folder"},
		{"number of results", "func three() (int, int, error) { return 1, 2, nil }\nv := three()", "returns 2 values and an error, but the cell uses 1: assign the values to 2 variables"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := evaluate(t, c.code)
			if r.err == nil || !strings.Contains(r.err.Error(), c.want) {
				t.Fatalf("cell\n%s\nends with %v, want %q", c.code, r.err, c.want)
			}
			if r := evaluate(t, "1 + 1"); r.err != nil || r.value != "2" {
				t.Errorf("the next cell shows %+v", r)
			}
		})
	}
}

// TestFailedCell checks that the variables that a failed cell declared after the failure are not declared, and
// that earlier values stay.
func TestFailedCell(t *testing.T) {
	for _, code := range []string{"import \"errors\"", "kept := 1\nchanged := 1"} {
		if r := evaluate(t, code); r.err != nil {
			t.Fatal(r.err)
		}
	}
	if r := evaluate(t, "before := 2\nchanged = 3\npanic(\"p\")\nafter := 4\nkept := \"text\""); r.err == nil {
		t.Fatal("the cell did not fail")
	}
	for code, want := range map[string]string{"before": "2", "changed": "3", "kept": "1"} {
		if r := evaluate(t, code); r.err != nil || r.value != want {
			t.Errorf("%s is %+v, want %s", code, r, want)
		}
	}
	if r := evaluate(t, "after"); r.err == nil {
		t.Errorf("the variable after the failure is %+v", r)
	}
}

// TestInterruptedCell interrupts cells that run, sleep, wait and compute in the shell.
func TestInterruptedCell(t *testing.T) {
	if r := evaluate(t, "import (\"fmt\"; \"time\"; \"sync\"; \"lockstep/pkg/notebook\")\nvar wg sync.WaitGroup\nwg.Add(1)\nn := 0"); r.err != nil {
		t.Fatal(r.err)
	}
	for _, code := range []string{
		"for { n++ }", "func endless() { for { n++ } }\nendless()", "time.Sleep(time.Hour)", "<-make(chan int)", "make(chan int) <- 1", "select {}",
		"wg.Wait()", "<-notebook.Context().Done()\nn = -1", "for range make(chan int) {}", "$sleep 1000",
	} {
		t.Run(code, func(t *testing.T) {
			done := make(chan result)
			number := globalKernel.session.CellNumber()
			go func() { done <- evaluate(t, code) }()
			for globalKernel.session.CellNumber() == number { // the cell has not begun
				runtime.Gosched()
			}
			globalKernel.session.Interrupt()
			select {
			case r := <-done:
				if r.err == nil || r.err.Error() != "interrupted" {
					t.Errorf("the cell shows %+v, want the error interrupted", r)
				}
			case <-time.After(time.Minute):
				t.Fatal("the interrupt had no effect in a minute")
			}
			if r := evaluate(t, "1 + 1"); r.err != nil || r.value != "2" {
				t.Errorf("the next cell shows %+v", r)
			}
		})
	}
	if r := evaluate(t, "n >= 0"); r.value != "true" {
		t.Error("a statement after an interrupted one ran")
	}
}

func TestGoroutines(t *testing.T) {
	if r := evaluate(t, "import (\"context\"; \"sync\"; \"time\")\nvar all sync.WaitGroup\nended, cancel := context.WithCancel(context.Background())\ncancel()"); r.err != nil {
		t.Fatal(r.err)
	}
	for _, start := range []string{"go func() {", "all.Go(func() {", "time.AfterFunc(0, func() {", "context.AfterFunc(ended, func() {"} {
		end := map[bool]string{true: "}()", false: "})"}[strings.HasPrefix(start, "go ")]
		r := evaluate(t, start+"\n\tvar m map[string]int\n\tm[\"a\"] = 1\n"+end+"\nselect {}")
		if r.err == nil || !strings.Contains(r.err.Error(), "line 3, column 2: assignment to entry in nil map (in a goroutine)") {
			t.Errorf("a panic in a goroutine that %s starts ends the cell with %v, want the line of the panic", start, r.err)
		}
	}
}

func TestExplainPanic(t *testing.T) {
	for text, want := range map[string]string{
		"reflect: slice index out of range":                          "runtime error: index out of range",
		"reflect: string index out of range":                         "runtime error: index out of range",
		"reflect.MakeSlice: negative len":                            "runtime error: make: negative size",
		"reflect: call of reflect.Value.Int on zero Value":           "runtime error: invalid memory address or nil pointer dereference",
		"runtime error: integer divide by zero":                      "runtime error: integer divide by zero",
		"reflect: call of reflect.Value.Elem on int Value":           "reflect: call of reflect.Value.Elem on int Value",
		"the reflection of a mirror is an index out of the ordinary": "the reflection of a mirror is an index out of the ordinary",
	} {
		if got := explainPanic(text); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
}

func TestFormatTrace(t *testing.T) {
	var c cellSources
	c.add(3, "a := 1\nb := 2\nc := 3\nd := 4")
	c.add(4, "f()")
	name, lines := c.formatTrace(&cellError{name: namePanic, text: "text", places: []cellPosition{{3, 2, 1}}})
	got := strings.Join(lines[1:], "\n")
	want := "Cell " + green + "In[3], line 2" + plain + "\n" +
		green + "      1" + plain + " a := 1\n" +
		green + "----> 2" + plain + " b := 2\n" +
		green + "      3" + plain + " c := 3\n" +
		green + "      4" + plain + " d := 4\n\n" +
		red + "panic" + plain + ": text"
	if name != namePanic || got != want {
		t.Errorf("got %s\n%s\nwant\n%s", name, got, want)
	}
	if got := c.formatPosition(cellPosition{4, 1, 2}); got != "line 1, column 2" {
		t.Errorf("a position in the current cell is %q", got)
	}
	if got := c.formatPosition(cellPosition{3, 1, 2}); got != "line 1, column 2 of cell [3]" {
		t.Errorf("a position in another cell is %q", got)
	}
}

// TestAbort lets requests arrive while a failed cell is answered: those that wait are aborted, and the
// first one after them is not.
func TestAbort(t *testing.T) {
	arriving := []int{1, 2, 5, 5, 5}
	q := requestQueue{taken: 7, waiting: func() int {
		n := arriving[0]
		if len(arriving) > 1 {
			arriving = arriving[1:]
		}
		return n
	}}
	q.abort()
	if q.abortUntil != 7+5 {
		t.Errorf("aborts until request %d, want 12", q.abortUntil)
	}
}

func TestStopsOnError(t *testing.T) {
	for _, c := range []struct {
		content map[string]interface{}
		want    bool
	}{
		{map[string]interface{}{}, true},
		{map[string]interface{}{"stop_on_error": true}, true},
		{map[string]interface{}{"stop_on_error": false}, false},
		{map[string]interface{}{"silent": true}, false},
	} {
		var m ComposedMsg
		m.Content = c.content
		if got := stopsOnError(msgReceipt{Msg: m}); got != c.want {
			t.Errorf("%v: got %v, want %v", c.content, got, c.want)
		}
	}
}
