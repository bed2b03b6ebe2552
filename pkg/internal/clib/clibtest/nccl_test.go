package clibtest_test

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"lockstep/pkg/internal/clib/clibtest"
	"lockstep/pkg/internal/clib/cuda"
	"lockstep/pkg/internal/clib/nccl"
)

// rank is the machine of one rank, which runs in a separate goroutine.
type rank struct {
	*gpu
	comm   nccl.Comm
	stream cuda.Stream
}

// each calls f concurrently for the n ranks of one group, and returns the errors.
func each(t *testing.T, n int, f func(i int, r rank) error) []error {
	t.Helper()
	network := clibtest.NewNCCLNetwork()
	ranks := make([]rank, n)
	for i := range ranks {
		ranks[i].gpu = ready(t, clibtest.Options{Network: network})
	}
	id, err := ranks[0].NCCL.GetUniqueID()
	check(t, err)
	text, err := id.MarshalText() // as the rendezvous would carry it
	check(t, err)
	errs := make([]error, n)
	var wait sync.WaitGroup
	for i, r := range ranks {
		wait.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			errs[i] = func() error {
				err := r.Driver.CtxSetCurrent(1)
				if err != nil {
					return err
				}
				var id nccl.UniqueID
				if err := id.UnmarshalText(text); err != nil {
					return err
				}
				if r.comm, err = r.NCCL.CommInit(n, i, id); err != nil {
					return err
				}
				if r.stream, err = r.Driver.StreamCreate(cuda.StreamNonBlocking, 0); err != nil {
					return err
				}
				return f(i, r)
			}()
		})
	}
	wait.Wait()
	return errs
}

func TestAllReduceAmongRanks(t *testing.T) {
	const n = 3
	var mu sync.Mutex
	got := map[int][]float32{}
	for _, err := range each(t, n, func(i int, r rank) error {
		p, err := r.Driver.MemAlloc(8)
		if err != nil {
			return err
		}
		values := []float32{float32(i), float32(10 * i)}
		if err := errors.Join(r.Driver.MemcpyHtoD(p, pointer(values), 8), r.Driver.StreamSynchronize(0)); err != nil {
			return err
		}
		if err := r.NCCL.AllReduce(p, p, 2, nccl.Float32, nccl.Avg, r.comm, r.stream); err != nil {
			return err
		}
		if err := r.NCCL.Broadcast(p, p, 1, nccl.Float32, 2, r.comm, r.stream); err != nil {
			return err
		}
		if err := r.Driver.StreamSynchronize(r.stream); err != nil {
			return err
		}
		b, err := r.machine.Bytes(p, 8)
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		got[i] = toFloats(b)
		return r.NCCL.CommDestroy(r.comm)
	}) {
		check(t, err)
	}
	for i := range n {
		if !slices.Equal(got[i], []float32{1, 10}) { // means of 0, 1, 2 and 0, 10, 20
			t.Errorf("rank %d has %v", i, got[i])
		}
	}
}

// reduce enqueues an all-reduce of one number and returns its address.
func (r rank) reduce() (cuda.Ptr, error) {
	p, err := r.Driver.MemAlloc(4)
	if err != nil {
		return p, err
	}
	return p, r.NCCL.AllReduce(p, p, 1, nccl.Float32, nccl.Sum, r.comm, r.stream)
}

// captured runs an all-reduce, captures another one, and instantiates the graph.
func (r rank) captured() (g cuda.Graph, exec cuda.GraphExec, err error) {
	p, err := r.reduce()
	if err != nil {
		return 0, 0, err
	}
	if err := r.Driver.StreamSynchronize(r.stream); err != nil {
		return 0, 0, err
	}
	if err := r.Driver.StreamBeginCapture(r.stream, cuda.CaptureThreadLocal); err != nil {
		return 0, 0, err
	}
	if err := r.NCCL.AllReduce(p, p, 1, nccl.Float32, nccl.Sum, r.comm, r.stream); err != nil {
		return 0, 0, err
	}
	if g, err = r.Driver.StreamEndCapture(r.stream); err != nil {
		return 0, 0, err
	}
	exec, err = r.Driver.GraphInstantiate(g)
	return g, exec, err
}

// begun calls f in a goroutine and reports whether f returns early, within a short time.
func begun(f func() error) (result chan error, early bool) {
	result = make(chan error, 1)
	ended := make(chan struct{})
	go func() {
		result <- f()
		close(ended)
	}()
	select {
	case <-ended:
		return result, true
	case <-time.After(20 * time.Millisecond):
		return result, false
	}
}

