package collective

import (
	"net"
	"sync"
	"time"
)

// sender writes frames to the next rank of a ring on a goroutine of its own,
// so that a rank adds what it got while what it sends is under way.
type sender struct {
	conn   net.Conn
	failed func() // called once, when writing fails
	exited chan struct{}
	// progress has an element when something was written since it was emptied.
	progress chan struct{}

	mu      sync.Mutex
	changed sync.Cond
	queue   []outgoing
	writing bool
	pieces  int // frames of numbers queued since the sender began …
	written int // … and written
	err     error
	closed  bool
}

type outgoing struct {
	header  [frameBytes]byte
	payload []byte // belongs to the sender until it is written
}

// batchFrames bounds the frames of one system call: what was written is known
// only after it.
const batchFrames = 4

func newSender(conn net.Conn, failed func()) *sender {
	s := &sender{conn: conn, failed: failed, exited: make(chan struct{}), progress: make(chan struct{}, 1)}
	s.changed.L = &s.mu
	go s.run()
	return s
}

// put queues a frame; after an error it is dropped.
func (s *sender) put(f frame, payload []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil || s.closed {
		return
	}
	s.queue = append(s.queue, outgoing{f.encode(), payload})
	if len(payload) > 0 {
		s.pieces++
	}
	s.changed.Signal()
}

func (s *sender) run() {
	defer close(s.exited)
	s.mu.Lock()
	defer s.mu.Unlock()
	batch := make([]outgoing, 0, batchFrames)
	for {
		for len(s.queue) == 0 {
			if s.closed {
				return
			}
			s.changed.Wait()
		}
		n := min(batchFrames, len(s.queue))
		batch = append(batch[:0], s.queue[:n]...)
		s.queue = append(s.queue[:0], s.queue[n:]...)
		s.writing = true
		s.mu.Unlock()
		err := write(s.conn, batch)
		s.mu.Lock()
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

// write writes frames in as few system calls as there may be.
func write(conn net.Conn, batch []outgoing) error {
	parts := make(net.Buffers, 0, 2*batchFrames)
	for i := range batch {
		parts = append(parts, batch[i].header[:])
		if len(batch[i].payload) > 0 {
			parts = append(parts, batch[i].payload)
		}
	}
	_, err := parts.WriteTo(conn)
	return err
}

// done says whether n pieces are written, and with all whether every frame is.
func (s *sender) done(n int, all bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.written >= n && (!all || len(s.queue) == 0 && !s.writing)
}

func (s *sender) queued() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pieces
}

func (s *sender) error() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// farewellTime is how long a rank that leaves tries to say so.
const farewellTime = 200 * time.Millisecond

// close says f as the last thing, gives the next rank a moment to take it, and
// ends the connection. When it returns nobody reads the payloads any more.
func (s *sender) close(f frame) error {
	s.put(f, nil)
	s.mu.Lock()
	s.closed = true
	s.changed.Signal()
	s.mu.Unlock()
	// A connection that cannot take a deadline is closed, which ends the write.
	if err := s.conn.SetWriteDeadline(time.Now().Add(farewellTime)); err != nil {
		_ = s.conn.Close()
	}
	<-s.exited
	return s.conn.Close()
}
