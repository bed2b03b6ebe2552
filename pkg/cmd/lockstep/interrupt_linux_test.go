package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"lockstep/pkg/cmd/lockstep/internal/cli"
	"lockstep/pkg/runs"
)

// said is what a command has written so far.
type said struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// await returns once the command has written text.
func (s *said) await(t *testing.T, text string) {
	t.Helper()
	for range 3000 {
		if strings.Contains(s.String(), text) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("no %q in\n%s", text, s)
}

// begin starts a command of p whose output is read while it runs.
func (p *place) begin(args ...string) (*exec.Cmd, *said) {
	p.t.Helper()
	out := &said{}
	c := p.command(nil, args...)
	c.Stdout, c.Stderr = out, out
	if err := c.Start(); err != nil {
		p.t.Fatal(err)
	}
	return c, out
}

func interrupt(t *testing.T, c *exec.Cmd) {
	t.Helper()
	if err := c.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
}

// endsWith130 waits for the end of a command that was interrupted.
func endsWith130(t *testing.T, c *exec.Cmd, out *said) {
	t.Helper()
	var e *exec.ExitError
	if err := c.Wait(); !errors.As(err, &e) || e.ExitCode() != cli.ExitInterrupted {
		t.Errorf("ended with %v, want exit code 130:\n%s", err, out)
	}
}

// TestInterruptedOnce: the run ends in order, loses no step that was done
// though its next checkpoint was far off, and ends after --resume with the bits
// of one that was left alone.
func TestInterruptedOnce(t *testing.T) {
	p := newPlace(t)
	long := []string{"--set", "epochs=150", "--set", "checkpoint.every=1000"}
	for _, tt := range []struct {
		name string
		args []string
		run  string
	}{
		{"launch", append([]string{"launch", "--config", p.config, "--workers", "2", "--oversubscribe"}, long...), p.run(2, 1)},
		{"train", append([]string{"train", "--config", p.config, "--run", p.run(1, 1)}, long...), p.run(1, 1)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, out := p.begin(tt.args...)
			out.await(t, "epoch 20/150")
			interrupt(t, c)
			endsWith130(t, c, out)
			for _, want := range []string{"lockstep: interrupted: ", "context canceled", "to go on, give the same command again with --resume"} {
				if !strings.Contains(out.String(), want) {
					t.Errorf("no %q in\n%s", want, out)
				}
			}
			p.leavesNothing(nil)
			r, err := runs.Read(tt.run)
			if err != nil {
				t.Fatal(err)
			}
			n := len(r.Epochs)
			if r.Info.Status != runs.StatusCanceled || len(r.Problems) > 0 || n < 20 || n >= 150 {
				t.Errorf("status %q after %d epochs, problems %v", r.Info.Status, n, r.Problems)
			}
			// Nearly always it is in the middle of an epoch, whose steps are kept too.
			saved, err := filepath.Glob(filepath.Join(tt.run, "checkpoints", "*"))
			after := fmt.Sprintf("epoch-%04d.safetensors", n)
			within := fmt.Sprintf("epoch-%04d-step-", n+1)
			if err != nil || len(saved) != 1 || filepath.Base(saved[0]) != after && !strings.HasPrefix(filepath.Base(saved[0]), within) {
				t.Errorf("checkpoints %v, want %s or %s…", saved, after, within)
			}
			c, again := p.begin(append(tt.args, "--resume")...)
			if err := c.Wait(); err != nil {
				t.Fatalf("%v\n%s", err, again)
			}
			if strings.Contains(again.String(), fmt.Sprintf("epoch %d/150", n)) {
				t.Errorf("epoch %d was done twice", n)
			}
			undisturbed := strings.Replace(tt.run, "-s1", "-s01", 1)
			alone := append([]string{"train", "--config", p.config, "--run", undisturbed}, long...)
			if tt.name == "launch" {
				alone = append(tt.args, "--series", "alone")
				undisturbed = filepath.Join(filepath.Dir(tt.run), "alone-n2-s1")
			}
			c, again = p.begin(alone...)
			if err := c.Wait(); err != nil {
				t.Fatalf("%v\n%s", err, again)
			}
			if got, want := final(t, tt.run), final(t, undisturbed); got != want {
				t.Errorf("it ended otherwise: %s", difference(got, want))
			}
		})
	}
}

