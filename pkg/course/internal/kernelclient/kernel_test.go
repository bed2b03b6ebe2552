package kernelclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if kernel := os.Getenv("KERNELCLIENT_TEST_KERNEL"); kernel != "" { // the process that TestClientIsKilled kills
		k, err := Start(context.Background(), kernel, "", os.Environ())
		if err == nil {
			_, err = k.Execute(context.Background(), os.Getenv("KERNELCLIENT_TEST_CODE"))
		}
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

// builtKernel returns the path of the kernel, which LOCKSTEP_KERNEL_DIR or go run ./kernels/build provides.
func builtKernel(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("LOCKSTEP_KERNEL_DIR")
	if dir == "" {
		dir = filepath.Join("..", "..", "..", "..", "kernels", ".build", "bin")
	}
	path, err := filepath.Abs(filepath.Join(dir, "lockstep-kernel"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Skip("kernel not built: run go run ./kernels/build")
	}
	return path
}

// startKernel starts a kernel in a folder of the test's own, until the end of the test.
func startKernel(t *testing.T) *Kernel {
	t.Helper()
	k, err := Start(t.Context(), builtKernel(t), t.TempDir(), os.Environ())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := k.Close(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(k.folder); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("Close leaves %s (%v)", k.folder, err)
		}
	})
	return k
}

// run runs a cell that must end by itself, and returns a line per output: its type, then its text, data or error.
func run(t *testing.T, k *Kernel, code string) (Result, string) {
	t.Helper()
	res, err := k.Execute(t.Context(), code)
	if err != nil {
		t.Fatalf("%s: %v", code, err)
	}
	return res, describe(t, res)
}

