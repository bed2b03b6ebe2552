package kernels

import (
	"strings"
	"testing"
)

// Whatever a cell waits for in Go's own words ends at an interrupt, at the top
// level and in a function of an earlier cell, and the session lives on.
func TestInterruptEndsAWait(t *testing.T) {
	prepare := "import (\"fmt\"; \"sync\"; \"time\")\nkept := 42\nch := make(chan int)\nvar only <-chan int = ch\nfull := make(chan float64, 1)\nfull <- 1\nvar wg sync.WaitGroup\nwg.Add(1)\n" +
		"func waitFor(c chan int) int { fmt.Println(\"go\"); v, ok := <-c; if ok { return v }; return -1 }"
	waits := []string{
		"<-ch",
		"v, ok := <-ch",
		"<-only",
		"full <- 2",
		"for v := range ch { fmt.Println(v) }",
		"outer: for { for range ch { continue outer } }",
		"select { case v := <-ch: fmt.Println(v); case full <- float64(2): }",
		"select {}",
		"wg.Wait()",
		"var nothing chan int\n<-nothing",
		"waitFor(ch)",
		"<-time.After(time.Hour)",
	}
	steps := cells(prepare)
	for _, w := range waits {
		steps = append(steps, step{Execute: "fmt.Println(\"go\")\n" + w + "\nfmt.Println(\"not reached\")", InterruptOn: "go"})
		steps = append(steps, step{Execute: "kept"})
	}
	a := drive(t, steps...)
	for i, w := range waits {
		got := a[1+2*i]
		if got.InterruptedAt == nil {
			t.Errorf("%q ended before it was interrupted: %s", w, got.show())
			continue
		}
		if !strings.HasSuffix(got.show(), `error "interrupted"`) || strings.Contains(got.show(), "not reached") {
			t.Errorf("%q, interrupted, shows\n%s", w, got.show())
		}
		if late := got.Seconds - *got.InterruptedAt; late > 2 {
			t.Errorf("%q ended %.1f s after the interrupt", w, late)
		}
		if next := a[2+2*i].show(); next != `execute_result "42"` {
			t.Errorf("after %q the next cell shows %s", w, next)
		}
	}
}

