package launch

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"lockstep/pkg/launch/internal/child"
	"lockstep/pkg/runs"
)

// ancestors returns the pids of the processes between this process and its descendant pid, the parent
// of pid first.
func ancestors(t *testing.T, pid int) (all []int) {
	t.Helper()
	for {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			t.Fatal(err)
		}
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		if pid, err = strconv.Atoi(fields[1]); err != nil || pid == 1 {
			t.Fatalf("got parent %d, %v, want a descendant of this process", pid, err)
		}
		if pid == os.Getpid() {
			return all
		}
		all = append(all, pid)
	}
}

// testKilledHelper starts s and kills the n-th process between the launcher and a worker, counted from
// the worker. All processes that s has started must end. It reports whether there is an n-th process.
func testKilledHelper(t *testing.T, s Sweep, out *transcript, processes, n int) bool {
	t.Helper()
	s.Now = true // as for parallel
	start := Local
	if s.MPI != (MPIOptions{}) {
		start = MPI
	}
	j, err := start(context.Background(), s)
	if err != nil {
		t.Fatal(err)
	}
	out.await(t, "up\n", processes)
	pids := out.pids(t)
	helpers := ancestors(t, pids[0])
	all := append(slices.Clone(pids), helpers...)
	if n < len(helpers) {
		if err := unix.Kill(helpers[n], unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
	} else if err := j.Cancel(); err != nil {
		t.Fatal(err)
	}
	if err := j.Wait(context.Background()); err == nil {
		t.Error("got no error")
	}
	if slices.ContainsFunc(all, running) {
		t.Errorf("of processes %v some still run after the end of the launch:\n%s", all, out)
	}
	return n < len(helpers)
}

// TestKilledGuard: after kill -9 of a program's guard, the program ends with all its descendants.
func TestKilledGuard(t *testing.T) {
	t.Parallel()
	s, out := shell(t, escaping+`sleep 600`, 1)
	testKilledHelper(t, s, out, 3, 0)
}

// TestMPIHelpersKilled: after kill -9 of a guard, a rank, mpirun or its proxy, all ranks end.
func TestMPIHelpersKilled(t *testing.T) {
	t.Parallel()
	forEachMPI(t, func(t *testing.T, command string) {
		t.Parallel()
		for n := 0; ; n++ {
			s, out := shell(t, `echo pid $$ up; exec sleep 600`, 2)
			s.MPI.Command = command
			if !testKilledHelper(t, s, out, 2, n) {
				if n < 4 { // the program's guard, the rank, mpirun and its guard
					t.Errorf("got %d processes between the launcher and a worker", n)
				}
				return
			}
		}
	})
}

// TestResumeEndsWorkersLeftBehind: a worker whose launcher was killed is not taken for the owner of the
// run. It is ended, and the run is resumed.
func TestResumeEndsWorkersLeftBehind(t *testing.T) {
	ownQueue(t)
	s, out := own(t, "waits", 1)
	s.Resume = true
	dir := filepath.Join(s.Logs, "waits", "ddp-n1-s1")
	left := exec.Command(os.Getenv("LOCKSTEP_BIN"), "train", "--config", "waits", "--run", dir, "--seed", "1")
	left.Env = os.Environ()
	for _, entry := range child.RunEnvironment(dir) { // as if a process had started it that has ended
		left.Env = append(left.Env, strings.Replace(entry, fmt.Sprintf("=%d-", os.Getpid()), "=1-", 1))
	}
	if err := left.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = left.Process.Kill()
		_ = left.Wait()
	})
	soon(t, "the run has epoch 1", func() bool {
		r, err := runs.Read(dir)
		return err == nil && len(r.Epochs) == 1
	})
	j, err := Local(context.Background(), s)
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("ended the processes that a killed launcher had left behind: pid %d", left.Process.Pid); !strings.Contains(j.Note(), want) {
		t.Errorf("got note %q, want %q", j.Note(), want)
	}
	if running(left.Process.Pid) {
		t.Error("the worker that was left behind still runs")
	}
	out.await(t, "epoch 1 mean", 1)
	owner, alive, err := runs.OwnerOf(dir)
	if err != nil || !alive || owner.PID == left.Process.Pid {
		t.Errorf("got owner %+v, alive %v, %v, want the new worker", owner, alive, err)
	}
	if err := j.Cancel(); err != nil {
		t.Fatal(err)
	}
	_ = j.Wait(context.Background()) // it was canceled
	wantLeft(t, dir)
}

// wantLeft checks which environments KillOrphans acts on: neither processes of another run nor those
// of a launcher that is alive.
func wantLeft(t *testing.T, dir string) {
	t.Helper()
	c := exec.Command("sleep", "600")
	c.Env = child.RunEnvironment(dir)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	if ended, err := child.KillOrphans(dir, dir+"x"); err != nil || len(ended) > 0 {
		t.Errorf("ended %v, %v, want none: the launcher is this process", ended, err)
	}
	kill(t, c)
}
