package collective

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"
	"unsafe"

	"lockstep/pkg/collective/internal/wire"
	"lockstep/pkg/internal/clib/mpi"
)

// mpiThread is the only thread of this process that calls MPI. It receives operations through the
// channel calls, starts them, and advances them until they are complete.
type mpiThread struct {
	lib        *mpi.Library
	rank, size int
	calls      chan func()
	ended      chan struct{}
	stopped    bool            // set by a call: run returns
	active     []*mpiOperation // operations that are not complete
	receives   []*mpiOperation // by rank: the operation that receives its next note; nil without one
	buffers    [][]byte        // by rank: the memory of that operation

	mu    sync.Mutex
	state []wire.Frame // by rank: its last note
}

type mpiOperation struct {
	request mpi.Request
	memory  []byte     // must not be freed before the operation is complete
	done    chan error // receives the result
}

// startMPI starts the thread and initializes MPI, which waits for all ranks.
func startMPI(ctx context.Context, lib *mpi.Library) (*mpiThread, error) {
	t := &mpiThread{lib: lib, calls: make(chan func()), ended: make(chan struct{})}
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		defer close(t.ended)
		err := t.initialize()
		result <- err
		if err == nil {
			t.run()
		}
	}()
	select {
	case err := <-result:
		return t, err
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for the other ranks in MPI_Init: %w", context.Cause(ctx))
	}
}

// initialize initializes MPI and begins to receive notes.
func (t *mpiThread) initialize() (err error) {
	if err = t.lib.Init(); err != nil {
		return err
	}
	if t.rank, err = t.lib.Rank(); err != nil {
		return err
	}
	if t.size, err = t.lib.Size(); err != nil {
		return err
	}
	t.state = make([]wire.Frame, t.size)
	t.receives, t.buffers = make([]*mpiOperation, t.size), make([][]byte, t.size)
	for rank := range t.size {
		if rank != t.rank {
			t.buffers[rank] = make([]byte, wire.EncodedFrameBytes)
			t.postNoteReceive(rank)
		}
	}
	return nil
}

var errMPIEnded = errors.New("this rank no longer uses MPI after an error")

// startOperation starts an operation on memory, which must not be empty.
func (t *mpiThread) startOperation(memory []byte, begin func(*mpi.Request, unsafe.Pointer) error) *mpiOperation {
	op := &mpiOperation{memory: memory, done: make(chan error, 1)}
	select {
	case t.calls <- func() { t.startOnThread(op, begin) }:
	case <-t.ended:
		op.done <- errMPIEnded
	}
	return op
}

// startOnThread implements start. It must run on the thread.
func (t *mpiThread) startOnThread(op *mpiOperation, begin func(*mpi.Request, unsafe.Pointer) error) {
	if err := begin(&op.request, unsafe.Pointer(&op.memory[0])); err != nil {
		op.done <- err
		return
	}
	t.active = append(t.active, op)
}

// Once the operations have waited for spinTime, the thread sleeps between two tests of them. It
// sleeps for a hundredth of the time waited so far, which adds little, but at least mpiPause and at
// most maxMPIPause.
const (
	mpiPause    = 50 * time.Microsecond
	maxMPIPause = time.Millisecond
)

// run executes calls and advances the operations until a call sets stopped. Without operations it
// sleeps until the next call.
func (t *mpiThread) run() {
	var idle time.Time
	for !t.stopped {
		if len(t.active) == 0 {
			(<-t.calls)()
			idle = time.Now()
			continue
		}
		select {
		case call := <-t.calls:
			call()
			continue
		default:
		}
		if t.advanceOperations() {
			idle = time.Now()
			continue
		}
		if waited := time.Since(idle); waited > spinTime {
			t.advanceNotes()
			time.Sleep(min(max(waited/100, mpiPause), maxMPIPause))
		} else {
			runtime.Gosched()
		}
	}
}

