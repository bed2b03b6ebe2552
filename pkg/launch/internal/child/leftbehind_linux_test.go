package child

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"lockstep/pkg/internal/process"
)

// TestMain runs the process of TestEndWithParent.
func TestMain(m *testing.M) {
	if os.Getenv("CHILD_TEST_END_WITH_PARENT") != "" {
		runtime.LockOSThread()
		EndWithParent()
		_ = unix.Kill(os.Getpid(), parentEndedSignal) // as if only a thread of the parent had ended
		fmt.Println(os.Getpid())
		time.Sleep(time.Hour)
	}
	os.Exit(m.Run())
}

// TestEndWithParent: a process ends with its parent, even if the parent is killed, but not when the
// parent's thread that started it ends.
func TestEndWithParent(t *testing.T) {
	t.Parallel()
	parent := exec.Command("sh", "-c", `"$0" & wait`, os.Args[0])
	parent.Env = append(os.Environ(), "CHILD_TEST_END_WITH_PARENT=1")
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = parent.Process.Kill() })
	lines := bufio.NewReader(out)
	line, err := lines.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	var pid int
	if _, err := fmt.Sscan(line, &pid); err != nil {
		t.Fatal(err)
	}
	if _, state := process.ReadStat(pid); !process.IsLiveState(state) {
		t.Error("the process has ended before its parent")
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := lines.ReadByte(); err == nil { // the end of the output: both have ended
		t.Error("got more output")
	}
	_ = parent.Wait()
}

// TestIsLeftBehind: only processes of the run's own machine and boot are left behind, and only if the
// process that has started them has ended.
func TestIsLeftBehind(t *testing.T) {
	own := ownIdentity()
	change := func(f func(*processIdentity)) processIdentity { i := own; f(&i); return i }
	for name, c := range map[string]struct {
		dir      string
		launcher string
		want     bool
	}{
		"this process":      {"/a", own.String(), false},
		"an ended process":  {"/a", change(func(i *processIdentity) { i.startTime-- }).String(), true},
		"no such process":   {"/b", change(func(i *processIdentity) { i.pid = 1 << 30 }).String(), true},
		"another run":       {"/c", change(func(i *processIdentity) { i.pid = 1 << 30 }).String(), false},
		"another machine":   {"/a", change(func(i *processIdentity) { i.pid, i.boot = 1<<30, "x" }).String(), false},
		"another container": {"/a", change(func(i *processIdentity) { i.pid, i.namespace = 1<<30, 1 }).String(), false},
		"no launcher":       {"/a", "", false},
		"other text":        {"/a", "7", false},
	} {
		text := "A=b\x00LOCKSTEP_RUN=" + c.dir + "\x00" + launcherVariable + "=" + c.launcher + "\x00"
		if got := isOrphan([]byte(text), own, []string{"/a", "/b"}); got != c.want {
			t.Errorf("%s: got %v", name, got)
		}
	}
}
