//go:build linux

package collective

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"lockstep/pkg/internal/device"
)

// transports between processes.
var transports = []string{"shared memory", "unix ring", "tcp ring"}

// groupVariable makes the test binary a rank of a process group. Its value consists of the
// rank, the size of the group, the transport, and the path of the shared memory.
const groupVariable = "COLLECTIVE_TEST_GROUP"

// processGroup is a group of processes: this one is rank 0, and cmds are the other ranks.
type processGroup struct {
	group Group
	cmds  []*exec.Cmd
	tasks []io.WriteCloser
}

func newProcessGroup(t testing.TB, transport string, n int, env ...string) *processGroup {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	c := &processGroup{}
	var shared *SharedMemory
	var all []Connections
	var err error
	path := "-"
	if network, isRing := strings.CutSuffix(transport, " ring"); isRing {
		all, err = ringConnections(network, n)
		must(err)
		c.group, err = NewRing(transport, 0, n, all[0], Options{})
		must(err)
	} else {
		shared, err = CreateSharedMemory(n, Options{})
		must(err)
		c.group, path = shared, shared.Path()
	}
	self, err := os.Executable()
	must(err)
	for rank := 1; rank < n; rank++ {
		cmd := exec.Command(self)
		cmd.Env = append(append(os.Environ(), env...), fmt.Sprintf("%s=%d %d %s %s", groupVariable, rank, n, strings.ReplaceAll(transport, " ", "_"), path))
		cmd.Stderr = os.Stderr
		if all != nil {
			for _, conn := range all[rank].all() {
				f, err := conn.(interface{ File() (*os.File, error) }).File()
				must(err)
				defer func() { must(errors.Join(f.Close(), conn.Close())) }()
				cmd.ExtraFiles = append(cmd.ExtraFiles, f)
			}
		}
		tasks, err := cmd.StdinPipe()
		must(err)
		out, err := cmd.StdoutPipe()
		must(err)
		must(cmd.Start())
		if line, err := bufio.NewReader(out).ReadString('\n'); line != "joined\n" {
			t.Fatalf("rank %d said %q, %v", rank, line, err)
		}
		c.cmds, c.tasks = append(c.cmds, cmd), append(c.tasks, tasks)
	}
	if shared != nil {
		if s, err := os.Stat(path); err != nil || s.Mode().Perm() != 0o600 {
			t.Errorf("file is %v, %v; want mode 0600", s, err)
		}
		must(shared.Unlink())
	}
	return c
}

// runMember joins the group that the value of groupVariable describes. For each line of
// standard input, "sum n times" or "exchange n times", it calls addUp or exchange; lostTasks are
// further words. If recordsVariable is set, it records its operations.
func runMember(value string) error {
	var rank, size int
	var transport, path string
	if _, err := fmt.Sscan(value, &rank, &size, &transport, &path); err != nil {
		return err
	}
	g, err := joinGroup(strings.ReplaceAll(transport, "_", " "), path, rank, size)
	if err != nil {
		return err
	}
	fmt.Println("joined")
	member := g
	if dir := os.Getenv(recordsVariable); dir != "" {
		r := NewRecorder(g, dir)
		defer r.HandleRequests()()
		if err := r.ShareHosts(context.Background()); err != nil {
			return err
		}
		member = r
	}
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		var task string
		var n, times int
		if _, err := fmt.Sscan(in.Text(), &task, &n, &times); err != nil {
			return err
		}
		if lose := lostTasks[task]; lose != nil {
			lose(g)
		}
		run := map[string]func(Group, int, int) error{"sum": addUp, "exchange": exchange}[task]
		if err := run(member, n, times); err != nil {
			return err
		}
	}
	return g.Close()
}

func joinGroup(transport, path string, rank, size int) (Group, error) {
	if transport == "shared memory" {
		return OpenSharedMemory(path, rank, size, Options{})
	}
	var conns []net.Conn
	for i := range 2 + 2*(size-1) {
		f := os.NewFile(uintptr(3+i), "ring") // as exec.Cmd.ExtraFiles numbers them
		c, err := net.FileConn(f)
		if err = errors.Join(err, f.Close()); err != nil {
			return nil, err
		}
		conns = append(conns, c)
	}
	return NewRing(transport, rank, size, Connections{conns[0], conns[1], slices.Insert(slices.Clone(conns[2:1+size]), rank, nil), slices.Insert(conns[1+size:], rank, nil)}, Options{})
}

// order makes the other ranks call addUp or exchange, according to task, with n and times.
func (c *processGroup) order(task string, n, times int) error {
	for _, t := range c.tasks {
		if _, err := fmt.Fprintln(t, task, n, times); err != nil {
			return err
		}
	}
	return nil
}

