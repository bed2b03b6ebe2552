//go:build linux

package collective

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"lockstep/pkg/collective/internal/wire"
	"lockstep/pkg/internal/device"
)

// mpiVariable makes this test binary a rank of a run of mpirun. Its value is what the rank does.
const mpiVariable = "COLLECTIVE_TEST_MPI"

// TestStuckMPIThread: the thread of MPI does not return from a call, so Close and a failure must not
// wait for it longer than their limits.
func TestStuckMPIThread(t *testing.T) {
	for name, receive := range map[string]bool{"no call is received": false, "a call does not return": true} {
		stuck := &mpiThread{size: 3, calls: make(chan func()), ended: make(chan struct{})}
		if receive {
			go func() { <-stuck.calls }()
		}
		if _, err := stuck.finalize(20 * time.Millisecond); err == nil || !strings.Contains(err.Error(), "MPI did not return within 20ms") {
			t.Errorf("%s: finalize returned %v", name, err)
		}
		stuck.stop(time.Millisecond)
	}
	gone := &mpiThread{size: 1, calls: make(chan func()), ended: make(chan struct{})}
	close(gone.ended)
	if _, err := gone.finalize(time.Minute); err == nil || !strings.Contains(err.Error(), "no longer uses MPI") {
		t.Errorf("finalize without a thread returned %v", err)
	}
}

// mpiLaunchers are the programs that start ranks, and their arguments.
var mpiLaunchers = map[string][]string{
	"mpirun.openmpi": {"--allow-run-as-root", "--oversubscribe"},
	"mpirun.mpich":   nil,
}

// runMPIMember joins the group of mpirun, and does what the scenario says. It prints its result in
// one line that begins with its rank. If a rank is to fail, each rank then waits until mpirun ends it,
// because mpirun ends all ranks when one ends without MPI_Finalize.
func runMPIMember(scenario string) error {
	ctx := context.Background()
	g, err := JoinMPI(ctx, Options{Timeout: time.Minute})
	if err != nil {
		return err
	}
	const ended = 4 * time.Minute // by then
	print := func(err error) { _, _ = fmt.Fprintf(os.Stdout, "rank %d of %d: %v\n", g.Rank(), g.Size(), err) }
	one := device.Buffer{F32: make32(1, 1)}
	last := g.Rank() == g.Size()-1
	switch scenario {
	case "operations":
		print(errors.Join(checkMPI(ctx, g), g.Close()))
		return nil
	case "missing":
		g.options.Timeout = 5 * time.Second
		if !last {
			print(errors.Join(g.Barrier(ctx), g.Close()))
		}
		time.Sleep(ended)
	case "missing message":
		g.options.Timeout = 5 * time.Second
		switch {
		case last:
		case g.Rank() == 0:
			print(errors.Join(g.Recv(ctx, one, g.Size()-1), g.Close()))
		default: // learns it from rank 0
			print(errors.Join(g.Barrier(ctx), g.Close()))
		}
		time.Sleep(ended)
	case "another size":
		switch g.Rank() {
		case 0:
			print(g.Send(ctx, device.Buffer{F32: make32(3, 1)}, 1))
		case 1:
			print(g.Recv(ctx, one, 0))
		default:
			print(g.Barrier(ctx))
		}
		time.Sleep(ended)
	case "left":
		if last {
			print(g.Close())
			return nil
		}
		print(g.Barrier(ctx))
		time.Sleep(ended)
	}
	return nil
}

// checkMPI compares all operations on g with what they must give, for several lengths and both
// precisions, and exchanges messages between all pairs beside all-reduces.
func checkMPI(ctx context.Context, g Group) error {
	if err := checkMPISent(ctx, g); err != nil {
		return err
	}
	n := g.Size()
	for _, length := range []int{0, 1, 2, 1000, 200_003} {
		for _, f64 := range []bool{false, true} {
			fresh := func(value func(rank, i int) float64) device.Buffer {
				v := make([]float64, length)
				for i := range v {
					v[i] = value(g.Rank(), i)
				}
				return buffers(f64, [][]float64{v})[0]
			}
			mine := func(rank, i int) float64 { return float64(i%97 + rank) }
			sum := func(i int) float64 { return float64(n*(i%97) + n*(n-1)/2) }
			for _, tt := range []struct {
				name string
				run  func(b device.Buffer) error
				want func(i int) (float64, bool)
			}{
				{"all-reduce", func(b device.Buffer) error { return g.AllReduce(ctx, b) }, func(i int) (float64, bool) { return sum(i), true }},
				{"broadcast", func(b device.Buffer) error { return g.Broadcast(ctx, b, n-1) }, func(i int) (float64, bool) { return mine(n-1, i), true }},
				{"reduce-scatter", func(b device.Buffer) error { return g.ReduceScatter(ctx, b) }, func(i int) (float64, bool) { return sum(i), owner(length, n, i) == g.Rank() }},
				{"all-gather", func(b device.Buffer) error { return g.AllGather(ctx, b) }, func(i int) (float64, bool) { return mine(owner(length, n, i), i), true }},
				{"barrier", func(device.Buffer) error { return g.Barrier(ctx) }, func(i int) (float64, bool) { return mine(g.Rank(), i), true }},
			} {
				b := fresh(mine)
				if err := tt.run(b); err != nil {
					return err
				}
				for i := range length {
					if want, defined := tt.want(i); defined && at(b, i) != want {
						return fmt.Errorf("%s, rank %d, element %d of %d: got %v, want %v", tt.name, g.Rank(), i, length, at(b, i), want)
					}
				}
			}
		}
	}
	lengths := []int{0, 1, 1000, 300_007}
	fs := []func() error{func() error { return addUp(g, 100_000, 3) }}
	for peer := range n {
		if peer != g.Rank() {
			fs = append(fs, func() error { return sendTo(ctx, g, peer, lengths) }, func() error { return receiveFrom(ctx, g, peer, lengths) })
		}
	}
	return concurrently(fs...)
}

