package notebook

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// shown is one call of a fake kernel's Display.
type shown struct {
	v      any
	id     string
	update bool
}

// kernel sets the hook of a fake kernel for the duration of a test.
func kernel(t *testing.T) (calls *[]shown, cancel context.CancelFunc) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	calls = new([]shown)
	SetHook(Hook{
		Context: func() context.Context { return ctx },
		Display: func(v any, id string, update bool) error {
			*calls = append(*calls, shown{v, id, update})
			return nil
		},
	})
	t.Cleanup(func() { SetHook(Hook{}); cancel() })
	return calls, cancel
}

// capture returns what f prints on standard output.
func capture(t *testing.T, f func()) string {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	old := os.Stdout
	os.Stdout = w
	f()
	os.Stdout = old
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	out, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func TestHookDecidesWhereWeAre(t *testing.T) {
	if InNotebook() {
		t.Fatal("a test runs in no notebook")
	}
	calls, cancel := kernel(t)
	if !InNotebook() {
		t.Error("with a hook we are in a notebook")
	}
	if err := Display("figure"); err != nil || len(*calls) != 1 || (*calls)[0] != (shown{"figure", "", false}) {
		t.Errorf("the kernel was asked for %v, %v", *calls, err)
	}
	if Context().Err() != nil {
		t.Error("the cell's context is cancelled")
	}
	cancel()
	if !errors.Is(Context().Err(), context.Canceled) {
		t.Error("an interrupt does not reach Context")
	}
	SetHook(Hook{})
	if InNotebook() {
		t.Error("the hook cannot be taken away")
	}
}

func TestDisplayInATerminalIsText(t *testing.T) {
	got := capture(t, func() {
		for _, v := range []any{"line\n", 3, fmt.Errorf("wrong")} {
			if err := Display(v); err != nil {
				t.Error(err)
			}
		}
		live := NewLive()
		for i := range 2 {
			if err := live.Show(i); err != nil {
				t.Error(err)
			}
		}
	})
	if want := "line\n3\nwrong\n0\n1\n"; got != want {
		t.Errorf("printed %q, want %q", got, want)
	}
}

func TestLiveReplacesItself(t *testing.T) {
	calls, _ := kernel(t)
	a, b := NewLive(), NewLive()
	for _, err := range []error{a.Show(1), a.Show(2), b.Show(3)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	c := *calls
	if len(c) != 3 || c[0].update || !c[1].update || c[2].update {
		t.Fatalf("the kernel was asked for %v", c)
	}
	if c[0].id == "" || c[0].id != c[1].id || c[0].id == c[2].id {
		t.Errorf("ids are %q, %q, %q: want two equal and one other", c[0].id, c[1].id, c[2].id)
	}
}

func TestTerminalHasOneContext(t *testing.T) {
	if ctx := Context(); ctx != Context() || ctx.Err() != nil {
		t.Error("two calls give two contexts, or a cancelled one")
	}
}

// TestInterruptInATerminal starts the test binary as the program that it interrupts.
func TestInterruptInATerminal(t *testing.T) {
	if os.Getenv("LOCKSTEP_TEST_INTERRUPT") == "1" {
		ctx := Context()
		fmt.Println("ready")
		<-ctx.Done()
		fmt.Println("cancelled")
		time.Sleep(time.Minute) // a program that does not stop when asked to
		return
	}
	for _, first := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		t.Run(first.String(), func(t *testing.T) { testInterrupt(t, first) })
	}
}

func testInterrupt(t *testing.T, first syscall.Signal) {
	// Tests that run under nohup ignore SIGHUP, and their children would too. If a process
	// handles a signal, its children start with the default action.
	handled := make(chan os.Signal, 1)
	signal.Notify(handled, first)
	defer signal.Stop(handled)
	cmd := exec.Command(os.Args[0], "-test.run=^TestInterruptInATerminal$")
	cmd.Env = append(os.Environ(), "LOCKSTEP_TEST_INTERRUPT=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	scan := bufio.NewScanner(out)
	for i, want := range []string{"ready", "cancelled"} {
		if !scan.Scan() || scan.Text() != want {
			t.Errorf("program says %q, want %q", scan.Text(), want)
		}
		// The default action may not be back at once after the first; the
		// kernel merges signals that are sent again.
		next := first
		if i > 0 && first == syscall.SIGHUP {
			time.Sleep(50 * time.Millisecond)
			if err := cmd.Process.Signal(first); err != nil { // a second hangup ends nothing
				t.Fatal(err)
			}
			time.Sleep(50 * time.Millisecond)
		}
		if i > 0 {
			next = syscall.SIGINT
		}
		if err := cmd.Process.Signal(next); err != nil {
			t.Fatal(err)
		}
	}
	again := time.AfterFunc(time.Second, func() { _ = cmd.Process.Signal(os.Interrupt) })
	defer again.Stop()
	err = cmd.Wait()
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || !status.Signaled() || status.Signal() != syscall.SIGINT {
		t.Errorf("after a second interrupt the program ended with %v, want it killed by SIGINT", err)
	}
}

// lines is a progressOutput that records its lines. A line is due if the time since the last one
// is at least every.
type lines struct {
	every time.Duration
	got   []string
	last  []bool
}

func (l *lines) isDue(since time.Duration, _ bool) bool { return since >= l.every }
func (l *lines) showLine(s string, last bool) {
	l.got, l.last = append(l.got, s), append(l.last, last)
}

func TestProgressText(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &lines{}
		p := newProgress("epoch", 4, l, time.Now)
		time.Sleep(10 * time.Second)
		p.Set(1, "loss 0.5")
		time.Sleep(10 * time.Second)
		p.Set(2, "")
		p.Set(9, "too many") // a count above the total must not overflow the bar
		p.Done("IoU 0.82")
		p.Set(3, "after the end")
		p.Done("again")
		want := []string{
			"epoch [........................] 0/4 0:00",
			// 10 s for the first of four leave 30 s for the others.
			"epoch [######..................] 1/4 0:10, 0:30 left  loss 0.5",
			"epoch [############............] 2/4 0:20, 0:20 left",
			"epoch [########################] 9/4 0:20  too many",
			"epoch [########################] 9/4 0:20  IoU 0.82",
		}
		if got := strings.Join(l.got, "\n"); got != strings.Join(want, "\n") {
			t.Errorf("lines are\n%s\nwant\n%s", got, strings.Join(want, "\n"))
		}
		for i, last := range l.last {
			if last != (i == len(l.last)-1) {
				t.Errorf("line %d says last = %v", i, last)
			}
		}
	})
}

