package collective

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"lockstep/pkg/collective/internal/wire"
	"lockstep/pkg/internal/device"
)

type opKind uint8

const (
	kindAllReduce opKind = iota + 1
	kindBroadcast
	kindReduceScatter
	kindAllGather
	kindBarrier
	kindSend
	kindReceive
)

func (k opKind) String() string {
	switch k {
	case kindAllReduce:
		return "all-reduce"
	case kindBroadcast:
		return "broadcast"
	case kindReduceScatter:
		return "reduce-scatter"
	case kindAllGather:
		return "all-gather"
	case kindBarrier:
		return "barrier"
	case kindSend:
		return "send"
	case kindReceive:
		return "receive"
	}
	return "no operation"
}

// serializer lets a group run one collective operation at a time, beside calls of Send and
// Recv. After an error it refuses further operations, because the ranks may no longer be in
// the same operation.
type serializer struct {
	number uint64 // collective operations so far
	kind   opKind // of the current collective operation

	mu       sync.Mutex
	running  bool  // a collective operation is running
	broken   error // the error of the operation that failed, or nil
	notified bool  // the other ranks have been notified of the failure, or are being notified
	closed   bool
	calls    int            // calls of Send and Recv that are running
	peers    [2][]peerCalls // calls of Send and of Recv, by the other rank
	reason   *wire.Frame    // the note about the failure, if a call of Send or Recv has broken the group
}

// describeOperation returns, for example, "all-reduce 17".
func (t *serializer) describeOperation() string { return fmt.Sprintf("%v %d", t.kind, t.number) }

func (t *serializer) operations() uint64 { return t.number }

// runExclusive runs a collective operation, or returns an error if another one is running.
// If the group has failed, it calls notify, which notifies the other ranks.
func (t *serializer) runExclusive(ctx context.Context, k opKind, b device.Buffer, size int, operation func() error, notify func()) error {
	if err := checkOnHost(k, b); err != nil {
		return err
	}
	if err := t.beginCollective(k); err != nil {
		return err
	}
	var err error
	switch {
	case ctx.Err() != nil:
		// The other ranks will wait for this one, although it has not announced the call.
		err = fmt.Errorf("%v %d: %w", k, t.number+1, context.Cause(ctx))
	case size > 1:
		t.number++
		t.kind = k
		err = operation()
	}
	if t.endCollective(err) {
		notify()
		t.mu.Lock()
		t.running = false
		t.mu.Unlock()
	}
	return err
}

// beginCollective begins a collective operation. It returns an error if the group is closed or broken,
// or another collective operation is running.
func (t *serializer) beginCollective(k opKind) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.running {
		return fmt.Errorf("%v: another operation of this group is running: use a group from one goroutine at a time", k)
	}
	if err := t.checkGroupUsable(k); err != nil {
		return err
	}
	t.running = true
	return nil
}

// endCollective ends a collective operation that returned err. It returns true if the group has failed
// and the other ranks have not been notified yet. The operation then still counts as
// running, and the caller must notify them.
func (t *serializer) endCollective(err error) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.broken == nil {
		t.broken = err
	}
	notify := t.broken != nil && !t.notified
	t.notified = t.notified || notify
	t.running = notify
	return notify
}

// checkGroupUsable returns an error if the group is closed or broken. The caller has locked mu.
func (t *serializer) checkGroupUsable(k opKind) error {
	switch {
	case t.closed:
		return fmt.Errorf("%v: the group is closed", k)
	case t.broken != nil:
		return fmt.Errorf("%v: the group stopped after an earlier error: %w", k, t.broken)
	}
	return nil
}

// checkGroupFailure returns an error if another operation has broken the group. what describes
// the operation that waits.
func (t *serializer) checkGroupFailure(what string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.broken != nil {
		return fmt.Errorf("%s: another operation of this rank failed: %w", what, t.broken)
	}
	return nil
}

func (t *serializer) closeOnce(release func() error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.running || t.calls > 0 {
		return errors.New("close group: an operation is still running: end its context and wait for it first")
	}
	if t.closed {
		return nil
	}
	t.closed = true
	return release()
}

func checkOnHost(k opKind, b device.Buffer) error {
	if !b.OnHost() {
		return fmt.Errorf("%v: the buffer is in GPU memory, but this group exchanges host memory", k)
	}
	return nil
}

// callSignature encodes an operation in one number: its kind, its element size, and its root or,
// for an all-reduce, the number of the algorithm. Two calls match if their signatures and lengths
// are equal.
func callSignature(k opKind, b device.Buffer, root int) uint64 {
	element := uint64(4)
	if b.F64 != nil {
		element = 8
	}
	return uint64(k) | element<<8 | uint64(root)<<16
}

// formatCall describes an operation, such as "all-reduce of 8 float32". what is its signature, see
// callSignature, and length its number of elements.
func formatCall(what, length uint64) string {
	k := opKind(what)
	if k == kindBarrier || k == 0 {
		return k.String()
	}
	text := fmt.Sprintf("%v of %s", k, formatElements(what, length))
	switch detail := what >> 16; {
	case k == kindBroadcast:
		text += fmt.Sprintf(" from rank %d", detail)
	case k == kindAllReduce && detail > 0:
		text += " by algorithm " + algorithmName(detail)
	}
	return text
}

// formatElements describes the elements of an operation, such as "8 float32". what is its
// signature, see callSignature.
func formatElements(what, length uint64) string {
	return fmt.Sprintf("%d float%d", length, 8*elementBytes(what))
}

func elementBytes(what uint64) uint64 { return what >> 8 & 0xff }

// formatLastCall describes a rank's last operation; number 0 means that there was none.
func formatLastCall(number, what uint64) string {
	if number == 0 {
		return "not seen in any operation"
	}
	return fmt.Sprintf("last seen in %v %d", opKind(what), number)
}
