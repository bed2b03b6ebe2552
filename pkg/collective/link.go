package collective

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"

	"lockstep/pkg/collective/internal/wire"
	"lockstep/pkg/internal/device"
	"lockstep/pkg/internal/process"
)

// peerLink is a connection to another rank, in both directions, for Send and Recv or for scheduled
// operations.
type peerLink struct {
	conn   net.Conn
	out    *wire.Sender
	mu     sync.Mutex // locked by the call that reads
	reader *bufio.Reader
}

// newLinks returns nil for connections that are nil.
func newLinks(conns []net.Conn) []*peerLink {
	links := make([]*peerLink, len(conns))
	for i, conn := range conns {
		if conn != nil {
			links[i] = &peerLink{conn: conn, out: wire.NewSender(conn, func() {}), reader: bufio.NewReaderSize(conn, wire.ReaderBufferBytes)}
		}
	}
	return links
}

// failureNoteError returns the error for an operation that ends because of the note f, which reports
// that a rank has failed or left the group. The error names the operation, what.
func failureNoteError(what string, f wire.Frame) error {
	seen := formatLastCall(f.Number, f.What)
	switch f.State {
	case wire.NoteClosed:
		return fmt.Errorf("%s: rank %d %w (%s)", what, f.Rank, ErrRankLeft, seen)
	case wire.NoteMissing:
		return fmt.Errorf("%s: rank %d is missing (%s)", what, f.Rank, seen)
	case wire.NoteGone:
		return fmt.Errorf("%s: rank %d is gone: its connection has ended (%s)", what, f.Rank, seen)
	}
	return fmt.Errorf("%s: rank %d %w (%s); see the error message of that rank", what, f.Rank, ErrRankFailed, seen)
}

// Send implements Group.
func (r *Ring) Send(ctx context.Context, b device.Buffer, to int) error {
	return r.runMessage(ctx, kindSend, b, r.rank, r.size, to, func(m *message) error {
		l := r.links[to]
		l.out.Enqueue(m.header, m.payload)
		var idle process.Stopwatch
		err := l.out.WaitForPieces(0, true, func() { idle = process.Stopwatch{} }, r.newMessageCheck(ctx, m, &idle))
		if err == nil && l.out.LastError() != nil {
			err = r.findSendFailure(l, m)
		}
		if err == nil { // otherwise the link may have been closed before it was sent
			err = r.checkGroupFailure(m.what)
		}
		if err != nil {
			_ = l.out.Close(m.note) // the payload is the caller's again
		}
		return err
	}, r.notifyFailure)
}

// Recv implements Group.
func (r *Ring) Recv(ctx context.Context, b device.Buffer, from int) error {
	return r.runMessage(ctx, kindReceive, b, r.rank, r.size, from, func(m *message) error {
		l := r.links[from]
		l.mu.Lock()
		defer l.mu.Unlock()
		got, err := r.readHeader(ctx, l, m)
		if err != nil {
			return err
		}
		if err := m.checkHeader(got); err != nil {
			return err
		}
		return r.readLink(ctx, l, m, m.payload)
	}, r.notifyFailure)
}

// newMessageCheck returns a function that returns nil as long as m may go on waiting. idle
// measures the time since the other rank last made progress.
func (r *Ring) newMessageCheck(ctx context.Context, m *message, idle *process.Stopwatch) func() error {
	return func() error {
		if err := r.checkGroupFailure(m.what); err != nil {
			return err
		}
		timeout := r.options.Timeout
		if m.kind == kindAllReduce && m.header.Number == r.number {
			timeout += calledRankGracePeriod
		}
		return m.checkProgress(ctx, idle.Elapsed(), timeout, r.describePeer(m))
	}
}

// describePeer describes what this rank knows of the other rank's last operation.
func (r *Ring) describePeer(m *message) string {
	if m.kind != kindSend && m.kind != kindReceive {
		return formatLastCall(m.header.Number, m.header.What)
	}
	if m.header.Number < 2 {
		return formatLastCall(0, 0)
	}
	last := kindSend // what the other rank did when this one received from it
	if m.kind == kindSend {
		last = kindReceive
	}
	return formatLastCall(m.header.Number-1, uint64(last))
}

// readLink receives len(p) bytes. The caller has locked the link.
func (r *Ring) readLink(ctx context.Context, l *peerLink, m *message, p []byte) error {
	var idle process.Stopwatch
	err := wire.ReadFull(l.conn, l.reader, p, func() { idle = process.Stopwatch{} }, r.newMessageCheck(ctx, m, &idle))
	if errors.Is(err, wire.ErrConnectionEnded) {
		return r.recordPeerGone(m)
	}
	return err
}

// readHeader receives the header of a message. If a note arrives instead, which reports that a rank
// has failed or left the group, readHeader returns an error. The caller has locked the link.
func (r *Ring) readHeader(ctx context.Context, l *peerLink, m *message) (wire.Frame, error) {
	var header [wire.EncodedFrameBytes]byte
	if err := r.readLink(ctx, l, m, header[:]); err != nil {
		return wire.Frame{}, err
	}
	f := wire.DecodeFrame(header[:])
	if f.Kind != wire.KindNote {
		return f, nil
	}
	if f.Rank != r.rank {
		m.note = f
	} else { // the other rank has lost the connection to this rank, and left
		f = wire.Frame{Kind: wire.KindNote, State: wire.NoteFailed, Rank: m.peer}
	}
	return f, failureNoteError(m.what, f)
}

// recordPeerGone records that the connection of m has ended, and returns this as an error.
func (r *Ring) recordPeerGone(m *message) error {
	m.note = wire.Frame{Kind: wire.KindNote, State: wire.NoteGone, Rank: m.peer}
	return fmt.Errorf("%s: rank %d is gone: its connection has ended (%s)", m.what, m.peer, r.describePeer(m))
}

func payloadBytes(f wire.Frame) uint64 {
	switch f.Kind {
	case wire.KindNumbers:
		return f.Length
	case wire.KindMessage:
		return f.Length * elementBytes(f.What)
	}
	return 0
}

// findSendFailure returns the error for bytes that can no longer be sent. For graceTime it waits
// for a note that states the cause, unless a Recv is reading; without one, the error says that the
// other rank is gone. Data before the note are dropped, since the group has failed.
func (r *Ring) findSendFailure(l *peerLink, m *message) error {
	if !l.mu.TryLock() {
		return r.recordPeerGone(m)
	}
	defer l.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), graceTime)
	defer cancel()
	buffer := make([]byte, wire.ReaderBufferBytes)
	for {
		f, err := r.readHeader(ctx, l, m)
		if f.Kind == wire.KindNote {
			return err
		}
		for left := payloadBytes(f); err == nil && left > 0; {
			n := min(left, uint64(len(buffer)))
			err = r.readLink(ctx, l, m, buffer[:n])
			left -= n
		}
		if err != nil {
			return r.recordPeerGone(m)
		}
	}
}

func (r *Ring) closeLinks(note wire.Frame) error {
	links := slices.Concat(r.links, r.scheduled)
	errs := make([]error, len(links))
	var wg sync.WaitGroup
	for i, l := range links {
		if l != nil {
			wg.Go(func() { errs[i] = l.out.Close(note) })
		}
	}
	wg.Wait()
	return errors.Join(errs...)
}