// TestGraphsHoldTheCommunicator checks that ncclCommDestroy and ncclCommAbort block while there
// is a graph that captured a collective, or an executable graph of it.
func TestGraphsHoldTheCommunicator(t *testing.T) {
	for name, end := range map[string]func(r rank) error{
		"destroy": func(r rank) error { return r.NCCL.CommDestroy(r.comm) },
		"abort":   func(r rank) error { return r.NCCL.CommAbort(r.comm) },
	} {
		for _, err := range each(t, 2, func(_ int, r rank) error {
			g, exec, err := r.captured()
			if err != nil {
				return err
			}
			result, early := begun(func() error { return end(r) })
			if early {
				return errors.New("returned while both graphs exist")
			}
			if err := r.Driver.GraphDestroy(g); err != nil {
				return err
			}
			select {
			case err := <-result:
				return fmt.Errorf("returned %w while the executable graph exists", err)
			case <-time.After(20 * time.Millisecond):
			}
			return errors.Join(r.Driver.GraphExecDestroy(exec), <-result)
		}) {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// TestFirstCollectiveBlocks checks that the call of the first collective waits for the other
// ranks, rather than its stream, and that an abort ends the wait.
func TestFirstCollectiveBlocks(t *testing.T) {
	errs := each(t, 2, func(i int, r rank) error {
		if i == 1 {
			return nil // never calls one
		}
		result, early := begun(func() error {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			if err := r.Driver.CtxSetCurrent(1); err != nil {
				return err
			}
			_, err := r.reduce()
			return err
		})
		if early {
			return errors.New("returned without the other rank")
		}
		return errors.Join(r.NCCL.CommAbort(r.comm), <-result)
	})
	wants(t, errs[0], "ncclRemoteError (6)", "before its first collective")
	check(t, errs[1])
}

// TestAbortEndsTheWait checks that an abort ends the wait for a rank that never calls the
// collective, also in a captured collective whose graph was launched.
func TestAbortEndsTheWait(t *testing.T) {
	errs := each(t, 2, func(i int, r rank) error {
		if i == 1 {
			_, err := r.reduce() // the first, and no other
			return errors.Join(err, r.Driver.StreamSynchronize(r.stream))
		}
		g, exec, err := r.captured()
		if err != nil {
			return err
		}
		if err := r.Driver.GraphLaunch(exec, r.stream); err != nil {
			return err
		}
		watchdog := make(chan error)
		go func() {
			time.Sleep(20 * time.Millisecond)
			if err := r.NCCL.AsyncError(r.comm); err != nil {
				watchdog <- fmt.Errorf("before the abort: %w", err)
			}
			watchdog <- r.NCCL.CommAbort(r.comm)
		}()
		if err := r.Driver.StreamSynchronize(r.stream); err != nil {
			return err
		}
		failed := r.NCCL.AsyncError(r.comm)
		return errors.Join(r.Driver.GraphDestroy(g), r.Driver.GraphExecDestroy(exec), <-watchdog, failed)
	})
	wants(t, errs[0], "NCCL communicator", "ncclRemoteError (6)", "see that rank's log")
	check(t, errs[1])
}

func TestRanksThatDisagree(t *testing.T) {
	errs := each(t, 2, func(i int, r rank) error {
		p, err := r.Driver.MemAlloc(8)
		if err != nil {
			return err
		}
		if err := r.NCCL.AllReduce(p, p, int64(1+i), nccl.Float32, nccl.Sum, r.comm, r.stream); err != nil {
			return err
		}
		if err := r.Driver.StreamSynchronize(r.stream); err != nil {
			return err
		}
		return r.NCCL.AsyncError(r.comm)
	})
	if !errors.Is(errs[0], nccl.InvalidUsage) || !errors.Is(errs[1], nccl.InvalidUsage) {
		t.Errorf("errors: %v", errs)
	}
}

func TestTwoRanksOnOneMachine(t *testing.T) {
	g := ready(t, clibtest.Options{Devices: 2})
	id, err := g.NCCL.GetUniqueID()
	check(t, err)
	errs := make(chan error)
	for rank := range 2 {
		go func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			err := g.Driver.CtxSetCurrent(1)
			if err == nil {
				_, err = g.NCCL.CommInit(2, rank, id)
			}
			errs <- err
		}()
	}
	both := errors.Join(<-errs, <-errs)
	wants(t, both, "ncclInvalidUsage (5)", "Duplicate GPU detected", "use the host ring", "ncclRemoteError (6)")
	_, err = g.NCCL.CommInit(2, 2, id)
	wants(t, err, "ncclInvalidArgument (4)")
}