func describe(t *testing.T, res Result) string {
	t.Helper()
	var lines []string
	for _, raw := range res.Outputs {
		var o struct {
			Type, Name, Text, Ename, Evalue string
			OutputType                      string `json:"output_type"`
			Data                            map[string]any
			Metadata                        *map[string]any
			Count                           *int `json:"execution_count"`
		}
		if err := json.Unmarshal(raw, &o); err != nil {
			t.Fatal(err)
		}
		line := o.OutputType + " " + o.Name + o.Text + o.Evalue
		if o.Data != nil {
			line += fmt.Sprint(o.Data["text/plain"])
		}
		if (o.Metadata != nil) != (o.Data != nil) || (o.Count != nil) != (o.OutputType == "execute_result") {
			t.Errorf("nbformat does not allow the output %s", raw)
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "|")
}

func TestExecute(t *testing.T) {
	t.Parallel()
	k := startKernel(t)
	for i, c := range []struct{ code, value, want string }{
		{"x := 20\nx + 1", "21", "execute_result 21"},
		{"import \"fmt\"\nfmt.Println(x)\nfmt.Println(\"more\")", "", "stream stdout20\nmore\n"},
		{"x / (x - 20)", "", "error line 1, column 1: runtime error: integer divide by zero"},
		{"x", "20", "execute_result 20"}, // the session goes on
		{"undefined", "", "error line 1, column 1: undefined identifier: undefined"},
		{"import \"lockstep/pkg/notebook\"\nlive := notebook.NewLive()\nlive.Show(\"half\")\nnotebook.Display(\"between\")\nlive.Show(\"whole\")", "", "display_data whole|display_data between"},
		{"var name string\nfmt.Scan(&name)", "", "stream stderrread input: the front-end does not allow input; set the value in the cell\n|error line 2, column 1: read input: the front-end does not allow input; set the value in the cell"},
		{"import \"os\"\nos.Exit(3)", "", "error line 2, column 1: os.Exit(3)"},
	} {
		res, got := run(t, k, c.code)
		if got != c.want || res.Value != c.value || res.Count != i+1 || (res.Err != nil) != strings.Contains(c.want, "error ") {
			t.Errorf("cell %d: value %q, count %d, error %v, outputs\n%q, want\n%q", i+1, res.Value, res.Count, res.Err, got, c.want)
		}
	}

	sent := make(chan struct{})
	go func() {
		k.messages <- message{kind: "stream", parent: "another request", content: []byte(`{"name":"stdout","text":"late"}`)}
		close(sent)
	}()
	for received := false; !received; {
		if _, got := run(t, k, "x"); got != "execute_result 20" {
			t.Errorf("a cell has the outputs %q, with those of another", got)
		}
		select {
		case <-sent:
			received = true
		default:
		}
	}
}

// The context ends when a cell runs that does not end.
func TestEndlessLoop(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		code   string // opens a pipe, then does not end
		killed bool
	}{
		"loop":          {"os.WriteFile(pipe, nil, 0600)\nfor {}", false},
		"sleep":         {"os.WriteFile(pipe, nil, 0600)\nfor { time.Sleep(time.Millisecond) }", false},
		"compiled call": {"exec.Command(\"sh\", \"-c\", \"echo >\" + pipe + \"; exec sleep 100000\").Run()", true},
		"stopped":       {"os.WriteFile(pipe, nil, 0600)\nfor { syscall.Kill(os.Getpid(), syscall.SIGSTOP) }", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := startKernel(t)
			pipe := filepath.Join(t.TempDir(), "pipe")
			if err := syscall.Mkfifo(pipe, 0o600); err != nil {
				t.Fatal(err)
			}
			run(t, k, fmt.Sprintf("import (\n\"fmt\"\n\"os\"\n\"os/exec\"\n\"syscall\"\n\"time\"\n)\npipe := %q", pipe))
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				_, _ = os.ReadFile(pipe) // returns when the cell has opened the pipe and closed it
				cancel()
			}()
			res, err := k.Execute(ctx, "fmt.Println(\"begins\")\n"+c.code)
			if got := describe(t, res); !errors.Is(err, context.Canceled) || !strings.HasPrefix(got, "stream stdoutbegins\n") && name != "stopped" { // which may stop before it has printed
				t.Errorf("error %v, outputs %q", err, got)
			}
			res, err = k.Execute(t.Context(), "1 + 1")
			if killed := err != nil && strings.HasPrefix(err.Error(), "the kernel ended (signal: killed)"); killed != c.killed || !killed && res.Value != "2" {
				t.Errorf("the next cell has the value %q and the error %v", res.Value, err)
			}
		})
	}
}

// The kernel ends while it runs a cell, or does not listen to the interrupt.
func TestKernelEnds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ code, want string }{
		"killed":         {"import (\n\"os\"\n\"syscall\"\n)\nsyscall.Kill(os.Getpid(), syscall.SIGKILL)", "the kernel ended (signal: killed)"},
		"fatal error":    {"import \"sync\"\nvar m sync.Mutex\nm.Unlock()", "the kernel ended (exit status 2: fatal error: sync: unlock of unlocked mutex)"},
		"sockets closed": {"import \"syscall\"\nfor fd := 3; fd < 100; fd++ {\n\t_, err := syscall.Getsockname(fd)\n\tif err == nil { _ = syscall.Shutdown(fd, syscall.SHUT_RDWR) }\n}\nfor {}", "the kernel ended"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := startKernel(t)
			if _, err := k.Execute(t.Context(), c.code); err == nil || !strings.HasPrefix(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
			if _, err := k.Execute(t.Context(), "1"); err == nil || !strings.HasPrefix(err.Error(), "the kernel ended") {
				t.Errorf("the next cell has the error %v", err)
			}
		})
	}
}

func TestEndlessOutput(t *testing.T) {
	t.Parallel()
	k := startKernel(t)
	res, err := k.Execute(t.Context(), "import (\n\"fmt\"\n\"strings\"\n)\ntext := strings.Repeat(\"x\", 100000)\nfor { fmt.Println(text) }")
	if err == nil || err.Error() != "the outputs of the cell exceed 16 MiB" || len(res.Outputs) == 0 {
		t.Errorf("error %v with %d outputs", err, len(res.Outputs))
	}
}