// Channels do what they do in Go.
func TestChannels(t *testing.T) {
	t.Parallel()
	code := []string{
		"import (\"fmt\"; \"sync\"; \"time\"; \"golang.org/x/sync/errgroup\")",
		"import (\"fmt\"; \"sync\"; \"time\")\ntype Row struct { N int }\ntype Named chan Row\nc := make(Named, 3)\nc <- Row{1}\nc <- Row{2}\nclose(c)\nall := []int{}\nfor r := range c { all = append(all, r.N) }\nall",
		"v, ok := <-c\nfmt.Println(v.N, ok)",
		"f := make(chan float64, 2)\nf <- 1\nf <- 2.5\nx := (<-f) + (<-f)\nx",
		"any := make(chan interface{}, 2)\nany <- \"text\"\nany <- nil\na, b := <-any, <-any\nfmt.Println(a, b)",
		"type Speaker interface { Say() string }\ntype Dog struct{}\nfunc (d Dog) Say() string { return \"wuff\" }\n" +
			"s := make(chan Speaker, 1)\ns <- Dog{}\n(<-s).Say()",
		"n := make(chan int)\nvar wg sync.WaitGroup\nfor i := 0; i < 3; i++ { wg.Add(1); go func(k int) { defer wg.Done(); n <- k }(i) }\n" +
			"go func() { wg.Wait(); close(n) }()\nsum := 0\nfor k := range n { sum += k }\nwg.Wait()\nsum",
		"in := make(chan int, 9)\nfor i := 0; i < 9; i++ { in <- i }\nclose(in)\ngot := 0\n" +
			"outer: for v := range in { for j := 0; j < 2; j++ { if v == 2 { continue outer }; if v == 6 { break outer } }; got += v }\nfmt.Println(got, len(in))",
		"last := 0\nm := make(chan int, 2)\nm <- 3\nm <- 4\nclose(m)\nfor last = range m { last := last; last++ }\nlast",
		"select { case v := <-n: fmt.Println(\"closed\", v); case <-time.After(time.Minute): }",
		"select { case <-make(chan int): fmt.Println(\"no\"); default: fmt.Println(\"none\") }",
		"for i, r := range []int{7, 8} { for j, s := range map[string]int{\"a\": 1} { all = append(all, i, r, len(j), s) } }\nall",
		"word := \"\"\nfor _, r := range \"äb\" { word += string(r) + \";\" }\nword",
		// What is wrong is said as ever.
		"<-x", "x <- 1", "f <- \"text\"", "for a, b := range in { fmt.Println(a, b) }", "for range 3 {}",
		"var out chan<- int = n\n<-out", "var only <-chan int = n\nonly <- 1",
		"close(n)", "n <- 1",
	}
	want := []string{
		"golang.org/x/sync/errgroup",
		`execute_result "[1 2]"`, `stdout "0 false\n"`, `execute_result "3.5"`, `stdout "text <nil>\n"`, `execute_result "wuff"`, `execute_result "3"`,
		`stdout "13 2\n"`, `execute_result "4"`, `stdout "closed 0\n"`, `stdout "none\n"`, `execute_result "[1 2 0 7 1 1 1 8 1 1]"`, `execute_result "ä;b;"`,
		"expected a channel", "cannot send to non-channel type", "cannot use \\\"text\\\" (untyped string constant) as float64 value", "only one iteration variable", "cannot range over 3",
		"cannot receive from send-only channel", "cannot send to receive-only channel",
		"close of closed channel", "send on closed channel",
	}
	for i, a := range drive(t, cells(code...)...) {
		got := a.show()
		if exact := strings.HasPrefix(want[i], "stdout") || strings.HasPrefix(want[i], "execute"); exact && got != want[i] || !strings.Contains(got, want[i]) {
			t.Errorf("cell %q shows\n%s\nwant\n%s", code[i], got, want[i])
		}
	}
}

// A failure names the line where it happened, and the one that led there.
func TestWhereACellFails(t *testing.T) {
	t.Parallel()
	code := []string{
		"import \"fmt\"\nfunc quotient(a, b int) int {\n\tc := a + 1\n\treturn c / b\n}\nfunc twice(b int) int {\n\tif b == 0 {\n\t\treturn quotient(1, b)\n\t}\n\treturn 2 * quotient(2, b)\n}\nlist := []int{1}",
		"x := 1\ntwice(0)",
		"func at(i int) int {\n\treturn list[i]\n}\ny := 2\nat(y)",
		"z := 3\nfor i := 0; i < 9; i++ {\n\tz += list[i]\n}",
		"twice(1)\nzero := 0\n1 / zero",
		"a := 1\nb := 2\nquotient(1, 1)\nfmt.Println(a, b, 1 / zero)",
		"func deferring() {\n\tdefer fmt.Print()\n\tquotient(1, zero)\n}\n\ndeferring()",
	}
	want := []string{
		"",
		`error "line 2, column 1: integer divide by zero (line 4, column 9 of cell [1])"`,
		`error "line 2, column 9: index out of range (called from line 5)"`,
		`error "line 3, column 2: index out of range"`,
		`error "line 3, column 1: integer divide by zero"`,
		`error "line 4, column 1: integer divide by zero"`,
		`error "line 6, column 1: integer divide by zero (line 4, column 9 of cell [1])"`,
	}
	for i, a := range drive(t, cells(code...)...) {
		if got := strings.ReplaceAll(a.show(), "runtime error: ", ""); got != want[i] {
			t.Errorf("cell %q shows\n%s\nwant\n%s", code[i], got, want[i])
		}
	}
}

// TestClientLeaves: clients that ask something and disconnect before the answer, as a page that
// is closed or a server that is busy, do not end the kernel.
func TestClientLeaves(t *testing.T) {
	a := drive(t,
		step{Execute: "x := 42"},
		step{Leave: true},
		step{Execute: "x"},
	)
	wantCells(t, a[2:], "execute_result \"42\"")
}
