package kernels

import (
	"fmt"
	"strings"
	"testing"
)

// What ends a Go program ends the cell with its message, and the kernel and its
// variables stay.
func TestExitEndsTheCell(t *testing.T) {
	t.Parallel()
	const prepare = "import (\"fmt\"; \"io\"; \"log\"; \"os\"; \"runtime\"; \"sort\"; \"sync\"; \"syscall\"; \"time\")\nlog.SetFlags(0)\nkept := 1\nlogger := log.New(os.Stdout, \"mine: \", 0)"
	const notReached = "\nfmt.Println(\"not reached\")"
	table := [][2]string{{prepare, ""}}
	for _, row := range [][2]string{
		{"fmt.Println(\"a\")\nlog.Fatal(\"no \", \"data\")", "stdout \"a\\n\"\nstderr \"no data\\n\"\nerror \"line 2, column 1: log.Fatal: no data\""},
		{`log.Fatalf("%d epochs", 3)`, `stderr "3 epochs\n"` + "\n" + `error "line 1, column 1: log.Fatal: 3 epochs"`},
		{`log.Fatalln("a", 1)`, `stderr "a 1\n"` + "\n" + `error "line 1, column 1: log.Fatal: a 1"`},
		{`log.Panic("no data")`, `stderr "no data\n"` + "\n" + `error "line 1, column 1: no data"`},
		{`logger.Fatalf("%d epochs", 3)`, `stdout "mine: 3 epochs\n"` + "\n" + `error "line 1, column 1: log.Fatal: 3 epochs"`},
		{`os.Exit(3)`, `error "line 1, column 1: os.Exit(3)"`},
		{`os.Exit(0)`, `error "line 1, column 1: os.Exit(0)"`},
		{`syscall.Exit(1)`, `error "line 1, column 1: os.Exit(1)"`},
		{`runtime.Goexit()`, `error "line 1, column 1: runtime.Goexit"`},
		{"func leave() {\n\tdefer fmt.Println(\"deferred\", recover())\n\tos.Exit(4)\n}\nleave()", "stdout \"deferred <nil>\\n\"\nerror \"line 3, column 2: os.Exit(4) (called from line 5)\""},
		{"end := os.Exit\nend(5)", `error "line 2, column 1: os.Exit(5)"`},
		{"func try() { defer func() { fmt.Println(recover()) }(); log.Fatal(\"x\") }\ntry()", "stdout \"<nil>\\n\"\nstderr \"x\\n\"\nerror \"line 1, column 57: log.Fatal: x (called from line 2)\""},
		// Functions that compiled code calls.
		{"sort.Slice([]int{2, 1}, func(i, j int) bool { os.Exit(6); return true })", `error "line 1, column 47: os.Exit(6)"`},
		{"type Shy struct{}\nfunc (Shy) Write(b []byte) (int, error) { runtime.Goexit(); return len(b), nil }\nio.WriteString(Shy{}, \"x\")", `error "line 2, column 43: runtime.Goexit (called from line 3)"`},
		// Goroutines.
		{"go os.Exit(7)\ntime.Sleep(time.Minute)", `error "os.Exit(7) (in a goroutine)"`},
		{"go logger.Fatal(\"y\")\nselect {}", "stdout \"mine: y\\n\"\nerror \"log.Fatal: y (in a goroutine)\""},
		{"var wg sync.WaitGroup\nwg.Go(func() { log.Fatal(\"z\") })\nwg.Wait()\ntime.Sleep(time.Minute)", "stderr \"z\\n\"\nerror \"line 2, column 16: log.Fatal: z (in a goroutine)\""},
	} {
		table = append(table, [2]string{row[0] + notReached, row[1]}, [2]string{"kept++\nkept", fmt.Sprintf("execute_result \"%d\"", len(table)/2+2)})
	}
	table = append(table,
		// A goroutine that ends itself is no failure.
		[2]string{"wg.Add(1)\ngo func() { defer wg.Done(); defer func() { fmt.Println(recover()) }(); runtime.Goexit() }()\nwg.Wait()", `stdout "<nil>\n"`},
		// Functions, deferred calls, recover and interrupts work as before.
		[2]string{"func caught() (s string) { defer func() { s = fmt.Sprint(recover()) }(); panic(\"p\") }\ncaught()", `execute_result "p"`},
		[2]string{"type Page struct{}\nfunc (Page) HTML() string { os.Exit(8); return \"\" }\nPage{}", `stderr "show value: os.Exit(8)\n"`},
		[2]string{"1 + 1", `execute_result "2"`},
	)
	checkCells(t, table)

	a := drive(t, step{Execute: prepare}, step{Execute: "runtime.Goexit()"}, step{Execute: "fmt.Println(\"go\")\nfor { kept++ }", InterruptOn: "go"}, step{Execute: "func f() int { return 3 }\nf()"})
	if got := a[2].show(); !strings.HasSuffix(got, `error "interrupted"`) {
		t.Errorf("after runtime.Goexit an interrupted cell shows\n%s", got)
	}
	if got := a[3].show(); got != `execute_result "3"` {
		t.Errorf("after the interrupt a cell shows %s", got)
	}
}