// sum makes all ranks call addUp with n and times.
func (c *processGroup) sum(n, times int) error {
	if err := c.order("sum", n, times); err != nil {
		return err
	}
	return addUp(c.group, n, times)
}

// exchange sends the given number of messages of n numbers to each other rank and receives as
// many.
func exchange(g Group, n, times int) error {
	lengths := slices.Repeat([]int{n}, times)
	var fs []func() error
	for peer := range g.Size() {
		if peer != g.Rank() {
			fs = append(fs, func() error { return sendTo(context.Background(), g, peer, lengths) },
				func() error { return receiveFrom(context.Background(), g, peer, lengths) })
		}
	}
	return concurrently(fs...)
}

// TestProcessesExchangeMessages exchanges messages between all pairs of processes.
func TestProcessesExchangeMessages(t *testing.T) {
	t.Parallel()
	for _, transport := range transports {
		t.Run(transport, func(t *testing.T) {
			c := newProcessGroup(t, transport, 3)
			for _, n := range []int{0, 1, 1_000_003} {
				if err := errors.Join(c.order("exchange", n, 3), exchange(c.group, n, 3)); err != nil {
					t.Fatal(err)
				}
			}
			if err := errors.Join(c.sum(1000, 2), c.end()); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestKilledOrStoppedRankAndMessages checks that Recv, and a Send that must wait, notice the end of
// the other rank's process at once, and have until the time-out if it is stopped.
func TestKilledOrStoppedRankAndMessages(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	const timeout = 12 * time.Second // longer than noticeTime
	for _, transport := range transports {
		for _, call := range []string{"receive", "send"} {
			for _, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGSTOP} {
				t.Run(fmt.Sprintf("%s %s %v", transport, call, signal), func(t *testing.T) {
					t.Parallel()
					c := newProcessGroup(t, transport, 3)
					c.setTimeout(timeout)
					if err := errors.Join(c.order("exchange", 3, 1), exchange(c.group, 3, 1)); err != nil {
						t.Fatal(err)
					}
					if err := c.cmds[1].Process.Signal(signal); err != nil {
						t.Fatal(err)
					}
					begin := time.Now()
					var err error
					b := device.Buffer{F32: make32(8_000_000, 0)}
					if call == "send" {
						err = c.group.Send(context.Background(), b, 2)
					} else {
						err = c.group.Recv(context.Background(), b, 2)
					}
					d := time.Since(begin)
					if signal == syscall.SIGKILL {
						wantError(t, err, call+" 2 ", " rank 2: rank 2 is gone: its ", " has ended")
						if d > noticeTime {
							t.Errorf("noticed after %v, want at most %v", d, noticeTime)
						}
					} else {
						wantError(t, err, call+" 2 ", " rank 2: rank 2 (", "within 12s")
						if d < timeout {
							t.Errorf("named after %v, want not before %v", d, timeout)
						}
						if err := c.cmds[1].Process.Signal(syscall.SIGKILL); err != nil {
							t.Fatal(err)
						}
					}
					wantError(t, c.end(), "signal: killed")
				})
			}
		}
	}
}

// setTimeout sets the time-out of this rank, rank 0.
func (c *processGroup) setTimeout(d time.Duration) {
	switch g := c.group.(type) {
	case *SharedMemory:
		g.options.Timeout = d
	case *Ring:
		g.options.Timeout = d
	}
}

// end ends the other ranks, waits for them and closes the group.
func (c *processGroup) end() error {
	var errs []error
	for i, cmd := range c.cmds {
		errs = append(errs, c.tasks[i].Close(), cmd.Wait())
	}
	return errors.Join(append(errs, c.group.Close())...)
}

func TestProcessGroupsAddUp(t *testing.T) {
	for _, transport := range transports {
		t.Run(transport, func(t *testing.T) {
			c := newProcessGroup(t, transport, 3)
			for _, n := range []int{0, 1, 1_000_003} {
				if err := c.sum(n, 2); err != nil {
					t.Fatal(err)
				}
			}
			if err := c.end(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// noticeTime is the time within which the end of a rank's process must be noticed. It is much
// less than DefaultTimeout, so an error within it does not come from the time-out.
const noticeTime = 10 * time.Second

// TestKilledRingMemberIsNoticed checks that a rank which is not a neighbor of the killed rank
// also names it.
func TestKilledRingMemberIsNoticed(t *testing.T) {
	for _, transport := range transports[1:] {
		t.Run(transport, func(t *testing.T) {
			c := newProcessGroup(t, transport, 3)
			if err := c.sum(10, 1); err != nil {
				t.Fatal(err)
			}
			if err := c.cmds[0].Process.Signal(syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			if _, err := fmt.Fprintln(c.tasks[1], "sum", 10, 1); err != nil {
				t.Fatal(err)
			}
			begin := time.Now()
			err := addUp(c.group, 10, 1)
			wantError(t, err, "all-reduce 2: rank 1 is gone: its connection has ended (last seen in all-reduce 1)")
			if d := time.Since(begin); d > noticeTime {
				t.Errorf("noticed after %v, want at most %v", d, noticeTime)
			}
			wantError(t, c.end(), "signal: killed", "exit status 1")
		})
	}
}

// TestWaitingProcessesYield checks that waiting ranks sleep. Four ranks share one core, and three
// of them wait for half a second for the fourth. If they polled, they would use most of that
// time.
func TestWaitingProcessesYield(t *testing.T) {
	for _, transport := range transports {
		t.Run(transport, func(t *testing.T) {
			c := newProcessGroup(t, transport, 4)
			for _, cmd := range c.cmds {
				if err := pinToFirstCore(cmd.Process.Pid); err != nil {
					t.Fatal(err)
				}
			}
			if err := c.sum(100_000, 3); err != nil {
				t.Fatal(err)
			}
			before := c.cpuTime(t)
			if err := c.order("sum", 100_000, 2); err != nil {
				t.Fatal(err)
			}
			time.Sleep(500 * time.Millisecond)
			// Each rank fills its buffer, polls for a short time, and sleeps.
			if used := c.cpuTime(t) - before; used > 150*time.Millisecond {
				t.Errorf("waiting for 500 ms took three ranks %v of CPU time", used)
			}
			if err := errors.Join(addUp(c.group, 100_000, 2), c.end()); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// pinToFirstCore restricts all threads of a process to the first core that it may use.
func pinToFirstCore(pid int) error {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(pid, &set); err != nil {
		return err
	}
	first := 0
	for !set.IsSet(first) {
		first++
	}
	set.Zero()
	set.Set(first)
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return err
	}
	for _, thread := range threads { // threads that are created later inherit the restriction
		id, err := strconv.Atoi(thread.Name())
		if err != nil {
			return err
		}
		if err := unix.SchedSetaffinity(id, &set); err != nil && !errors.Is(err, unix.ESRCH) {
			return err
		}
	}
	return nil
}

// cpuTime returns the CPU time of the other ranks, from fields 14 and 15 of /proc/PID/stat,
// which are in ticks of 10 ms.
func (c *processGroup) cpuTime(t *testing.T) time.Duration {
	t.Helper()
	var sum time.Duration
	for _, cmd := range c.cmds {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", cmd.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		for _, i := range []int{11, 12} {
			ticks, err := strconv.Atoi(fields[i])
			if err != nil {
				t.Fatal(err)
			}
			sum += time.Duration(ticks) * 10 * time.Millisecond
		}
	}
	return sum
}

// TestStoppedMemberHasUntilTheTimeout checks that only the time-out ends the wait for a process
// that is stopped. If it counted as gone, the wait would end within 10 s.
func TestStoppedMemberHasUntilTheTimeout(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	const timeout = 12 * time.Second
	for _, transport := range transports {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			c := newProcessGroup(t, transport, 2)
			c.setTimeout(timeout)
			if err := c.sum(10, 1); err != nil {
				t.Fatal(err)
			}
			if err := c.cmds[0].Process.Signal(syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			begin := time.Now()
			err := addUp(c.group, 10, 1)
			wantError(t, err, "all-reduce 2: rank 1 (last seen in all-reduce 1) did not arrive within 12s")
			if d := time.Since(begin); d < timeout {
				t.Errorf("named after %v, want not before %v", d, timeout)
			}
			if err := c.cmds[0].Process.Signal(syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			wantError(t, c.end(), "signal: killed")
		})
	}
}

// TestKilledInAnotherContainer checks that the lock of a process shows when it ends, if its PID
// belongs to another PID namespace.
func TestKilledInAnotherContainer(t *testing.T) {
	p := newPair(t)
	if err := p.sum(10, 1); err != nil {
		t.Fatal(err)
	}
	p.memory.ControlBlock(1).Namespace.Store(1)
	if !p.isAlive(1) {
		t.Error("the process runs, but isAlive returned false")
	}
	if err := p.cmds[0].Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	err := p.AllReduce(context.Background(), device.Buffer{F32: []float32{1}})
	wantError(t, err, "all-reduce 2: rank 1 is gone: its process ")
	if d := time.Since(begin); d > noticeTime {
		t.Errorf("noticed after %v, want at most %v", d, noticeTime)
	}
	wantError(t, errors.Join(p.Close(), p.end()), "signal: killed")
}
