package wire

import (
	"net"
	"sync"
	"time"
)

// Sender writes frames to another rank in a separate goroutine, so that a rank can receive
// and add while it sends.
type Sender struct {
	Conn   net.Conn
	failed func() // called once, when writing fails
	exited chan struct{}
	// progress receives an element after every write. Its capacity is 1, so an element
	// means that frames were written since the last receive.
	progress chan struct{}

	mu      sync.Mutex
	changed sync.Cond
	queue   []outgoingFrame
	writing bool
	pieces  int    // pieces that were queued since the sender was created
	written int    // pieces that were written
	bytes   uint64 // bytes of frames that were written, with their headers
	err     error
	closed  bool
}

type outgoingFrame struct {
	header  [EncodedFrameBytes]byte
	payload []byte // belongs to the sender until it is written
}

// maxFramesPerWrite limits the number of frames that one system call writes, because progress
// is known only after the call.
const maxFramesPerWrite = 4

// NewSender returns a Sender that writes to conn. It calls failed once if a write fails. Close also
// closes conn.
func NewSender(conn net.Conn, failed func()) *Sender {
	s := &Sender{Conn: conn, failed: failed, exited: make(chan struct{}), progress: make(chan struct{}, 1)}
	s.changed.L = &s.mu
	go s.run()
	return s
}

// Enqueue appends a frame to the queue. It drops the frame if an earlier frame could not be
// written or the sender is closed.
func (s *Sender) Enqueue(f Frame, payload []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil || s.closed {
		return
	}
	s.queue = append(s.queue, outgoingFrame{f.Encode(), payload})
	if len(payload) > 0 {
		s.pieces++
	}
	s.changed.Signal()
}

func (s *Sender) run() {
	defer close(s.exited)
	s.mu.Lock()
	defer s.mu.Unlock()
	batch := make([]outgoingFrame, 0, maxFramesPerWrite)
	for {
		for len(s.queue) == 0 {
			if s.closed {
				return
			}
			s.changed.Wait()
		}
		n := min(maxFramesPerWrite, len(s.queue))
		batch = append(batch[:0], s.queue[:n]...)
		s.queue = append(s.queue[:0], s.queue[n:]...)
		s.writing = true
		s.mu.Unlock()
		n64, err := writeFrames(s.Conn, batch)
		s.mu.Lock()
		s.bytes += uint64(n64)
		s.writing = false
		for _, o := range batch {
			if len(o.payload) > 0 {
				s.written++
			}
		}
		if err != nil {
			first := s.err == nil
			s.err, s.queue, s.written = err, nil, s.pieces
			if first && !s.closed {
				s.failed()
			}
		}
		select {
		case s.progress <- struct{}{}:
		default:
		}
	}
}

// WrittenBytes returns the number of bytes that were written to the connection.
func (s *Sender) WrittenBytes() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bytes
}

// writeFrames uses as few system calls as possible, and returns the number of bytes.
func writeFrames(conn net.Conn, batch []outgoingFrame) (int64, error) {
	parts := make(net.Buffers, 0, 2*maxFramesPerWrite)
	for i := range batch {
		parts = append(parts, batch[i].header[:])
		if len(batch[i].payload) > 0 {
			parts = append(parts, batch[i].payload)
		}
	}
	return parts.WriteTo(conn)
}

// hasWrittenPieces reports whether the first n pieces have been written. If complete is true, every
// queued frame must have been written too.
func (s *Sender) hasWrittenPieces(n int, complete bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.written >= n && (!complete || len(s.queue) == 0 && !s.writing)
}

// WaitForPieces waits until hasWrittenPieces returns true for n and complete, or writing has failed. It calls
// progressed after each write, and check every WaitCheckInterval; an error of check ends the wait.
func (s *Sender) WaitForPieces(n int, complete bool, progressed func(), check func() error) error {
	if s.hasWrittenPieces(n, complete) {
		return nil
	}
	timer := time.NewTicker(WaitCheckInterval)
	defer timer.Stop()
	for !s.hasWrittenPieces(n, complete) {
		select {
		case <-s.progress:
			progressed()
		case <-timer.C:
			if err := check(); err != nil {
				return err
			}
		}
	}
	return nil
}

// QueuedPieces returns the number of pieces queued so far, written or not.
func (s *Sender) QueuedPieces() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pieces
}

// LastError returns the error of the last write that failed, or nil.
func (s *Sender) LastError() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// CloseTimeout limits how long a rank that leaves the group tries to send its last frame.
const CloseTimeout = 200 * time.Millisecond

// Close sends f as the last frame, waits at most CloseTimeout until it is written, and
// closes the connection. After Close returns, the payloads are no longer read.
func (s *Sender) Close(f Frame) error {
	s.Enqueue(f, nil)
	s.mu.Lock()
	s.closed = true
	s.changed.Signal()
	s.mu.Unlock()
	// Without a deadline, only closing the connection ends the write.
	if err := s.Conn.SetWriteDeadline(time.Now().Add(CloseTimeout)); err != nil {
		_ = s.Conn.Close()
	}
	<-s.exited
	return s.Conn.Close()
}
