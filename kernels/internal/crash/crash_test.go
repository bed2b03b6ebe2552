package crash

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// endings are ways in which a process ends that nothing in it can catch.
var endings = map[string]func(*File){
	"panic in a goroutine": func(f *File) { f.Begin(7); go panic("no data"); select {} },
	"concurrent map write": func(f *File) {
		f.Begin(7)
		m := map[int]int{}
		for range 4 {
			go func() {
				for i := 0; ; i++ {
					m[i%10]++
				}
			}()
		}
		select {}
	},
	"stack overflow": func(f *File) { f.Begin(7); overflow() },
	"stack overflow with 100,000 goroutines": func(f *File) {
		f.Begin(7)
		var started sync.WaitGroup
		for range 100_000 {
			started.Add(1)
			go func() { started.Done(); select {} }()
		}
		started.Wait()
		overflow()
	},
	"out of memory": func(f *File) { f.Begin(7); huge = make([]byte, 1<<47-1<<20) },
	"unlock":        func(f *File) { f.Begin(7); var mu sync.Mutex; mu.Unlock() },
	// Another thread may get the signal. If nothing else ran meanwhile, the runtime would report a deadlock.
	"signal":             func(f *File) { f.Begin(7); _ = syscall.Kill(os.Getpid(), syscall.SIGABRT); time.Sleep(time.Minute) },
	"panic after a cell": func(f *File) { f.Begin(7); f.End(7); panic("late") },
	"exit":               func(f *File) { f.Begin(7); os.Exit(3) },
	"exit after a cell":  func(f *File) { f.Begin(7); f.End(7); os.Exit(3) },
	"own message":        func(f *File) { f.Begin(12345678); f.WriteCause("memory limit: too much"); os.Exit(1) },
	"in order":           func(f *File) { f.Begin(7); _ = f.Remove(); os.Exit(0) },
}

var huge []byte

// overflow ends this process by a stack overflow.
func overflow() {
	debug.SetMaxStack(1 << 20)
	var g func(int) int
	g = func(n int) int { return g(n+1) + 1 }
	g(0)
}

// TestMain runs one of the endings where a test has started this program for it.
func TestMain(m *testing.M) {
	if connection := os.Getenv("CRASH_TEST_CONNECTION"); connection != "" {
		f, _, err := Open(connection)
		if err != nil {
			panic(err)
		}
		endings[os.Getenv("CRASH_TEST_ENDING")](f)
	}
	os.Exit(m.Run())
}

func TestNextKernelReadsHowTheFormerEnded(t *testing.T) {
	for name, want := range map[string]string{
		"panic in a goroutine":                   "the kernel ended while cell [7] ran: panic: no data; its variables are lost",
		"concurrent map write":                   "the kernel ended while cell [7] ran: fatal error: several goroutines used a map at once, and one of them wrote to it; its variables are lost",
		"out of memory":                          "the kernel ended while cell [7] ran: fatal error: out of memory; its variables are lost",
		"unlock":                                 "the kernel ended while cell [7] ran: fatal error: a mutex was unlocked that was not locked; its variables are lost",
		"signal":                                 "the kernel ended while cell [7] ran: SIGABRT: abort; PC=",
		"stack overflow":                         "the kernel ended while cell [7] ran: fatal error: stack overflow: a function calls itself without end; its variables are lost",
		"stack overflow with 100,000 goroutines": "the kernel ended while cell [7] ran: fatal error: stack overflow: a function calls itself without end; its variables are lost",
		"panic after a cell":                     "the kernel ended after cell [7]: panic: late; its variables are lost",
		"exit":                                   "the kernel ended while cell [7] ran without a message: ",
		"exit after a cell":                      "",
		"own message":                            "the kernel ended while cell [12345678] ran: memory limit: too much; its variables are lost",
		"in order":                               "",
	} {
		t.Run(name, func(t *testing.T) {
			connection := filepath.Join(t.TempDir(), "kernel-1.json")
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), "CRASH_TEST_CONNECTION="+connection, "CRASH_TEST_ENDING="+name)
			out, err := cmd.CombinedOutput()
			if len(out) > maxDump+128<<10 { // and what the pipe to the recorder holds
				t.Errorf("the process wrote %d bytes", len(out))
			}
			if strings.HasPrefix(name, "stack overflow") && !strings.Contains(string(out), "goroutine stack exceeds") {
				t.Errorf("the output does not begin with the cause: %.1000s", out)
			}
			if info, err := os.Stat(crashPath(connection)); err == nil && info.Size() > maxDump+1<<10 {
				t.Errorf("the crash file has %d bytes", info.Size())
			}
			if (err != nil) != (name != "in order") {
				t.Fatalf("the process ended with %v:\n%s", err, out)
			}
			f, former, err := Open(connection)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasPrefix(former, want) || want == "" && former != "" {
				t.Errorf("the next kernel reads %q, want %q", former, want)
			}
			if err := f.Remove(); err != nil {
				t.Error(err)
			}
			if left, err := os.ReadDir(filepath.Dir(connection)); len(left) > 0 || err != nil {
				t.Errorf("%v is left (%v)", left, err)
			}
		})
	}
}

func TestFilesThatNobodyReadsAreRemoved(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{".lockstep-gone.crash", ".lockstep-lives.crash", "lives.json", ".lockstep-plain.crash", "plain", "other"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f, _, err := Open(filepath.Join(dir, "kernel-1.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Remove(); err != nil {
		t.Fatal(err)
	}
	var left []string
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		left = append(left, e.Name())
	}
	if want := []string{".lockstep-lives.crash", ".lockstep-plain.crash", "lives.json", "other", "plain"}; err != nil || !slices.Equal(left, want) {
		t.Errorf("%v is left (%v), want %v", left, err, want)
	}
}

func TestFolderThatCannotBeWritten(t *testing.T) {
	f, former, err := Open(filepath.Join(t.TempDir(), "none", "kernel-1.json"))
	if f != nil || former != "" || err == nil {
		t.Fatalf("Open gives %v, %q, %v", f, former, err)
	}
	f.Begin(1)
	f.End(1)
	f.WriteCause("x")
	if err := f.Remove(); err != nil {
		t.Error(err)
	}
}
