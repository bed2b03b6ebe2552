package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"lockstep/pkg/launch"
	"lockstep/pkg/runs"
)

// TestFailingRunsLeaveNothing lets 100 runs fail in a row, in ten ways, and
// counts before and after: processes, ports, shared memory, temporary files,
// half-written files, open files and goroutines.
func TestFailingRunsLeaveNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	p := newPlace(t)
	binary, err := exec.LookPath("lockstep")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("LOCKSTEP_BIN", binary)
	t.Setenv("TMPDIR", p.temp)
	t.Setenv("LOCKSTEP_LOCKS", p.locks())
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	file := func(name, text string) string {
		path := filepath.Join(p.dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	file("data/image/1.png", "this is no picture")
	file("data/label/1.png", "this is no picture")
	wrong := file("wrong.yaml", "name: wrong\nbatch: many\n")
	shell := func(script string) []string { return []string{"sh", "-c", script} }
	kinds := []struct {
		says  string
		sweep launch.Sweep
	}{
		{"rank 0 ended with exit code 7", launch.Sweep{Command: shell("echo out of luck; exit 7"), Workers: []int{1}}},
		{"ended with exit code 7", launch.Sweep{Command: shell("exit 7"), Workers: []int{3}}},
		{"was killed by signal 9 (SIGKILL)", launch.Sweep{Command: shell("kill -9 $$"), Workers: []int{2}}},
		{"time-out of 50ms exceeded", launch.Sweep{Command: shell("(sleep 600) & sleep 600"), Workers: []int{2}, Timeout: 50 * time.Millisecond}},
		{"is in use", launch.Sweep{Command: shell(fmt.Sprintf("[ $RANK = 1 ] || MASTER_PORT=%d lockstep train --run $LOCKSTEP_RUN/own", taken.Addr().(*net.TCPAddr).Port)), Workers: []int{2}}},
		{"data/image/1.png: file is not a valid PNG", launch.Sweep{Config: p.config, Data: filepath.Join(p.dir, "data"), Workers: []int{2}}},
		{`line 2: batch is "many": expected a whole number`, launch.Sweep{Config: wrong, Workers: []int{2}}},
		{"training diverged at learning rate 1e+30", launch.Sweep{Config: p.config, Set: []string{"optimizer.name=sgd", "optimizer.learning_rate=1e30"}, Workers: []int{2}}},
		{"got only 2 training samples", launch.Sweep{Config: p.config, Set: []string{"data.count=4"}, Workers: []int{3}}},
		{"drop_last omits incomplete batches", launch.Sweep{Config: p.config, Set: []string{"batch=4", "data.drop_last=true"}, Workers: []int{2}}},
	}
	const rounds = 10
	one := func(round, kind int) {
		s := kinds[kind].sweep
		s.Study, s.Series, s.Logs, s.Oversubscribe = "failing", fmt.Sprintf("kind%d-%d", kind, round), p.logs, true
		job, err := launch.Local(context.Background(), s)
		started := err == nil
		if started {
			err = job.Wait(context.Background())
		}
		if err == nil || !strings.Contains(err.Error(), kinds[kind].says) {
			t.Errorf("kind %d ended with %v, want %q", kind, err, kinds[kind].says)
		}
		if !started { // the check of what was asked for
			return
		}
		// Some fail before there is a run; none says that it goes on.
		if r, err := runs.Read(job.Status()[0].Dir); err == nil && r.Info.Status != runs.StatusFailed {
			t.Errorf("kind %d: status is %q", kind, r.Info.Status)
		}
	}
	count := func() (goroutines, files int) {
		t.Helper()
		runtime.GC()
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return runtime.NumGoroutine(), len(entries)
	}
	one(0, 0) // what the first use opens for good is not a leak
	goroutines, files := count()
	for round := range rounds {
		for kind := range kinds {
			one(round+1, kind)
		}
	}
	p.leavesNothing(nil)
	if left := pendingIn(t, p.logs); len(left) > 0 {
		t.Errorf("%v are left", left)
	}
	for range 100 { // goroutines that have nothing more to do take a moment
		if g, f := count(); g <= goroutines && f <= files {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	g, f := count()
	if g > goroutines || f > files {
		t.Errorf("%d goroutines and %d open files, %d and %d before", g, f, goroutines, files)
	}
	listening := 0
	text, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		t.Fatal(err)
	}
	own := ownSockets(t)
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) > 9 && f[3] == "0A" && own[f[9]] { // proc(5): state, inode
			listening++
		}
	}
	if listening != 1 {
		t.Errorf("this process listens on %d ports, want that of the test alone", listening)
	}
	t.Logf("%d failing runs: %d goroutines and %d open files, %d and %d before", rounds*len(kinds), g, f, goroutines, files)
}

// ownSockets are the inodes of this process's sockets.
func ownSockets(t *testing.T) map[string]bool {
	t.Helper()
	found, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	inodes := map[string]bool{}
	for _, fd := range found {
		if to, err := os.Readlink(fd); err == nil && strings.HasPrefix(to, "socket:[") {
			inodes[strings.Trim(to, "socket:[]")] = true
		}
	}
	return inodes
}