// TestInterruptedTwice: what does not end in order ends now.
func TestInterruptedTwice(t *testing.T) {
	p := newPlace(t)
	// Reading a named pipe that nobody writes to hangs, as a broken file system does.
	hung := filepath.Join(p.dir, "hung.yaml")
	if err := syscall.Mkfifo(hung, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, ready string
		args        []string
	}{
		{"launch", "rank 1] up", []string{
			"launch", "--workers", "2", "--oversubscribe", "--", "sh", "-c",
			`trap "" TERM INT; (trap "" TERM INT; sleep 600) & echo up; sleep 600`,
		}},
		{"train", "", []string{"train", "--config", hung, "--run", p.run(1, 1)}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			begin := time.Now()
			c, out := p.begin(tt.args...)
			if tt.ready != "" {
				out.await(t, tt.ready)
			} else {
				time.Sleep(500 * time.Millisecond) // it opens the config
			}
			interrupt(t, c)
			time.Sleep(300 * time.Millisecond)
			if err := c.Process.Signal(syscall.Signal(0)); err != nil {
				t.Fatalf("it has ended at the first interrupt, so that this shows nothing: %v\n%s", err, out)
			}
			interrupt(t, c)
			endsWith130(t, c, out)
			if d := time.Since(begin); d > 8*time.Second { // workers have 10 s to end in order
				t.Errorf("it took %v", d)
			}
			p.leavesNothing(nil)
		})
	}
}

// TestInterruptedAnalysis: a command that reads logs ends soon after one signal, although
// its reader waits for a pipe that nobody writes to.
func TestInterruptedAnalysis(t *testing.T) {
	p := newPlace(t)
	for i, command := range []string{"read", "scaling", "plot"} {
		pipe := filepath.Join(p.dir, command+".log")
		if err := syscall.Mkfifo(pipe, 0o600); err != nil {
			t.Fatal(err)
		}
		c, out := p.begin(command, pipe)
		writer, err := os.OpenFile(pipe, os.O_WRONLY, 0) // returns when the command reads
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Process.Signal([]os.Signal{os.Interrupt, syscall.SIGTERM}[i%2]); err != nil {
			t.Fatal(err)
		}
		endsWith130(t, c, out)
		if err := writer.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestHangup: a closed terminal, which sends SIGHUP more than once, ends the run
// in order, and nohup keeps it from doing so.
func TestHangup(t *testing.T) {
	// Tests that run under nohup ignore SIGHUP, and their children would too. If a process
	// handles a signal, its children start with the default action.
	handled := make(chan os.Signal, 1)
	signal.Notify(handled, syscall.SIGHUP)
	defer signal.Stop(handled)
	p := newPlace(t)
	long := []string{"--set", "epochs=150", "--set", "checkpoint.every=1000"}
	for _, tt := range []struct {
		name string
		args []string
		run  string
	}{
		{"launch", append([]string{"launch", "--config", p.config, "--workers", "2", "--oversubscribe"}, long...), p.run(2, 1)},
		{"train", append([]string{"train", "--config", p.config, "--run", p.run(1, 1)}, long...), p.run(1, 1)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, out := p.begin(tt.args...)
			out.await(t, "epoch 20/150")
			for range 3 {
				_ = c.Process.Signal(syscall.SIGHUP) // it may have ended by the second
				time.Sleep(10 * time.Millisecond)
			}
			endsWith130(t, c, out)
			p.leavesNothing(nil)
			r, err := runs.Read(tt.run)
			if err != nil {
				t.Fatal(err)
			}
			saved, err := filepath.Glob(filepath.Join(tt.run, "checkpoints", "*"))
			if n := len(r.Epochs); err != nil || r.Info.Status != runs.StatusCanceled || n < 20 || n >= 150 || len(saved) != 1 {
				t.Fatalf("status %q after %d epochs, checkpoints %v, %v", r.Info.Status, n, saved, err)
			}
			// The run goes on, and this time its terminal may go.
			binary, err := exec.LookPath("lockstep")
			if err != nil {
				t.Fatal(err)
			}
			again := &said{}
			c = p.command(nil)
			c.Path, c.Args = "/bin/sh", append([]string{"sh", "-c", `trap "" HUP; exec "$@"`, "sh", binary}, append(tt.args, "--resume")...)
			c.Stdout, c.Stderr = again, again
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			again.await(t, "epoch ")
			if err := c.Process.Signal(syscall.SIGHUP); err != nil {
				t.Fatal(err)
			}
			if err := c.Wait(); err != nil {
				t.Errorf("with SIGHUP ignored: %v\n%s", err, again)
			}
			after, err := runs.Read(tt.run)
			if err != nil || after.Info.Status != runs.StatusDone || len(after.Epochs) != 150 {
				t.Errorf("with SIGHUP ignored: status %q after %d epochs, %v", after.Info.Status, len(after.Epochs), err)
			}
		})
	}
}

// TestBrokenPipe: the end of whoever reads the output ends the output, not the
// training.
func TestBrokenPipe(t *testing.T) {
	p := newPlace(t)
	for _, tt := range []struct {
		name string
		args []string
		run  string
	}{
		{"launch", []string{"launch", "--config", p.config, "--workers", "2", "--oversubscribe"}, p.run(2, 1)},
		{"train", []string{"train", "--config", p.config, "--run", p.run(1, 1)}, p.run(1, 1)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := p.command(nil, append(tt.args, "--set", "epochs=60")...)
			read, write, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			c.Stdout, c.Stderr = write, write
			if err := errors.Join(c.Start(), write.Close()); err != nil {
				t.Fatal(err)
			}
			_, err = read.Read(make([]byte, 1)) // as head would
			if err := errors.Join(err, read.Close()); err != nil {
				t.Fatal(err)
			}
			if err := c.Wait(); err != nil {
				t.Errorf("ended with %v", err)
			}
			r, err := runs.Read(tt.run)
			if err != nil || r.Info.Status != runs.StatusDone || len(r.Epochs) != 60 {
				t.Errorf("status %q after %d epochs, %v", r.Info.Status, len(r.Epochs), err)
			}
			p.leavesNothing(nil)
		})
	}
}