func TestProgressOfUnknownTotal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &lines{}
		p := newProgress("files", 0, l, time.Now)
		time.Sleep(3700 * time.Second)
		p.Set(12, "")
		p.Done("")
		if got := strings.Join(l.got, "\n"); got != "files 0 0:00\nfiles 12 1:01:40\nfiles 12 1:01:40" {
			t.Errorf("lines are\n%s", got)
		}
	})
}

// work shows the progress of a thousand steps of 20 ms each.
func work(show progressOutput) {
	p := newProgress("step", 1000, show, time.Now)
	for i := range 1000 {
		time.Sleep(20 * time.Millisecond)
		p.Set(i+1, "")
	}
	p.Done("done")
}

func TestProgressIsThrottled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls, _ := kernel(t)
		work(&notebookCellOutput{live: NewLive()})
		// One line at the start, one every 13 steps (260 ms is the first
		// multiple of 20 ms above 250 ms), and the last.
		if n, want := len(*calls), 1+1000/13+1; n != want {
			t.Errorf("a cell gets %d lines, want %d", n, want)
		}
		for i, c := range *calls {
			if c.update != (i > 0) || strings.ContainsAny(c.v.(string), "\r\n\x1b") {
				t.Errorf("line %d is %+v", i, c)
			}
		}
		var file bytes.Buffer
		work(fileOutput{&file})
		// The start, ten tenths, and the last.
		if n := strings.Count(file.String(), "\n"); n != 12 || strings.ContainsAny(file.String(), "\r\x1b") {
			t.Errorf("a file gets %d lines, want 12:\n%s", n, &file)
		}
	})
}

func TestProgressOfSlowWorkIsSeenInAFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var file bytes.Buffer
		p := newProgress("step", 1000, fileOutput{&file}, time.Now)
		for i := range 60 { // one minute, 6 % of the work
			time.Sleep(time.Second)
			p.Set(i+1, "")
		}
		// The start, and one line each half minute.
		if n := strings.Count(file.String(), "\n"); n != 3 {
			t.Errorf("a file gets %d lines, want 3:\n%s", n, &file)
		}
	})
}

func TestProgressInATerminalFitsTheLine(t *testing.T) {
	var out bytes.Buffer
	s := &terminalOutput{w: &out, width: func() int { return 20 }}
	s.showLine("époque [####....] 1/2", false)
	s.showLine("short", true)
	// 19 characters are left of 21: the last column stays free.
	if want := "\répoque [####....] 1\x1b[K\rshort\x1b[K\n"; out.String() != want {
		t.Errorf("printed %q, want %q", out.String(), want)
	}
}

func TestSurfaceFollowsThePlace(t *testing.T) {
	old := os.Stderr
	defer func() { os.Stderr = old }()
	_, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	os.Stderr = w
	if s, ok := newProgressOutput().(fileOutput); !ok || s.w != w {
		t.Errorf("a pipe gets a %T", newProgressOutput())
	}
	kernel(t)
	if _, ok := newProgressOutput().(*notebookCellOutput); !ok {
		t.Errorf("a cell gets a %T", newProgressOutput())
	}
}
