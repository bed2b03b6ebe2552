package runs

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// ownAsChild is the main function of a process that creates a run, starts a child, prints a
// line, and owns the run until its input ends.
func ownAsChild(dir string) int {
	w, err := Create(dir, sampleInfo())
	if err != nil {
		fmt.Println("refused:", err)
		return 1
	}
	child := exec.Command("sleep", "30")
	if err := child.Start(); err != nil {
		fmt.Println("refused:", err)
		return 1
	}
	fmt.Println("owns it:", child.Process.Pid)
	_, _ = io.Copy(io.Discard, os.Stdin)
	if err := errors.Join(w.Finish(StatusDone, nil), child.Process.Kill()); err != nil {
		fmt.Println("refused:", err)
		return 1
	}
	return 0
}

// startOwner starts a process that runs ownAsChild. ready waits for its line.
func startOwner(t *testing.T, dir string) (cmd *exec.Cmd, end io.Closer, ready func() string) {
	t.Helper()
	program, err := os.Executable()
	check(t, err)
	cmd = exec.Command(program)
	cmd.Env = append(os.Environ(), "LOCKSTEP_TEST_OWN="+dir)
	in, err := cmd.StdinPipe()
	check(t, err)
	out, err := cmd.StdoutPipe()
	check(t, err)
	check(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
	})
	return cmd, in, func() string {
		line, err := bufio.NewReader(out).ReadString('\n')
		check(t, err)
		return strings.TrimSpace(line)
	}
}

// TestOwnerKilled: the lock of a killed process is free, even if a child of it is alive.
func TestOwnerKilled(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	cmd, _, ready := startOwner(t, dir)
	var child int
	if _, err := fmt.Sscanf(ready(), "owns it: %d", &child); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(child, syscall.SIGKILL) })
	owner, alive, err := OwnerOf(dir)
	check(t, err)
	if !alive || owner.PID != cmd.Process.Pid {
		t.Errorf("alive is %v of %+v, expected pid %d", alive, owner, cmd.Process.Pid)
	}
	_, _, err = Resume(dir)
	wantOwned(t, err, cmd.Process.Pid)
	wantError(t, err, fmt.Sprintf("in use by pid %d since %s", cmd.Process.Pid, formatTime(owner.Started)), fmt.Sprintf("kill %d", cmd.Process.Pid), "--resume")
	run, err := Read(dir) // which needs no lock
	check(t, err)
	equal(t, run.Info.Status, StatusRunning)
	tail := NewTail(dir)
	_, err = tail.Read()
	check(t, err)
	equal(t, tail.Run().Info.Status, StatusRunning)

	pending := filepath.Join(dir, ".run.json123") // of the owner, as it replaces a file
	check(t, os.WriteFile(pending, nil, 0o644))
	wantOwned(t, RemoveTemporary(dir), cmd.Process.Pid)
	if _, err := os.Stat(pending); err != nil {
		t.Errorf("a file of the owner was removed: %v", err)
	}

	check(t, cmd.Process.Kill())
	_ = cmd.Wait()
	if !processExists(child) {
		t.Error("the owner's child has ended")
	}
	if owner := wantDead(t, dir); owner.Released {
		t.Error("a killed owner has released its lock")
	}
	// run.json still says that it runs; who reads it asks the lock.
	info, err := ReadInfo(dir)
	check(t, err)
	equal(t, info.Status, StatusRunning)
	run, err = Read(dir)
	check(t, err)
	equal(t, run.Info.Status, StatusKilled)
	changed, err := tail.Read()
	check(t, err)
	equal(t, changed, true)
	equal(t, tail.Run().Info.Status, StatusKilled)
	changed, err = tail.Read()
	check(t, err)
	equal(t, changed, false)

	w, _, err := Resume(dir)
	check(t, err)
	resumed := w.info.Status
	equal(t, resumed, StatusRunning)
	_, err = tail.Read()
	check(t, err)
	equal(t, tail.Run().Info.Status, StatusRunning)
	equal(t, w.Notices(), []string(nil)) // the lock is proof enough
	check(t, w.Finish(StatusDone, nil))
	if _, err := os.Stat(pending); err == nil {
		t.Error("a file of the killed owner is left")
	}
	owners, _, err := Owners(dir)
	check(t, err)
	if len(owners) != 2 || owners[0].PID != cmd.Process.Pid || owners[0].Released || !owners[1].Released {
		t.Errorf("owners %+v", owners)
	}
}