// checkMPISent checks how many bytes an all-reduce, an all-gather, a broadcast and a message count.
// All buffers have 400·n bytes, so each shard has 400.
func checkMPISent(ctx context.Context, g Group) error {
	n, rank := g.Size(), g.Rank()
	b := device.Buffer{F32: make([]float32, 100*n)}
	to, message := (rank+1)%n, 0
	if n > 1 {
		message = 400*n + wire.EncodedFrameBytes
	}
	for _, tt := range []struct {
		name string
		run  func() error
		want int
	}{
		{"all-reduce", func() error { return g.AllReduce(ctx, b) }, 800 * (n - 1)},
		{"all-gather", func() error { return g.AllGather(ctx, b) }, 400 * (n - 1)},
		{"broadcast", func() error { return g.Broadcast(ctx, b, n-1) }, 400 * n * (n - 1) * (rank / max(1, n-1))},
		{"barrier", func() error { return g.Barrier(ctx) }, 0},
		{"message", func() error {
			if n == 1 {
				return nil
			}
			received := device.Buffer{F32: make([]float32, 100*n)}
			return concurrently(func() error { return g.Send(ctx, b, to) }, func() error { return g.Recv(ctx, received, (rank+n-1)%n) })
		}, message},
	} {
		before, _ := Sent(g)
		if err := tt.run(); err != nil {
			return err
		}
		if after, ok := Sent(g); !ok || int(after-before) != tt.want {
			return fmt.Errorf("%s, rank %d of %d: %d bytes were counted (%v), want %d", tt.name, rank, n, after-before, ok, tt.want)
		}
	}
	return nil
}

// TestMPIRun starts ranks with the real launchers of Open MPI and MPICH.
func TestMPIRun(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for launcher, args := range mpiLaunchers {
		for _, tt := range []struct {
			scenario string
			ranks    int
			want     []string // by rank
		}{
			{"operations", 1, []string{"<nil>"}},
			{"operations", 2, []string{"<nil>", "<nil>"}},
			{"operations", 3, []string{"<nil>", "<nil>", "<nil>"}},
			{"operations", 4, []string{"<nil>", "<nil>", "<nil>", "<nil>"}},
			{"missing", 3, []string{"barrier 1: rank 2 ", "barrier 1: rank 2 "}}, // did not arrive within 5s, or is missing

			{"missing message", 3, []string{"receive 1 from rank 2: rank 2 (not seen in any operation) did not send it within 5s", "barrier 1: rank 0"}}, // failed, or did not arrive
			{"another size", 3, []string{"<nil>", "receive 1 from rank 0: the message has 3 float32, the buffer has 1 float32", "barrier 1: rank 1 failed"}},
			{"left", 3, []string{"barrier 1: rank 2 has left the group", "barrier 1: rank 2 has left the group"}},
		} {
			t.Run(fmt.Sprintf("%s %s %d", launcher, tt.scenario, tt.ranks), func(t *testing.T) {
				t.Parallel() // the ranks mostly wait for each other
				path, err := exec.LookPath(launcher)
				if err != nil {
					t.Skipf("no %s on this machine", launcher)
				}
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
				defer cancel()
				cmd := exec.CommandContext(ctx, path, append(append([]string{}, args...), "-np", fmt.Sprint(tt.ranks), self)...)
				cmd.Env = append(os.Environ(), mpiVariable+"="+tt.scenario)
				out := &awaitedOutput{}
				for rank, want := range tt.want {
					out.want = append(out.want, fmt.Sprintf("rank %d of %d: %s", rank, tt.ranks, want))
				}
				if tt.scenario != "operations" {
					out.complete = cancel // mpirun may hang if a rank ends without MPI_Finalize
				}
				cmd.Stdout, cmd.Stderr = out, out
				cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // mpirun then ends the ranks
				cmd.WaitDelay = 3 * time.Second
				if err := cmd.Run(); tt.scenario == "operations" && err != nil {
					t.Errorf("%v", err)
				}
				for _, want := range out.missing() {
					t.Errorf("no %q in the output:\n%s", want, out.text.String())
				}
			})
		}
	}
}

// awaitedOutput stores the output of a command, and calls complete, if it is not nil, when the output
// contains all texts in want.
type awaitedOutput struct {
	want     []string
	complete func()
	text     bytes.Buffer
}

func (o *awaitedOutput) Write(p []byte) (int, error) {
	n, err := o.text.Write(p)
	if o.complete != nil && len(o.missing()) == 0 {
		o.complete()
	}
	return n, err
}

// missing returns the texts in want that the output does not contain.
func (o *awaitedOutput) missing() []string {
	return slices.DeleteFunc(slices.Clone(o.want), func(want string) bool { return strings.Contains(o.text.String(), want) })
}

// TestMPINeedsALauncher checks the errors outside of mpirun and with an algorithm.
func TestMPINeedsALauncher(t *testing.T) {
	for _, name := range []string{"OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMIX_RANK"} {
		t.Setenv(name, "")
	}
	_, err := JoinMPI(t.Context(), Options{})
	wantError(t, err, "join MPI: no mpirun has started this process")
	_, err = JoinMPI(t.Context(), Options{Algorithm: "tree"})
	wantError(t, err, `got the algorithm "tree", but MPI chooses its algorithms itself`)
}
