//go:build linux

package collective

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"lockstep/pkg/internal/device"
)

// TestMain runs the test binary as a rank of a process group if groupVariable is set, and as a
// rank of MPI if mpiVariable is set.
func TestMain(m *testing.M) {
	if scenario := os.Getenv(mpiVariable); scenario != "" {
		if err := runMPIMember(scenario); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if value := os.Getenv(groupVariable); value != "" {
		if err := runMember(value); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// pair is a group of two processes over shared memory. This process is rank 0.
type pair struct {
	*SharedMemory
	*processGroup
}

func newPair(t testing.TB) pair {
	t.Helper()
	c := newProcessGroup(t, "shared memory", 2)
	return pair{c.group.(*SharedMemory), c}
}

func TestProcessesAddUp(t *testing.T) {
	p := newPair(t)
	for _, n := range []int{0, 1, 1_000_003} {
		if err := p.sum(n, 3); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.end(); err != nil {
		t.Fatal(err)
	}
}

// TestKilledProcessIsNoticedAndLeavesNothing also when nobody has waited for
// it: then it is still in the process table.
func TestKilledProcessIsNoticedAndLeavesNothing(t *testing.T) {
	p := newPair(t)
	if err := p.sum(10, 1); err != nil {
		t.Fatal(err)
	}
	pid := p.cmds[0].Process.Pid
	if err := p.cmds[0].Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	err := p.AllReduce(context.Background(), device.Buffer{F32: []float32{1}})
	wantError(t, err, "all-reduce 2: rank 1 is gone: its process "+strconv.Itoa(pid)+" has ended (last seen in all-reduce 1)")
	if d := time.Since(begin); d > noticeTime { // on an idle machine: 0.25 s
		t.Errorf("noticed after %v, want at most %v", d, noticeTime)
	}
	if err := p.cmds[0].Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("rank 1 ended with %v", err)
	}
	if _, err := os.Stat(p.Path()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is left behind (%v)", p.Path(), err)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestWaitingCostsNoProcessor: the rank that comes first must not take the
// time of those that still compute.
func TestWaitingCostsNoProcessor(t *testing.T) {
	p := newPair(t)
	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	before := cpuTime(t)
	wantError(t, p.Barrier(ctx), "barrier 1: context deadline exceeded while waiting for rank 1")
	// A rank that spins would use all of the half second.
	if used := cpuTime(t) - before; used > 100*time.Millisecond {
		t.Errorf("waiting for 500 ms took %v of processor time", used)
	}
	if err := p.end(); err != nil {
		t.Fatal(err)
	}
}

func cpuTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkAllReduceProcesses is ranks that are each a process, with a buffer
// in ordinary memory; MB/s of buffer.
func BenchmarkAllReduceProcesses(b *testing.B) {
	for _, n := range []int{2, 4} {
		for _, bytes := range []int{1e3, 100e3, 8e6, 100e6} {
			for _, transport := range transports {
				b.Run(fmt.Sprintf("%d/%dkB/%s", n, bytes/1000, transport), func(b *testing.B) {
					c := newProcessGroup(b, transport, n)
					b.SetBytes(int64(bytes))
					b.ResetTimer()
					if err := c.sum(bytes/4, b.N); err != nil {
						b.Fatal(err)
					}
					b.StopTimer()
					if err := c.end(); err != nil {
						b.Fatal(err)
					}
				})
			}
		}
	}
}
