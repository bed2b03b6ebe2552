package collective

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"lockstep/pkg/internal/device"
)

// TestMain makes the test binary a rank of its own where a test starts it so.
func TestMain(m *testing.M) {
	if path := os.Getenv("COLLECTIVE_TEST_PATH"); path != "" {
		if err := beRankOne(path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// beRankOne does operations of the length that a line of standard input names,
// until there is no further line.
func beRankOne(path string) error {
	g, err := OpenSharedMemory(path, 1, 2, Options{})
	if err != nil {
		return err
	}
	fmt.Println("mapped")
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		var n, times int
		if _, err := fmt.Sscan(in.Text(), &n, &times); err != nil {
			return err
		}
		if err := addUp(g, n, times); err != nil {
			return err
		}
	}
	return g.Close()
}

// pair is this process as rank 0 and another as rank 1.
type pair struct {
	*SharedMemory
	cmd   *exec.Cmd
	tasks io.WriteCloser
}

func newPair(t testing.TB) pair {
	t.Helper()
	g, err := CreateSharedMemory(2, Options{})
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), "COLLECTIVE_TEST_PATH="+g.Path())
	cmd.Stderr = os.Stderr
	tasks, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "mapped\n" {
		t.Fatalf("rank 1 said %q, %v", line, err)
	}
	if s, err := os.Stat(g.Path()); err != nil || s.Mode().Perm() != 0o600 {
		t.Errorf("file is %v, %v; want mode 0600", s, err)
	}
	if err := g.Unlink(); err != nil {
		t.Fatal(err)
	}
	return pair{g, cmd, tasks}
}

// sum has both ranks add up n numbers, times times.
func (p pair) sum(n, times int) error {
	if _, err := fmt.Fprintln(p.tasks, n, times); err != nil {
		return err
	}
	return addUp(p.SharedMemory, n, times)
}

// addUp is one rank's part: n numbers rank+1, added up times times.
func addUp(g *SharedMemory, n, times int) error {
	b := device.Buffer{F32: make([]float32, n)}
	for i := range b.F32 {
		b.F32[i] = float32(g.Rank() + 1)
	}
	for range times {
		if err := g.AllReduce(context.Background(), b); err != nil {
			return err
		}
	}
	// 1 + 2, then twice that each time, in the end infinity.
	want := float32(math.Ldexp(3, times-1))
	for i, v := range b.F32 {
		if v != want {
			return fmt.Errorf("element %d is %v, want %v", i, v, want)
		}
	}
	return nil
}

func (p pair) end() error { return errors.Join(p.tasks.Close(), p.cmd.Wait(), p.Close()) }

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
	pid := p.cmd.Process.Pid
	if err := p.cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	err := p.AllReduce(context.Background(), device.Buffer{F32: []float32{1}})
	wantError(t, err, "all-reduce 2: rank 1 is gone: its process "+strconv.Itoa(pid)+" has ended (last seen in all-reduce 1)")
	// DefaultTimeout is two minutes: it was seen, not timed out. (On an idle machine: 0.25 s.)
	if d := time.Since(begin); d > 20*time.Second {
		t.Errorf("noticed after %v", d)
	}
	if err := p.cmd.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
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
	before := processorTime(t)
	wantError(t, p.Barrier(ctx), "barrier 1: context deadline exceeded while waiting for rank 1")
	// A rank that spins would use all of the half second.
	if used := processorTime(t) - before; used > 100*time.Millisecond {
		t.Errorf("waiting for 500 ms took %v of processor time", used)
	}
	if err := p.end(); err != nil {
		t.Fatal(err)
	}
}

func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkAllReduceProcesses is two ranks, each a process with its buffer in
// ordinary memory; MB/s of buffer.
func BenchmarkAllReduceProcesses(b *testing.B) {
	for _, bytes := range []int{1e3, 100e3, 8e6, 100e6} {
		b.Run(fmt.Sprintf("%dkB", bytes/1000), func(b *testing.B) {
			p := newPair(b)
			b.SetBytes(int64(bytes))
			b.ResetTimer()
			if err := p.sum(bytes/4, b.N); err != nil {
				b.Fatal(err)
			}
			b.StopTimer()
			if err := p.end(); err != nil {
				b.Fatal(err)
			}
		})
	}
}
