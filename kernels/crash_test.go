package kernels

import (
	"fmt"
	"strings"
	"testing"
)

// exitInCompiledCode is a cell whose end the kernel cannot prevent.
const exitInCompiledCode = "import \"flag\"\nflags := flag.NewFlagSet(\"f\", flag.ExitOnError)\nflags.Parse([]string{\"-unknown\"})"

// What nothing can catch ends the kernel, and the next one shows the cause before
// the output of its first cell, and then no more.
func TestNextKernelShowsHowTheFormerEnded(t *testing.T) {
	var steps []step
	var want []string
	for _, row := range [][2]string{
		{
			"import \"time\"\nm := map[int]int{}\nfor g := 0; g < 4; g++ { go func() { for i := 0; ; i++ { m[i%10] = i } }() }\ntime.Sleep(time.Minute)",
			"while cell [2] ran: fatal error: several goroutines used a map at once, and one of them wrote to it; its variables are lost",
		},
		{
			"import (\"context\"; \"os/exec\")\nctx, cancel := context.WithCancel(context.Background())\nc := exec.CommandContext(ctx, \"sleep\", \"60\")\nc.Cancel = func() error { panic(\"in a callback\") }\nc.Start()\ncancel()\nc.Wait()",
			"while cell [2] ran: panic: in a callback; its variables are lost",
		},
		{"huge := make([]byte, 1<<47)", "while cell [2] ran: fatal error: out of memory; its variables are lost"},
		{exitInCompiledCode, "while cell [2] ran without a message: it was killed, by the system for lack of memory or by a user, or compiled code called os.Exit or log.Fatal; its variables are lost"},
	} {
		steps = append(steps, step{Execute: "0"}, step{Execute: row[0], Dies: true}, step{Restart: true})
		want = append(want, row[1])
	}
	steps = append(steps, cells("import \"fmt\"\nfmt.Println(\"out\")", "fmt.Println(\"out\")")...)
	a := drive(t, steps...)
	for i, text := range want {
		if got, want := a[3*i+3].collected(), fmt.Sprintf("stdout %q", "the kernel ended "+text+"\n"); got != want+"\nexecute_result \"0\"" && !strings.HasPrefix(got, strings.TrimSuffix(want, `"`)+`out\n"`) {
			t.Errorf("after %q the next kernel shows\n%s\nwant\n%s", steps[3*i+1].Execute, got, want)
		}
	}
	last := a[len(a)-2:]
	if m := last[0].Messages; len(m) == 0 || !strings.HasPrefix(m[0].Content.Text, "the kernel ended") {
		t.Errorf("the first message of the next kernel is not how the former ended: %s", last[0].show())
	}
	if got := last[1].show(); got != `stdout "out\n"` {
		t.Errorf("the second cell of the next kernel shows %s", got)
	}
}

// At the limit the cell is interrupted and its variables stay. If memory still
// grows, because compiled code takes no notice, the kernel ends itself.
func TestMemoryLimit(t *testing.T) {
	t.Setenv("LOCKSTEP_MEMORY", "400MiB")
	const fill = "for { list = append(list, bytes.Repeat([]byte{1}, 1<<20)) }"
	a := drive(t,
		step{Execute: "import (\"bytes\"; \"encoding/csv\"; \"os/exec\")\nlist := [][]byte{}"},
		step{Execute: fill},
		step{Execute: "len(list) > 100"},
		step{Execute: "list = nil"},
		step{Execute: fill},
		step{Execute: "list = nil"},
		step{Execute: "lines := exec.Command(\"sh\", \"-c\", `line=$(head -c 9999 /dev/zero | tr '\\0' x); for i in $(seq 200); do yes $line | head -n 1000; sleep 0.1; done`)\n" +
			"pipe := lines.StdoutPipe()\nlines.Start()\ncsv.NewReader(pipe).ReadAll()", Dies: true},
		step{Restart: true},
		step{Execute: "1"},
	)
	for _, i := range []int{1, 4} {
		got := a[i].show()
		if !strings.HasPrefix(got, `error "memory limit: the kernel uses `) || !strings.HasSuffix(got, `; the limit is 400 MiB, set by LOCKSTEP_MEMORY"`) {
			t.Errorf("cell %d, which fills the memory, shows\n%s", i, got)
		}
	}
	if got := a[2].show(); got != `execute_result "true"` {
		t.Errorf("after the limit the variable is lost: %s", got)
	}
	if got := a[8].show(); !strings.HasPrefix(got, `stdout "the kernel ended while cell [7] ran: memory limit: the kernel used `) ||
		!strings.Contains(got, "and exited, because its memory use still grew 2s after the cell was interrupted") {
		t.Errorf("after the kernel ended itself the next one shows\n%s", got)
	}
}
