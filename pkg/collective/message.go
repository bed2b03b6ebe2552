package collective

import (
	"context"
	"fmt"
	"time"

	"lockstep/pkg/collective/internal/numbers"
	"lockstep/pkg/collective/internal/wire"
	"lockstep/pkg/internal/device"
)

// message is one call of Send or Recv, or the part of a scheduled operation that concerns one
// other rank. Messages from one rank to another are numbered from 1 on both sides, and arrive
// in order.
type message struct {
	kind    opKind     // kindSend, kindReceive, or the kind of the scheduled operation
	peer    int        // the other rank
	what    string     // such as "receive 3 from rank 1"
	header  wire.Frame // what Send sends before the payload, and Recv expects
	payload []byte     // the memory of the buffer
	note    wire.Frame // reports the failure of this call to the other ranks
}

type peerCalls struct {
	running bool
	number  uint64 // calls so far
}

// hostMemory returns the bytes of b, which must be in host memory.
func hostMemory(b device.Buffer) []byte {
	if b.F64 != nil {
		return numbers.AsBytes(b.F64)
	}
	return numbers.AsBytes(b.F32)
}

// runMessage runs a call of Send or Recv. operation exchanges the message. If the group has failed,
// runMessage calls notify, which notifies the other ranks. It leaves that to a running collective
// operation if there is one.
func (t *serializer) runMessage(ctx context.Context, k opKind, b device.Buffer, rank, size, peer int, operation func(*message) error, notify func()) error {
	if err := checkOnHost(k, b); err != nil {
		return err
	}
	if peer < 0 || peer >= size || peer == rank {
		return fmt.Errorf("%v: invalid rank %d: use the rank of another worker, from 0 to %d, but not this worker's rank %d", k, peer, size-1, rank)
	}
	m, err := t.beginMessage(k, b, rank, size, peer)
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		err = fmt.Errorf("%s: %w", m.what, context.Cause(ctx))
	} else {
		err = operation(m)
	}
	if err != nil {
		// The other rank may have left because another operation of this rank failed.
		if first := t.checkGroupFailure(m.what); first != nil {
			err = first
		}
	}
	if t.recordMessageFailure(m, err) {
		notify()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.calls--
	t.peerCallsOf(k, size)[peer].running = false
	return err
}

// peerCallsOf returns the calls of kind k for each other rank. The caller has locked mu.
func (t *serializer) peerCallsOf(k opKind, size int) []peerCalls {
	p := &t.peers[k-kindSend]
	if *p == nil {
		*p = make([]peerCalls, size)
	}
	return *p
}

// beginMessage begins a call of Send or Recv. It returns an error if the group is closed or
// broken, or the same call for the same rank is running.
func (t *serializer) beginMessage(k opKind, b device.Buffer, rank, size, peer int) (*message, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.checkGroupUsable(k); err != nil {
		return nil, err
	}
	p := &t.peerCallsOf(k, size)[peer]
	preposition, sender := "to", rank
	if k == kindReceive {
		preposition, sender = "from", peer
	}
	if p.running {
		return nil, fmt.Errorf("%v: another %v %s rank %d is running: wait for it first, so that the order of the messages is known", k, k, preposition, peer)
	}
	p.running = true
	p.number++
	t.calls++
	return &message{
		kind: k, peer: peer, payload: hostMemory(b),
		what:   fmt.Sprintf("%v %d %s rank %d", k, p.number, preposition, peer),
		header: wire.Frame{Kind: wire.KindMessage, Rank: sender, Number: p.number, What: callSignature(kindSend, b, 0), Length: uint64(b.Len())},
		note:   wire.Frame{Kind: wire.KindNote, State: wire.NoteFailed, Rank: rank, Number: p.number, What: uint64(k)},
	}, nil
}

// recordMessageFailure records err, the error of a call of Send or Recv, as the error of the group,
// unless err is nil. It returns true if the caller must notify the other ranks.
func (t *serializer) recordMessageFailure(m *message, err error) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil && t.broken == nil {
		t.broken = err
		t.reason = &m.note
	}
	notify := t.broken != nil && !t.running && !t.notified
	t.notified = t.notified || notify
	return notify
}

// newFailureNote returns the note to send to the other ranks if a call of Send or Recv has broken
// this group, and otherwise nil.
func (t *serializer) newFailureNote() *wire.Frame {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.reason
}

// checkHeader returns an error if got, the header of an arrived message, does not match this call
// of Recv: the buffer must have the same number and type of elements.
func (m *message) checkHeader(got wire.Frame) error {
	if got.Kind != wire.KindMessage || got.Number != m.header.Number || got.Rank != m.header.Rank {
		return fmt.Errorf("%s: an unexpected frame arrived (kind %d, number %d, of rank %d): the connection is damaged or used by another program", m.what, got.Kind, got.Number, got.Rank)
	}
	if got.What != m.header.What || got.Length != m.header.Length {
		return fmt.Errorf("%s: the message has %s, the buffer has %s: use the same number and type of elements on both ranks",
			m.what, formatElements(got.What, got.Length), formatElements(m.header.What, m.header.Length))
	}
	return nil
}

// checkRankWait returns an error if ctx has ended, or the other rank has made no progress for
// timeout. seen describes its last operation.
func (m *message) checkProgress(ctx context.Context, waited, timeout time.Duration, seen string) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w while waiting for rank %d (%s)", m.what, context.Cause(ctx), m.peer, seen)
	}
	if waited < timeout {
		return nil
	}
	missing := "arrive"
	switch m.kind {
	case kindSend:
		missing = "receive it"
	case kindReceive:
		missing = "send it"
	default: // other ranks may wait for this one
		m.note = wire.Frame{Kind: wire.KindNote, State: wire.NoteMissing, Rank: m.peer, Number: m.header.Number, What: m.header.What}
	}
	return fmt.Errorf("%s: rank %d (%s) did not %s within %v", m.what, m.peer, seen, missing, timeout)
}