// A kernel that ignores SIGTERM, and a process that it has started, are killed.
func TestClose(t *testing.T) {
	t.Parallel()
	k := startKernel(t)
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, k, "import (\n\"os/exec\"\n\"os/signal\"\n\"syscall\"\n)\nsignal.Ignore(syscall.SIGTERM)\nc := exec.Command(\"sh\", \"-c\", \"exec sleep 100000 >"+pipe+"\")\nc.Start()")
	child, err := os.Open(pipe) // returns when the process has opened it
	if err != nil {
		t.Fatal(err)
	}
	defer child.Close()
	if err := k.Close(); err != nil {
		t.Error(err)
	}
	if _, err := io.ReadAll(child); err != nil { // returns when the process has ended
		t.Error(err)
	}
}

func TestStartFails(t *testing.T) {
	t.Parallel()
	if _, err := Start(t.Context(), filepath.Join(t.TempDir(), "none"), t.TempDir(), nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a kernel that does not exist: %v", err)
	}
	script := filepath.Join(t.TempDir(), "kernel")
	if err := os.WriteFile(script, []byte("#!/bin/sh\necho 'lockstep-kernel: no interpreter' >&2\nexit 1\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := Start(t.Context(), script, t.TempDir(), nil); err == nil || !strings.Contains(err.Error(), "ended (exit status 1: lockstep-kernel: no interpreter)") {
		t.Errorf("a kernel that ends: %v", err)
	}
	if err := (&Kernel{folder: strings.Repeat("x", 100)}).startProcess(script, "", nil); err == nil || !strings.Contains(err.Error(), "set TMPDIR to a shorter one") {
		t.Errorf("a folder with a long path: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Start(ctx, builtKernel(t), t.TempDir(), os.Environ()); !errors.Is(err, context.Canceled) {
		t.Errorf("a context that has ended: %v", err)
	}
}

// A front-end's rules, on messages that the kernel does not send.
func TestOutputs(t *testing.T) {
	t.Parallel()
	var o outputCollector
	for _, m := range []struct{ kind, content string }{
		{"stream", `{"name":"stdout","text":"a"}`},
		{"clear_output", `{"wait":true}`},
		{"stream", `{"name":"stdout","text":"b"}`},
		{"stream", `{"name":"stderr","text":"c"}`},
		{"stream", `{"name":"stdout","text":"d"}`},
		{"display_data", `{"data":{"text/plain":"e"},"metadata":{},"transient":{"display_id":"1"}}`},
		{"update_display_data", `{"data":{"text/plain":"f"},"metadata":{},"transient":{"display_id":"2"}}`},
		{"display_data", `{"data":{"text/plain":"g"},"metadata":{}}`},
		{"update_display_data", `{"data":{"text/plain":"h"},"metadata":{}}`},
	} {
		if err := o.addMessage(message{kind: m.kind, content: []byte(m.content)}); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := describe(t, o.result()), "stream stdoutb|stream stderrc|stream stdoutd|display_data e|display_data g"; got != want {
		t.Errorf("outputs %q, want %q", got, want)
	}
	if err := o.addMessage(message{kind: "clear_output", content: []byte(`{"wait":false}`)}); err != nil || len(o.result().Outputs) > 0 {
		t.Errorf("clear_output leaves %d outputs (%v)", len(o.result().Outputs), err)
	}
	if err := o.addMessage(message{kind: "stream", content: []byte(`{`)}); err == nil {
		t.Error("a damaged message is accepted")
	}
	if _, ok := (session{key: "a"}).parseMessage([][]byte{[]byte(delimiter), session{key: "b"}.sign([][]byte{[]byte("{}"), []byte("{}"), []byte("{}"), []byte("{}")}), []byte("{}"), []byte("{}"), []byte("{}"), []byte("{}")}); ok {
		t.Error("a message with another key is accepted")
	}
}
