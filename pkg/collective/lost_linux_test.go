package collective

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"lockstep/pkg/runs/flight"
)

// recordsVariable is the folder in which a rank of a process group records its operations.
const recordsVariable = "COLLECTIVE_TEST_RECORDS"

// lostTasks contains ways in which a rank of a process group is lost although nobody sends it a
// signal. The functions do not return.
var lostTasks = map[string]func(Group){
	"compute": func(Group) { computeForever(1) },
	"load":    func(Group) { loadFromSilentPipe() },
	"cut":     cutConnections,
	"memory":  func(Group) { useUpMemory() },
}

// computeForever is a loop without function calls.
//
//go:noinline
func computeForever(n int) {
	for n != 0 {
		n += 2
	}
}

// loadFromSilentPipe reads from a pipe to which nobody writes.
func loadFromSilentPipe() {
	var pipe [2]int
	if err := unix.Pipe(pipe[:]); err != nil {
		panic(err)
	}
	_, err := unix.Read(pipe[0], make([]byte, 1))
	panic(err)
}

// cutConnections closes the sockets of a ring without a word to the others, as a network does that
// is cut, and lives on.
func cutConnections(g Group) {
	r := g.(*Ring)
	conns := []interface{ Close() error }{r.in, r.out.Conn}
	for _, l := range append(r.links, r.scheduled...) {
		if l != nil {
			conns = append(conns, l.conn)
		}
	}
	for _, c := range conns {
		_ = c.Close()
	}
	select {}
}

// useUpMemory allocates until the process has no memory left. It first limits the memory of the
// process, so that the machine keeps its own.
func useUpMemory() {
	silent, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		panic(err)
	}
	if err := unix.Dup3(int(silent.Fd()), 2, 0); err != nil { // the runtime prints all stacks
		panic(err)
	}
	limit := unix.Rlimit{Cur: 1 << 30, Max: 1 << 30} // less than a Go program has reserved
	if err := unix.Setrlimit(unix.RLIMIT_AS, &limit); err != nil {
		panic(err)
	}
	var all [][]byte
	for {
		all = append(all, make([]byte, 64<<20))
		runtime.KeepAlive(all)
	}
}

// TestLostRankIsNamed loses rank 1 in each way. The error of rank 0 must name the rank, its process,
// host and last collective, and its stack, or why there is none; and the records must explain it.
func TestLostRankIsNamed(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	const timeout = 3 * time.Second
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	used := []string{"shared memory", "tcp ring"} // those over unix sockets run the same code as TCP
	for _, tt := range []struct {
		name, task string
		signal     syscall.Signal
		want       string // in the error and in the explanation
		hasStack   bool
		transports []string
	}{
		{"kill -9 of a rank", "", syscall.SIGKILL, "no stack: its process has ended", false, used},
		{"SIGSTOP of a rank", "", syscall.SIGSTOP, "no stack: its process is stopped (state T", false, used},
		{"a rank computes forever", "compute", 0, "collective.computeForever (lost_linux_test.go:", true, used},
		{"a rank waits for data forever", "load", 0, "collective.loadFromSilentPipe (lost_linux_test.go:", true, used},
		{"a rank has lost its connections", "cut", 0, "collective.cutConnections (lost_linux_test.go:", true, used[1:]},
		{"a rank is out of memory", "memory", 0, "no stack: its process has ended", false, used},
	} {
		for _, transport := range tt.transports {
			t.Run(tt.name+" "+transport, func(t *testing.T) {
				t.Parallel() // most of it waits for the time-out
				var err error
				dir := t.TempDir()
				c := newProcessGroup(t, transport, 2, recordsVariable+"="+dir)
				c.setTimeout(timeout)
				r := NewRecorder(c.group, dir)
				defer r.HandleRequests()()
				if err := r.ShareHosts(t.Context()); err != nil { // all-gather 1
					t.Fatal(err)
				}
				c.group = r
				if err := c.sum(10, 1); err != nil { // all-reduce 2
					t.Fatal(err)
				}
				if tt.task != "" {
					err = c.order(tt.task, 0, 0)
				} else {
					err = c.cmds[0].Process.Signal(tt.signal)
				}
				if err != nil {
					t.Fatal(err)
				}
				pid := c.cmds[0].Process.Pid
				err = addUp(c.group, 10, 1)
				wantError(t, err, "all-reduce 3: ", fmt.Sprintf("; rank 1 is process %d on %s, and its last collective was all-reduce 2 of 10 float32; ", pid, host), tt.want)
				var records []flight.Record
				for rank := range 2 {
					record, err := flight.ReadFile(dir, flight.FileName(rank))
					if err == nil {
						records = append(records, record)
					}
					if wrote := err == nil; wrote != (rank == 0 || tt.hasStack) {
						t.Errorf("rank %d wrote a record: %v (%v)", rank, wrote, err)
					}
				}
				explained := strings.Join(flight.Explain(records, map[int]flight.Place{1: {Host: host, PID: pid}}), "\n")
				if want := fmt.Sprintf("rank 1 (process %d on %s) never entered all-reduce 3: its last collective", pid, host); !strings.HasPrefix(explained, want) || !strings.Contains(explained, tt.want) {
					t.Errorf("explained as\n%s\nwant %q and %q", explained, want, tt.want)
				}
				all, err := os.ReadFile(dir + "/" + flight.StacksName(1))
				if tt.hasStack && !strings.Contains(string(all), strings.Split(tt.want, " ")[0]) {
					t.Errorf("%s has no %q: %v\n%.500s", flight.StacksName(1), tt.want, err, all)
				}
				if err := c.cmds[0].Process.Signal(syscall.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
					t.Fatal(err)
				}
				_ = c.end() // the group has failed
			})
		}
	}
}