// TestRaceForARun: of eight processes that create the same run, one succeeds, and the errors
// of the others name its pid.
func TestRaceForARun(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	const processes = 8
	var ready [processes]func() string
	var ends [processes]io.Closer
	var pids [processes]int
	for i := range processes {
		var cmd *exec.Cmd
		cmd, ends[i], ready[i] = startOwner(t, dir)
		pids[i] = cmd.Process.Pid
	}
	winner := -1
	var refused []string
	for i := range processes {
		line := ready[i]()
		if strings.HasPrefix(line, "owns it:") {
			if winner >= 0 {
				t.Errorf("pids %d and %d both own the run", pids[winner], pids[i])
			}
			winner = i
			continue
		}
		refused = append(refused, line)
	}
	if winner < 0 {
		t.Fatalf("nobody owns the run: %q", refused)
	}
	for _, line := range refused {
		if want := fmt.Sprintf("in use by pid %d since", pids[winner]); !strings.Contains(line, want) {
			t.Errorf("%q does not say %q", line, want)
		}
	}
	check(t, ends[winner].Close())
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if _, alive, err := OwnerOf(dir); err != nil || !alive || time.Now().After(deadline) {
			check(t, err)
			break
		}
	}
	run, err := Read(dir)
	check(t, err)
	equal(t, run.Info.Status, StatusDone)
	if owners, _, err := Owners(dir); err != nil || len(owners) != 1 {
		t.Errorf("owners %+v, %v", owners, err)
	}
}

// TestReadOnlyFolder: a user who may only read a run folder can query its owner. The test
// also works for root; see TestCreateWithoutPermission.
func TestReadOnlyFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	w, err := Create(dir, sampleInfo())
	check(t, err)
	for parent := filepath.Dir(dir); parent != filepath.Dir(os.TempDir()) && parent != os.TempDir(); parent = filepath.Dir(parent) {
		check(t, os.Chmod(parent, 0o755))
	}
	check(t, os.Chmod(dir, 0o555))
	check(t, os.Chmod(filepath.Join(dir, OwnersFile), 0o444))
	t.Cleanup(func() { check(t, os.Chmod(dir, 0o755)) })
	type answer struct {
		owner       Owner
		alive       bool
		err, resume error
	}
	answers := make(chan answer)
	look := func() answer {
		go func() {
			runtime.LockOSThread() // never unlocked, so the thread ends with the goroutine
			var a answer
			if os.Getuid() == 0 {
				if a.err = syscall.Setfsuid(65534); a.err != nil {
					answers <- a
					return
				}
			}
			a.owner, a.alive, a.err = OwnerOf(dir)
			_, _, a.resume = Resume(dir)
			answers <- a
		}()
		return <-answers
	}
	a := look()
	check(t, a.err)
	wantOwned(t, a.resume, os.Getpid())
	if !a.alive || a.owner.PID != os.Getpid() {
		t.Errorf("alive is %v of %+v", a.alive, a.owner)
	}
	check(t, os.Chmod(dir, 0o755))
	check(t, w.Finish(StatusDone, nil))
	check(t, os.Chmod(dir, 0o555))
	a = look()
	check(t, a.err)
	if a.alive {
		t.Error("alive after its end")
	}
	wantError(t, a.resume, "permission denied", "choose a folder that you may write")
}
