package collective

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"lockstep/pkg/internal/device"
)

// opKind is the kind of a collective operation.
type opKind uint8

const (
	kindAllReduce opKind = iota + 1
	kindBroadcast
	kindReduceScatter
	kindAllGather
	kindBarrier
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
	}
	return "no operation"
}

// serializer lets a group run one operation at a time. After an error it refuses further
// operations, because the ranks may no longer be in the same operation.
type serializer struct {
	number uint64 // operations so far
	what   string // the current operation, such as "all-reduce 17"
	busy   atomic.Bool
	broken error // the error of the operation that failed, or nil
	closed bool
}

// runExclusive runs an operation of a group of size ranks, or returns an error if another
// operation is running. If the operation fails, it calls failed, which notifies the other
// ranks.
func (t *serializer) runExclusive(ctx context.Context, k opKind, b device.Buffer, size int, operation func() error, failed func()) error {
	if !b.OnHost() {
		return fmt.Errorf("%v: the buffer is in GPU memory, but this group exchanges host memory", k)
	}
	if !t.busy.CompareAndSwap(false, true) {
		return fmt.Errorf("%v: another operation of this group is running: use a group from one goroutine at a time", k)
	}
	defer t.busy.Store(false)
	switch {
	case t.closed:
		return fmt.Errorf("%v: the group is closed", k)
	case t.broken != nil:
		return fmt.Errorf("%v: the group stopped after an earlier error: %w", k, t.broken)
	}
	if ctx.Err() != nil {
		// The other ranks will wait for this one, although it has not announced the call.
		t.broken = fmt.Errorf("%v %d: %w", k, t.number+1, context.Cause(ctx))
		failed()
		return t.broken
	}
	if size == 1 {
		return nil
	}
	t.number++
	t.what = fmt.Sprintf("%v %d", k, t.number)
	if t.broken = operation(); t.broken != nil {
		failed()
	}
	return t.broken
}

// closeOnce closes the group by calling release. Further calls do nothing.
func (t *serializer) closeOnce(release func() error) error {
	if !t.busy.CompareAndSwap(false, true) {
		return errors.New("close group: an operation is still running: end its context and wait for it first")
	}
	defer t.busy.Store(false)
	if t.closed {
		return nil
	}
	t.closed = true
	return release()
}

// callSignature encodes an operation's kind, element size and root in one number. Two calls
// match if their signatures and lengths are equal.
func callSignature(k opKind, b device.Buffer, root int) uint64 {
	element := uint64(4)
	if b.F64 != nil {
		element = 8
	}
	return uint64(k) | element<<8 | uint64(root)<<16
}

// formatCall describes a call of a collective operation, given its signature and length,
// such as "all-reduce of 8 float32".
func formatCall(what, length uint64) string {
	k := opKind(what)
	if k == kindBarrier || k == 0 {
		return k.String()
	}
	text := fmt.Sprintf("%v of %d float%d", k, length, 8*(what>>8&0xff))
	if k == kindBroadcast {
		text += fmt.Sprintf(" from rank %d", what>>16)
	}
	return text
}

// formatLastCall describes the last operation of a rank, given its number and signature;
// number 0 means that there was none.
func formatLastCall(number, what uint64) string {
	if number == 0 {
		return "not seen in any operation"
	}
	return fmt.Sprintf("last seen in %v %d", opKind(what), number)
}