// advanceOperations tests all operations and reports whether one is complete.
func (t *mpiThread) advanceOperations() bool {
	n := len(t.active)
	t.active = slices.DeleteFunc(t.active, func(op *mpiOperation) bool {
		done, err := t.lib.Test(&op.request)
		if done || err != nil {
			op.done <- err
		}
		return done || err != nil
	})
	return len(t.active) < n
}

func (t *mpiThread) postNoteReceive(rank int) {
	op := &mpiOperation{memory: t.buffers[rank], done: make(chan error, 1)}
	if err := t.lib.IReceive(&op.request, unsafe.Pointer(&op.memory[0]), wire.EncodedFrameBytes, mpi.Byte, rank, tagNote); err != nil {
		return // without its notes, errors name the rank less exactly
	}
	t.receives[rank] = op
}

func (t *mpiThread) advanceNotes() {
	for rank, op := range t.receives {
		if op == nil {
			continue
		}
		done, err := t.lib.Test(&op.request)
		if !done && err == nil {
			continue
		}
		t.receives[rank] = nil
		if err != nil {
			continue
		}
		f := wire.DecodeFrame(t.buffers[rank])
		t.mu.Lock()
		t.state[rank] = f
		t.mu.Unlock()
		if f.Kind != wire.KindNote { // otherwise it was the last
			t.postNoteReceive(rank)
		}
	}
}

func (t *mpiThread) receivedNotes() []wire.Frame {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.state)
}

func (t *mpiThread) sendNote(f wire.Frame) {
	for rank := range t.size {
		if rank != t.rank {
			header := f.Encode()
			t.startOperation(header[:], func(r *mpi.Request, p unsafe.Pointer) error {
				return t.lib.ISend(r, p, wire.EncodedFrameBytes, mpi.Byte, rank, tagNote)
			})
		}
	}
}

// errStuckMPI is the error of callOnThread if a call of MPI does not return.
var errStuckMPI = errors.New("MPI did not return")

// callOnThread runs f on the thread. If f or an earlier call of MPI does not return within limit,
// it returns an error; f may still run later.
func (t *mpiThread) callOnThread(limit time.Duration, f func()) error {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	returned := make(chan struct{})
	select {
	case t.calls <- func() { defer close(returned); f() }:
	case <-t.ended:
		return errMPIEnded
	case <-timer.C:
		return fmt.Errorf("%w within %v", errStuckMPI, limit)
	}
	select {
	case <-returned:
		return nil
	case <-timer.C:
		return fmt.Errorf("%w within %v", errStuckMPI, limit)
	}
}

// stop ends the thread after d, in which the thread still sends notes. It does not wait for a call
// of MPI that does not return.
func (t *mpiThread) stop(d time.Duration) {
	time.Sleep(d)
	if t.callOnThread(wire.CloseTimeout, func() { t.stopped = true }) == nil {
		<-t.ended
	}
}

// finalize waits until all other ranks have left the group, at most for limit, and ends MPI and
// the thread. It returns the ranks that have not left, and an error if a call of MPI, such as
// MPI_Finalize, does not return within limit.
func (t *mpiThread) finalize(limit time.Duration) ([]int, error) {
	begin := time.Now()
	for {
		var missing []int // read only if call returns nil
		stopped := false
		err := t.callOnThread(limit, func() {
			t.advanceOperations()
			t.advanceNotes()
			for rank, op := range t.receives {
				if op != nil {
					missing = append(missing, rank)
				}
			}
			if len(missing) == 0 && len(t.active) == 0 {
				_ = t.lib.Finalize() // the group has ended
				t.stopped = true
			} else if time.Since(begin) > limit {
				t.stopped = true
			}
			stopped = t.stopped
		})
		if err != nil {
			return nil, err
		}
		if stopped {
			<-t.ended
			return missing, nil
		}
		time.Sleep(time.Millisecond)
	}
}
