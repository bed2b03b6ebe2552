package workers

import (
	"bufio"
	"errors"
	"io"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"lockstep/pkg/launch/internal/child"
)

// TestSignalsToEndedWorker: a worker has ended, and another process has its ID by now, before the
// group has noticed. No signal must reach that process, which it would end.
func TestSignalsToEndedWorker(t *testing.T) {
	other := exec.Command("sh", "-c", `trap 'echo signaled; exit' USR2; echo ready; read line; echo "$line"`)
	other.SysProcAttr = child.WorkerAttr()
	in, err := other.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := other.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	if line, err := lines.ReadString('\n'); line != "ready\n" {
		t.Fatalf("got %q, %v", line, err)
	}
	ended := exec.Command("true")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	ended.Process.Pid = other.Process.Pid
	group := &Group{workers: []*worker{{cmd: ended}, {cmd: ended, guard: true}}}
	group.requestFlightRecords()
	for _, s := range []unix.Signal{unix.SIGTERM, unix.SIGSTOP, unix.SIGKILL} {
		group.signalAll(s)
	}
	_, _ = io.WriteString(in, "not signaled\n") // fails if the process has ended
	line, _ := lines.ReadString('\n')
	if err := other.Wait(); err != nil || strings.TrimSpace(line) != "not signaled" {
		t.Errorf("the other process printed %q and ended with %v", line, err)
	}
	// A worker that runs gets the signals, also its children.
	running := exec.Command("sleep", "600")
	if err := running.Start(); err != nil {
		t.Fatal(err)
	}
	(&Group{workers: []*worker{{cmd: running}}}).requestFlightRecords()
	_ = running.Wait()
	if s, ok := running.ProcessState.Sys().(interface{ Signal() syscall.Signal }); !ok || s.Signal() != unix.SIGUSR2 {
		t.Errorf("the running worker ended with %v, want SIGUSR2", running.ProcessState)
	}
	leader := exec.Command("sh", "-c", `sh -c 'echo ready; exec sleep 600'; :`)
	leader.SysProcAttr = child.WorkerAttr()
	out, err = leader.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := leader.Start(); err != nil {
		t.Fatal(err)
	}
	lines = bufio.NewReader(out)
	if line, err := lines.ReadString('\n'); line != "ready\n" {
		t.Fatalf("got %q, %v", line, err)
	}
	(&Group{workers: []*worker{{cmd: leader}}}).signalAll(unix.SIGTERM)
	if _, err := lines.ReadString('\n'); !errors.Is(err, io.EOF) { // when the child has ended too
		t.Errorf("read the output of the child: %v", err)
	}
	if err := leader.Wait(); err == nil {
		t.Error("the leader was not signaled")
	}
}