// stateOf returns the letter that proc(5) has for the state of a process, or "" if there is
// no such process.
func stateOf(pid int) string { return statField(pid, 0) }

// parentOf returns the pid of a process's parent, or 0 if there is no such process.
func parentOf(pid int) int {
	parent, _ := strconv.Atoi(statField(pid, 1))
	return parent
}

// statField returns the i-th field after the name in /proc/PID/stat, or "" if there is no
// such process.
func statField(pid, i int) string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	return strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))[i]
}

// TestSuspend: what stops the launcher stops its workers and all that they
// started, and what continues it continues them. The time in between, longer than
// every time-out, counts for none.
func TestSuspend(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	const timeout = 25 * time.Second // much more than the run takes on a busy machine
	p := newPlace(t)
	end := filepath.Join(p.dir, "end")
	script := fmt.Sprintf(`setsid sh -c 'while :; do sleep 0.02; done' & echo pid up; while [ ! -e %s ]; do sleep 0.02; done`, end)
	limit := []string{"--workers", "2", "--oversubscribe", "--timeout", timeout.String()}
	for _, tt := range []struct {
		name   string
		ready  []string
		args   []string
		guards int // processes that stay, to end the others
	}{
		{"ours", []string{"epoch 3/40"}, append(append([]string{"launch"}, limit...), "--config", p.config, "--set", "epochs=40", "--timeout-collective", "10s"), 0},
		{"another program", []string{"rank 0] pid up", "rank 1] pid up"}, append(append([]string{"launch"}, limit...), "--", "sh", "-c", script), 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, out := p.begin(tt.args...)
			for _, text := range tt.ready {
				out.await(t, text)
			}
			if err := c.Process.Signal(syscall.SIGTSTP); err != nil { // what Ctrl-Z sends
				t.Fatal(err)
			}
			moving := func() (n int) {
				all := p.processes()
				for _, pid := range all {
					switch stateOf(pid) {
					case "T", "", "Z":
					case "D":
						// A shell that was stopped in vfork(2) waits for its child, which is
						// stopped, and does not become T before the child goes on.
						if !slices.ContainsFunc(all, func(child int) bool { return parentOf(child) == pid && stateOf(child) == "T" }) {
							n++
						}
					default:
						n++
					}
				}
				return n
			}
			standsStill := func() bool { return moving() == tt.guards && stateOf(c.Process.Pid) == "T" }
			// While the processes are being stopped, one look can find the right number by chance.
			for still, looks := 0, 0; still < 20 && looks < 3000; looks++ {
				if still++; !standsStill() {
					still = 0
				}
				time.Sleep(10 * time.Millisecond)
			}
			time.Sleep(timeout + time.Second)
			if !standsStill() {
				t.Errorf("%d of %v move on, want %d", moving(), p.processes(), tt.guards)
			}
			if tt.guards > 0 {
				if err := os.WriteFile(end, nil, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if err := c.Process.Signal(syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
			if err := c.Wait(); err != nil {
				t.Errorf("ended with %v\n%s", err, out)
			}
			p.leavesNothing(nil)
		})
	}
}

// TestStoppedRank: a rank that is stopped is named after the time-out that the user
// has set, and not before.
func TestStoppedRank(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	p := newPlace(t)
	c, out := p.begin("launch", "--config", p.config, "--workers", "2", "--oversubscribe", "--set", "epochs=100000", "--timeout-collective", "3s")
	out.await(t, "epoch 2/")
	stopped := 0
	for _, pid := range p.processes() {
		if variable(pid, "RANK") == "1" {
			stopped = pid
		}
	}
	if stopped == 0 {
		t.Fatalf("no rank 1 among %v", p.processes())
	}
	if err := syscall.Kill(stopped, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := c.Wait(); err == nil {
		t.Error("the run ended without an error, but also without rank 1")
	}
	if !regexp.MustCompile(`rank 1 \(last seen in [^)]*\) did not arrive within 3s`).MatchString(out.String()) {
		t.Errorf("rank 1 is not named in\n%.2000s", out)
	}
	p.leavesNothing(nil)
}
