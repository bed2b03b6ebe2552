package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"lockstep/pkg/cmd/lockstep/internal/cli"
	"lockstep/pkg/runs"
)

// longSweep returns the arguments of a launch of two runs that no test waits for.
func longSweep(p *place, more ...string) []string {
	return append([]string{
		"launch", "--config", p.config, "--study", "long", "--workers", "1,2", "--threads", "1", "--oversubscribe", "--epochs", "100000",
		"--set", "checkpoint.every=100000", "--set", "data.count=72", "--set", "data.height=48", "--set", "data.width=48",
	}, more...)
}

// awaitEpoch waits until the run in dir has trained an epoch.
func awaitEpoch(t *testing.T, dir string) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if text, err := os.ReadFile(filepath.Join(dir, "epochs.csv")); err == nil && bytes.Count(text, []byte("\n")) > 1 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("no epoch in %s", dir)
		}
	}
}

// runCommand runs a lockstep command to its end and returns its output.
func (p *place) runCommand(args ...string) (string, error) {
	p.t.Helper()
	var out bytes.Buffer
	err := p.command(&out, args...).Run()
	return out.String(), err
}

// openTerminal returns both ends of a pseudo-terminal of 30 lines with 120 characters.
func openTerminal(t *testing.T) (master, terminal *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no pseudo-terminal on this machine: %v", err)
	}
	t.Cleanup(func() { _ = master.Close() })
	fd := int(master.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 30, Col: 120}); err != nil {
		t.Fatal(err)
	}
	terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no pseudo-terminal on this machine: %v", err)
	}
	t.Cleanup(func() { _ = terminal.Close() })
	return master, terminal
}

// TestWatchAndStop: a detached sweep continues without its launch command. lockstep watch shows it
// in a terminal, Ctrl-C there ends only watch, lockstep stop ends the sweep in order, and a launch
// with --resume continues it.
func TestWatchAndStop(t *testing.T) {
	p := newPlace(t)
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	if out, err := p.runCommand("watch"); err == nil || !strings.Contains(out, "no sweep runs or waits; lockstep jobs lists the last ones") {
		t.Errorf("watch without a sweep: %v, %s", err, out)
	}
	out, err := p.runCommand(longSweep(p, "--detach")...)
	if err != nil || !strings.Contains(out, "started long, which continues without this command") {
		t.Fatalf("%v: %s", err, out)
	}
	stopped := false
	t.Cleanup(func() {
		if !stopped {
			_, _ = p.runCommand("stop", "--kill")
		}
	})
	dir := filepath.Join(p.logs, "long", "ddp-n1-s1")
	awaitEpoch(t, dir)
	if out, err := p.runCommand(longSweep(p, "--detach")...); err != nil || !strings.Contains(out, "long is already running since ") || strings.Contains(out, "started") || strings.Count(out, "already running") != 1 {
		t.Errorf("the second --detach: %v: %s", err, out)
	}

	master, terminal := openTerminal(t)
	watch := p.command(nil, "watch")
	watch.Stdin, watch.Stdout, watch.Stderr = terminal, terminal, terminal
	watch.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := watch.Start(); err != nil {
		t.Fatal(err)
	}
	shown := &said{}
	go func() { _, _ = io.Copy(shown, master) }()
	shown.await(t, "ddp-n1-s1        1  running  ")
	shown.await(t, "one at a time, in this order")
	// A head, two rows, and a note are redrawn.
	shown.await(t, "\x1b[4A")
	if _, err := master.Write([]byte{3}); err != nil { // Ctrl-C
		t.Fatal(err)
	}
	shown.await(t, "interrupted: long continues; lockstep watch long shows it again, and lockstep stop long ends it")
	if err := watch.Wait(); err == nil || watch.ProcessState.ExitCode() != cli.ExitInterrupted {
		t.Errorf("watch ended with %v, want exit code %d", err, cli.ExitInterrupted)
	}

	out, err = p.runCommand("stop")
	stopped = err == nil
	if err != nil || !strings.Contains(out, "stopped long: 0 runs done, 2 left\n  ddp-n1-s1: canceled after epoch ") ||
		!strings.Contains(out, "  ddp-n2-s1: not started\n") || !strings.Contains(out, "next: the same launch with --resume ") {
		t.Errorf("stop: %v\n%s", err, out)
	}
	before, err := runs.Read(dir)
	if err != nil || before.Info.Status != runs.StatusCanceled {
		t.Fatalf("run folder after stop: %v, status %s", err, before.Info.Status)
	}
	if out, err := p.runCommand("stop", "long"); err == nil || !strings.Contains(out, "stop long: no sweep of this study runs or waits") {
		t.Errorf("second stop: %v, %s", err, out)
	}

	// What was saved is continued.
	resume, output := p.begin(longSweep(p, "--resume")...)
	output.await(t, fmt.Sprintf("epoch %d/100000: ", len(before.Epochs)+1))
	interrupt(t, resume)
	endsWith130(t, resume, output)
	after, err := runs.Read(dir)
	if err != nil || len(after.Epochs) <= len(before.Epochs) {
		t.Errorf("after --resume: %v, %d epochs, want more than %d", err, len(after.Epochs), len(before.Epochs))
	}
}

// TestWatchAndStopOnSlurm: a sweep on Slurm continues after kill -9 of its launch command.
// lockstep jobs lists it, lockstep watch finds it, and lockstep stop ends it in order.
func TestWatchAndStopOnSlurm(t *testing.T) {
	useCluster(t, 2)
	p := newPlace(t)
	args := longSweep(p, "--on", "slurm:local-test")
	launcher, output := p.begin(args...)
	output.await(t, " continue without this program; Cancel, lockstep stop or scancel")
	if err := launcher.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = launcher.Wait()
	dir := filepath.Join(p.logs, "long", "ddp-n1-s1")
	awaitEpoch(t, dir)

	out, err := p.runCommand("jobs")
	if err != nil || !strings.Contains(out, "Slurm (local-test): 1, 2") || !strings.Contains(out, "long") {
		t.Errorf("jobs: %v\n%s", err, out)
	}
	watch, shown := p.begin("watch")
	shown.await(t, "ddp-n1-s1: running, epoch ")
	interrupt(t, watch)
	endsWith130(t, watch, shown)

	out, err = p.runCommand("stop")
	if err != nil || !strings.Contains(out, "stopped long: 0 runs done, 2 left\n  ddp-n1-s1: canceled after epoch ") {
		t.Fatalf("stop: %v\n%s", err, out)
	}
	if read, err := runs.Read(dir); err != nil || read.Info.Status != runs.StatusCanceled {
		t.Errorf("run folder after stop: %v, status %s", err, read.Info.Status)
	}
	state, err := exec.Command("squeue", "--noheader", "--states=pending,running").Output()
	if err != nil || len(bytes.TrimSpace(state)) > 0 {
		t.Errorf("jobs are left: %s, %v", state, err)
	}
	if out, err := p.runCommand("jobs"); err != nil || !strings.Contains(out, "canceled") {
		t.Errorf("jobs after stop: %v\n%s", err, out)
	}
}
